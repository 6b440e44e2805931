package journal

import (
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
)

// Params says where the log and its file system are. The zero value of a
// field that has a default stands for it.
type Params struct {
	LogDev     blockdev.Device // device of the log; nil: FsDev
	Runs       []Run           // the log's place on LogDev, in blocks, in logical order
	SuperBlock uint32          // log block of the journal superblock: 0, or ExternalSuperBlock
	FsDev      blockdev.Device // target of replay
	FsBlocks   uint64          // a logged block beyond these is corruption
	BlockSize  int             // bytes
	Cache      *bcache.Cache   // of FsDev; needed by Start, may come later by SetCache
	UUID       [16]byte        // of the file system; with LogDev it must be among s_users

	Options
}

// Options are the tunables.
type Options struct {
	// CommitInterval is the age at which a transaction is committed (mount
	// option commit=). 0: DefaultCommitInterval.
	CommitInterval time.Duration
	// IdleCommit: a transaction that no handle has joined for this long is
	// committed early. 0: DefaultIdleCommit; negative: never.
	IdleCommit time.Duration
	// NoBarrier leaves out all flushes (mount option nobarrier): a power cut
	// may then cost the file system, a killed process still cannot.
	NoBarrier bool
	// AsyncCommit writes the commit block without waiting for the blocks
	// before it, one flush per commit instead of two. It needs checksums: a
	// commit block whose transaction is not whole is then not believed. File
	// data is not on the device before the commit block, so data=ordered does
	// not hold.
	AsyncCommit bool
	// MinBatch and MaxBatch bound how long a commit that somebody waits for is
	// held back for others to join: the time a commit takes, but at least
	// MinBatch, and at most MaxBatch (mount options min_batch_time and
	// max_batch_time). MaxBatch 0: DefaultMaxBatch; negative: never.
	MinBatch, MaxBatch time.Duration
	// MaxTransaction bounds a transaction, in blocks; 0: a quarter of the log.
	MaxTransaction int
	// MaxPinned is how many bytes of committed but not yet checkpointed blocks
	// are kept in memory before checkpointing begins, whatever the space in
	// the log. 0: DefaultMaxPinned.
	MaxPinned int64
	// StrictCredits makes a handle that runs out of credits fail at once
	// instead of borrowing; tests want it.
	StrictCredits bool
}

// Defaults of Options. Five seconds are ext4's.
const (
	DefaultCommitInterval = 5 * time.Second
	DefaultIdleCommit     = 500 * time.Millisecond
	DefaultMaxPinned      = 96 << 20
)

func (o *Options) setDefaults() {
	if o.CommitInterval <= 0 {
		o.CommitInterval = DefaultCommitInterval
	}
	if o.IdleCommit == 0 {
		o.IdleCommit = DefaultIdleCommit
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	if o.MaxPinned <= 0 {
		o.MaxPinned = DefaultMaxPinned
	}
}
