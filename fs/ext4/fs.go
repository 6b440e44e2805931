package ext4

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/journal"
	"extfused/mballoc"
)

// geometry is what never changes while mounted; it is read without a lock.
type geometry struct {
	blockSize        int
	blockBits        uint
	clusterBits      uint
	blocks           uint64 // of the file system
	firstDataBlock   uint32
	blocksPerGroup   uint32
	clustersPerGroup uint32
	groupCount       ondisk.GroupNumber
	flexBits         uint // groups of a flex group, as a power of two
	inodeSize        int
	inodes           uint32 // number of inodes
	inodesPerGroup   uint32
	inodesPerBlock   uint32
	itableBlocks     uint32 // per group
	firstIno         ondisk.InodeNumber
	descSize         int
	hasGroupCsum     bool // the UNINIT flags of groups mean something
	extents          bool // new inodes map their blocks by extents
	hugeFile         bool
	fileType         bool // directory entries carry a file type
	dirIndex         bool
	dirNlink         bool
	largeDir         bool
	projects         bool   // inodes have a project
	eaInode          bool   // large attribute values may be in inodes of their own
	hasInline        bool   // small content may be in the inode
	extraIsize       uint16 // i_extra_isize of new inodes
	unsignedHash     bool
	hashVersion      uint8 // s_def_hash_version
	hashSeed         [4]uint32
}

func makeGeometry(sb *ondisk.SuperBlock) geometry {
	g := geometry{
		blockSize: sb.BlockSize(), blockBits: sb.BlockBits(), clusterBits: sb.ClusterBits(),
		blocks: sb.Blocks(), firstDataBlock: sb.FirstDataBlock,
		blocksPerGroup: sb.BlocksPerGroup, clustersPerGroup: sb.ClustersPerGroup,
		groupCount: sb.GroupCount(), flexBits: uint(bits.Len32(sb.FlexSize()) - 1),
		inodeSize: sb.InodeBytes(), inodes: sb.InodesCount, inodesPerGroup: sb.InodesPerGroup,
		inodesPerBlock: sb.InodesPerBlock(), itableBlocks: sb.InodeTableBlocksPerGroup(),
		firstIno: sb.FirstInode(), descSize: sb.DescSize(),
		hasGroupCsum: sb.Csum().HasGroupCsum(),
		extents:      sb.HasIncompat(ondisk.IncompatExtents),
		hugeFile:     sb.HasROCompat(ondisk.ROCompatHugeFile),
		fileType:     sb.HasIncompat(ondisk.IncompatFiletype),
		dirIndex:     sb.HasCompat(ondisk.CompatDirIndex),
		dirNlink:     sb.HasROCompat(ondisk.ROCompatDirNlink),
		largeDir:     sb.HasIncompat(ondisk.IncompatLargeDir),
		hasInline:    sb.HasIncompat(ondisk.IncompatInlineData),
		projects:     sb.HasROCompat(ondisk.ROCompatProject),
		eaInode:      sb.HasIncompat(ondisk.IncompatEAInode),
		unsignedHash: sb.UnsignedHash(), hashVersion: sb.DefHashVersion, hashSeed: sb.HashSeed,
	}
	if g.blocksPerGroup == 0 || sb.RevLevel == ondisk.RevGoodOld {
		g.clustersPerGroup = g.blocksPerGroup
	}
	g.extraIsize = chooseExtraIsize(sb)
	return g
}

// chooseExtraIsize is the i_extra_isize of new inodes: what the superblock
// wants, at least the fields we know, cut to the room there is.
func chooseExtraIsize(sb *ondisk.SuperBlock) uint16 {
	room := sb.InodeBytes() - ondisk.GoodOldInodeSize
	if room <= 0 {
		return 0
	}
	want := ondisk.InodeExtraSize
	if sb.HasROCompat(ondisk.ROCompatExtraIsize) {
		want = max(want, int(sb.WantExtraIsize), int(sb.MinExtraIsize))
	}
	if want > room || want%4 != 0 {
		want = min(ondisk.InodeExtraSize, room)
	}
	return uint16(want)
}

