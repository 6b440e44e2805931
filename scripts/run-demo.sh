#!/usr/bin/env bash
# Builds extfused, formats demo.img if there is none, mounts it at ./mnt, and
# unmounts cleanly on Ctrl-C.
#
# IMAGE    default demo.img        SIZE  of a new image, default 2G
# MNT      default ./mnt           METRICS  address, default 127.0.0.1:9464
set -euo pipefail
cd "$(dirname "$0")/.."
image=${IMAGE:-demo.img} mnt=${MNT:-mnt} metrics=${METRICS:-127.0.0.1:9464}

CGO_ENABLED=0 go build -o bin/extfused ./cmd/extfused
if [ ! -e /dev/fuse ]; then
	echo "There is no /dev/fuse here (modprobe fuse, or run the container with it): cannot mount." >&2
	exit 1
fi
[ -e "$image" ] || bin/extfused mkfs "$image" -s "${SIZE:-2G}" -L demo
mkdir -p "$mnt"
bin/extfused mount --metrics "$metrics" "$image" "$mnt"

stop() {
	trap - INT TERM
	echo
	if mountpoint -q "$mnt"; then
		bin/extfused umount "$mnt"
		echo "Unmounted; $image is clean."
	fi
	exit 0
}
trap stop INT TERM

cat <<TEXT
$image is mounted at $mnt. In another terminal, try:

  cp -a /etc $mnt/            fill it
  df -h $mnt                  how much is free
  bin/extfused info $image    what it looks like inside
  curl http://$metrics/metrics    counters; http://$metrics/ in a browser
  bin/extfused sync $mnt      commit now

Ctrl-C here unmounts. Then e2fsck -fn $image, or mount -o loop $image: it is plain ext4.
TEXT
while mountpoint -q "$mnt"; do sleep 1; done
echo "$mnt has been unmounted."
