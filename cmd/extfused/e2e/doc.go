// Package e2e tests extfused as its users meet it: the built binary, real
// images, real mounts, and three oracles - e2fsck, the kernel's own ext4 on a
// loop device, and a copy of the tree on the host's file system.
//
// The package has tests only. What a machine lacks (/dev/fuse, loop devices,
// root, fio, a source tree's tar) makes a test skip with the reason printed.
//
//	EXTFUSED_BIN   the binary under test; default: built by the tests
//	EXTFUSED_TAR   the tar of a source tree; default: Debian's linux-source-6.1
//	EXTFUSED_FULL  1: the long forms; kills come later, up to 15 s after the mount
//	EXTFUSED_SEED  the seed of random tests, which print it
//	EXTFUSED_OPS   how many operations random tests do
//	EXTFUSED_KILLS how many kill -9 (default 6; `make crash` does 50)
package e2e
