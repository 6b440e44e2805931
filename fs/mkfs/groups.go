package mkfs

import (
	"fmt"
	"math/bits"

	"extfused/fs/ondisk"
)

// maxClustersPerGroup is the limit of mke2fs: as many clusters as a bitmap
// block has bits, and few enough for 16-bit free counts. Without bigalloc a
// cluster is a block.
func maxClustersPerGroup(blockSize int) uint32 { return min(8*uint32(blockSize), 1<<16-8) }

// grouping divides blocks and inodes into groups. Its numbers depend on each
// other: a short last group that cannot hold its own metadata is cut off, and
// groups shrink until their inodes fit a bitmap block.
type grouping struct {
	sb       *ondisk.SuperBlock
	asked    uint64 // blocks
	reserved uint64 // blocks for the superuser, of those asked for
	inodes   uint64
	resizeTo uint64 // blocks; 0: by size
	backups  int    // with sparse_super2
}

type outcome int

const (
	fits outcome = iota
	manyInodes
	runt
)

// setGroups fills in the geometry of sb. The block size, inode size and
// features must be set.
func setGroups(sb *ondisk.SuperBlock, p *Params) error {
	g := &grouping{sb: sb, asked: uint64(p.Size) / uint64(p.BlockSize), inodes: p.Inodes, resizeTo: p.ResizeTo.Blocks(p.BlockSize), backups: 2}
	if p.Backups != nil {
		g.backups = *p.Backups
	}
	g.reserved = uint64(p.ReservedPercent * float64(g.asked) / 100)
	if g.inodes == 0 {
		g.inodes = min(g.asked*uint64(p.BlockSize)/uint64(p.BytesPerInode), 1<<32-1)
	}
	if g.inodes*uint64(p.InodeSize) >= g.asked*uint64(p.BlockSize) {
		return fmt.Errorf("%d inodes of %d bytes do not fit %d blocks", g.inodes, p.InodeSize, g.asked)
	}
	g.inodes = max(g.inodes, uint64(sb.FirstInode())+1)
	ratio := uint32(1) << sb.ClusterBits()
	sb.ClustersPerGroup = p.BlocksPerGroup
	if p.BlocksPerGroup == 0 {
		sb.ClustersPerGroup = maxClustersPerGroup(p.BlockSize)
	}
	sb.BlocksPerGroup = sb.ClustersPerGroup * ratio
	if g.asked <= uint64(sb.FirstDataBlock) {
		return fmt.Errorf("%d blocks of %d bytes: %w", g.asked, p.BlockSize, ErrTooSmall)
	}
	sb.SetReservedBlocks(g.reserved)
	return g.solve()
}

func (g *grouping) solve() error {
	ratio := uint64(1) << g.sb.ClusterBits()
	g.sb.SetBlocks(g.asked &^ (ratio - 1))
	for {
		o, err := g.attempt()
		if err != nil {
			return err
		}
		switch o {
		case fits:
			return nil
		case manyInodes:
			if g.sb.ClustersPerGroup -= 8; g.sb.ClustersPerGroup < 256 {
				return fmt.Errorf("%d inodes are too many for %d blocks", g.inodes, g.asked)
			}
			g.sb.BlocksPerGroup = g.sb.ClustersPerGroup << g.sb.ClusterBits()
			g.sb.SetBlocks(g.asked &^ (ratio - 1))
		case runt:
			g.cutRunt()
		}
	}
}

// cutRunt leaves the short last group away, and the superuser's part of it.
func (g *grouping) cutRunt() {
	blocks := g.sb.Blocks() - g.tail()
	g.sb.SetBlocks(blocks)
	hi, lo := bits.Mul64(g.reserved, blocks)
	reserved, _ := bits.Div64(hi, lo, g.asked)
	g.sb.SetReservedBlocks(reserved)
}

// tail is the number of blocks in a short last group, 0 if it is a full one.
func (g *grouping) tail() uint64 {
	return (g.sb.Blocks() - uint64(g.sb.FirstDataBlock)) % uint64(g.sb.BlocksPerGroup)
}

