package mballoc

// CriterionStats are the figures of one criterion.
type CriterionStats struct {
	Hits             uint64 // allocations it served
	GroupsConsidered uint64 // groups looked at, most of them without their lock
	ExtentsScanned   uint64 // free extents compared
	UselessLoops     uint64 // searches it could not serve
}

// Stats are the allocator's figures since it was made, summed over all stripes. They are read one
// by one while work goes on, so they need not be of one moment.
type Stats struct {
	Reqs, Success   uint64 // requests, and those served
	Allocated       uint64 // clusters handed out
	PreallocHits    uint64 // requests served by inode preallocation
	GroupPAHits     uint64 // requests served by a locality group
	GroupsScanned   uint64
	Criteria        [numCriteria]CriterionStats
	ExtentsScanned  uint64
	GoalHits        uint64
	StreamGoalHits  uint64
	LenGoalHits     uint64
	Power2Hits      uint64
	Breaks, Lost    uint64
	BusySkipped     uint64 // groups passed over because another allocation had them locked
	BuddiesLoaded   uint64 // in memory now
	Buddies         uint64 // generated
	BuddiesNs       uint64 // nanoseconds spent on it
	BuddiesEvicted  uint64
	Preallocations  uint64 // existing now
	Preallocated    uint64 // clusters ever preallocated
	Discarded       uint64 // clusters of preallocation given back unused
	ListMoves       uint64 // moves of groups between order lists
	GroupsPrefetch  uint64 // bitmaps given to Prefetch
	PrefetchAtomics uint64 // atomic read-modify-writes on the groups' "read started" bits

	Freed           uint64 // clusters freed
	FreedExtents    uint64 // extents freed
	FreedInserted   uint64 // of these, entries of their own
	FreedFolded     uint64 // folded into an entry
	FreedJoined     uint64 // folded and closed a gap between two entries
	FreedListLocks  uint64 // acquisitions of a freed-list lock by Free
	Pending         uint64 // clusters freed and not committed
	Released        uint64 // clusters returned to a buddy after a commit
	ReleasedExtents uint64 // entries returned
	DiscardCalls    uint64

	Contended map[string]uint64 // by lock class: acquisitions that had to wait
}

// Stats sums up the counters.
func (a *Allocator) Stats() Stats {
	s := Stats{
		Allocated: a.sum(cAllocated), PreallocHits: a.sum(cPAHits), GroupPAHits: a.sum(cGroupPAHits), GroupsScanned: a.sum(cGroupsScanned),
		ExtentsScanned: a.sum(cExtents), GoalHits: a.sum(cGoalHits), StreamGoalHits: a.sum(cStreamHits), LenGoalHits: a.sum(cLenHits),
		Power2Hits: a.sum(cPow2Hits), Breaks: a.sum(cBreaks), Lost: a.sum(cLost), BusySkipped: a.sum(cBusySkipped),
		BuddiesLoaded: uint64(a.cache.count.Load()), Buddies: a.sum(cBuddies), BuddiesNs: a.sum(cBuddyNs), BuddiesEvicted: a.sum(cEvicted),
		Preallocated: a.sum(cPreallocated), Discarded: a.sum(cDiscarded), ListMoves: a.sum(cListMoves),
		GroupsPrefetch: a.sum(cPrefetched), PrefetchAtomics: a.sum(cPrefetchRMW),
		Freed: a.sum(cFreed), FreedExtents: a.sum(cFreedCalls), FreedInserted: a.sum(cFreedInserted), FreedFolded: a.sum(cFreedFolded),
		FreedJoined: a.sum(cFreedJoined), FreedListLocks: a.sum(cFreedLocks), Pending: a.PendingClusters(), Released: a.sum(cReleased),
		ReleasedExtents: a.sum(cReleasedExtents), DiscardCalls: a.sum(cDiscardCalls), Contended: map[string]uint64{},
	}
	gone := a.sum(cPAGone) // before those made, so that the difference is never negative
	s.Preallocations = a.sum(cPACreated) - gone
	s.Success = s.PreallocHits + s.GroupPAHits + a.sum(cRegular)
	s.Reqs = s.Success + a.sum(cFailed)
	for cr := range numCriteria {
		s.Criteria[cr] = CriterionStats{a.sum(cr.counter(crHits)), a.sum(cr.counter(crConsidered)), a.sum(cr.counter(crExtents)), a.sum(cr.counter(crUseless))}
	}
	for i, name := range lockClassNames {
		s.Contended[name] = a.contended[i].Load()
	}
	return s
}

// GroupStat is what is known of a group.
type GroupStat struct {
	Group     GroupNumber
	Free      uint32 // clusters free in core
	Fragments uint32 // free runs
	First     uint32 // first free cluster; the group's length when there is none
	Counters  []uint32
	Corrupt   bool
}

// GroupStat looks at one group, building a buddy for the purpose if none is loaded (that does I/O
// and leaves the order lists as they are).
func (a *Allocator) GroupStat(g GroupNumber) (GroupStat, error) {
	s := GroupStat{Group: g, Counters: make([]uint32, a.orders)}
	if g >= a.geo.Groups {
		return s, &GroupError{Group: g, What: "no such group"}
	}
	gi := &a.groups[g]
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	if s.Corrupt = gi.is(groupCorrupt); s.Corrupt {
		return s, nil
	}
	b := gi.buddy
	if b == nil {
		b = a.cache.take()
		defer a.cache.giveBack(b)
		if err := a.buildLocked(gi, b); err != nil {
			return s, err
		}
	}
	s.Free, s.Fragments, s.First = b.nfree, b.frags, b.nextFree(0)
	copy(s.Counters, b.counters)
	return s, nil
}

// StructsSummary counts the groups in the order lists.
type StructsSummary struct {
	OptimizeScan bool
	MaxFreeOrder []int64 // groups by largest free order
	AvgFragment  []int64 // groups by order of their average fragment
}

// StructsSummary reads the lengths of the lists; it takes no lock.
func (a *Allocator) StructsSummary() StructsSummary {
	s := StructsSummary{OptimizeScan: a.knobs.get(mbOptimizeScan) != 0}
	for o := range a.orders {
		s.MaxFreeOrder = append(s.MaxFreeOrder, a.largestLists[o].count.Load())
		s.AvgFragment = append(s.AvgFragment, a.avgLists[o].count.Load())
	}
	return s
}
