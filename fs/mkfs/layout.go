package mkfs

import (
	"fmt"
	"math/bits"

	"extfused/fs/ondisk"
)

// groupPlace is where a group's metadata stands, and the counts and flags of
// its descriptor.
type groupPlace struct {
	blockBitmap ondisk.FsBlock
	inodeBitmap ondisk.FsBlock
	inodeTable  ondisk.FsBlock
	freeBlocks  uint32
	freeInodes  uint32
	usedDirs    uint32
	flags       uint16
}

// layout is a file system as it will be: every block's place is known, and
// nothing has been written.
type layout struct {
	p       Params
	sb      ondisk.SuperBlock
	groups  []groupPlace
	backups []ondisk.GroupNumber // groups with copies of the superblock, 0 left out
	used    space

	root      ondisk.FsBlock
	lostFound []run
	resize    ondisk.FsBlock // the resize inode's double indirect block, 0: none
	journal   journalPlace
	note      string
}

// journalPlace is the journal's place: its runs in logical order, and the
// extent node that an inode with more than four extents needs.
type journalPlace struct {
	blocks uint32 // 0: none
	runs   []run
	node   ondisk.FsBlock
}

const lostFoundIno = ondisk.InodeNumber(ondisk.GoodOldFirstIno)

func newLayout(deviceSize int64, p Params) (*layout, error) {
	if err := p.fill(deviceSize); err != nil {
		return nil, err
	}
	l := &layout{p: p}
	l.initSuper()
	if err := setGroups(&l.sb, &l.p); err != nil {
		return nil, err
	}
	if !l.hasGroupCsum() {
		l.p.ZeroTables = true // nothing could say that they are not
	}
	steps := []func() error{l.placeSupers, l.placeTables, l.placeDirs, l.placeResize, l.placeJournal}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	l.count()
	if err := l.sb.Check(deviceSize); err != nil {
		return nil, fmt.Errorf("these parameters do not go together: %w", err)
	}
	return l, nil
}

// initSuper sets what does not depend on the geometry.
func (l *layout) initSuper() {
	s, p := &l.sb, &l.p
	f := p.Features
	if uint64(p.Size)/uint64(p.BlockSize) > 1<<32-1 {
		f.Compat &^= ondisk.CompatResizeInode // its map has 32-bit block numbers
	}
	s.SetFeatures(f)
	s.Magic, s.RevLevel, s.State, s.Errors = ondisk.SuperMagic, ondisk.RevDynamic, ondisk.StateValid, ondisk.ErrorsContinue
	s.LogBlockSize = uint32(bits.TrailingZeros(uint(p.BlockSize))) - 10
	s.LogClusterSize = s.LogBlockSize
	if p.BlockSize == 1024 {
		s.FirstDataBlock = 1
	}
	s.MaxMntCount = 0xffff
	s.FirstIno, s.InodeSize = ondisk.GoodOldFirstIno, uint16(p.InodeSize)
	s.UUID = p.UUID
	copy(s.VolumeName[:], p.Label)
	for i := range s.HashSeed {
		for j := range 4 {
			s.HashSeed[i] |= uint32(p.HashSeed[4*i+j]) << (8 * j)
		}
	}
	s.DefHashVersion, s.Flags = ondisk.HashHalfMD4, ondisk.FlagSignedHash
	s.DefaultMountOpts = ondisk.DefmXattrUser | ondisk.DefmACL
	if f.Incompat&ondisk.Incompat64Bit != 0 {
		s.DescSizeRaw = ondisk.MinDescSize64
	}
	if f.Incompat&ondisk.IncompatFlexBG != 0 {
		s.LogGroupsPerFlex = uint8(bits.TrailingZeros32(p.FlexGroups))
	}
	if f.ROCompat&ondisk.ROCompatMetadataCsum != 0 {
		s.ChecksumType = ondisk.ChecksumCRC32C
	}
	if f.Incompat&ondisk.IncompatCsumSeed != 0 {
		s.ChecksumSeed = ondisk.CRC32C(^uint32(0), p.UUID[:])
	}
	if l.extraIsize() != 0 && f.ROCompat&ondisk.ROCompatExtraIsize != 0 {
		s.MinExtraIsize, s.WantExtraIsize = ondisk.InodeExtraSize, ondisk.InodeExtraSize
	}
	s.SetMkfsTime(p.Time)
	s.SetWtime(p.Time)
	s.SetLastcheck(p.Time)
}

