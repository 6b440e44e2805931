package mkfs

import (
	"fmt"
	"math/bits"

	"extfused/fs/ondisk"
)

// groupPlace is where a group's metadata stands, and the counts and flags of
// its descriptor.
type groupPlace struct {
	blockBitmap  ondisk.FsBlock
	inodeBitmap  ondisk.FsBlock
	inodeTable   ondisk.FsBlock
	freeClusters uint32
	freeInodes   uint32
	usedDirs     uint32
	flags        uint16
}

// layout is a file system as it will be: every block's place is known, and
// nothing has been written.
type layout struct {
	tablesZeroed bool // the descriptors say so of all inode tables
	p            Params
	sb           ondisk.SuperBlock
	groups       []groupPlace
	backups      []ondisk.GroupNumber // groups with copies of the superblock, 0 left out
	used         space

	ratio    uint64 // blocks of a cluster
	overhead uint64 // clusters that statfs subtracts: superblocks, tables, journal

	files  map[ondisk.InodeNumber]*file
	last   ondisk.InodeNumber // the last inode in use
	resize ondisk.FsBlock     // the resize inode's double indirect block, 0: none
	mmp    ondisk.FsBlock     // 0: none

	quotas  []quotaFile
	journal journalPlace
	note    string
}

// journalPlace says what the journal's superblock is to say.
type journalPlace struct {
	blocks     uint32 // 0: none
	fastCommit uint32 // blocks of them for fast commits
}

const lostFoundIno = ondisk.InodeNumber(ondisk.GoodOldFirstIno)

func newLayout(deviceSize int64, p Params) (*layout, error) {
	if err := p.fill(deviceSize); err != nil {
		return nil, err
	}
	l := &layout{p: p, files: map[ondisk.InodeNumber]*file{}, last: lostFoundIno}
	l.initSuper()
	if err := setGroups(&l.sb, &l.p); err != nil {
		return nil, err
	}
	l.tablesZeroed = p.Zeroed || p.ZeroTables
	if !l.hasGroupCsum() {
		l.p.ZeroTables = true // nothing could say that they are not
	}
	steps := []func() error{
		l.placeSupers, l.placeTables, l.useClusters, l.placeDirs, l.placeResize, l.placeJournal, l.placeMMP, l.placeQuotas, l.placeOrphans,
	}
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
	s.RevLevel = ondisk.RevDynamic
	if p.Revision0 {
		s.RevLevel = ondisk.RevGoodOld
	}
	s.Magic, s.State, s.Errors = ondisk.SuperMagic, ondisk.StateValid, ondisk.ErrorsContinue
	s.LogBlockSize = uint32(bits.TrailingZeros(uint(p.BlockSize))) - 10
	s.LogClusterSize = uint32(bits.TrailingZeros(uint(p.ClusterSize))) - 10
	if p.ClusterSize == 1024 {
		s.FirstDataBlock = 1
	}
	s.MaxMntCount = 0xffff
	s.FirstIno, s.InodeSize = ondisk.GoodOldFirstIno, uint16(p.InodeSize)
	s.RAIDStride, s.RAIDStripeWidth = uint16(p.Stride), p.StripeWidth
	s.UUID = p.UUID
	copy(s.VolumeName[:], p.Label)
	for i := range s.HashSeed {
		for j := range 4 {
			s.HashSeed[i] |= uint32(p.HashSeed[4*i+j]) << (8 * j)
		}
	}
	s.DefHashVersion, s.Flags = ondisk.HashHalfMD4, ondisk.FlagSignedHash
	if p.TestFS {
		s.Flags |= ondisk.FlagTestFilesys
	}
	if !p.Revision0 {
		s.DefaultMountOpts = ondisk.DefmXattrUser | ondisk.DefmACL
	}
	if f.Incompat&ondisk.Incompat64Bit != 0 {
		s.DescSizeRaw = uint16(max(p.DescSize, ondisk.MinDescSize64))
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
	l.initFeatures()
	if l.extraIsize() != 0 {
		s.MinExtraIsize, s.WantExtraIsize = ondisk.InodeExtraSize, ondisk.InodeExtraSize
	}
	s.SetMkfsTime(p.Time)
	s.SetWtime(p.Time)
	s.SetLastcheck(p.Time)
}

// initFeatures sets the fields that belong to a feature alone.
func (l *layout) initFeatures() {
	s, f := &l.sb, l.p.Features
	if f.ROCompat&ondisk.ROCompatMetadataCsum != 0 {
		s.SetROCompat(ondisk.ROCompatGDTCsum, false) // the stronger one takes its place
	}
	if f.Incompat&ondisk.IncompatEncrypt != 0 {
		s.EncryptAlgos[0], s.EncryptAlgos[1] = encryptAES256XTS, encryptAES256CTS
	}
	if f.Incompat&ondisk.IncompatCasefold != 0 {
		s.Encoding = encodingUTF8_12_1
		if l.p.StrictEncoding {
			s.EncodingFlags = encodingStrict
		}
	}
}

// Values of s_encrypt_algos, s_encoding and s_encoding_flags, from the kernel's
// documentation of the superblock.
const (
	encryptAES256XTS  = 1
	encryptAES256CTS  = 4
	encodingUTF8_12_1 = 1
	encodingStrict    = 1
)

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

// count fills in free counts and flags.
func (l *layout) count() {
	s := &l.sb
	last := s.GroupCount() - 1
	var free uint64
	for g := range l.groups {
		g := ondisk.GroupNumber(g)
		place := &l.groups[g]
		used := l.used.used(s.GroupFirstBlock(g), l.groupEnd(g))
		place.freeClusters = s.GroupClusters(g) - uint32(used/l.ratio)
		place.freeInodes = s.InodesPerGroup - l.usedInodes(g)
		free += uint64(place.freeClusters)
		if l.tablesZeroed {
			place.flags |= ondisk.BGInodeZeroed
		}
		if !l.hasGroupCsum() {
			continue
		}
		if l.usedInodes(g) == 0 {
			place.flags |= ondisk.BGInodeUninit
			if g != last && used == l.wholeClusters(l.ownMetadata(g)) {
				place.flags |= ondisk.BGBlockUninit
			}
		}
	}
	for _, ino := range []ondisk.InodeNumber{ondisk.RootIno, lostFoundIno} {
		g, _ := s.GroupOfInode(ino)
		l.groups[g].usedDirs++
	}
	s.SetFreeClusters(free)
	s.FreeInodesCount = s.InodesCount - uint32(l.last)
	s.OverheadClusters = uint32(min(l.overhead, 1<<32-1))
}

func (l *layout) hasGroupCsum() bool { return l.sb.Csum().HasGroupCsum() }

// usedInodes counts the inodes in use in group g: the reserved ones,
// lost+found, and what features need.
func (l *layout) usedInodes(g ondisk.GroupNumber) uint32 {
	before := uint64(g) * uint64(l.sb.InodesPerGroup)
	used := uint64(l.last)
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
