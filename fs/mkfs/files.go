package mkfs

import (
	"fmt"
	"slices"

	"extfused/fs/ondisk"
)

// file is the place of a file that the file system is made with: its runs in
// logical order, and the blocks that map them.
type file struct {
	runs   []run
	node   ondisk.FsBlock // with extents: the leaf, where the inode does not hold them all; else 0
	blocks *blockMap      // without extents
}

// size is the number of blocks of content.
func (f *file) size() (n uint64) {
	for _, r := range f.runs {
		n += r.n
	}
	return n
}

// at is where logical block i lies, 0 behind the end.
func (f *file) at(i uint64) ondisk.FsBlock {
	for _, r := range f.runs {
		if i < r.n {
			return r.start + ondisk.FsBlock(i)
		}
		i -= r.n
	}
	return 0
}

// place allocates n blocks for inode ino from goal on. A block-mapped file has
// no goal but that of its inode, as those of mke2fs.
func (l *layout) place(ino ondisk.InodeNumber, goal ondisk.FsBlock, n uint64) error {
	f := &file{}
	l.files[ino] = f
	if !l.sb.HasIncompat(ondisk.IncompatExtents) {
		f.blocks = &blockMap{l: l, goal: l.inodeGoal(ino), per: uint64(l.sb.BlockSize() / 4)}
		return f.blocks.fill(f, n)
	}
	return l.placeExtents(f, goal, n)
}

// placeExtents allocates n blocks from goal on and, where an inode does not
// hold their extents, a node for these: the block before them. If that one is
// taken, it is the one that is next when the first extent comes that the inode
// has no room for.
func (l *layout) placeExtents(f *file, goal ondisk.FsBlock, n uint64) (err error) {
	before := space{slices.Clone(l.used.runs)}
	if f.runs, err = l.takeRuns(goal, n); err != nil {
		return err
	}
	extents := splitExtents(f.runs)
	if len(extents) <= inlineExtents {
		return nil
	}
	if len(extents) > ondisk.ExtentRoom(l.sb.BlockSize()) {
		return fmt.Errorf("a file of %d blocks would lie in %d pieces: the groups are too small for it", n, len(extents))
	}
	if first := f.runs[0].start; l.ratio == 1 && first > l.sb.GroupFirstBlock(0) && l.used.isFree(first-1, 1) {
		f.node = first - 1
		l.used.add(f.node, 1)
		return nil
	}
	var head uint64
	for _, x := range extents[:inlineExtents+1] {
		head += uint64(x.Len)
	}
	l.used = before
	if f.runs, err = l.takeRuns(goal, head); err != nil {
		return err
	}
	node, err := l.takeRuns(f.runs[len(f.runs)-1].end(), 1)
	if err != nil {
		return err
	}
	f.node = node[0].start
	if head == n {
		return nil
	}
	rest, err := l.takeRuns(f.node, n-head)
	f.runs = append(f.runs, rest...)
	return err
}

// takeRuns allocates n blocks in as many runs as it takes, from goal on and,
// where that reaches the end, from the start. The last cluster is taken whole.
func (l *layout) takeRuns(goal ondisk.FsBlock, n uint64) ([]run, error) {
	var out []run
	from, wrapped := goal&^ondisk.FsBlock(l.ratio-1), false
	for n > 0 {
		r := l.used.next(from, l.end())
		if r.n == 0 {
			if wrapped {
				return nil, fmt.Errorf("no room for %d more blocks: %w", n, ErrTooSmall)
			}
			from, wrapped = l.sb.GroupFirstBlock(0), true
			continue
		}
		r.n = min(r.n, n)
		l.used.add(r.start, l.wholeClusters(r.n))
		out = append(out, r)
		n -= r.n
		from = r.end()
	}
	return out, nil
}

// wholeClusters rounds a number of blocks up to clusters.
func (l *layout) wholeClusters(n uint64) uint64 { return ceilDiv(n, l.ratio) * l.ratio }

// inodeGoal is where the blocks of an inode are looked for first: the start of
// its flex group.
func (l *layout) inodeGoal(ino ondisk.InodeNumber) ondisk.FsBlock {
	g, _ := l.sb.GroupOfInode(ino)
	return l.sb.GroupFirstBlock(g &^ ondisk.GroupNumber(l.sb.FlexSize()-1))
}

// placeDirs takes the first free blocks for the root directory and for
// lost+found, which is made 16 KiB long so that e2fsck need not allocate, but
// never shorter than two blocks or longer than twelve. With inline_data it
// starts in the inode, and the step out of there makes it a block shorter.
func (l *layout) placeDirs() error {
	if err := l.place(ondisk.RootIno, l.inodeGoal(ondisk.RootIno), 1); err != nil {
		return err
	}
	n := min(max(16384/uint64(l.sb.BlockSize()), 2), 12)
	if l.sb.HasIncompat(ondisk.IncompatInlineData) {
		n--
	}
	return l.place(lostFoundIno, l.inodeGoal(lostFoundIno), n)
}

func (l *layout) placeResize() error {
	if !l.sb.HasCompat(ondisk.CompatResizeInode) {
		return nil
	}
	goal := ondisk.FsBlock(l.sb.FirstDataBlock) + ondisk.FsBlock(l.superBlocks(0)) + 1 + ondisk.FsBlock(l.sb.InodeTableBlocksPerGroup())
	at, err := l.takeRuns(min(goal, l.end()), 1)
	if err == nil {
		l.resize = at[0].start
	}
	return err
}

// placeMMP takes a block for multiple mount protection.
func (l *layout) placeMMP() error {
	if !l.sb.HasIncompat(ondisk.IncompatMMP) {
		return nil
	}
	at, err := l.takeRuns(l.sb.GroupFirstBlock(0), 1)
	if err != nil {
		return err
	}
	l.mmp = at[0].start
	l.sb.MMPBlock = uint64(l.mmp)
	l.sb.MMPInterval = uint16(min(l.p.MMPInterval, maxMMPInterval))
	if l.p.MMPInterval == 0 {
		l.sb.MMPInterval = defaultMMPInterval
	}
	return nil
}

// Bounds of s_mmp_update_interval in seconds, from mke2fs(8).
const (
	defaultMMPInterval = 5
	maxMMPInterval     = 300
)

// placeOrphans makes the orphan file, with the next free inode number.
func (l *layout) placeOrphans() error {
	if !l.sb.HasCompat(ondisk.CompatOrphanFile) {
		return nil
	}
	n := l.p.OrphanSize.Blocks(l.sb.BlockSize())
	if l.p.OrphanSize.N == 0 {
		n = defaultOrphanBlocks(l.sb.Blocks())
	}
	n = l.wholeClusters(n)
	if n < 1 || n > maxOrphanBlocks {
		return fmt.Errorf("an orphan file of %d blocks: must have 1 to %d", n, maxOrphanBlocks)
	}
	l.last++
	l.sb.OrphanFileInum = uint32(l.last)
	return l.place(l.last, l.sb.GroupFirstBlock(0), n)
}

// Bounds of the orphan file: the greater one is the kernel's, the lesser one
// that of the default.
const (
	minOrphanBlocks = 32
	maxOrphanBlocks = 512
)

// defaultOrphanBlocks is the length of the orphan file by that of the file
// system, both in blocks.
func defaultOrphanBlocks(fsBlocks uint64) uint64 {
	return min(max(fsBlocks>>12, minOrphanBlocks), maxOrphanBlocks)
}
