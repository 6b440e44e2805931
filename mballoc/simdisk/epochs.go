package simdisk

import (
	"runtime"
	"sync"
	"sync/atomic"

	"extfused/mballoc"
)

// Epochs is a journal for many workers that share no word while they work: each announces the
// transaction it is in at a place of its own, and a commit waits until nobody announces the
// transaction any more.
type Epochs struct {
	D       *Disk
	A       *mballoc.Allocator
	Commits atomic.Uint64

	mu      sync.Mutex // one commit at a time
	workers []epoch
}

type epoch struct {
	in atomic.Uint32 // transaction, 0 outside of one
	tx Tx
	_  [64]byte
}

// NewEpochs makes a journal for n workers.
func NewEpochs(d *Disk, a *mballoc.Allocator, n int) *Epochs {
	e := &Epochs{D: d, A: a, workers: make([]epoch, n)}
	for i := range e.workers {
		e.workers[i].tx.D = d
	}
	return e
}

// Begin opens a handle for worker w; it is valid until End.
func (e *Epochs) Begin(w int) *Tx {
	p := &e.workers[w]
	for {
		tid := e.D.TID()
		p.in.Store(tid)
		if e.D.TID() == tid { // a commit that began in between has seen the announcement
			p.tx.ID = tid
			return &p.tx
		}
	}
}

// End closes worker w's handle.
func (e *Epochs) End(w int) { e.workers[w].in.Store(0) }

// Commit ends the running transaction, waits for its handles, and releases what it freed. The
// caller has no handle open.
func (e *Epochs) Commit(discard func(start mballoc.Cluster, n uint32)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tid := e.D.NextTID()
	for i := range e.workers {
		for e.workers[i].in.Load() == tid {
			runtime.Gosched()
		}
	}
	e.A.Committed(tid, discard)
	e.Commits.Add(1)
}
