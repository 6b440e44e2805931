package mballoc

// PreallocSpace is a run of clusters set aside for a file (inode preallocation) or for the small
// files of a locality group. It holds exactly what is not used yet: using its front or end shrinks
// it, using its middle splits it. So the group's in-use clusters are its on-disk bitmap, its
// preallocations and its freed extents, which never overlap.
//
// logical, start and length change with the owner's lock (InodeState.mu or LocalityGroup.mu) and
// the group's disk lock held, so either is enough to read them. next, prev and linked are guarded
// by the group's mu; dead by the owner's lock.
type PreallocSpace struct {
	node       treeNode[PreallocSpace] // key: logical; in the owner's tree (inode preallocation only)
	group      GroupNumber
	start      GrpCluster
	length     uint32
	state      *InodeState    // owner, or
	lg         *LocalityGroup // owner; neither: clusters held while they are being trimmed
	next, prev *PreallocSpace // the group's list
	dead       bool
}

func (pa *PreallocSpace) logical() uint32 { return pa.node.key }
func (pa *PreallocSpace) end() uint32     { return pa.node.key + pa.length }

// InodeState is the allocator's part of an in-core inode: its preallocations by logical start. The
// zero value is ready.
type InodeState struct {
	mu   mutex
	pas  tree[PreallocSpace]
	last *PreallocSpace // the one used last; guarded by mu
	lg   *LocalityGroup // where the file got clusters from last, if from one; guarded by mu
}

// maxInodePAs bounds the preallocations of one inode; a random writer that collects more gives up
// all it has.
const maxInodePAs = 512

// findLocked is the preallocation that covers logical cluster l. s.mu is held.
func (s *InodeState) findLocked(l uint32) *PreallocSpace {
	if pa := s.last; pa != nil && !pa.dead && pa.logical() <= l && l < pa.end() {
		return pa
	}
	pa := s.pas.floor(l)
	if pa == nil || l >= pa.end() {
		return nil
	}
	s.last = pa
	return pa
}

// clipLocked cuts a request of n clusters from logical cluster l, which no preallocation covers,
// where the next preallocation begins. s.mu is held.
func (s *InodeState) clipLocked(l, n uint32) uint32 {
	if _, next := s.pas.around(l); next != nil {
		n = min(n, next.logical()-l)
	}
	return n
}

// linkPALocked adds pa to the list of its group. gi.mu is held.
func (a *Allocator) linkPALocked(st *stripe, gi *GroupInfo, pa *PreallocSpace) {
	pa.next, pa.prev = gi.pas, nil
	if pa.next != nil {
		pa.next.prev = pa
	}
	gi.pas = pa
	gi.npas.Add(1)
	st.inc(cPACreated)
}

// unlinkPALocked takes pa off the list of its group. gi.mu is held.
func (a *Allocator) unlinkPALocked(st *stripe, gi *GroupInfo, pa *PreallocSpace) {
	if pa.next != nil {
		pa.next.prev = pa.prev
	}
	if pa.prev != nil {
		pa.prev.next = pa.next
	} else {
		gi.pas = pa.next
	}
	pa.next, pa.prev = nil, nil
	gi.npas.Add(-1)
	st.inc(cPAGone)
}

// useInodePALocked serves r from a preallocation of its inode. ok is false when none covers
// r.Logical. The group's lock is not taken unless the preallocation ends or is split: its buddy
// does not change, only the on-disk bitmap, which has a lock of its own. r.State.mu is held.
func (a *Allocator) useInodePALocked(m Marker, r *Request, st *stripe, n uint32) (res Result, ok bool, err error) {
	pa := r.State.findLocked(uint32(r.Logical))
	if pa == nil {
		return Result{}, false, nil
	}
	gi := &a.groups[pa.group]
	if gi.is(groupCorrupt) {
		return Result{}, false, nil
	}
	off := uint32(r.Logical) - pa.logical()
	n = min(n, pa.length-off)
	start := pa.start + GrpCluster(off)
	if off > 0 && off+n < pa.length {
		err = a.splitPALocked(m, st, gi, pa, off, n)
	} else {
		err = a.cutPALocked(m, gi, pa, off, n)
	}
	if err != nil {
		return Result{}, true, err
	}
	if pa.length == 0 {
		a.retireInodePALocked(st, gi, pa)
	}
	st.inc(cPAHits)
	return Result{Start: a.cluster(pa.group, start), Len: n}, true, nil
}

// cutPALocked marks n clusters at off used and takes them off pa, at its front or at its end. One
// that is used up stays where it is: behind its end another one may begin, and two of the same key
// could not be told apart when it is taken out of the tree. The owner's lock is held.
func (a *Allocator) cutPALocked(m Marker, gi *GroupInfo, pa *PreallocSpace, off, n uint32) error {
	gi.disk.lock(&a.contended, lockDisk)
	err := m.MarkUsed(pa.group, pa.start+GrpCluster(off), n)
	if err == nil {
		if off == 0 && n < pa.length {
			pa.start += GrpCluster(n)
			pa.node.key += n // stays in order: the next one begins at or after the end
		}
		pa.length -= n
	}
	gi.disk.unlock()
	return err
}

