package journal

import (
	"sync/atomic"
	"time"
)

// State is where a transaction is on its way.
type State uint32

// The states, in order. See the package comment.
const (
	Running  State = iota // T_RUNNING: handles join
	Locked                // T_LOCKED: no new handle; waits for those that joined
	Flush                 // T_FLUSH: content is settled, the next transaction may run
	Commit                // T_COMMIT: being written to the log
	Finished              // T_FINISHED: durable; waits for its checkpoint
)

// String is the state's name.
func (s State) String() string {
	return [...]string{"Running", "Locked", "Flush", "Commit", "Finished"}[min(s, Finished)]
}

// A transaction's word packs what Begin and Stop change into one atomic:
//
//	bits 0-15   updates: handles that have joined and not stopped
//	bit  16     locked: nobody may join any more
//	bits 17-39  credits: blocks dirtied plus blocks live handles may still dirty
//	bits 40-63  handles that ever joined (wraps)
const (
	oneUpdate   = 1
	updatesMask = 1<<16 - 1
	lockedBit   = 1 << 16
	creditShift = 17
	creditBits  = 23
	creditMask  = 1<<creditBits - 1
	oneHandle   = 1 << 40

	// maxCredits bounds a transaction: 256 MiB of 4 KiB blocks.
	maxCredits = 1 << 16
)

func wordCredits(w uint64) int    { return int(w >> creditShift & creditMask) }
func wordHandles(w uint64) uint64 { return w >> 40 }

// Transaction is a set of changes that becomes durable as one.
type Transaction struct {
	tid     TID
	state   atomic.Uint32
	started time.Time

	_    [64]byte
	word atomic.Uint64
	_    [56]byte

	heads   atomic.Pointer[journalHead] // all that joined, linked by link[tid&1]
	dirty   atomic.Int32                // buffers to be logged
	touched atomic.Bool                 // something was dirtied or revoked, ever
	revokes revokeTable
	waiters atomic.Int32 // who wait until it is durable

	drained chan struct{} // a token when the last update stopped under the lock
	done    chan struct{} // closed when durable (or failed) and callbacks have run
	durable chan struct{} // closed when durable, or failed
	err     error         // valid once durable is closed

	// Of the commit and after it.
	logged   []*journalHead // sorted by block; guarded by commitMu
	forgot   []*journalHead // guarded by commitMu
	idle     []*journalHead // joined, but neither; guarded by commitMu
	logStart uint32
	logLen   int
	cpList   []*journalHead // those with cp == this, and stale ones; guarded by cp.Mutex
	cpCount  int            // number of heads with cp == this; guarded by cp.Mutex
}

func newTransaction(tid TID, credits int) *Transaction {
	t := &Transaction{
		tid:     tid,
		started: time.Now(),
		drained: make(chan struct{}, 1),
		done:    make(chan struct{}),
		durable: make(chan struct{}),
	}
	t.word.Store(uint64(credits) << creditShift)
	return t
}

// join counts a handle in, unless the transaction is locked or the credits
// would exceed limit.
func (t *Transaction) join(credits, limit int) bool {
	for {
		w := t.word.Load()
		if w&lockedBit != 0 || w&updatesMask == updatesMask || wordCredits(w)+credits > limit {
			return false
		}
		if t.word.CompareAndSwap(w, w+oneUpdate+oneHandle+uint64(credits)<<creditShift) {
			return true
		}
	}
}

// addCredits gives a live handle more, unless the transaction is locked (and
// wants to be rid of it) or limit would be exceeded.
func (t *Transaction) addCredits(n, limit int, evenLocked bool) bool {
	for {
		w := t.word.Load()
		if w&lockedBit != 0 && !evenLocked || wordCredits(w)+n > limit {
			return false
		}
		if t.word.CompareAndSwap(w, w+uint64(n)<<creditShift) {
			return true
		}
	}
}

// leave counts a handle out, giving credits back.
func (t *Transaction) leave(credits int) {
	w := t.word.Add(-(oneUpdate + uint64(credits)<<creditShift))
	if w&(lockedBit|updatesMask) == lockedBit {
		select {
		case t.drained <- struct{}{}:
		default:
		}
	}
}

// lock keeps new handles out; waitDrained returns when the others are gone.
func (t *Transaction) lock() { t.word.Or(lockedBit) }

func (t *Transaction) locked() bool { return t.word.Load()&lockedBit != 0 }

func (t *Transaction) updates() int { return int(t.word.Load() & updatesMask) }

func (t *Transaction) waitDrained() {
	for t.updates() != 0 {
		<-t.drained
	}
}

// push puts jh on the list of t. It is called once per head and transaction,
// with the buffer locked.
func (t *Transaction) push(jh *journalHead) {
	slot := &jh.link[t.tid&1]
	for {
		old := t.heads.Load()
		*slot = old
		if t.heads.CompareAndSwap(old, jh) {
			return
		}
	}
}
