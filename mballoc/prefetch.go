package mballoc

// prefetchFrom reads ahead of the search: the bitmaps of mb_prefetch groups from g on, at most
// mb_prefetch_limit for one allocation, as long as the search is for good groups; without a limit
// when anything will do.
func (ac *AllocationContext) prefetchFrom(g GroupNumber) {
	a := ac.a
	n := a.knobs.get(mbPrefetch)
	if n == 0 || ac.prefetched > 0 && g < ac.prefetchAt && g+GroupNumber(n) >= ac.prefetchAt {
		return
	}
	if ac.cr < CrAnyFree && ac.prefetched >= a.knobs.get(mbPrefetchLimit) {
		return
	}
	ac.prefetched += n
	ac.prefetchAt = a.prefetch(ac.st, g, n)
}

// prefetch starts reading the bitmaps of up to n groups from g on that are worth it, each group
// once in the allocator's life, and returns the group after them. The "read started" bit is tested
// with a plain load first (S4): once set it stays, and an atomic on it would take the cache line
// away from everybody who looks for a group. It is set before the group is judged, so that a group
// not worth reading is not looked at again.
func (a *Allocator) prefetch(st *stripe, g GroupNumber, n int) GroupNumber {
	end := GroupNumber(min(uint64(g)+uint64(n), uint64(a.geo.Groups)))
	run := g
	for ; g < end; g++ {
		gi := &a.groups[g]
		if gi.state.Load()&groupReadStarted == 0 {
			st.inc(cPrefetchRMW)
			if gi.state.Or(groupReadStarted)&groupReadStarted == 0 && gi.is(groupNeedInit) && gi.free.Load() > 0 && !a.reader.Uninit(g) {
				continue // part of the run
			}
		}
		a.startRead(st, run, g)
		run = g + 1
	}
	a.startRead(st, run, end)
	return end
}

func (a *Allocator) startRead(st *stripe, from, to GroupNumber) {
	if from < to {
		a.reader.Prefetch(from, int(to-from))
		st.add(cPrefetched, uint64(to-from))
	}
}

// PrefetchAll passes over all groups once as a search would, mb_prefetch at a time, and reports how
// many it gave to GroupReader.Prefetch.
func (a *Allocator) PrefetchAll() uint64 {
	st := a.stripeFor(0)
	before := st.n[cPrefetched].Load()
	n := max(a.knobs.get(mbPrefetch), 1)
	for g := GroupNumber(0); g < a.geo.Groups; {
		g = a.prefetch(st, g, n)
	}
	return st.n[cPrefetched].Load() - before
}
