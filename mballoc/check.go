//go:build invariants

package mballoc

// invariants is whether every operation proves the state of the groups it touched.
const invariants = true

// mustCheck panics when the group's buddy is not on-disk bitmap + preallocated + freed and
// uncommitted.
func (a *Allocator) mustCheck(gi *GroupInfo) {
	if err := a.checkGroup(gi); err != nil {
		panic(err)
	}
}
