package mballoc

import "sync/atomic"

// counter names one figure of a stripe.
type counter int

const (
	cAllocated       counter = iota // clusters handed out
	cPAHits                         // allocations served by inode preallocation
	cGroupPAHits                    // allocations served by a locality group
	cRegular                        // allocations that went through the groups
	cFailed                         // allocations that ended in ErrNoSpace
	cGroupsScanned                  // groups whose bitmap was searched
	cExtents                        // free extents compared
	cGoalHits                       // found at the goal
	cStreamHits                     // found in the group of the stream goal
	cLenHits                        // found with exactly the wanted length
	cPow2Hits                       // found through the buddy
	cBreaks                         // searches that ended at mb_max_to_scan
	cLost                           // best extent gone when it was to be taken
	cBusySkipped                    // groups skipped because another allocation had them
	cBuddies                        // buddies generated
	cBuddyNs                        // nanoseconds spent on it
	cEvicted                        // buddies evicted
	cPACreated                      // preallocations made
	cPAGone                         // preallocations used up or discarded
	cPreallocated                   // clusters preallocated
	cDiscarded                      // clusters of preallocation given back
	cListMoves                      // moves of a group between order lists
	cPrefetched                     // groups given to GroupReader.Prefetch
	cPrefetchRMW                    // atomic read-modify-writes on the "read started" bits
	cFreed                          // clusters freed
	cFreedCalls                     // extents freed
	cFreedInserted                  // freed extents that became an entry of their own
	cFreedFolded                    // freed extents folded into a neighbour
	cFreedJoined                    // of those, extents that closed a gap
	cFreedLocks                     // acquisitions of a shared freed-list lock by Free
	cReleased                       // clusters that came back to the buddy after commit
	cReleasedExtents                // entries released
	cDiscardCalls                   // calls of the discard callback
	cCriterion                      // first of the per-criterion counters: 4 for each
	numCounters      = cCriterion + counter(numCriteria)*4
)

// Per-criterion counters, relative to cCriterion + 4*criterion.
const (
	crHits counter = iota
	crConsidered
	crExtents
	crUseless
)

func (cr Criterion) counter(c counter) counter { return cCriterion + counter(cr)*4 + c }

// stripe holds one share of all counters. A goroutine writes the stripe that its inode or group
// hashes to, so cache lines are rarely shared; a reader sums all stripes. (S5: a shared counter
// costs 10 % of random-write throughput.)
type stripe struct {
	delta   atomic.Int64 // free clusters, not yet folded into space.folded
	pending atomic.Int64 // clusters freed and not committed
	n       [numCounters]atomic.Uint64
	_       [64]byte
}

func (s *stripe) inc(c counter)           { s.n[c].Add(1) }
func (s *stripe) add(c counter, n uint64) { s.n[c].Add(n) }

// sum adds up a counter over all stripes.
func (a *Allocator) sum(c counter) uint64 {
	var n uint64
	for i := range a.stripes {
		n += a.stripes[i].n[c].Load()
	}
	return n
}

// stripeFor picks the stripe of an inode (or of a group, or of nothing in particular).
func (a *Allocator) stripeFor(key uint32) *stripe {
	return &a.stripes[mix32(key)&uint32(len(a.stripes)-1)]
}
