package mballoc

import (
	"sync"
	"sync/atomic"
)

// space accounts for free clusters of the file system: those free on disk, whether preallocated,
// freed and not committed, or neither. The sum lives in the stripes; each folds its share into
// folded when that passes batch, so folded is off by at most batch * stripes, and an allocation
// that stays further than twice that from the reserves needs no exact sum.
type space struct {
	folded   atomic.Int64
	batch    int64
	slack    int64
	folding  atomic.Int32  // folds in progress
	folds    atomic.Uint64 // folds done
	exact    sync.Mutex    // serialises claims that need the exact sum
	root     atomic.Int64  // root's share
	reserved atomic.Int64  // the last reserve
}

// maxFoldBatch and foldShare: a stripe keeps at most 1/64 of the file system's share to itself.
const (
	maxFoldBatch = 4096
	foldShare    = 64
)

func (sp *space) init(total uint64, stripes int) {
	sp.batch = min(maxFoldBatch, int64(total/uint64(foldShare*stripes))+1)
	sp.slack = 2 * sp.batch * int64(stripes)
}

// addFree changes the free count by d.
func (a *Allocator) addFree(st *stripe, d int64) {
	sp := &a.space
	if v := st.delta.Add(d); v < sp.batch && v > -sp.batch {
		return
	}
	sp.folding.Add(1)
	v := st.delta.Swap(0)
	sp.folded.Add(v)
	sp.folds.Add(1)
	sp.folding.Add(-1)
}

// freeExact sums folded and all stripes, once more when a fold got in between.
func (a *Allocator) freeExact() int64 {
	sp := &a.space
	for try := 0; ; try++ {
		before, busy := sp.folds.Load(), sp.folding.Load()
		n := sp.folded.Load()
		for i := range a.stripes {
			n += a.stripes[i].delta.Load()
		}
		if busy == 0 && sp.folding.Load() == 0 && sp.folds.Load() == before || try == 100 {
			return n
		}
	}
}

// keep is how many clusters a request with these flags must leave free.
func (sp *space) keep(f Flags) int64 {
	switch {
	case f&UseReserved != 0:
		return 0
	case f&UseRoot != 0:
		return sp.reserved.Load()
	default:
		return sp.reserved.Load() + sp.root.Load()
	}
}

// claim takes up to n clusters off the free count and returns how many; 0 means that only reserves
// are left.
func (a *Allocator) claim(st *stripe, n uint32, f Flags) uint32 {
	sp := &a.space
	keep := sp.keep(f)
	if sp.folded.Load()-int64(n)-keep > sp.slack {
		a.addFree(st, -int64(n))
		return n
	}
	sp.exact.Lock()
	defer sp.exact.Unlock()
	avail := a.freeExact() - keep
	if avail <= 0 {
		return 0
	}
	if avail < int64(n) {
		n = uint32(avail)
	}
	a.addFree(st, -int64(n))
	return n
}

// FreeClusters is the number of clusters not in use on disk, as statfs counts them.
func (a *Allocator) FreeClusters() uint64 { return uint64(max(a.freeExact(), 0)) }

// AvailableClusters is what an ordinary user can still allocate.
func (a *Allocator) AvailableClusters() uint64 {
	return uint64(max(a.freeExact()-a.space.keep(0), 0))
}

// SetReserved changes root's share and the reserve for metadata, in clusters.
func (a *Allocator) SetReserved(root, reserved uint64) {
	a.space.root.Store(int64(root))
	a.space.reserved.Store(int64(reserved))
}

// PendingClusters is the number of clusters freed by transactions that have not committed.
func (a *Allocator) PendingClusters() uint64 {
	var n int64
	for i := range a.stripes {
		n += a.stripes[i].pending.Load()
	}
	return uint64(max(n, 0))
}
