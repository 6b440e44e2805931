// Package mkfs formats ext4 images as mkfs.ext4 of e2fsprogs 1.47 does: the
// same defaults by size, and the same place for every block. It needs no other
// program.
//
// Formatting has two steps. newLayout computes everything from the size and
// the parameters, without I/O: the superblock, the place of bitmaps, tables,
// directories and journal. write then puts the layout on the device; only
// what is not zero is written, so that a 16 TiB sparse image takes a moment.
//
// The superblock comes last, after a flush: a device half formatted is no file
// system.
package mkfs

import (
	"errors"
	"fmt"
	"time"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// Params says what to format. Start from DefaultParams; a zero field asks for
// the default that mkfs.ext4 has for the size.
type Params struct {
	Size            int64   // bytes of the device to use; 0: all of it
	BlockSize       int     // bytes, 1024 to 65536
	ClusterSize     int     // bytes, with bigalloc; 0: 16 blocks
	InodeSize       int     // bytes; 0: 256
	BytesPerInode   int64   // one inode for so many bytes of the device
	Inodes          uint64  // number of inodes; 0: by BytesPerInode
	ReservedPercent float64 // blocks kept for the superuser, 0 to 50
	BlocksPerGroup  uint32  // clusters, with bigalloc; 0: as many as a bitmap block has bits
	FlexGroups      uint32  // groups in a flex group, a power of two; 0: 16
	Label           string  // at most 16 bytes
	Features        ondisk.Features
	Revision0       bool // the format of 1993: no features, inodes of 128 bytes

	JournalBytes    int64 // length of the journal; 0: by size
	FastCommitBytes int64 // length of its area for fast commits; 0: 1/64 of the rest

	UUID     ondisk.UUID // zero: random
	HashSeed ondisk.UUID // zero: random
	Time     time.Time   // zero: now

	RootUID, RootGID uint32

	Stride, StripeWidth uint32       // blocks, of a RAID: on one disk, and on all data disks
	DescSize            int          // bytes of a group descriptor; 0: 32, or 64 with 64bit
	MMPInterval         uint32       // seconds; 0: 5
	ResizeTo            SizeOrBlocks // room is kept for the descriptors of so large a file system
	OrphanSize          SizeOrBlocks // of the orphan file
	Quotas              []QuotaType  // with quota; nil: users, groups, and projects with project
	Backups             *int         // superblock backups with sparse_super2, 0 to 2; nil: 2
	PackedMeta          bool         // all bitmaps, tables and the journal at the start
	StrictEncoding      bool         // casefold: refuse names that are no UTF-8
	TestFS              bool         // mark it as one that experimental code may mount

	// Zeroed says that the whole device reads as zeroes (a new sparse file),
	// so that nothing needs clearing.
	Zeroed bool
	// ZeroTables clears all inode tables now. Without it, and without Zeroed,
	// they are left to be cleared lazily when first used.
	ZeroTables bool
	// LazyJournal leaves the journal's blocks as they are. Only its superblock
	// says then that it is empty.
	LazyJournal bool

	// What Format does not look at: its caller discards the device and fills
	// the file system.
	NoDiscard    bool
	NoCopyXattrs bool
}

// SizeOrBlocks is a size as the user gave it.
type SizeOrBlocks struct {
	N     uint64
	Bytes bool // N counts bytes, not blocks
}

// Blocks is the size in blocks of blockSize bytes, rounded down.
func (s SizeOrBlocks) Blocks(blockSize int) uint64 {
	if s.Bytes {
		return s.N / uint64(blockSize)
	}
	return s.N
}

// DefaultParams is what mkfs.ext4 takes without options.
func DefaultParams() Params {
	return Params{ReservedPercent: 5, Features: DefaultFeatures}
}

// ErrTooSmall is wrapped when the size has no room for a file system.
var ErrTooSmall = errors.New("too small for a file system")

// Report tells what was, or would be, formatted.
type Report struct {
	Blocks         uint64           `json:"blocks"`
	BlockSize      int              `json:"block_size"`
	Inodes         uint32           `json:"inodes"`
	InodeSize      int              `json:"inode_size"`
	Groups         uint32           `json:"groups"`
	BlocksPerGroup uint32           `json:"blocks_per_group"`
	InodesPerGroup uint32           `json:"inodes_per_group"`
	ReservedBlocks uint64           `json:"reserved_blocks"`
	FreeBlocks     uint64           `json:"free_blocks"`
	ClusterSize    int              `json:"cluster_size"`   // the block size without bigalloc
	JournalBlocks  uint32           `json:"journal_blocks"` // 0: none
	Features       []string         `json:"features"`
	Label          string           `json:"label"`
	UUID           ondisk.UUID      `json:"uuid"`
	Backups        []ondisk.FsBlock `json:"backup_superblocks"`
	Note           string           `json:"note,omitempty"` // what the user should know
	Written        int64            `json:"bytes_written"`
}

// Plan tells what Format would make of a device of deviceSize bytes.
func Plan(deviceSize int64, p Params) (Report, error) {
	l, err := newLayout(deviceSize, p)
	if err != nil {
		return Report{}, err
	}
	return l.report(), nil
}

// Format makes a file system on dev, whatever was there before; see Probe.
// The device is flushed when it returns nil. After an error there is no file
// system on the device.
func Format(dev blockdev.Device, p Params) (Report, error) {
	if dev.ReadOnly() {
		return Report{}, blockdev.ErrReadOnly
	}
	l, err := newLayout(dev.Size(), p)
	if err != nil {
		return Report{}, err
	}
	w := &writer{dev: dev, l: l}
	if err := w.writeAll(); err != nil {
		return Report{}, fmt.Errorf("writing the file system: %w", err)
	}
	r := l.report()
	r.Written = w.written
	return r, nil
}

func (l *layout) report() Report {
	s := &l.sb
	r := Report{
		Blocks: s.Blocks(), BlockSize: s.BlockSize(), Inodes: s.InodesCount, InodeSize: s.InodeBytes(),
		Groups: uint32(s.GroupCount()), BlocksPerGroup: s.BlocksPerGroup, InodesPerGroup: s.InodesPerGroup,
		ReservedBlocks: s.ReservedBlocks(), FreeBlocks: s.FreeBlocks(), JournalBlocks: l.journal.blocks,
		ClusterSize: s.ClusterSize(),
		Features:    s.Features().Names(), Label: s.Label(), UUID: s.UUID, Note: l.note,
	}
	for _, g := range l.backups {
		r.Backups = append(r.Backups, s.SuperBlockOf(g))
	}
	return r
}