func (g *grouping) attempt() (outcome, error) {
	groups := uint64(g.sb.GroupCount())
	perGroup := ceilDiv(g.inodes, groups)
	if perGroup > uint64(8*g.sb.BlockSize()) {
		return manyInodes, nil
	}
	g.setInodesPerGroup(perGroup, groups)
	g.sb.ReservedGDTBlocks = 0
	if g.sb.HasCompat(ondisk.CompatResizeInode) {
		g.sb.ReservedGDTBlocks = reservedGDTBlocks(g.sb, g.resizeTo)
	}
	g.setBackupGroups()
	g.chooseMetaBG()
	if g.sb.InodesCount < uint32(lostFoundIno) {
		return fits, fmt.Errorf("%d inodes: %w", g.sb.InodesCount, ErrTooSmall)
	}
	need := g.lastGroupMetadata()
	if need > uint64(g.sb.BlocksPerGroup) {
		return fits, fmt.Errorf("groups of %d blocks have no room for %d inodes and the descriptors", g.sb.BlocksPerGroup, g.sb.InodesPerGroup)
	}
	switch tail := g.tail(); {
	case groups == 1 && tail != 0 && tail < need:
		return fits, fmt.Errorf("%d blocks of %d bytes: %w", g.asked, g.sb.BlockSize(), ErrTooSmall)
	case groups > 1 && tail != 0 && tail < need+50:
		return runt, nil
	}
	return fits, nil
}

// setBackupGroups names the groups with backups with sparse_super2: the first
// one behind group 0 and the last one.
func (g *grouping) setBackupGroups() {
	if !g.sb.HasCompat(ondisk.CompatSparseSuper2) {
		return
	}
	last := uint32(g.sb.GroupCount()) - 1
	b := [2]uint32{}
	if g.backups > 0 && last > 0 {
		b[0] = 1
	}
	if g.backups > 1 && last > 1 {
		b[1] = last
	}
	if g.backups == 1 {
		b[0], b[1] = b[1], b[0]
	}
	g.sb.BackupBGs = b
}

// setInodesPerGroup rounds perGroup so that it fills whole blocks of the
// table and whole bytes of the bitmap.
func (g *grouping) setInodesPerGroup(perGroup, groups uint64) {
	perBlock := uint64(g.sb.InodesPerBlock())
	perGroup = min(perGroup, 1<<16-perBlock)
	for {
		n := ceilDiv(perGroup, perBlock) * perBlock
		n = max(n, 8) &^ 7
		if n*groups <= 1<<32-1 {
			g.sb.InodesPerGroup, g.sb.InodesCount = uint32(n), uint32(n*groups)
			return
		}
		perGroup--
	}
}

// chooseMetaBG spreads the descriptors over the groups where one table of them
// would take more than three quarters of a group.
func (g *grouping) chooseMetaBG() {
	if 4*(uint64(g.sb.DescBlocks())+uint64(g.sb.ReservedGDTBlocks)) > 3*uint64(g.sb.BlocksPerGroup) {
		g.sb.FeatureCompat &^= uint32(ondisk.CompatResizeInode)
		g.sb.SetIncompat(ondisk.IncompatMetaBG, true)
		g.sb.ReservedGDTBlocks = 0
	}
}

// lastGroupMetadata is the number of blocks that the last group's metadata
// would take if all of it lay in the group.
func (g *grouping) lastGroupMetadata() uint64 {
	n := 2 + uint64(g.sb.InodeTableBlocksPerGroup())
	switch {
	case g.sb.HasIncompat(ondisk.IncompatMetaBG):
		n += 2
	case g.sb.HasSuper(g.sb.GroupCount() - 1):
		n += 1 + uint64(g.sb.DescBlocks()) + uint64(g.sb.ReservedGDTBlocks)
	}
	return n
}

// reservedGDTBlocks is the room kept for more descriptors: enough for the file
// system to grow to the given number of blocks, or else 1024 times, as far as
// 32-bit block numbers and one indirect block reach.
func reservedGDTBlocks(sb *ondisk.SuperBlock, to uint64) uint16 {
	room := uint64(sb.BlockSize() / 4)
	if n := moreDescBlocks(sb, to); n > 0 {
		return uint16(min(n, room))
	}
	most := uint64(1<<32 - 1)
	if sb.Blocks() < most/1024 {
		most = sb.Blocks() * 1024
	}
	return uint16(min(moreDescBlocks(sb, most-uint64(sb.FirstDataBlock)), room))
}

// moreDescBlocks is how many blocks of descriptors a file system with groups
// for so many blocks has more.
func moreDescBlocks(sb *ondisk.SuperBlock, blocks uint64) uint64 {
	n := ceilDiv(ceilDiv(blocks, uint64(sb.BlocksPerGroup)), uint64(sb.DescPerBlock()))
	return n - min(n, uint64(sb.DescBlocks()))
}

func ceilDiv(a, b uint64) uint64 { return (a + b - 1) / b }
