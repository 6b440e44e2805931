package ondisk

import "time"

// Features returns the three feature words.
func (s *SuperBlock) Features() Features {
	return Features{CompatFeatures(s.FeatureCompat), IncompatFeatures(s.FeatureIncompat), ROCompatFeatures(s.FeatureROCompat)}
}

// SetFeatures stores the three feature words.
func (s *SuperBlock) SetFeatures(f Features) {
	s.FeatureCompat, s.FeatureIncompat, s.FeatureROCompat = uint32(f.Compat), uint32(f.Incompat), uint32(f.ROCompat)
}

// HasCompat tells whether all bits of f are set.
func (s *SuperBlock) HasCompat(f CompatFeatures) bool { return CompatFeatures(s.FeatureCompat)&f == f }

// HasIncompat tells whether all bits of f are set.
func (s *SuperBlock) HasIncompat(f IncompatFeatures) bool {
	return IncompatFeatures(s.FeatureIncompat)&f == f
}

// HasROCompat tells whether all bits of f are set.
func (s *SuperBlock) HasROCompat(f ROCompatFeatures) bool {
	return ROCompatFeatures(s.FeatureROCompat)&f == f
}

// SetIncompat sets (on) or clears the bits f of s_feature_incompat.
func (s *SuperBlock) SetIncompat(f IncompatFeatures, on bool) {
	s.FeatureIncompat &^= uint32(f)
	if on {
		s.FeatureIncompat |= uint32(f)
	}
}

// SetROCompat sets (on) or clears the bits f of s_feature_ro_compat.
func (s *SuperBlock) SetROCompat(f ROCompatFeatures, on bool) {
	s.FeatureROCompat &^= uint32(f)
	if on {
		s.FeatureROCompat |= uint32(f)
	}
}

// BlockBits is the binary logarithm of the block size.
func (s *SuperBlock) BlockBits() uint { return uint(s.LogBlockSize) + 10 }

// BlockSize is the size of a block in bytes: a power of two, 1024 to 65536
// once Check has passed.
func (s *SuperBlock) BlockSize() int { return 1 << (s.LogBlockSize + 10) }

// ClusterBits is the binary logarithm of the number of blocks in a cluster: 0
// without bigalloc.
func (s *SuperBlock) ClusterBits() uint {
	if !s.HasROCompat(ROCompatBigalloc) || s.LogClusterSize < s.LogBlockSize {
		return 0
	}
	return uint(s.LogClusterSize - s.LogBlockSize)
}

// ClusterSize is the size of an allocation cluster in bytes; without bigalloc
// it is the block size.
func (s *SuperBlock) ClusterSize() int { return s.BlockSize() << s.ClusterBits() }

func (s *SuperBlock) count64(lo, hi uint32) uint64 {
	if s.HasIncompat(Incompat64Bit) {
		return uint64(hi)<<32 | uint64(lo)
	}
	return uint64(lo)
}

// Blocks is the number of blocks of the file system.
func (s *SuperBlock) Blocks() uint64 { return s.count64(s.BlocksCountLo, s.BlocksCountHi) }

// SetBlocks stores the number of blocks.
func (s *SuperBlock) SetBlocks(n uint64) { s.BlocksCountLo, s.BlocksCountHi = uint32(n), uint32(n>>32) }

// FreeBlocks is the number of free blocks. Unlike the count of a group
// descriptor it is in blocks also with bigalloc.
func (s *SuperBlock) FreeBlocks() uint64 {
	return s.count64(s.FreeBlocksCountLo, s.FreeBlocksCountHi)
}

// FreeClusters is FreeBlocks in clusters.
func (s *SuperBlock) FreeClusters() uint64 { return s.FreeBlocks() >> s.ClusterBits() }

// SetFreeClusters stores s_free_blocks_count, given in clusters.
func (s *SuperBlock) SetFreeClusters(n uint64) {
	n <<= s.ClusterBits()
	s.FreeBlocksCountLo, s.FreeBlocksCountHi = uint32(n), uint32(n>>32)
}

// ReservedBlocks is the number of blocks kept for the superuser.
func (s *SuperBlock) ReservedBlocks() uint64 { return s.count64(s.RBlocksCountLo, s.RBlocksCountHi) }

