#!/bin/sh
# Makes the golden images of this directory again: the exact mke2fs, debugfs
# and e2fsck lines behind each of them. Needs e2fsprogs 1.47.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

mkdir -p "$tmp/tree/many"
for i in $(seq 1 400); do : > "$tmp/tree/many/a-name-of-some-length-$i"; done
# Every second 4 KiB block is a hole: more extents than an inode holds.
for i in $(seq 0 2 40); do printf x | dd of="$tmp/tree/holes" bs=4096 seek="$i" conv=notrunc status=none; done
ln -s /a/target "$tmp/tree/fast"
mknod "$tmp/tree/null" c 1 3
mknod "$tmp/tree/far" b 300 70000
head -c 700 /dev/zero | tr '\0' v > "$tmp/value"

fill() { # IMAGE: extended attributes of a block's size, hash trees
	debugfs -w -R "ea_set -f $tmp/value /holes user.big" "$1" >/dev/null 2>&1
	rc=0; e2fsck -fyD "$1" >/dev/null 2>&1 || rc=$?
	[ "$rc" -le 1 ]
	e2fsck -fn "$1" >/dev/null
}

mk() { # NAME SIZE MKE2FS-ARGUMENTS...
	name=$1 size=$2
	shift 2
	truncate -s "$size" "$tmp/$name"
	mke2fs -q -F -U 00112233-4455-6677-8899-aabbccddeeff -E hash_seed=01234567-89ab-cdef-0123-456789abcdef,lazy_itable_init=1 \
		"$@" -d "$tmp/tree" "$tmp/$name"
	fill "$tmp/$name"
	gzip -9nc "$tmp/$name" > "$name.gz"
}

mk ext4-4k.img 8M -t ext4 -b 4096 -N 512
mk ext4-1k.img 12M -t ext4 -b 1024 -N 768 -g 2048 -O mmp,orphan_file,metadata_csum_seed,meta_bg,^resize_inode
mk ext4-64k.img 16M -t ext4 -b 65536 -N 512
mk ext4-gdtcsum.img 12M -t ext4 -b 1024 -N 768 -O ^metadata_csum,uninit_bg,^64bit
mk ext3.img 8M -t ext3 -b 1024 -I 128 -N 512