// extraIsize is i_extra_isize of the inodes.
func (l *layout) extraIsize() uint16 {
	if l.p.InodeSize <= ondisk.GoodOldInodeSize {
		return 0
	}
	return ondisk.InodeExtraSize
}

// superBlocks is the number of blocks at the start of group g that hold a copy
// of the superblock, descriptors and the room for more. With meta_bg a block
// of descriptors stands in the first, second and last of the groups that it
// describes.
func (l *layout) superBlocks(g ondisk.GroupNumber) (n uint64) {
	if l.sb.HasSuper(g) {
		n = 1
		if !l.metaBG() {
			n += uint64(l.sb.DescBlocks()) + uint64(l.sb.ReservedGDTBlocks)
		}
	}
	if per := l.sb.DescPerBlock(); l.metaBG() {
		if i := uint32(g) % per; i < 2 || i == per-1 {
			n++
		}
	}
	return n
}

func (l *layout) metaBG() bool { return l.sb.HasIncompat(ondisk.IncompatMetaBG) }

func (l *layout) end() ondisk.FsBlock { return ondisk.FsBlock(l.sb.Blocks()) }

// groupEnd is the block behind group g.
func (l *layout) groupEnd(g ondisk.GroupNumber) ondisk.FsBlock {
	return min(l.sb.GroupFirstBlock(g+1), l.end())
}

func (l *layout) placeSupers() error {
	l.groups = make([]groupPlace, l.sb.GroupCount())
	for g := range l.sb.GroupCount() {
		if g != 0 && l.sb.HasSuper(g) {
			l.backups = append(l.backups, g)
		}
		n := l.superBlocks(g)
		if n == 0 {
			continue
		}
		at := l.superStart(g)
		if uint64(at)+n > uint64(l.groupEnd(g)) {
			return fmt.Errorf("%d blocks: %w", l.sb.Blocks(), ErrTooSmall)
		}
		l.used.add(at, n)
	}
	return nil
}

// superStart is where the superBlocks of group g start.
func (l *layout) superStart(g ondisk.GroupNumber) ondisk.FsBlock {
	if g == 0 {
		return l.sb.SuperBlockOf(0)
	}
	return l.sb.GroupFirstBlock(g)
}

// placeTables puts the bitmaps and inode tables of each flex group together
// at its start: all block bitmaps, all inode bitmaps, all tables.
func (l *layout) placeTables() error {
	flex := ondisk.GroupNumber(l.sb.FlexSize())
	for first := ondisk.GroupNumber(0); first < l.sb.GroupCount(); first += flex {
		count := min(flex, l.sb.GroupCount()-first)
		if err := l.placeFlex(first, count, flex); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) placeFlex(first, count, flex ondisk.GroupNumber) error {
	from, end := l.sb.GroupFirstBlock(first), l.groupEnd(first+count-1)
	// A flex group of one group keeps the distance of a whole one, so that it
	// can grow.
	gap := ondisk.FsBlock(count)
	if count == 1 {
		gap = ondisk.FsBlock(flex)
	}
	places := []struct {
		n   uint64
		get func(*groupPlace) *ondisk.FsBlock
	}{
		{1, func(g *groupPlace) *ondisk.FsBlock { return &g.blockBitmap }},
		{1, func(g *groupPlace) *ondisk.FsBlock { return &g.inodeBitmap }},
		{uint64(l.sb.InodeTableBlocksPerGroup()), func(g *groupPlace) *ondisk.FsBlock { return &g.inodeTable }},
	}
	for _, pl := range places {
		goal := from
		for i := range l.groups[first : first+count] {
			at, err := l.take(goal, from, end, pl.n)
			if err != nil {
				return fmt.Errorf("group %d: %w", int(first)+i, err)
			}
			*pl.get(&l.groups[int(first)+i]) = at
			if i == 0 && pl.n == 1 {
				from = at + gap
			}
			goal = at + ondisk.FsBlock(pl.n)
		}
	}
	return nil
}

// take allocates n blocks at goal or behind it, else from from on, before end.
func (l *layout) take(goal, from, end ondisk.FsBlock, n uint64) (ondisk.FsBlock, error) {
	at, ok := l.used.find(goal, end, n)
	if !ok {
		at, ok = l.used.find(from, end, n)
	}
	if !ok {
		return 0, fmt.Errorf("no room for %d blocks of metadata: %w", n, ErrTooSmall)
	}
	l.used.add(at, n)
	return at, nil
}

// placeDirs takes the first free blocks for the root directory and for
// lost+found, which is made 16 KiB long so that e2fsck need not allocate, but
// never shorter than two blocks or longer than twelve.
func (l *layout) placeDirs() error {
	first, end := l.sb.GroupFirstBlock(0), l.end()
	at, err := l.take(first, first, end, 1)
	if err != nil {
		return err
	}
	l.root = at
	n := min(max(16384/uint64(l.sb.BlockSize()), 2), 12)
	l.lostFound, err = l.takeRuns(first, n)
	return err
}

// takeRuns allocates n blocks in as many runs as it takes, from goal on and,
// where that reaches the end, from the start.
func (l *layout) takeRuns(goal ondisk.FsBlock, n uint64) ([]run, error) {
	var out []run
	from, wrapped := goal, false
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
		l.used.add(r.start, r.n)
		out = append(out, r)
		n -= r.n
		from = r.end()
	}
	return out, nil
}

