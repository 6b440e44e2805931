package journal

import (
	"bytes"
	"reflect"
	"sync"
	"sync/atomic"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
)

// Journal is a log and the transactions on their way into it. Its methods may
// be called from any number of goroutines, except where they say otherwise.
type Journal struct {
	log      *logMap
	fsDev    blockdev.Device
	fsBlocks uint64
	external bool // the log has a device of its own
	opt      Options
	cache    *bcache.Cache

	geo geometry // constant after Open
	lay layout   // constant after Start

	maxTx       int // credits a transaction may hold
	overdraft   int // blocks beyond maxTx that handles may borrow
	revokeSlack int // revoke records that a transaction may hold
	reserve     int // log blocks that the largest transaction can need
	softTx      int // dirty blocks at which a commit is started

	hookCredits  int
	beforeCommit func(h *Handle) error
	onCommit     []func(tid TID, err error)
	onAbort      func(err error)
	onFastCommit func(FastCommits) ([]BlockImage, error)
	step         func(string) // tests stop the machine here

	_           [64]byte
	running     atomic.Pointer[Transaction] // changes under mu
	aborted     atomic.Bool
	joinWaiters atomic.Int32 // Begins that wait for a Stop to give credits back
	_           [64]byte

	committed   atomic.Uint32 // TID of the last durable transaction
	wanted      atomic.Uint32 // TID up to which a commit was asked for
	abortReason atomic.Pointer[error]
	abortCh     chan struct{}

	commitMu sync.Mutex // one commit at a time; held over I/O
	writer   logWriter  // +checklocks:commitMu

	cpRun  sync.Mutex // one checkpoint at a time; held over I/O
	homeMu sync.Mutex // held while home locations are being written

	super struct {
		sync.Mutex            // held over the writing of the superblock
		sb         SuperBlock // as last written, or about to be
		raw        []byte     // the 1024 bytes, padding included
		block      uint32     // its log block
	}

	mu         sync.Mutex
	cond       *sync.Cond   // of mu: running, committing, avail or an abort changed
	committing *Transaction // +checklocks:mu
	nextTID    TID          // +checklocks:mu  number of the next new transaction
	avail      int          // +checklocks:mu  free log blocks that nobody has reserved
	barrier    int          // +checklocks:mu  while positive no transaction is created
	starved    int          // +checklocks:mu  Begins that wait for log space
	closed     bool         // +checklocks:mu

	cp struct {
		sync.Mutex
		queue   []*Transaction // committed, in order; the first one is the log's tail
		head    uint32         // log block where the next transaction will begin
		headTID TID            // its number
		pinned  int            // blocks committed and not yet home
	}

	started    bool // +checklocks:mu
	commitKick chan struct{}
	batch      batch
	cpKick     chan struct{}
	quit       chan struct{}
	workers    sync.WaitGroup

	heads headPool
	stats counters
}

// Open reads and checks the journal superblock. It writes nothing and starts
// nothing: a log that NeedsRecovery is replayed by Recover, and Start makes
// the journal usable for transactions.
func Open(p Params) (*Journal, error) {
	j, err := newJournal(p)
	if err != nil {
		return nil, err
	}
	if err := j.readSuper(p); err != nil {
		return nil, err
	}
	j.lay = j.super.sb.layout()
	j.nextTID = j.super.sb.Sequence + 1
	j.resetLog()
	return j, nil
}

func newJournal(p Params) (*Journal, error) {
	j := &Journal{
		fsDev:      p.FsDev,
		fsBlocks:   p.FsBlocks,
		external:   !sameDevice(p.LogDev, p.FsDev),
		opt:        p.Options,
		cache:      p.Cache,
		abortCh:    make(chan struct{}),
		commitKick: make(chan struct{}, 1),
		batch:      batch{joined: make(chan struct{}, 1)},
		cpKick:     make(chan struct{}, 1),
		quit:       make(chan struct{}),
	}
	j.cond = sync.NewCond(&j.mu)
	j.opt.setDefaults()
	dev := p.LogDev
	if dev == nil {
		dev = p.FsDev
	}
	var err error
	j.log, err = newLogMap(dev, p.BlockSize, p.Runs)
	return j, err
}

// sameDevice is a == b for devices of any type, slices among them.
func sameDevice(a, b blockdev.Device) bool {
	return a == nil || b == nil || reflect.TypeOf(a).Comparable() && a == b
}

// readSuper fills super and geo.
func (j *Journal) readSuper(p Params) error {
	if p.SuperBlock >= j.log.total {
		return superError("is beyond the end of the log")
	}
	block := make([]byte, max(p.BlockSize, SuperBlockSize))
	if err := j.log.read(block[:p.BlockSize], p.SuperBlock); err != nil {
		return err
	}
	s := &j.super
	s.raw, s.block = block[:SuperBlockSize], p.SuperBlock
	if err := s.sb.Decode(s.raw); err != nil {
		return err
	}
	if err := s.sb.check(s.raw, p.BlockSize); err != nil {
		return err
	}
	var err error
	if j.geo, err = s.sb.geometry(uint64(j.log.total)); err != nil {
		return err
	}
	if p.SuperBlock >= j.geo.first {
		return superError("first log block %d is not behind the superblock %d", j.geo.first, p.SuperBlock)
	}
	if j.external && !bytes.Equal(p.UUID[:], make([]byte, 16)) && !s.sb.hasUser(p.UUID) {
		return superError("external log does not belong to this file system (its UUID is not among the users)")
	}
	return nil
}

