#!/usr/bin/env bash
# Installs the programs that the tests use, if they are missing: as root on
# Debian or Ubuntu through apt-get, else it says what to install.
#
# scripts/setup-test-deps.sh [--all]
#
# --all also installs what single tests and the benchmark use: promtool (package
# prometheus), fuse2fs, PostgreSQL, and Debian's kernel source as a tree to unpack.
# Nothing missing: prints nothing and exits with 0. Tests skip, saying so, when
# a program is not there.
set -euo pipefail

all=no
[ "${1:-}" = --all ] && all=yes

# program:package
wanted="sfdisk:fdisk mke2fs:e2fsprogs debugfs:e2fsprogs e2fsck:e2fsprogs fio:fio fusermount3:fuse3 setfattr:attr setfacl:acl
	mount:mount losetup:mount xz:xz-utils tar:tar diff:diffutils gcc:gcc
	git:git sqlite3:sqlite3 rsync:rsync stress-ng:stress-ng bonnie++:bonnie++ dbench:dbench"
extra="promtool:prometheus fuse2fs:fuse2fs initdb:postgresql pgbench:postgresql"

PATH=$PATH:/usr/sbin:/sbin
missing() {
	local pair
	for pair in "$@"; do
		command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
	done | sort -u | tr '\n' ' '
}

# shellcheck disable=SC2086 # lists of words
need=$(missing $wanted)
# gcc alone compiles nothing: the race detector's runtime needs libc's headers.
[ -e /usr/include/stdlib.h ] || need="$need libc6-dev"
if [ $all = yes ]; then
	# shellcheck disable=SC2086
	need="$need$(missing $extra)"
	[ -n "${EXTFUSED_TAR:-}" ] || [ -e /usr/src/linux-source-6.1.tar.xz ] || need="$need linux-source-6.1"
fi
need=$(echo $need)
[ -n "$need" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "Missing for the tests: $need"
	echo "As root: apt-get install --no-install-recommends $need"
	echo "Tests that need them are skipped."
	exit 0
fi

export DEBIAN_FRONTEND=noninteractive
echo "Installing for the tests: $need"
apt-get update -qq || echo "apt-get update failed; trying with the lists that are there"
for package in $need; do
	apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
		echo "Could not install $package: tests that need it are skipped."
done
