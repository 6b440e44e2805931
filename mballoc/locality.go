package mballoc

// LocalityGroup packs small files: they take their clusters from preallocations of the group
// instead of having their own. There is one for each CPU-ish stripe; a writer comes back to its own
// as long as that is not busy.
type LocalityGroup struct {
	mu  mutex
	pas []*PreallocSpace // guarded by mu; at most maxGroupPAs
	// self points here. What is stored in a preallocation goes through it, so that the compiler
	// sees that allocation contexts, and with them callers' requests, stay on the stack.
	self *LocalityGroup
	_    [24]byte
}

// maxGroupPAs bounds the preallocations of a locality group; the one with the least left goes
// first.
const maxGroupPAs = 8

// lockLocality finds a locality group for a writer and locks it: last, from which the piece before
// came, if there is one; else the writer's own, else any that is free, else its own after waiting.
func (a *Allocator) lockLocality(writer uint32, last *LocalityGroup) *LocalityGroup {
	if last != nil {
		last.mu.lock(&a.contended, lockLocality)
		return last
	}
	n := uint32(len(a.localities))
	own := writer % n
	for i := uint32(0); i < n; i++ {
		if lg := &a.localities[(own+i)%n]; lg.mu.tryLock() {
			return lg
		}
	}
	lg := &a.localities[own]
	lg.mu.lock(&a.contended, lockLocality)
	return lg
}

// pick is the preallocation with room for n clusters that lies closest to the goal. lg.mu is held.
func (a *Allocator) pickGroupPALocked(lg *LocalityGroup, goal Cluster, n uint32) *PreallocSpace {
	var best *PreallocSpace
	var bestDist Cluster
	for _, pa := range lg.pas {
		if pa.length < n || a.groups[pa.group].is(groupCorrupt) {
			continue
		}
		at := a.cluster(pa.group, pa.start)
		dist := max(at, goal) - min(at, goal)
		if best == nil || dist < bestDist {
			best, bestDist = pa, dist
		}
	}
	return best
}

// lastLocality is the locality group from which the request's file got what it has, nil if it has
// nothing or got it elsewhere. req.State.mu is held if there is a state.
func (ac *AllocationContext) lastLocality() *LocalityGroup {
	if ac.adjacent && ac.req.State != nil {
		return ac.req.State.lg
	}
	return nil
}

// rememberLocality notes for lastLocality that the file got something from ac.lg.
func (ac *AllocationContext) rememberLocality() {
	if ac.req.State != nil {
		ac.req.State.lg = ac.lg.self
	}
}

// useLocalityLocked serves the request, and the gap before it, from ac.lg. ok is false when that has
// no room. ac.lg.mu is held.
func (ac *AllocationContext) useLocalityLocked() (res Result, ok bool, err error) {
	a, lg := ac.a, ac.lg
	if ac.gap == 0 {
		res, ok, err = a.useGroupPALocked(ac.m, lg, ac.st, ac.goal(), ac.OrigEx.Len)
	} else if pa := a.pickGroupPALocked(lg, ac.goal(), ac.gap+ac.OrigEx.Len); pa != nil {
		ac.borrowPALocked(lg, pa, ac.gap+ac.OrigEx.Len)
		res, ok, err = ac.result(), true, ac.err
		ac.st.inc(cGroupPAHits)
	}
	if ok {
		ac.rememberLocality()
	}
	return res, ok, err
}

// goal is where the goal starts.
func (ac *AllocationContext) goal() Cluster { return ac.a.cluster(ac.GoalEx.Group, ac.GoalEx.Start) }

// useGroupPALocked serves n clusters from the locality group. ok is false when it has no room for
// all of them. lg.mu is held.
func (a *Allocator) useGroupPALocked(m Marker, lg *LocalityGroup, st *stripe, goal Cluster, n uint32) (res Result, ok bool, err error) {
	pa := a.pickGroupPALocked(lg, goal, n)
	if pa == nil {
		return Result{}, false, nil
	}
	gi := &a.groups[pa.group]
	start := pa.start
	if err := a.cutPALocked(m, gi, pa, 0, n); err != nil {
		return Result{}, true, err
	}
	if pa.length == 0 {
		lg.forgetLocked(pa)
		gi.mu.lock(&a.contended, lockGroup)
		a.unlinkPALocked(st, gi, pa)
		gi.mu.unlock()
	}
	st.inc(cGroupPAHits)
	return Result{Start: a.cluster(pa.group, start), Len: n}, true, nil
}

