package mballoc

import "math/bits"

// Criterion says how picky the search for a group is.
type Criterion int

const (
	CrPower2Aligned Criterion = iota // a power of two, from the buddy of a group whose largest free order suffices
	CrGoalLenFast                    // a group whose average fragment has the wanted length
	CrBestAvailLen                   // the same for a request trimmed by up to mb_best_avail_max_trim_order orders
	CrGoalLenSlow                    // groups with enough free clusters in whatever pieces
	CrAnyFree                        // anything
	numCriteria
)

var criterionNames = [numCriteria]string{"cr_p2_aligned_stats", "cr_goal_fast_stats", "cr_best_avail_stats", "cr_goal_slow_stats", "cr_any_free_stats"}

// minFlexAvoid is the flex group size from which the first group of a flex group, where the
// metadata is, is avoided for aligned data.
const minFlexAvoid = 4

// partialTries is how many groups are looked at in the list whose members may or may not have the
// wanted average length; the members of all higher lists have it.
const partialTries = 8

// slowTries is how many groups with equally large chunks are compared when nothing has the wanted
// length.
const slowTries = 2

// regular searches the groups: the goal itself, then the goal's group and others by criterion.
func (ac *AllocationContext) regular() {
	if ac.hasGoalStart && ac.findByGoal() || ac.err != nil || ac.req.Flags&GoalOnly != 0 {
		return
	}
	if ac.adjacent && ac.prealloc && ac.lg == nil {
		if ac.borrow() || ac.err != nil {
			return
		}
		ac.widen()
	}
	ac.streamStart()
	ac.setOrder2()
	cr := CrGoalLenFast
	if ac.order2 > 0 {
		cr = CrPower2Aligned
	}
	for ; cr < numCriteria && !ac.stop(); cr++ {
		ac.cr = cr
		ac.scanCriterion()
		if cr >= CrGoalLenSlow && !ac.stop() && ac.BestEx.Len > 0 {
			ac.tryBest()
		}
		if !ac.stop() {
			ac.st.inc(cr.counter(crUseless))
		}
	}
	if ac.done {
		ac.countHit()
	}
}

func (ac *AllocationContext) stop() bool { return ac.done || ac.err != nil }

// setOrder2 notes the order of a request that is a power of two and large enough for the buddy.
func (ac *AllocationContext) setOrder2() {
	n := ac.GoalEx.Len
	ac.order2 = 0
	if n&(n-1) != 0 {
		return
	}
	if o := bits.TrailingZeros32(n); o > 0 && o >= ac.a.knobs.get(mbOrder2Req) && o < ac.a.orders {
		ac.order2 = o
	}
}

// scanCriterion visits groups for the current criterion, the goal's group first (S2.1).
func (ac *AllocationContext) scanCriterion() {
	if ac.cr == CrBestAvailLen {
		ac.bestAvail()
		return
	}
	if ac.a.knobs.get(mbOptimizeScan) == 0 {
		if !ac.visit(ac.GoalEx.Group, true) {
			ac.linear(int(ac.a.geo.Groups) - 1)
		}
		return
	}
	if ac.hopeless() || ac.visit(ac.GoalEx.Group, true) {
		return
	}
	switch ac.cr {
	case CrPower2Aligned:
		if !ac.linear(ac.a.knobs.get(mbMaxLinearGroups)) {
			ac.walkLists(ac.a.largestLists, ac.order2)
		}
	case CrGoalLenFast:
		if !ac.linear(ac.a.knobs.get(mbMaxLinearGroups)) {
			ac.walkAverage(ac.GoalEx.Len)
		}
	default:
		ac.walkDown()
	}
}

// hopeless tells from the lists that no group at all satisfies the criterion.
func (ac *AllocationContext) hopeless() bool {
	switch ac.cr {
	case CrPower2Aligned:
		return !anyFrom(ac.a.largestLists, ac.order2)
	case CrGoalLenFast, CrBestAvailLen:
		return !anyFrom(ac.a.avgLists, min(floorLog2(ac.GoalEx.Len), ac.a.orders-1))
	}
	return false
}

// anyFrom tells whether a list from order up has a member.
func anyFrom(lists []groupSet, order int) bool {
	for i := order; i < len(lists); i++ {
		if lists[i].count.Load() > 0 {
			return true
		}
	}
	return false
}

// linear visits up to n groups after the goal's, around the end. It reports whether the search is
// over.
func (ac *AllocationContext) linear(n int) bool {
	groups := ac.a.geo.Groups
	g := ac.GoalEx.Group
	for n = min(n, int(groups)-1); n > 0; n-- {
		if g++; g >= groups {
			g = 0
		}
		if ac.visit(g, false) {
			return true
		}
	}
	return false
}

// walkLists visits the members of the lists from order up.
func (ac *AllocationContext) walkLists(lists []groupSet, order int) bool {
	for ; order < len(lists); order++ {
		if ac.walkSet(&lists[order], int(ac.a.geo.Groups)) {
			return true
		}
	}
	return false
}