// resetLog makes the circular log empty, in memory, from its first block on.
func (j *Journal) resetLog() {
	j.cp.queue = nil
	j.cp.head = j.geo.first
	j.cp.headTID = j.nextTID
	j.avail = int(j.geo.usable()) - 1
	j.committed.Store(uint32(j.nextTID - 1))
	j.wanted.Store(uint32(j.nextTID - 1))
}

// NeedsRecovery says whether the log holds transactions that may not be home.
func (j *Journal) NeedsRecovery() bool { return j.super.sb.Start != 0 }

// SuperBlock is a copy of the journal superblock as it was last written.
func (j *Journal) SuperBlock() SuperBlock {
	j.super.Lock()
	defer j.super.Unlock()
	return j.super.sb
}

// SetCache sets the home buffers, before Start.
func (j *Journal) SetCache(c *bcache.Cache) { j.cache = c }

// OnCommit registers fn, before Start. It is called once for each transaction
// after that is durable (or has failed: err), in the order of their numbers,
// never two at a time. It must not begin a handle or wait for a commit.
func (j *Journal) OnCommit(fn func(tid TID, err error)) {
	j.onCommit = append(j.onCommit, fn)
}

// OnAbort registers fn, before Start. It is called once, by whoever meets the
// error that aborts the journal, perhaps with commitMu or cpRun held.
func (j *Journal) OnAbort(fn func(err error)) { j.onAbort = fn }

// BeforeCommit registers fn, before Start. It is called in each commit when
// all handles of the transaction have stopped and none can join: what it adds
// with h (up to credits blocks) is consistent with all of the transaction and
// nothing else. It must not stop h, nor take a lock that anybody can hold
// while calling Begin or Restart.
func (j *Journal) BeforeCommit(credits int, fn func(h *Handle) error) {
	j.hookCredits, j.beforeCommit = credits, fn
}

// OnFastCommit registers the replay of fast commits, before Recover. fn is
// called when FsDev holds all that the log had, writes nothing, and returns
// the blocks that the fast commits change. They become one transaction of the
// log, so that they come home together or not at all.
func (j *Journal) OnFastCommit(fn func(FastCommits) ([]BlockImage, error)) { j.onFastCommit = fn }

// Start spawns the goroutines that commit by age and checkpoint. The log must
// not need recovery, and the cache must be set.
func (j *Journal) Start() error {
	if err := j.prepare(); err != nil {
		return err
	}
	j.mu.Lock()
	j.started = true
	j.mu.Unlock()
	j.workers.Add(2)
	go j.commitLoop()
	go j.checkpointLoop()
	return nil
}

// prepare is Start without goroutines: tests then call CommitOnce and
// CheckpointOnce themselves.
func (j *Journal) prepare() error {
	switch {
	case j.NeedsRecovery():
		return ErrNeedsRecovery
	case j.log.dev.ReadOnly() || j.fsDev.ReadOnly():
		return ErrReadOnly
	case j.cache == nil || j.cache.BlockSize() != j.log.blockSize:
		return superError("no buffer cache of %d-byte blocks", j.log.blockSize)
	}
	if err := j.setUp(); err != nil {
		return err
	}
	return nil
}

// setUp derives the limits of transactions from the log's size and format.
func (j *Journal) setUp() error {
	j.super.Lock()
	j.lay = j.super.sb.layout()
	j.super.Unlock()
	if j.fsBlocks > 1<<32 && !j.lay.wide {
		return ErrBlockRange
	}
	usable := int(j.geo.usable())
	j.maxTx = min(usable/4, maxCredits)
	if j.opt.MaxTransaction > 0 {
		j.maxTx = min(j.maxTx, j.opt.MaxTransaction)
	}
	j.overdraft = j.maxTx/8 + 1
	revokeBlocks := j.maxTx/8 + 1
	j.revokeSlack = revokeBlocks * j.lay.revokesPerBlock()
	j.softTx = max(j.maxTx*3/4, 1)
	j.writer.init(j)
	blocks := j.maxTx + j.overdraft
	descriptors := (blocks + j.writer.perDescriptor - 1) / j.writer.perDescriptor
	j.reserve = blocks + descriptors + revokeBlocks + 1
	if j.hookCredits >= j.maxTx/2 {
		return ErrTooManyCredits
	}
	return nil
}

// MaxCredits is the most that Begin grants to one handle.
func (j *Journal) MaxCredits() int { return j.maxTx - j.hookCredits }

// Err is nil, or why the journal has aborted.
func (j *Journal) Err() error {
	if !j.aborted.Load() {
		return nil
	}
	return *j.abortReason.Load()
}