// borrow serves a file that has outgrown the locality group from the preallocation that its last
// piece came from, if that goes on right behind it: so a file that is written piece by piece stays
// in one place. ac.lg is nil.
func (ac *AllocationContext) borrow() bool {
	if lg := ac.lastLocality(); lg != nil {
		lg.mu.lock(&ac.a.contended, lockLocality)
		done := ac.borrowFromLocked(lg)
		lg.mu.unlock()
		if done || ac.err != nil {
			return done
		}
	}
	for i := range ac.a.localities {
		lg := &ac.a.localities[i]
		if !lg.mu.tryLock() {
			continue
		}
		done := ac.borrowFromLocked(lg)
		lg.mu.unlock()
		if done {
			return true
		}
	}
	return false
}

// borrowFromLocked takes the front of the preallocation that starts at the goal, if it covers the
// gap. lg.mu is held.
func (ac *AllocationContext) borrowFromLocked(lg *LocalityGroup) bool {
	a, goal := ac.a, ac.GoalEx
	for _, pa := range lg.pas {
		if pa.group != goal.Group || pa.start != goal.Start || a.groups[pa.group].is(groupCorrupt) {
			continue
		}
		if pa.length <= ac.gap {
			return false
		}
		ac.borrowPALocked(lg, pa, min(goal.Len, pa.length))
		if ac.done {
			ac.st.inc(cGoalHits)
		}
		return ac.done
	}
	return false
}

// borrowPALocked uses the first n clusters of pa, more than the gap: what the request wants at once,
// the rest as preallocation of the inode. The buddy does not change. lg.mu is held.
func (ac *AllocationContext) borrowPALocked(lg *LocalityGroup, pa *PreallocSpace, n uint32) {
	a, gi := ac.a, &ac.a.groups[pa.group]
	ex := FreeExtent{Logical: ac.OrigEx.Logical - LCluster(ac.gap), Group: gi.num, Start: pa.start, Len: n}
	got := FreeExtent{Logical: ac.OrigEx.Logical, Group: gi.num, Start: pa.start + GrpCluster(ac.gap), Len: min(n-ac.gap, ac.OrigEx.Len)}
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	gi.disk.lock(&a.contended, lockDisk)
	defer gi.disk.unlock()
	if ac.err = ac.m.MarkUsed(gi.num, got.Start, got.Len); ac.err != nil {
		return
	}
	pa.start += GrpCluster(n)
	pa.length -= n
	ac.keepRestLocked(gi, ex, got, ac.gap)
	ac.BestEx, ac.FoundEx, ac.done = ex, got, true
	if pa.length == 0 {
		lg.forgetLocked(pa)
		a.unlinkPALocked(ac.st, gi, pa)
	}
}

// newGroupPALocked makes a preallocation of clusters that useLocked just took. lg.mu, gi.mu and
// gi.disk are held.
func (a *Allocator) newGroupPALocked(st *stripe, gi *GroupInfo, lg *LocalityGroup, start GrpCluster, n uint32) {
	pa := &PreallocSpace{group: gi.num, start: start, length: n, lg: lg.self}
	lg.pas = append(lg.pas, pa)
	a.linkPALocked(st, gi, pa)
	st.add(cPreallocated, uint64(n))
}

// trimGroupPAsLocked discards the smallest preallocations above the bound. lg.mu is held.
func (a *Allocator) trimGroupPAsLocked(lg *LocalityGroup) {
	for len(lg.pas) > maxGroupPAs {
		least := lg.pas[0]
		for _, pa := range lg.pas {
			if pa.length < least.length {
				least = pa
			}
		}
		a.discardGroupPALocked(least)
	}
}

// discardGroupPALocked discards pa unless it is gone already. pa.lg.mu is held.
func (a *Allocator) discardGroupPALocked(pa *PreallocSpace) uint64 {
	if !pa.lg.forgetLocked(pa) {
		return 0
	}
	return a.releasePALocked(pa)
}

func (lg *LocalityGroup) forgetLocked(pa *PreallocSpace) bool {
	for i, p := range lg.pas {
		if p == pa {
			last := len(lg.pas) - 1
			lg.pas[i] = lg.pas[last]
			lg.pas[last] = nil
			lg.pas = lg.pas[:last]
			return true
		}
	}
	return false
}