// SetReservedBlocks stores the number of blocks kept for the superuser.
func (s *SuperBlock) SetReservedBlocks(n uint64) {
	s.RBlocksCountLo, s.RBlocksCountHi = uint32(n), uint32(n>>32)
}

// DescSize is the size of a group descriptor in bytes: 32 without the 64bit
// feature, s_desc_size with it.
func (s *SuperBlock) DescSize() int {
	if s.HasIncompat(Incompat64Bit) {
		return int(s.DescSizeRaw)
	}
	return MinDescSize
}

// InodeBytes is the size of an inode in the inode table, in bytes.
func (s *SuperBlock) InodeBytes() int {
	if s.RevLevel == RevGoodOld {
		return GoodOldInodeSize
	}
	return int(s.InodeSize)
}

// FirstInode is the first inode that is not reserved.
func (s *SuperBlock) FirstInode() InodeNumber {
	if s.RevLevel == RevGoodOld {
		return GoodOldFirstIno
	}
	return InodeNumber(s.FirstIno)
}

// Resuid is the user that may use the reserved blocks.
func (s *SuperBlock) Resuid() uint32 { return uint32(s.DefResuidHi)<<16 | uint32(s.DefResuidLo) }

// Resgid is the group that may use the reserved blocks.
func (s *SuperBlock) Resgid() uint32 { return uint32(s.DefResgidHi)<<16 | uint32(s.DefResgidLo) }

// GroupCount is the number of block groups, at least 1 once Check has passed.
func (s *SuperBlock) GroupCount() GroupNumber {
	n := s.Blocks() - uint64(s.FirstDataBlock)
	return GroupNumber((n + uint64(s.BlocksPerGroup) - 1) / uint64(s.BlocksPerGroup))
}

// GroupFirstBlock is the first block of group g.
func (s *SuperBlock) GroupFirstBlock(g GroupNumber) FsBlock {
	return FsBlock(uint64(g)*uint64(s.BlocksPerGroup) + uint64(s.FirstDataBlock))
}

// GroupBlocks is the number of blocks in group g: the last group may be short.
func (s *SuperBlock) GroupBlocks(g GroupNumber) uint32 {
	left := s.Blocks() - uint64(s.GroupFirstBlock(g))
	return uint32(min(left, uint64(s.BlocksPerGroup)))
}

// GroupClusters is the number of clusters in group g.
func (s *SuperBlock) GroupClusters(g GroupNumber) uint32 {
	return (s.GroupBlocks(g) + 1<<s.ClusterBits() - 1) >> s.ClusterBits()
}

// GroupOfBlock is the group that holds blk, and blk's place in it. blk must
// be at least s_first_data_block.
func (s *SuperBlock) GroupOfBlock(blk FsBlock) (GroupNumber, GrpBlock) {
	n := uint64(blk) - uint64(s.FirstDataBlock)
	return GroupNumber(n / uint64(s.BlocksPerGroup)), GrpBlock(n % uint64(s.BlocksPerGroup))
}

// GroupOfInode is the group that holds inode ino, and its index in the
// group's table. ino must not be 0.
func (s *SuperBlock) GroupOfInode(ino InodeNumber) (GroupNumber, uint32) {
	n := uint32(ino) - 1
	return GroupNumber(n / s.InodesPerGroup), n % s.InodesPerGroup
}

// InodesPerBlock is how many inodes fit in a block of the inode table.
func (s *SuperBlock) InodesPerBlock() uint32 { return uint32(s.BlockSize() / s.InodeBytes()) }

// InodeTableBlocksPerGroup is the length of a group's inode table in blocks.
func (s *SuperBlock) InodeTableBlocksPerGroup() uint32 {
	per := s.InodesPerBlock()
	return (s.InodesPerGroup + per - 1) / per
}

// DescPerBlock is how many group descriptors fit in a block.
func (s *SuperBlock) DescPerBlock() uint32 { return uint32(s.BlockSize() / s.DescSize()) }

// DescBlocks is the number of blocks with group descriptors.
func (s *SuperBlock) DescBlocks() uint32 {
	per := s.DescPerBlock()
	return (uint32(s.GroupCount()) + per - 1) / per
}