// splitPALocked uses n clusters from the middle of an inode preallocation. pa.state.mu is held.
func (a *Allocator) splitPALocked(m Marker, st *stripe, gi *GroupInfo, pa *PreallocSpace, off, n uint32) error {
	tail := &PreallocSpace{group: pa.group, start: pa.start + GrpCluster(off+n), length: pa.length - off - n, state: pa.state}
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	gi.disk.lock(&a.contended, lockDisk)
	err := m.MarkUsed(pa.group, pa.start+GrpCluster(off), n)
	if err == nil {
		pa.length = off
		a.linkPALocked(st, gi, tail)
	}
	gi.disk.unlock()
	if err != nil {
		return err
	}
	pa.state.pas.insert(&tail.node, pa.logical()+off+n, tail)
	pa.state.last = tail
	return nil
}

// retireInodePALocked forgets a preallocation that is used up. pa.state.mu is held.
func (a *Allocator) retireInodePALocked(st *stripe, gi *GroupInfo, pa *PreallocSpace) {
	pa.dead = true
	pa.state.pas.remove(&pa.node)
	if pa.state.last == pa {
		pa.state.last = nil
	}
	gi.mu.lock(&a.contended, lockGroup)
	a.unlinkPALocked(st, gi, pa)
	gi.mu.unlock()
}

// newInodePALocked makes a preallocation of clusters that useLocked just took. r.State.mu, gi.mu
// and gi.disk are held.
func (a *Allocator) newInodePALocked(st *stripe, gi *GroupInfo, s *InodeState, logical uint32, start GrpCluster, n uint32) {
	pa := &PreallocSpace{group: gi.num, start: start, length: n, state: s}
	s.pas.insert(&pa.node, logical, pa)
	s.last = pa
	a.linkPALocked(st, gi, pa)
	st.add(cPreallocated, uint64(n))
}

// DiscardInode gives back all preallocation of an inode: at the last close by a writer, before a
// truncate or a punch. The caller makes sure that no allocation for the inode runs meanwhile, or
// accepts that it may preallocate again.
func (a *Allocator) DiscardInode(s *InodeState) {
	s.mu.lock(&a.contended, lockInode)
	defer s.mu.unlock()
	for s.pas.root != nil {
		a.discardInodePALocked(s.pas.root.item)
	}
}

// discardInodePALocked takes one preallocation from its inode and its group. pa.state.mu is held.
func (a *Allocator) discardInodePALocked(pa *PreallocSpace) uint64 {
	s := pa.state
	pa.dead = true
	s.pas.remove(&pa.node)
	if s.last == pa {
		s.last = nil
	}
	return a.releasePALocked(pa)
}

// releasePALocked returns what is left of pa to the buddy. The owner's lock is held, and the owner
// has forgotten pa.
func (a *Allocator) releasePALocked(pa *PreallocSpace) uint64 {
	gi := &a.groups[pa.group]
	st := a.stripeFor(uint32(gi.num))
	gi.mu.lock(&a.contended, lockGroup)
	b, err := a.loadLocked(gi) // before pa leaves the list: a buddy that is built now has it
	a.unlinkPALocked(st, gi, pa)
	if err == nil && pa.length > 0 {
		b.markFree(uint32(pa.start), pa.length)
		a.publishLocked(gi)
	}
	gi.mu.unlock()
	if pa.state != nil || pa.lg != nil {
		st.add(cDiscarded, uint64(pa.length))
	}
	if invariants {
		a.mustCheck(gi)
	}
	return uint64(pa.length)
}

// discardGroup discards every preallocation that is in the group now. No lock of the allocator is
// held.
func (a *Allocator) discardGroup(gi *GroupInfo) uint64 {
	var total uint64
	for tries := gi.npas.Load(); tries > 0; tries-- {
		gi.mu.lock(&a.contended, lockGroup)
		pa := gi.pas
		for pa != nil && pa.state == nil && pa.lg == nil {
			pa = pa.next // being trimmed: the trimmer gives it back
		}
		gi.mu.unlock()
		if pa == nil {
			break
		}
		total += a.discardPA(pa)
	}
	return total
}

// discardPA discards pa unless its owner has just done so. No lock is held.
func (a *Allocator) discardPA(pa *PreallocSpace) uint64 {
	if lg := pa.lg; lg != nil {
		lg.mu.lock(&a.contended, lockLocality)
		defer lg.mu.unlock()
		return a.discardGroupPALocked(pa)
	}
	pa.state.mu.lock(&a.contended, lockInode)
	defer pa.state.mu.unlock()
	if pa.dead {
		return 0
	}
	return a.discardInodePALocked(pa)
}

// DiscardAll gives back all preallocation of the file system and returns how many clusters that
// were. No lock of the allocator may be held.
func (a *Allocator) DiscardAll() uint64 {
	var total uint64
	if a.sum(cPACreated) == a.sum(cPAGone) {
		return 0
	}
	for i := range a.groups {
		if gi := &a.groups[i]; gi.npas.Load() > 0 {
			total += a.discardGroup(gi)
		}
	}
	return total
}