// FS is a mounted file system. All its methods may be called from any
// goroutine.
type FS struct {
	geometry
	opts Options
	csum ondisk.Csum

	dataMode  DataMode        // not DataDefault; constant after Mount
	tornSuper bool            // the superblock was taken from the journal
	dev       blockdev.Device // counts what it does
	count     *blockdev.Counting
	cache     *bcache.Cache

	super     superState
	largeFile atomic.Bool      // the superblock has the feature large_file
	gdt       []*bcache.Buffer // descriptor blocks, pinned for the life of the mount
	groups    []group
	flex      []flexGroup

	// Totals of the descriptors, kept along with them.
	freeClusters atomic.Int64
	freeInodes   atomic.Int64
	usedDirs     atomic.Int64
	overhead     uint64 // blocks; what statfs does not count as data

	jnl      *journal.Journal // nil: no journal
	unlogged unlogged         // what replaces it
	alloc    *mballoc.Allocator
	icache   icache
	orphans  orphanState
	discards discards

	replay *fcReplay // this file system exists only to replay fast commits

	mmp       mmpState
	quota     quotaState
	unchecked bool // it was not cleanly unmounted before, and there is no journal

	readOnly atomic.Bool  // nothing may be changed (any more)
	stopped  atomic.Int32 // 0: running; else 1 + ShutdownMode
	health   health

	start    time.Time
	stopWork chan struct{}
	work     sync.WaitGroup
	ops      opsState // of the operations' files

	unmountOnce sync.Once
	unmountErr  error
}

// validIno tells whether ino is one that a directory may name.
func (fs *FS) validIno(ino ondisk.InodeNumber) bool {
	return ino == RootIno || (ino >= fs.firstIno && uint32(ino) <= fs.inodes) || fs.reservedIno(ino)
}

// reservedIno tells whether ino is a reserved inode that we read ourselves.
func (fs *FS) reservedIno(ino ondisk.InodeNumber) bool {
	return ino == ondisk.JournalIno || ino == ondisk.ResizeIno
}

// groupOf is the group of an inode and its index there.
func (fs *FS) groupOf(ino ondisk.InodeNumber) (ondisk.GroupNumber, uint32) {
	n := uint32(ino) - 1
	return ondisk.GroupNumber(n / fs.inodesPerGroup), n % fs.inodesPerGroup
}

// groupFirstBlock is the first block of a group.
func (fs *FS) groupFirstBlock(g ondisk.GroupNumber) ondisk.FsBlock {
	return ondisk.FsBlock(uint64(g)*uint64(fs.blocksPerGroup) + uint64(fs.firstDataBlock))
}

// groupBlocks is the number of blocks in a group; the last may be short.
func (fs *FS) groupBlocks(g ondisk.GroupNumber) uint32 {
	return uint32(min(fs.blocks-uint64(fs.groupFirstBlock(g)), uint64(fs.blocksPerGroup)))
}

// validBlocks tells whether n blocks from blk on are blocks that an inode may
// own: inside the file system and behind the superblock.
func (fs *FS) validBlocks(blk ondisk.FsBlock, n uint64) bool {
	return uint64(blk) > uint64(fs.firstDataBlock) && uint64(blk) < fs.blocks && n <= fs.blocks-uint64(blk)
}

// now is the file system's clock.
func (fs *FS) now() time.Time {
	if fs.opts.Now != nil {
		return fs.opts.Now()
	}
	return time.Now()
}

// timestamp is the present as ext4 keeps it.
func (fs *FS) timestamp() ondisk.Timestamp {
	t := fs.now()
	return ondisk.Timestamp{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

func (fs *FS) logf(l Level, format string, args ...any) {
	if fs.opts.Logf != nil {
		fs.opts.Logf(l, format, args...)
	}
}
