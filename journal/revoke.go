package journal

import (
	"slices"
	"sync"
	"sync/atomic"
)

// revokeTable holds the blocks that were freed in one transaction.
type revokeTable struct {
	count atomic.Int32 // len(blocks), to be read without the lock
	mu    sync.Mutex
	// reserved is what handles have been promised (Handle.ReserveRevokes) and
	// not used.
	reserved int // +checklocks:mu
	// blocks is nil in a transaction that frees no metadata, which most don't.
	blocks map[uint64]struct{} // +checklocks:mu
}

// add records blk and returns how many there are, more than limit if there is
// no room for it.
func (r *revokeTable) add(blk uint64, limit int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blocks == nil {
		r.blocks = make(map[uint64]struct{})
	}
	if len(r.blocks) >= limit {
		if _, there := r.blocks[blk]; !there {
			return limit + 1
		}
	}
	r.blocks[blk] = struct{}{}
	r.count.Store(int32(len(r.blocks)))
	return len(r.blocks)
}

// reserve promises room for n records if with them no more than limit are there
// or promised.
func (r *revokeTable) reserve(n, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.blocks)+r.reserved+n > limit {
		return false
	}
	r.reserved += n
	return true
}

// giveBack takes a promise of n records back.
func (r *revokeTable) giveBack(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= n
}

// cancel takes blk back: it is in use again.
func (r *revokeTable) cancel(blk uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.blocks, blk)
	r.count.Store(int32(len(r.blocks)))
}

// sorted returns the blocks in ascending order.
func (r *revokeTable) sorted() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]uint64, 0, len(r.blocks))
	for blk := range r.blocks {
		out = append(out, blk)
	}
	slices.Sort(out)
	return out
}