// HasSuper tells whether group g holds a copy of the superblock (and of the
// descriptors, without meta_bg).
func (s *SuperBlock) HasSuper(g GroupNumber) bool {
	switch {
	case g == 0:
		return true
	case s.HasCompat(CompatSparseSuper2):
		return uint32(g) == s.BackupBGs[0] || uint32(g) == s.BackupBGs[1]
	case g == 1 || !s.HasROCompat(ROCompatSparseSuper):
		return true
	}
	return isPower(uint64(g), 3) || isPower(uint64(g), 5) || isPower(uint64(g), 7)
}

func isPower(n, base uint64) bool {
	p := base
	for p < n {
		p *= base
	}
	return p == n
}

// SuperBlockOf is the block that holds the superblock copy of group g, which
// must have one: the group's first block, save that block 0 of a file system
// of 1 KiB blocks is the boot block also where clusters make the numbering
// start at 0.
func (s *SuperBlock) SuperBlockOf(g GroupNumber) FsBlock {
	if g == 0 && s.BlockSize() == 1024 {
		return 1
	}
	return s.GroupFirstBlock(g)
}

// DescBlock is the block that holds descriptor block i, from 0 to
// DescBlocks()-1, of the primary descriptor table.
func (s *SuperBlock) DescBlock(i uint32) FsBlock {
	if !s.HasIncompat(IncompatMetaBG) || i < s.FirstMetaBG {
		return s.SuperBlockOf(0) + 1 + FsBlock(i)
	}
	g := GroupNumber(i * s.DescPerBlock())
	blk := s.GroupFirstBlock(g)
	if s.HasSuper(g) {
		blk = s.SuperBlockOf(g) + 1
	}
	return blk
}

// FlexSize is the number of groups in a flex group, 1 without flex_bg.
func (s *SuperBlock) FlexSize() uint32 {
	if !s.HasIncompat(IncompatFlexBG) || s.LogGroupsPerFlex > 31 {
		return 1
	}
	return 1 << s.LogGroupsPerFlex
}

// Label is the volume name.
func (s *SuperBlock) Label() string { return cString(s.VolumeName[:]) }

// UnsignedHash tells whether directory hashes take name bytes as unsigned.
func (s *SuperBlock) UnsignedHash() bool { return s.Flags&FlagUnsignedHash != 0 }

func time40(lo uint32, hi uint8) time.Time { return time.Unix(int64(hi)<<32|int64(lo), 0) }

func split40(t time.Time) (lo uint32, hi uint8) {
	sec := min(max(t.Unix(), 0), 1<<40-1)
	return uint32(sec), uint8(sec >> 32)
}

// Mtime is the time of the last mount.
func (s *SuperBlock) Mtime() time.Time { return time40(s.MtimeLo, s.MtimeHi) }

// Wtime is the time of the last write.
func (s *SuperBlock) Wtime() time.Time { return time40(s.WtimeLo, s.WtimeHi) }

// MkfsTime is the time of creation.
func (s *SuperBlock) MkfsTime() time.Time { return time40(s.MkfsTimeLo, s.MkfsTimeHi) }

// Lastcheck is the time of the last fsck.
func (s *SuperBlock) Lastcheck() time.Time { return time40(s.LastcheckLo, s.LastcheckHi) }

// SetMtime stores the time of a mount.
func (s *SuperBlock) SetMtime(t time.Time) { s.MtimeLo, s.MtimeHi = split40(t) }

// SetWtime stores the time of a write.
func (s *SuperBlock) SetWtime(t time.Time) { s.WtimeLo, s.WtimeHi = split40(t) }

// SetMkfsTime stores the time of creation.
func (s *SuperBlock) SetMkfsTime(t time.Time) { s.MkfsTimeLo, s.MkfsTimeHi = split40(t) }

// SetLastcheck stores the time of a check.
func (s *SuperBlock) SetLastcheck(t time.Time) { s.LastcheckLo, s.LastcheckHi = split40(t) }

// SetJournal records an internal journal: its inode's number, and the copy of
// its map and size (s_jnl_blocks) by which e2fsck finds the log when the
// inode is lost.
func (s *SuperBlock) SetJournal(ino InodeNumber, n *Inode) {
	s.JournalInum = uint32(ino)
	s.JnlBackupType = JnlBackupBlocks
	for i := range 15 {
		s.JnlBlocks[i] = le.Uint32(n.Block[4*i:])
	}
	s.JnlBlocks[15], s.JnlBlocks[16] = n.SizeHi, n.SizeLo
}