// walkSet visits up to tries members of one list, in group order from the goal on.
func (ac *AllocationContext) walkSet(set *groupSet, tries int) bool {
	cur := set.from(ac.GoalEx.Group)
	for ; tries > 0; tries-- {
		g, ok := cur.step()
		if !ok {
			return false
		}
		if ac.visit(g, false) || ac.loads > ac.maxLoads() {
			return true
		}
	}
	return false
}

// maxLoads is how many bitmaps the fast criteria read for one allocation: the lists place unread
// groups by hope.
func (ac *AllocationContext) maxLoads() int {
	if ac.cr >= CrGoalLenSlow {
		return int(ac.a.geo.Groups)
	}
	return ac.a.knobs.get(mbMaxLinearGroups) + 1
}

// walkAverage visits groups whose average fragment is at least n clusters long.
func (ac *AllocationContext) walkAverage(n uint32) bool {
	lists := ac.a.avgLists
	order := min(floorLog2(n), len(lists)-1)
	if n > 1<<order || order == len(lists)-1 { // members of this list can have less
		if ac.walkSet(&lists[order], partialTries) {
			return true
		}
		order++
	}
	return ac.walkLists(lists, order)
}

// bestAvail trims the request, order by order, rather than scan slowly; never below what was asked
// for.
func (ac *AllocationContext) bestAvail() {
	full := ac.GoalEx.Len
	if ac.a.knobs.get(mbOptimizeScan) == 0 || full <= 1 {
		return
	}
	top := min(bits.Len32(full-1)-1, ac.a.orders-1)
	low := max(top-ac.a.knobs.get(mbBestAvailMaxTrimOrder), 0)
	for o := top; o >= low && 1<<o >= int(ac.OrigEx.Len); o-- {
		ac.GoalEx.Len = 1 << o
		if !ac.hopeless() && (ac.visit(ac.GoalEx.Group, true) || ac.walkAverage(ac.GoalEx.Len)) {
			break
		}
	}
	if !ac.stop() {
		ac.GoalEx.Len = full
	}
}

// walkDown visits the groups with the largest chunks first: what they have is the best there is. A
// few of the first list that has any will do; that bounds the search however many groups hold
// nothing but crumbs. A list keeps less than it promises only for groups that nobody has read yet.
func (ac *AllocationContext) walkDown() {
	lists := ac.a.largestLists
	for o := len(lists) - 1; o >= 0; o-- {
		if ac.walkSet(&lists[o], slowTries) || ac.BestEx.Len >= 1<<o {
			return
		}
	}
}

// good tells from figures read without a lock whether a group is worth locking.
func (ac *AllocationContext) good(gi *GroupInfo) bool {
	free, frags := gi.free.Load(), gi.frags.Load()
	if free == 0 || frags == 0 || gi.is(groupCorrupt) {
		return false
	}
	switch ac.cr {
	case CrPower2Aligned:
		flex := ac.a.geo.FlexSize
		if ac.req.Flags&Data != 0 && flex >= minFlexAvoid && uint32(gi.num)%flex == 0 {
			return false
		}
		return int(gi.largest.Load()) >= ac.order2
	case CrGoalLenFast, CrBestAvailLen:
		return free/frags >= ac.GoalEx.Len
	case CrGoalLenSlow:
		return free >= ac.GoalEx.Len || ac.a.knobs.get(mbOptimizeScan) != 0
	default:
		return true
	}
}

// visit considers one group and searches it if it is good. It reports whether the search is over.
// Waiting for a group that another allocation has is worth it for the goal's group and when nothing
// else is left; otherwise the next will do as well.
func (ac *AllocationContext) visit(g GroupNumber, goal bool) bool {
	a := ac.a
	gi := &a.groups[g]
	ac.st.inc(ac.cr.counter(crConsidered))
	if gi.is(groupNeedInit) || !goal && a.knobs.get(mbOptimizeScan) == 0 {
		ac.prefetchFrom(g)
	}
	if !ac.good(gi) {
		return false
	}
	if goal || ac.cr >= CrGoalLenSlow {
		gi.mu.lock(&a.contended, lockGroup)
	} else if !gi.mu.tryLock() {
		ac.st.inc(cBusySkipped)
		return false
	}
	defer gi.mu.unlock()
	if gi.is(groupNeedInit) && !a.reader.Uninit(g) {
		ac.loads++
	}
	b, err := a.loadLocked(gi)
	if err != nil || !ac.good(gi) { // it may be known only now, or have changed before the lock
		return false
	}
	ac.st.inc(cGroupsScanned)
	ac.scanGroupLocked(gi, b)
	return ac.stop()
}

// countHit notes by what the request was served.
func (ac *AllocationContext) countHit() {
	ac.st.inc(ac.cr.counter(crHits))
	if ac.hasStream && ac.BestEx.Group == ac.streamGroup {
		ac.st.inc(cStreamHits)
	}
	if ac.cr == CrPower2Aligned {
		ac.st.inc(cPow2Hits)
	} else if ac.BestEx.Len == ac.GoalEx.Len {
		ac.st.inc(cLenHits)
	}
}

// String is the criterion's short name.
func (cr Criterion) String() string {
	if cr < 0 || cr >= numCriteria {
		return "none"
	}
	return [numCriteria]string{"p2_aligned", "goal_len_fast", "best_avail_len", "goal_len_slow", "any_free"}[cr]
}
