package journal

import "extfused/blockdev"

// A log on a device of its own begins, like a file system, with 1024 bytes of
// nothing and an ext4 superblock (with the JOURNAL_DEV feature). The journal
// superblock is in the block after that one, and s_first behind it; the blocks
// of the log are numbered as those of the device.
//
//	block size 1024:  0 boot | 1 ext4 superblock | 2 journal superblock | 3 ... log
//	larger:           0 boot + ext4 superblock   | 1 journal superblock | 2 ... log

// ExternalSuperBlock is the block of an external device with the journal
// superblock, for Params.SuperBlock.
func ExternalSuperBlock(blockSize int) uint32 {
	return uint32(1024/blockSize) + 1
}

// ExternalRuns is the place of the log on an external device: all of it.
func ExternalRuns(dev blockdev.Device, blockSize int) []Run {
	blocks := uint64(max(dev.Size(), 0)) / uint64(blockSize)
	return []Run{{Block: 0, Len: uint32(min(blocks, 1<<32-1))}}
}
