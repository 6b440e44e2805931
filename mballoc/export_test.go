package mballoc

// CheckGroup checks the equation for one group.
func (a *Allocator) CheckGroup(g GroupNumber) error { return a.checkGroup(&a.groups[g]) }

// InUse tells whether a cluster is in use in the group's buddy; ok is false when no buddy is
// loaded.
func (a *Allocator) InUse(c Cluster) (used, ok bool) {
	g, pos := a.split(c)
	gi := &a.groups[g]
	gi.mu.m.Lock()
	defer gi.mu.unlock()
	if gi.buddy == nil {
		return false, false
	}
	return gi.buddy.isUsed(uint32(pos)), true
}

// PreallocLen sums what is left of all preallocations.
func (a *Allocator) PreallocLen() uint64 {
	var n uint64
	for i := range a.groups {
		gi := &a.groups[i]
		gi.mu.m.Lock()
		for pa := gi.pas; pa != nil; pa = pa.next {
			n += uint64(pa.length)
		}
		gi.mu.unlock()
	}
	return n
}

// FreeInCore sums the free clusters of all buddies, loading them.
func (a *Allocator) FreeInCore() uint64 {
	var n uint64
	for i := range a.groups {
		s, _ := a.GroupStat(GroupNumber(i))
		n += uint64(s.Free)
	}
	return n
}

// Ranges lists the logical ranges [from, to) of an inode's preallocations in ascending order.
func (s *InodeState) Ranges() (r [][2]uint64) {
	s.pas.each(func(pa *PreallocSpace) bool {
		r = append(r, [2]uint64{uint64(pa.logical()), uint64(pa.logical()) + uint64(pa.length)})
		return true
	})
	return r
}

// PAs counts an inode's preallocations.
func (s *InodeState) PAs() int { return s.pas.n }

// BuddyBytes is the memory of one loaded buddy.
func (a *Allocator) BuddyBytes() int64 { return newBuddy(a.geo.ClustersPerGroup, a.orders).bytes() }
