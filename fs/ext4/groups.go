package ext4

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// group is the in-core part of a block group. The counts are copies of the
// descriptor's, so that searches read them without a lock.
type group struct {
	mu   sync.Mutex
	desc ondisk.GroupDesc // +checklocks:mu, view into gdb; block numbers never change
	gdb  *bcache.Buffer   // block that holds the descriptor, pinned

	// inoHint: no inode below this index is free.
	inoHint uint32 // +checklocks:mu

	freeClusters atomic.Uint32
	freeInodes   atomic.Uint32
	usedDirs     atomic.Uint32
	blockUninit  atomic.Bool
	badBlocks    atomic.Bool // block bitmap is damaged: nothing is allocated here
	badInodes    atomic.Bool // inode bitmap is damaged
}

// flexGroup sums the groups that share a flex group, for Orlov.
type flexGroup struct {
	freeClusters atomic.Int64
	freeInodes   atomic.Int64
	usedDirs     atomic.Int64
}

func joinNames(names []string) string { return strings.Join(names, ", ") }

// loadGroups reads and checks all descriptors and sums them up. The bitmaps
// are not read: that would take minutes on a large image.
func (fs *FS) loadGroups(sb *ondisk.SuperBlock) error {
	per := sb.DescPerBlock()
	n := sb.DescBlocks()
	fs.gdt = make([]*bcache.Buffer, n)
	fs.groups = make([]group, fs.groupCount)
	fs.flex = make([]flexGroup, (uint32(fs.groupCount)-1)>>fs.flexBits+1)
	if n > 1 && !sb.HasIncompat(ondisk.IncompatMetaBG) {
		fs.cache.Prefetch(uint64(fs.descBlock(sb, 0)), int(n))
	}
	for k := uint32(0); k < n; k++ {
		b, err := fs.cache.Read(uint64(fs.descBlock(sb, k)), nil)
		if err != nil {
			return fmt.Errorf("group descriptors: %w", err)
		}
		fs.gdt[k] = b
		last := min((k+1)*per, uint32(fs.groupCount))
		for g := k * per; g < last; g++ {
			if err := fs.loadGroup(ondisk.GroupNumber(g), b, ondisk.GroupDescAt(b.Data(), g%per, fs.descSize)); err != nil {
				return err
			}
		}
	}
	return nil
}

// descBlock is where descriptor block k is read from. With sb= it is the copy
// that goes with that superblock: behind it, or with meta_bg the one in the
// second group of the meta group.
func (fs *FS) descBlock(sb *ondisk.SuperBlock, k uint32) ondisk.FsBlock {
	if fs.opts.SBBlock <= 1 {
		return sb.DescBlock(k)
	}
	if sb.HasIncompat(ondisk.IncompatMetaBG) && k >= sb.FirstMetaBG {
		g := ondisk.GroupNumber(k*sb.DescPerBlock()) + 1
		if g >= sb.GroupCount() {
			return sb.DescBlock(k)
		}
		blk := sb.GroupFirstBlock(g)
		if sb.HasSuper(g) {
			blk++
		}
		return blk
	}
	return ondisk.FsBlock(fs.opts.SBBlock<<10>>sb.BlockBits()) + 1 + ondisk.FsBlock(k)
}

// loadGroup checks one descriptor and adds its counts to the totals.
func (fs *FS) loadGroup(g ondisk.GroupNumber, b *bcache.Buffer, d ondisk.GroupDesc) error {
	if !fs.csum.VerifyGroupDesc(g, d) {
		return ondisk.InGroup(ondisk.Corrupt("group descriptor: checksum is wrong"), g)
	}
	if err := fs.checkDesc(g, d); err != nil {
		return ondisk.InGroup(err, g)
	}
	gr := &fs.groups[g]
	gr.desc, gr.gdb = d, b
	gr.freeClusters.Store(d.FreeClusters())
	gr.freeInodes.Store(d.FreeInodes())
	gr.usedDirs.Store(d.UsedDirs())
	gr.blockUninit.Store(fs.hasGroupCsum && d.Flags()&ondisk.BGBlockUninit != 0)
	fs.addClusters(g, int64(d.FreeClusters()))
	fs.addInodes(g, int64(d.FreeInodes()), int64(d.UsedDirs()))
	return nil
}

// checkDesc tells whether a descriptor's block numbers lie where they may:
// inside the file system, and without flex_bg inside their own group.
func (fs *FS) checkDesc(g ondisk.GroupNumber, d ondisk.GroupDesc) error {
	lo, hi := uint64(fs.firstDataBlock)+1, fs.blocks
	if fs.flexBits == 0 && !fs.super.sb.HasIncompat(ondisk.IncompatFlexBG) {
		lo = uint64(fs.groupFirstBlock(g))
		hi = lo + uint64(fs.groupBlocks(g))
	}
	inside := func(b ondisk.FsBlock, n uint64) bool {
		return uint64(b) >= lo && uint64(b) < hi && n <= hi-uint64(b)
	}
	switch {
	case !inside(d.BlockBitmap(), 1):
		return ondisk.Corrupt("group descriptor: block bitmap at block %d", d.BlockBitmap())
	case !inside(d.InodeBitmap(), 1):
		return ondisk.Corrupt("group descriptor: inode bitmap at block %d", d.InodeBitmap())
	case !inside(d.InodeTable(), uint64(fs.itableBlocks)):
		return ondisk.Corrupt("group descriptor: inode table at block %d", d.InodeTable())
	case d.FreeClusters() > fs.groupBlocks(g)>>fs.clusterBits+1 || d.FreeInodes() > fs.inodesPerGroup ||
		d.UsedDirs() > fs.inodesPerGroup || d.ItableUnused() > fs.inodesPerGroup:
		return ondisk.Corrupt("group descriptor: counts exceed the group (%d free clusters, %d free inodes, %d directories, %d unused)",
			d.FreeClusters(), d.FreeInodes(), d.UsedDirs(), d.ItableUnused())
	}
	return nil
}

