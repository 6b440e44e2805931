package mballoc

import (
	"fmt"
	"slices"
)

// Check proves for every group that is in memory: in-core buddy = on-disk bitmap + preallocated +
// freed but not committed, chunks and counts are what the bitmap implies, and the lists have the
// group where they should. It reads every loaded group's bitmap; for tests and debugging.
func (a *Allocator) Check() error {
	for i := range a.groups {
		if err := a.checkGroup(&a.groups[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup checks one group; it takes the group's locks.
func (a *Allocator) checkGroup(gi *GroupInfo) error {
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	if gi.is(groupCorrupt) {
		return nil
	}
	if gi.buddy != nil {
		want := newBuddy(a.geo.ClustersPerGroup, a.orders)
		if err := a.buildLocked(gi, want); err != nil {
			return fmt.Errorf("invariants: %w", err)
		}
		if err := gi.buddy.equal(want); err != nil {
			return fmt.Errorf("invariants: group %d: %w", gi.num, err)
		}
		if b := gi.buddy; gi.free.Load() != b.nfree || gi.frags.Load() != b.frags || int(gi.largest.Load()) != b.largest() ||
			gi.avg.Load() != a.avgOrder(b.nfree, b.frags) {
			return fmt.Errorf("invariants: group %d: published figures are stale", gi.num)
		}
	}
	return a.checkListsLocked(gi)
}

// checkListsLocked checks that the group is in the lists of its orders and in no other. gi.mu is
// held.
func (a *Allocator) checkListsLocked(gi *GroupInfo) error {
	for o := range a.orders {
		if in := a.largestLists[o].has(gi.num); in != (int(gi.largest.Load()) == o) {
			return fmt.Errorf("invariants: group %d: in list of largest free order %d: %v", gi.num, o, in)
		}
		if in := a.avgLists[o].has(gi.num); in != (int(gi.avg.Load()) == o) {
			return fmt.Errorf("invariants: group %d: in list of average fragments %d: %v", gi.num, o, in)
		}
	}
	return nil
}

// equal compares a buddy that was changed step by step with one built at once.
func (b *Buddy) equal(want *Buddy) error {
	switch {
	case !slices.Equal(b.used, want.used):
		for i := range b.used {
			if d := b.used[i] ^ want.used[i]; d != 0 {
				return fmt.Errorf("bitmap differs at word %d: in core %016x, should be %016x", i, b.used[i], want.used[i])
			}
		}
	case b.nfree != want.nfree || b.frags != want.frags || b.orders != want.orders:
		return fmt.Errorf("free %d frags %d orders %x, should be %d %d %x", b.nfree, b.frags, b.orders, want.nfree, want.frags, want.orders)
	case !slices.Equal(b.counters, want.counters):
		return fmt.Errorf("counters %d, should be %d", b.counters, want.counters)
	case b.firstFree > want.firstFree:
		return fmt.Errorf("first free %d, but %d is free", b.firstFree, want.firstFree)
	}
	for k := range b.free {
		if !slices.Equal(b.free[k], want.free[k]) {
			return fmt.Errorf("chunks of order %d differ", k)
		}
	}
	return nil
}
