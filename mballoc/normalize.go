package mballoc

import "math/bits"

// Normalisation: bytes. Up to smallWindow the window is the file from its start, rounded up to a
// power of two of at least minWindow; larger files get aligned windows of growing size.
const (
	minWindow   = 16 << 10
	smallWindow = 1 << 20
	maxWindow   = 8 << 20
)

// windowBytes is the size and alignment of the window for a file that is about to have this size.
func windowBytes(size uint64) uint64 {
	switch {
	case size <= minWindow:
		return minWindow
	case size <= smallWindow:
		return 1 << bits.Len64(size-1)
	case size <= 4<<20:
		return 2 << 20
	case size <= 8<<20:
		return 4 << 20
	default:
		return maxWindow
	}
}

// normalize sets GoalEx to what is worth taking for the request.
func (ac *AllocationContext) normalize() {
	if !ac.prealloc {
		return
	}
	if ac.lg != nil {
		ac.GoalEx.Len = max(ac.OrigEx.Len, uint32(ac.a.knobs.get(mbGroupPrealloc)))
		return
	}
	ac.setWindow(windowBytes(ac.fileBytes()))
}

// setWindow makes GoalEx the logical window of that many bytes, and multiples of it, around the
// request, clipped to what is neither mapped nor preallocated and to what fits a group.
func (ac *AllocationContext) setWindow(bytes uint64) {
	orig, per := ac.OrigEx, uint64(ac.a.geo.ClustersPerGroup)
	unit := max(bytes>>ac.a.geo.clusterSizeBits(), 1)
	start, end := uint64(orig.Logical), uint64(orig.Logical)+uint64(orig.Len)
	from := start / unit * unit
	to := min((end+unit-1)/unit*unit, 1<<32)
	from, to = ac.clip(from, to)
	if to-from > per { // keep the request and what comes after it
		from = max(from, min(start, to-per))
		to = min(to, from+per)
		if from < start && to < end {
			from, to = start, min(start+per, to)
		}
	}
	ac.GoalEx.Logical, ac.GoalEx.Len = LCluster(from), uint32(to-from)
	ac.window = ac.GoalEx
	ac.moveGoal(from)
}

// clip cuts [from, to) to the hole the request lies in. The request itself ends before the next
// preallocation.
func (ac *AllocationContext) clip(from, to uint64) (uint64, uint64) {
	r := &ac.req
	start, end := uint64(ac.OrigEx.Logical), uint64(ac.OrigEx.Logical)+uint64(ac.OrigEx.Len)
	if r.Left.Valid && uint64(r.Left.Logical) < start {
		from = max(from, uint64(r.Left.Logical)+1)
	}
	if r.Right.Valid && uint64(r.Right.Logical) >= end {
		to = min(to, uint64(r.Right.Logical))
	}
	before, after := r.State.pas.around(uint32(start))
	if before != nil {
		from = max(from, uint64(before.end()))
	}
	if after != nil {
		to = min(to, uint64(after.logical()))
	}
	return min(from, start), max(to, start+uint64(ac.OrigEx.Len))
}

// moveGoal puts the goal where the window's start belongs: behind the extent the window follows, or
// before the one it leads to.
func (ac *AllocationContext) moveGoal(from uint64) {
	r, a := &ac.req, ac.a
	switch {
	case r.Left.Valid && uint64(r.Left.Logical)+1 == from && uint64(r.Left.Physical)+1 < a.geo.Clusters:
		ac.GoalEx.Group, ac.GoalEx.Start = a.split(r.Left.Physical + 1)
		ac.hasGoalStart, ac.adjacent = true, true
	case r.Right.Valid && uint64(r.Right.Logical) == from+uint64(ac.GoalEx.Len) && uint64(r.Right.Physical) >= uint64(ac.GoalEx.Len) &&
		uint64(r.Right.Physical) < a.geo.Clusters:
		ac.GoalEx.Group, ac.GoalEx.Start = a.split(r.Right.Physical - Cluster(ac.GoalEx.Len))
		ac.hasGoalStart = true
	case from < uint64(ac.OrigEx.Logical):
		ac.hasGoalStart = false // the goal was meant for the request, not for the window's start
	}
}

// widen makes the window of a file as large as windows get: its writer is one of several in the
// same place, and would otherwise leave an extent behind for every doubling of the file. The window
// starts at the request, so that its length is a power of two and the buddy can serve it.
func (ac *AllocationContext) widen() {
	from := uint64(ac.OrigEx.Logical)
	n := max(uint64(maxWindow>>ac.a.geo.clusterSizeBits()), uint64(ac.OrigEx.Len))
	_, to := ac.clip(from, min(from+min(n, uint64(ac.a.geo.ClustersPerGroup)), 1<<32))
	ac.GoalEx.Logical, ac.GoalEx.Len = LCluster(from), uint32(to-from)
	ac.window = ac.GoalEx
	ac.hasGoalStart = false
}