// addClusters and addInodes keep the totals along with a descriptor.
func (fs *FS) addClusters(g ondisk.GroupNumber, n int64) {
	fs.freeClusters.Add(n)
	fs.flex[uint32(g)>>fs.flexBits].freeClusters.Add(n)
}

func (fs *FS) addInodes(g ondisk.GroupNumber, free, dirs int64) {
	fs.freeInodes.Add(free)
	f := &fs.flex[uint32(g)>>fs.flexBits]
	f.freeInodes.Add(free)
	if dirs != 0 {
		fs.usedDirs.Add(dirs)
		f.usedDirs.Add(dirs)
	}
}

// putGroups unpins the descriptor blocks.
func (fs *FS) putGroups() {
	for _, b := range fs.gdt {
		if b != nil {
			b.Put()
		}
	}
	fs.gdt = nil
}

// setBits and clearBits change n bits from start on.
func setBits(bm []byte, start, n uint32) {
	for ; n > 0 && start%8 != 0; start, n = start+1, n-1 {
		bm[start/8] |= 1 << (start % 8)
	}
	for ; n >= 8; start, n = start+8, n-8 {
		bm[start/8] = 0xff
	}
	for ; n > 0; start, n = start+1, n-1 {
		bm[start/8] |= 1 << (start % 8)
	}
}

func clearBits(bm []byte, start, n uint32) {
	for ; n > 0 && start%8 != 0; start, n = start+1, n-1 {
		bm[start/8] &^= 1 << (start % 8)
	}
	for ; n >= 8; start, n = start+8, n-8 {
		bm[start/8] = 0
	}
	for ; n > 0; start, n = start+1, n-1 {
		bm[start/8] &^= 1 << (start % 8)
	}
}

func testBit(bm []byte, n uint32) bool { return bm[n/8]>>(n%8)&1 != 0 }

// countSet counts the set bits of n from start on.
func countSet(bm []byte, start, n uint32) (set uint32) {
	for ; n > 0 && start%8 != 0; start, n = start+1, n-1 {
		set += uint32(bm[start/8] >> (start % 8) & 1)
	}
	for ; n >= 8; start, n = start+8, n-8 {
		set += uint32(bitCount[bm[start/8]])
	}
	for ; n > 0; start, n = start+1, n-1 {
		set += uint32(bm[start/8] >> (start % 8) & 1)
	}
	return set
}

var bitCount = func() (t [256]uint8) {
	for k := range t {
		t[k] = t[k/2] + uint8(k&1)
	}
	return t
}()

// initBlockBitmap synthesises the bitmap of a group that is BLOCK_UNINIT:
// only the file system's own blocks are in use, and what lies past the end.
func (fs *FS) initBlockBitmap(g ondisk.GroupNumber, d ondisk.GroupDesc, bm []byte) {
	clear(bm)
	for n := fs.baseMeta(g); n > 0; n-- {
		fs.markMeta(g, bm, fs.groupFirstBlock(g)+ondisk.FsBlock(n-1), 1)
	}
	fs.markMeta(g, bm, d.BlockBitmap(), 1)
	fs.markMeta(g, bm, d.InodeBitmap(), 1)
	fs.markMeta(g, bm, d.InodeTable(), fs.itableBlocks)
	clusters := (fs.groupBlocks(g) + 1<<fs.clusterBits - 1) >> fs.clusterBits
	setBits(bm, clusters, uint32(len(bm))*8-clusters)
}

// markMeta sets the bits of those of n blocks from blk on that lie in group g.
func (fs *FS) markMeta(g ondisk.GroupNumber, bm []byte, blk ondisk.FsBlock, n uint32) {
	first := fs.groupFirstBlock(g)
	size := uint64(fs.groupBlocks(g))
	for ; n > 0; blk, n = blk+1, n-1 {
		if blk >= first && uint64(blk-first) < size {
			setBits(bm, uint32(blk-first)>>fs.clusterBits, 1)
		}
	}
}

// baseMeta is the number of blocks at the start of group g that hold a copy
// of the superblock, descriptors and the blocks reserved for more of them.
func (fs *FS) baseMeta(g ondisk.GroupNumber) uint32 {
	sb := &fs.super.sb // features and geometry only: they do not change
	n := uint32(0)
	if sb.HasSuper(g) {
		n = 1
		if g == 0 {
			n += uint32(sb.SuperBlockOf(0) - fs.groupFirstBlock(0))
		}
	}
	return n + fs.descBlocksIn(g)
}

// descBlocksIn is the number of descriptor blocks, in use or reserved, in
// group g: all of the table in each group with a superblock, or with meta_bg
// one block in the first two and the last group of each meta group.
func (fs *FS) descBlocksIn(g ondisk.GroupNumber) uint32 {
	sb := &fs.super.sb
	per := sb.DescPerBlock()
	meta := sb.HasIncompat(ondisk.IncompatMetaBG)
	if meta && uint32(g)/per >= sb.FirstMetaBG {
		if at := uint32(g) % per; at == 0 || at == 1 || at == per-1 {
			return 1
		}
		return 0
	}
	if !sb.HasSuper(g) {
		return 0
	}
	if meta {
		return sb.FirstMetaBG
	}
	return sb.DescBlocks() + uint32(sb.ReservedGDTBlocks)
}
