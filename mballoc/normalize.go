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

// maxGap bounds the hole before a request that is set aside along with it, in bytes: what the kernel
// may have under way for one file, and less than what a sparse file should be taken for.
const maxGap = 16 << 20

// setGap sees to it that a file which is written back in several requests at once stays in one
// piece in whatever order they come: what lies between the request and what the file has before it
// becomes preallocation of the inode, and the goal is right behind what it has. r.State.mu is held.
func (ac *AllocationContext) setGap() {
	r, a := &ac.req, ac.a
	if !ac.prealloc || r.State == nil || r.Flags&(NoWriter|NoNormalize|NoPrealloc) != 0 {
		return
	}
	from, behind := uint64(0), Cluster(0) // 0: behind nothing
	if r.Left.Valid && r.Left.Logical < r.Logical {
		from, behind = uint64(r.Left.Logical)+1, r.Left.Physical+1
	}
	if pa := r.State.pas.floor(uint32(r.Logical)); pa != nil && uint64(pa.end()) >= from {
		from, behind = uint64(pa.end()), a.cluster(pa.group, pa.start)+Cluster(pa.length)
	}
	gap := uint64(r.Logical) - from
	if gap > maxGap>>a.geo.clusterSizeBits() || gap+uint64(ac.OrigEx.Len) > uint64(a.geo.ClustersPerGroup) {
		return
	}
	ac.gap = uint32(gap)
	ac.GoalEx.Logical, ac.GoalEx.Len = LCluster(from), ac.gap+ac.OrigEx.Len
	ac.window = ac.GoalEx
	if behind > 0 && uint64(behind) < a.geo.Clusters {
		ac.GoalEx.Group, ac.GoalEx.Start = a.split(behind)
		ac.hasGoalStart, ac.adjacent = true, true
	} else if gap > 0 {
		ac.hasGoalStart = false // it was meant for the request, not for the gap
	}
}

// normalize sets GoalEx to what is worth taking for the request.
func (ac *AllocationContext) normalize() {
	if !ac.prealloc {
		return
	}
	if ac.lg != nil {
		ac.GoalEx.Len = max(ac.gap+ac.OrigEx.Len, uint32(ac.a.knobs.get(mbGroupPrealloc)))
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
	from := min(start/unit*unit, start-uint64(ac.gap))
	to := min((end+unit-1)/unit*unit, 1<<32)
	from, to = ac.clip(from, to)
	if to-from > per { // keep the request and what comes after it
		from = max(from, min(start, to-per))
		to = min(to, from+per)
		if from < start && to < end {
			from, to = start, min(start+per, to)
		}
	}
	if from != uint64(ac.OrigEx.Logical-LCluster(ac.gap)) {
		ac.adjacent = false
	}
	ac.GoalEx.Logical, ac.GoalEx.Len = LCluster(from), uint32(to-from)
	ac.window = ac.GoalEx
	if !ac.adjacent {
		ac.moveGoal(from, to)
	}
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

// moveGoal puts the goal of a window that follows nothing before the extent or preallocation that
// it leads to.
func (ac *AllocationContext) moveGoal(from, to uint64) {
	r, a := &ac.req, ac.a
	next := Cluster(0)
	if r.Right.Valid && uint64(r.Right.Logical) == to {
		next = r.Right.Physical
	} else if _, pa := r.State.pas.around(uint32(r.Logical)); pa != nil && uint64(pa.logical()) == to {
		next = a.cluster(pa.group, pa.start)
	}
	switch {
	case uint64(next) >= to-from && uint64(next) < a.geo.Clusters:
		ac.GoalEx.Group, ac.GoalEx.Start = a.split(next - Cluster(to-from))
		ac.hasGoalStart = true
	case from < uint64(ac.OrigEx.Logical):
		ac.hasGoalStart = false // the goal was meant for the request, not for the window's start
	}
}

// widen makes the window of a file as large as windows get: its writer is one of several in the
// same place, and would otherwise leave an extent behind for every doubling of the file. The window
// starts at the gap, so that its length is a power of two and the buddy can serve it.
func (ac *AllocationContext) widen() {
	from := uint64(ac.OrigEx.Logical) - uint64(ac.gap)
	n := max(uint64(maxWindow>>ac.a.geo.clusterSizeBits()), uint64(ac.gap)+uint64(ac.OrigEx.Len))
	_, to := ac.clip(from, min(from+min(n, uint64(ac.a.geo.ClustersPerGroup)), 1<<32))
	ac.GoalEx.Logical, ac.GoalEx.Len = LCluster(from), uint32(to-from)
	ac.window = ac.GoalEx
	ac.hasGoalStart = false
}
