package mballoc

import "math/bits"

// findByGoal takes the goal cluster and what follows it, if that covers the request.
func (ac *AllocationContext) findByGoal() bool {
	a, goal := ac.a, ac.GoalEx
	gi := &a.groups[goal.Group]
	if gi.free.Load() == 0 || gi.is(groupCorrupt) {
		return false
	}
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	b, err := a.loadLocked(gi)
	pos := uint32(goal.Start)
	if err != nil || pos >= b.n || b.isUsed(pos) {
		return false
	}
	need := uint32(ac.OrigEx.Logical-goal.Logical) + ac.OrigEx.Len
	n := min(b.runEnd(pos)-pos, goal.Len)
	if n < need && !(ac.adjacent && goal.Logical == ac.OrigEx.Logical) { // continuing an extent is worth any length
		return false
	}
	ac.useLocked(gi, b, FreeExtent{Group: goal.Group, Start: goal.Start, Len: n})
	if ac.done {
		ac.st.inc(cGoalHits)
	}
	return ac.stop()
}

// scanGroupLocked searches one group for the current criterion and takes what is good enough. gi.mu
// is held.
func (ac *AllocationContext) scanGroupLocked(gi *GroupInfo, b *Buddy) {
	stripe := ac.a.geo.Stripe
	switch {
	case ac.cr == CrPower2Aligned:
		ac.scanPower2Locked(gi, b)
	case stripe > 1 && ac.cr < CrAnyFree && ac.GoalEx.Len%stripe == 0:
		ac.scanAlignedLocked(gi, b, stripe)
	case ac.cr >= CrGoalLenSlow && b.largest() >= 0 && ac.a.knobs.get(mbOptimizeScan) != 0 && 2<<b.largest() <= int(ac.GoalEx.Len):
		ac.scanLargestLocked(gi, b)
	default:
		ac.scanExtentsLocked(gi, b)
	}
}

// scanLargestLocked looks only at the run around a chunk of the largest order, where nothing can be
// long enough: comparing hundreds of crumbs would not findLocked more.
func (ac *AllocationContext) scanLargestLocked(gi *GroupInfo, b *Buddy) {
	chunk, _ := b.findChunk(b.largest())
	pos := b.runStart(chunk)
	ac.noteExtents(1)
	ac.measure(gi.num, pos, b.runEnd(chunk)-pos)
	if ac.BestEx.Len >= ac.GoalEx.Len || ac.cr == CrAnyFree {
		ac.takeBestLocked(gi, b)
	}
}

func (ac *AllocationContext) takeBestLocked(gi *GroupInfo, b *Buddy) {
	best := ac.BestEx
	best.Len = min(best.Len, ac.GoalEx.Len)
	ac.useLocked(gi, b, best)
}

// scanPower2Locked takes an aligned chunk from the buddy. A stream that is likely to go on takes one
// with room to grow, if the group has one; and a stream moves the chunk back to where the free run
// begins, so that large files of odd lengths follow each other without a hole.
func (ac *AllocationContext) scanPower2Locked(gi *GroupInfo, b *Buddy) {
	pos, ok := uint32(0), false
	if room := uint32(maxWindow >> ac.a.geo.clusterSizeBits()); ac.stream && (ac.gap > 0 || ac.GoalEx.Len >= room/(maxWindow/smallWindow)) {
		pos, ok = b.findChunk(min(max(ac.order2, bits.Len32(room)-1), ac.a.orders-1))
	}
	if !ok {
		pos, ok = b.findChunk(ac.order2)
	}
	if !ok {
		return
	}
	ac.noteExtents(1)
	if ac.stream && ac.a.geo.Stripe <= 1 {
		pos = b.runStart(pos)
	}
	ac.useLocked(gi, b, FreeExtent{Group: gi.num, Start: GrpCluster(pos), Len: ac.GoalEx.Len})
}

// scanAlignedLocked takes the first run that has the wanted length from a multiple of the stripe
// on.
func (ac *AllocationContext) scanAlignedLocked(gi *GroupInfo, b *Buddy, stripe uint32) {
	first := uint64(ac.a.cluster(gi.num, 0))
	s := uint64(stripe)
	pos := uint32((first+s-1)/s*s - first)
	for uint64(pos)+uint64(ac.GoalEx.Len) <= uint64(b.n) {
		if b.isUsed(pos) {
			free := b.nextFree(pos)
			pos += (free - pos + stripe - 1) / stripe * stripe
			continue
		}
		ac.noteExtents(1)
		end := b.runEnd(pos)
		if end-pos >= ac.GoalEx.Len {
			ac.useLocked(gi, b, FreeExtent{Group: gi.num, Start: GrpCluster(pos), Len: ac.GoalEx.Len})
			return
		}
		pos += (end - pos + stripe - 1) / stripe * stripe
	}
}

func (ac *AllocationContext) noteExtents(n int) {
	ac.found += n
	ac.st.add(cExtents, uint64(n))
	ac.st.add(ac.cr.counter(crExtents), uint64(n))
}

// scanExtentsLocked compares the free runs of a group and takes the best when it is good enough:
// exact, or the smallest that suffices among mb_min_to_scan or the whole group; at mb_max_to_scan
// whatever is best so far.
func (ac *AllocationContext) scanExtentsLocked(gi *GroupInfo, b *Buddy) {
	fast := ac.cr < CrGoalLenSlow
	minScan, maxScan := ac.a.knobs.get(mbMinToScan), ac.a.knobs.get(mbMaxToScan)
	before := ac.found
	pos := b.nextFree(0)
	for pos < b.n {
		end := b.runEnd(pos)
		if n := end - pos; !fast || n >= ac.GoalEx.Len { // too short to be looked at
			ac.found++
			if ac.measure(gi.num, pos, n) {
				break
			}
			if ac.found > maxScan {
				ac.st.inc(cBreaks)
				break
			}
			if ac.found > minScan && ac.BestEx.Len >= ac.GoalEx.Len {
				break
			}
		}
		pos = b.nextFree(end)
	}
	n := ac.found - before
	ac.found = before
	ac.noteExtents(n)
	enough := ac.BestEx.Len >= ac.GoalEx.Len || ac.found > maxScan || ac.cr == CrAnyFree
	if ac.BestEx.Len > 0 && ac.BestEx.Group == gi.num && enough {
		ac.takeBestLocked(gi, b)
	}
}

// measure keeps the better of the best run so far and a new one; it reports an exact fit.
func (ac *AllocationContext) measure(g GroupNumber, pos, n uint32) bool {
	goal, best := ac.GoalEx.Len, ac.BestEx.Len
	better := best == 0 || n == goal
	if best < goal {
		better = better || n > best
	} else {
		better = better || n > goal && n < best
	}
	if better {
		ac.BestEx = FreeExtent{Group: g, Start: GrpCluster(pos), Len: n}
	}
	return n == goal
}

// tryBest takes the best extent that the search passed by, if it is still there.
func (ac *AllocationContext) tryBest() {
	a, best := ac.a, ac.BestEx
	ac.BestEx.Len = 0
	gi := &a.groups[best.Group]
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	b, err := a.loadLocked(gi)
	pos := uint32(best.Start)
	if err != nil || b.isUsed(pos) {
		ac.st.inc(cLost)
		return
	}
	best.Len = min(b.runEnd(pos)-pos, best.Len, ac.GoalEx.Len)
	ac.useLocked(gi, b, best)
}
