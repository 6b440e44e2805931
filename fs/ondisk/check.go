package ondisk

import (
	"fmt"
	"math/bits"
)

// Check tells what in the superblock cannot be right, in one line, so that
// everything computed from it afterwards stays within the image: block size,
// groups, descriptors, inode tables. deviceSize is the size of the image in
// bytes; 0 leaves it out. It says nothing about features that are unknown.
func (s *SuperBlock) Check(deviceSize int64) error {
	for _, check := range []func() error{s.checkSizes, s.checkGroups, s.checkInodes, s.checkBlocks} {
		if err := check(); err != nil {
			return err
		}
	}
	if need := s.Blocks() << s.BlockBits(); deviceSize > 0 && need > uint64(deviceSize) {
		return fmt.Errorf("%w: %d blocks of %d bytes need %d bytes, it has %d",
			ErrTruncated, s.Blocks(), s.BlockSize(), need, deviceSize)
	}
	return nil
}

func (s *SuperBlock) checkSizes() error {
	if s.Magic != SuperMagic {
		return ErrNotExt4
	}
	if s.RevLevel > RevDynamic {
		return Corrupt("superblock: revision %d is unknown", s.RevLevel)
	}
	if s.LogBlockSize > 6 {
		return Corrupt("superblock: block size 2^(10+%d) is out of range (1024 to 65536)", s.LogBlockSize)
	}
	if err := s.checkCluster(); err != nil {
		return err
	}
	if n := s.InodeBytes(); n < GoodOldInodeSize || n > s.BlockSize() || n&(n-1) != 0 {
		return Corrupt("superblock: inode size %d is out of range (128 to %d, a power of two)", n, s.BlockSize())
	}
	if n := s.DescSize(); s.HasIncompat(Incompat64Bit) && (n < MinDescSize64 || n > 1024 || n&(n-1) != 0) {
		return Corrupt("superblock: group descriptor size %d is out of range (64 to 1024, a power of two)", n)
	}
	if s.HasROCompat(ROCompatMetadataCsum) && s.ChecksumType != ChecksumCRC32C {
		return Corrupt("superblock: checksum type %d is unknown", s.ChecksumType)
	}
	return nil
}

func (s *SuperBlock) checkCluster() error {
	if !s.HasROCompat(ROCompatBigalloc) {
		if s.ClustersPerGroup != s.BlocksPerGroup {
			return Corrupt("superblock: %d clusters and %d blocks per group, without bigalloc", s.ClustersPerGroup, s.BlocksPerGroup)
		}
		if s.LogClusterSize != s.LogBlockSize {
			return Corrupt("superblock: cluster size 2^(10+%d) is not the block size, without bigalloc", s.LogClusterSize)
		}
		return nil
	}
	if s.LogClusterSize < s.LogBlockSize || s.LogClusterSize > 20 {
		return Corrupt("superblock: cluster size 2^(10+%d) is out of range", s.LogClusterSize)
	}
	if uint64(s.ClustersPerGroup)<<s.ClusterBits() != uint64(s.BlocksPerGroup) {
		return Corrupt("superblock: %d clusters and %d blocks per group do not go together", s.ClustersPerGroup, s.BlocksPerGroup)
	}
	return nil
}

func (s *SuperBlock) checkGroups() error {
	room := uint32(8 * s.BlockSize())
	if s.ClustersPerGroup == 0 || s.BlocksPerGroup == 0 || s.ClustersPerGroup > room || s.ClustersPerGroup%8 != 0 {
		return Corrupt("superblock: %d clusters per group is out of range (8 to %d)", s.ClustersPerGroup, room)
	}
	if s.InodesPerGroup == 0 || s.InodesPerGroup > room {
		return Corrupt("superblock: %d inodes per group is out of range (1 to %d)", s.InodesPerGroup, room)
	}
	if uint64(s.InodeTableBlocksPerGroup())+2 > uint64(s.BlocksPerGroup)*uint64(s.FlexSize()) {
		return Corrupt("superblock: inode tables of %d blocks do not fit groups of %d", s.InodeTableBlocksPerGroup(), s.BlocksPerGroup)
	}
	if s.HasIncompat(IncompatFlexBG) && s.LogGroupsPerFlex > 31 {
		return Corrupt("superblock: flex group size 2^%d is out of range", s.LogGroupsPerFlex)
	}
	return nil
}

func (s *SuperBlock) checkBlocks() error {
	first := uint32(0)
	if s.BlockSize() == 1024 && s.ClusterBits() == 0 {
		first = 1
	}
	if s.FirstDataBlock != first {
		return Corrupt("superblock: first data block is %d, it must be %d", s.FirstDataBlock, first)
	}
	blocks := s.Blocks()
	if blocks <= uint64(first) || bits.Len64(blocks)+int(s.BlockBits()) > 63 {
		return Corrupt("superblock: %d blocks of %d bytes is out of range", blocks, s.BlockSize())
	}
	groups := (blocks - uint64(first) + uint64(s.BlocksPerGroup) - 1) / uint64(s.BlocksPerGroup)
	if groups > 1<<32-1 {
		return Corrupt("superblock: %d groups are too many", groups)
	}
	if inodes := groups * uint64(s.InodesPerGroup); inodes != uint64(s.InodesCount) {
		return Corrupt("superblock: %d inodes, but %d groups of %d inodes", s.InodesCount, groups, s.InodesPerGroup)
	}
	if s.FreeBlocks()>>s.ClusterBits() > blocks>>s.ClusterBits()+1 || s.ReservedBlocks() > blocks {
		return Corrupt("superblock: %d free blocks and %d reserved ones, of %d blocks", s.FreeBlocks(), s.ReservedBlocks(), blocks)
	}
	return s.checkDescs()
}

func (s *SuperBlock) checkDescs() error {
	n := uint64(s.DescBlocks())
	if s.HasIncompat(IncompatMetaBG) {
		if uint64(s.FirstMetaBG) > n {
			return Corrupt("superblock: first meta block group %d, of %d descriptor blocks", s.FirstMetaBG, n)
		}
		n = uint64(s.FirstMetaBG)
	}
	if uint64(s.SuperBlockOf(0))+n >= s.Blocks() {
		return Corrupt("superblock: %d blocks of group descriptors, of %d blocks", n, s.Blocks())
	}
	if int(s.ReservedGDTBlocks) > s.BlockSize()/4 {
		return Corrupt("superblock: %d reserved descriptor blocks are too many", s.ReservedGDTBlocks)
	}
	return nil
}

func (s *SuperBlock) checkInodes() error {
	if f := s.FirstInode(); f < GoodOldFirstIno || uint32(f) > s.InodesCount {
		return Corrupt("superblock: first inode %d, of %d inodes", f, s.InodesCount)
	}
	return nil
}
