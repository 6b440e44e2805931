// Package ondisk holds every structure that ext4 keeps on disk, with its
// checksums. It imports the standard library only, takes no lock and does no
// I/O: Decode and Encode work on byte slices.
//
// Facts come from the kernel's Documentation/filesystems/ext4 and from what
// mke2fs, dumpe2fs and debugfs print.
package ondisk

// FsBlock is a physical block number in the file system, in units of the
// block size, counted from the start of the image.
type FsBlock uint64

// LBlock is a logical block number inside a file, in units of the block size.
type LBlock uint32

// GrpBlock is a block number relative to the first block of its group.
type GrpBlock uint32

// GroupNumber is the number of a block group, from 0.
type GroupNumber uint32

// InodeNumber is the number of an inode, from 1; 0 means none.
type InodeNumber uint32