func (l *layout) placeResize() error {
	if !l.sb.HasCompat(ondisk.CompatResizeInode) {
		return nil
	}
	goal := ondisk.FsBlock(l.sb.FirstDataBlock) + ondisk.FsBlock(l.superBlocks(0)) + 1 + ondisk.FsBlock(l.sb.InodeTableBlocksPerGroup())
	at, err := l.take(min(goal, l.end()), l.sb.GroupFirstBlock(0), l.end(), 1)
	l.resize = at
	return err
}

// count fills in free counts and flags.
func (l *layout) count() {
	s := &l.sb
	last := s.GroupCount() - 1
	var free uint64
	for g := range l.groups {
		g := ondisk.GroupNumber(g)
		place := &l.groups[g]
		used := l.used.used(s.GroupFirstBlock(g), l.groupEnd(g))
		place.freeBlocks = s.GroupBlocks(g) - uint32(used)
		place.freeInodes = s.InodesPerGroup - l.usedInodes(g)
		free += uint64(place.freeBlocks)
		if l.p.Zeroed || l.p.ZeroTables {
			place.flags |= ondisk.BGInodeZeroed
		}
		if !l.hasGroupCsum() {
			continue
		}
		if l.usedInodes(g) == 0 {
			place.flags |= ondisk.BGInodeUninit
			if g != last && used == l.ownMetadata(g) {
				place.flags |= ondisk.BGBlockUninit
			}
		}
	}
	for _, ino := range []ondisk.InodeNumber{ondisk.RootIno, lostFoundIno} {
		g, _ := s.GroupOfInode(ino)
		l.groups[g].usedDirs++
	}
	s.SetFreeClusters(free)
	s.FreeInodesCount = s.InodesCount - uint32(lostFoundIno)
	s.OverheadClusters = l.overhead()
}

func (l *layout) hasGroupCsum() bool { return l.sb.Csum().HasGroupCsum() }

// usedInodes counts the inodes in use in group g: the reserved ones and
// lost+found.
func (l *layout) usedInodes(g ondisk.GroupNumber) uint32 {
	before := uint64(g) * uint64(l.sb.InodesPerGroup)
	used := uint64(lostFoundIno)
	return uint32(min(max(used, before)-before, uint64(l.sb.InodesPerGroup)))
}

// ownMetadata counts the blocks of group g whose use follows from its
// descriptor and its number alone: what a reader can make up for itself when
// the bitmap is not initialised.
func (l *layout) ownMetadata(g ondisk.GroupNumber) uint64 {
	n := l.superBlocks(g)
	first, end := l.sb.GroupFirstBlock(g), l.groupEnd(g)
	in := func(at ondisk.FsBlock, blocks uint64) {
		if at >= first && at+ondisk.FsBlock(blocks) <= end {
			n += blocks
		}
	}
	place := &l.groups[g]
	in(place.blockBitmap, 1)
	in(place.inodeBitmap, 1)
	in(place.inodeTable, uint64(l.sb.InodeTableBlocksPerGroup()))
	return n
}

// overhead is what statfs subtracts: everything in use but the directories
// and the resize inode's own block.
func (l *layout) overhead() uint32 {
	n := l.used.total() + uint64(l.sb.FirstDataBlock) - 1
	for _, r := range l.lostFound {
		n -= r.n
	}
	if l.resize != 0 {
		n--
	}
	if l.journal.node != 0 {
		n--
	}
	return uint32(min(n, 1<<32-1))
}
