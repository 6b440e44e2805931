#!/usr/bin/env bash
# Installs the binary and the links through which mount(8) and fstab find it:
#   mount -t fuse.extfused IMAGE DIR -o OPTIONS
#
# scripts/install.sh [--uninstall]
#
# PREFIX   default /usr/local: the binary goes to PREFIX/sbin
# SBINDIR  default /sbin: where mount(8) looks for mount.fuse.extfused
# DESTDIR  default empty: prepended to both, for packaging
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local} sbin=${SBINDIR:-/sbin} dest=${DESTDIR:-}
links="mount.fuse.extfused mount.extfused"

if [ "${1:-}" = --uninstall ]; then
	for l in $links; do
		if [ -L "$dest$sbin/$l" ]; then rm "$dest$sbin/$l"; fi
	done
	rm -f "$dest$prefix/sbin/extfused"
	exit 0
fi

[ -x bin/extfused ] || CGO_ENABLED=0 go build -o bin/extfused ./cmd/extfused
install -D -m 0755 bin/extfused "$dest$prefix/sbin/extfused"
mkdir -p "$dest$sbin"
for l in $links; do
	if [ -e "$dest$sbin/$l" ] && [ ! -L "$dest$sbin/$l" ]; then
		echo "$dest$sbin/$l exists and is not a link: left alone" >&2
		exit 1
	fi
	ln -sfn "$prefix/sbin/extfused" "$dest$sbin/$l"
done
echo "Installed $dest$prefix/sbin/extfused; links in $dest$sbin: $links"
