package mballoc

import "sync/atomic"

// streamGoal remembers, for the files that hash to it, the group in which a stream allocation last
// succeeded (S3): large files pack together, and a long file system is not scanned from its start
// for each. It is a hint, so an atomic is enough, and only the group is kept. There are several, so
// that writers do not all fight for one group; they are not per inode, which would undo the
// packing.
type streamGoal struct {
	group atomic.Uint32 // group + 1, 0 for none
	_     [60]byte
}

// groupsPerGoal is the least number of groups a goal slot should have for itself.
const groupsPerGoal = 4

// streamGoals is the number of slots: one for each CPU as long as there are enough groups.
func streamGoals(geo Geometry, fixed int) int {
	if fixed > 0 {
		return fixed
	}
	return max(min(geo.CPUs, (int(geo.Groups)+groupsPerGoal-1)/groupsPerGoal), 1)
}

func (a *Allocator) streamSlot(ino uint32) *streamGoal {
	return &a.goals[mix32(ino)%uint32(len(a.goals))]
}

// streamStart makes a stream search start at the group of its slot, unless it continues an extent.
func (ac *AllocationContext) streamStart() {
	if !ac.stream {
		return
	}
	if g := ac.a.streamSlot(ac.req.Ino).group.Load(); g != 0 {
		ac.streamGroup, ac.hasStream = GroupNumber(g-1), true
		ac.GoalEx.Group, ac.GoalEx.Start = ac.streamGroup, 0
	}
}

// rememberStream writes the slot only when the group is another one.
func (a *Allocator) rememberStream(ino uint32, g GroupNumber) {
	if slot := a.streamSlot(ino); slot.group.Load() != uint32(g)+1 {
		slot.group.Store(uint32(g) + 1)
	}
}
