package mballoc

import (
	"cmp"
	"fmt"
	"slices"
)

// FreeData is an extent that a transaction freed. It waits in its group's tree, and in the list of
// its transaction, until that transaction has committed; before that the clusters must not be used
// again, because after a crash the file that had them would have them back.
//
// start, n and tid are guarded by the group's disk lock; next, prev and list by the shard's lock.
type FreeData struct {
	node       treeNode[FreeData] // key: first cluster in the group
	group      GroupNumber
	n          uint32
	tid        uint32
	next, prev *FreeData
	linked     bool
}

func (fd *FreeData) start() GrpCluster { return GrpCluster(fd.node.key) }
func (fd *FreeData) end() uint32       { return fd.node.key + fd.n }

// freedShard holds the freed extents of some of the groups by transaction: list[tid&1], because at
// most two transactions can have freed extents, the running and the committing one. There are
// several shards so that not even the file system as a whole has one lock for them.
type freedShard struct {
	mu   mutex
	list [2]*FreeData // heads of doubly linked lists; guarded by mu
	pool *FreeData    // spare entries, linked by next; guarded by mu
	_    [32]byte
}

func (sh *freedShard) pushLocked(fd *FreeData) {
	head := &sh.list[fd.tid&1]
	fd.next, fd.prev, fd.linked = *head, nil, true
	if fd.next != nil {
		fd.next.prev = fd
	}
	*head = fd
}

func (sh *freedShard) unlinkLocked(fd *FreeData) {
	if !fd.linked {
		return
	}
	if fd.next != nil {
		fd.next.prev = fd.prev
	}
	if fd.prev != nil {
		fd.prev.next = fd.next
	} else {
		sh.list[fd.tid&1] = fd.next
	}
	fd.next, fd.prev, fd.linked = nil, nil, false
}

func (sh *freedShard) spareLocked() *FreeData {
	fd := sh.pool
	if fd == nil {
		return &FreeData{}
	}
	sh.pool, fd.next = fd.next, nil
	return fd
}

func (a *Allocator) shardOf(g GroupNumber) *freedShard {
	return &a.freed[uint32(g)&uint32(len(a.freed)-1)]
}

// Free frees n clusters from start. They count as free at once, but can be allocated again only
// when the marker's transaction has committed (Committed), or at once with FreeNow. On an error the
// groups before the one that failed have been freed.
func (a *Allocator) Free(m Marker, start Cluster, n uint32, flags FreeFlags) error {
	if uint64(start) >= a.geo.Clusters || uint64(n) > a.geo.Clusters-uint64(start) {
		return fmt.Errorf("mballoc: free of clusters %d+%d outside the file system's %d", start, n, a.geo.Clusters)
	}
	for n > 0 {
		g, off := a.split(start)
		part := min(n, a.geo.groupLen(g)-uint32(off))
		gi := &a.groups[g]
		var err error
		switch {
		case gi.is(groupCorrupt): // its bitmap cannot be trusted: leave it to fsck
		case flags&FreeNow != 0:
			err = a.freeNow(m, gi, off, part)
		default:
			err = a.freeLater(m, gi, uint32(off), part)
		}
		if err != nil {
			return err
		}
		if invariants {
			a.mustCheck(gi)
		}
		start += Cluster(part)
		n -= part
	}
	return nil
}

func (a *Allocator) freeLater(m Marker, gi *GroupInfo, start, n uint32) error {
	st := a.stripeFor(uint32(gi.num))
	gi.disk.lock(&a.contended, lockDisk)
	defer gi.disk.unlock()
	left, right := gi.freed.around(start)
	if left != nil && left.end() > start || right != nil && right.node.key < start+n {
		return &GroupError{Group: gi.num, What: fmt.Sprintf("clusters %d+%d freed twice", start, n)}
	}
	if err := m.MarkFree(gi.num, GrpCluster(start), n); err != nil {
		return err
	}
	a.addFree(st, int64(n))
	st.pending.Add(int64(n))
	st.add(cFreed, uint64(n))
	st.inc(cFreedCalls)
	a.enterFreedLocked(st, gi, start, n, m.TID(), left, right)
	return nil
}

// enterFreedLocked is S1: fold into a neighbour of the same transaction without the lists' lock;
// take it once to drop a neighbour that the extent connects to the other, or to insert an extent
// that touches none. gi.disk is held.
func (a *Allocator) enterFreedLocked(st *stripe, gi *GroupInfo, start, n, tid uint32, left, right *FreeData) {
	if left != nil && (left.tid != tid || left.end() != start) {
		left = nil
	}
	if right != nil && (right.tid != tid || right.node.key != start+n) {
		right = nil
	}
	switch {
	case left != nil && right != nil:
		gi.freed.remove(&right.node)
		left.n += n + right.n
		sh := a.lockShard(st, gi)
		sh.unlinkLocked(right)
		right.next, sh.pool = sh.pool, right
		sh.mu.unlock()
		st.inc(cFreedFolded)
		st.inc(cFreedJoined)
	case left != nil:
		left.n += n
		st.inc(cFreedFolded)
	case right != nil:
		right.node.key, right.n = start, right.n+n // stays in order: nothing lies between
		st.inc(cFreedFolded)
	default:
		sh := a.lockShard(st, gi)
		fd := sh.spareLocked()
		fd.group, fd.n, fd.tid = gi.num, n, tid
		sh.pushLocked(fd)
		sh.mu.unlock()
		gi.freed.insert(&fd.node, start, fd)
		st.inc(cFreedInserted)
	}
}

func (a *Allocator) lockShard(st *stripe, gi *GroupInfo) *freedShard {
	sh := a.shardOf(gi.num)
	sh.mu.lock(&a.contended, lockFreed)
	st.inc(cFreedLocks)
	return sh
}

// freeNow frees without waiting for a transaction.
func (a *Allocator) freeNow(m Marker, gi *GroupInfo, start GrpCluster, n uint32) error {
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	b, err := a.loadLocked(gi)
	if err != nil {
		return nil // as for any corrupt group
	}
	if !allSet(b.used, uint32(start), uint32(start)+n) {
		return &GroupError{Group: gi.num, What: fmt.Sprintf("clusters %d+%d freed twice", start, n)}
	}
	gi.disk.lock(&a.contended, lockDisk)
	err = m.MarkFree(gi.num, start, n)
	gi.disk.unlock()
	if err != nil {
		return err
	}
	b.markFree(uint32(start), n)
	gi.state.And(^uint32(groupTrimmed))
	a.publishLocked(gi)
	st := a.stripeFor(uint32(gi.num))
	a.addFree(st, int64(n))
	st.add(cFreed, uint64(n))
	st.inc(cFreedCalls)
	return nil
}

// releaseBatch is how many freed extents return to a buddy in one hold of its group's lock.
const releaseBatch = 128

// Committed tells that transaction tid, and with it every earlier one, is durable: what it freed
// returns to the buddies. discard, if not nil, is called for each merged extent before it can be
// allocated again, without a lock held; it may be slow. The journal calls Committed for one
// transaction after the other.
func (a *Allocator) Committed(tid uint32, discard func(start Cluster, n uint32)) {
	list := a.takeFreed(tid)
	slices.SortFunc(list, func(x, y *FreeData) int {
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.node.key, y.node.key))
	})
	if discard != nil {
		a.discardFreed(list, discard)
	}
	for len(list) > 0 {
		n := 1
		for n < len(list) && n < releaseBatch && list[n].group == list[0].group {
			n++
		}
		a.release(&a.groups[list[0].group], list[:n], discard != nil)
		list = list[n:]
	}
}

// takeFreed takes what transactions up to tid freed off the lists. The entries stay in their trees;
// nobody changes them any more, because only their own transaction folds into them, and it is over.
func (a *Allocator) takeFreed(tid uint32) []*FreeData {
	var list []*FreeData
	for i := range a.freed {
		sh := &a.freed[i]
		sh.mu.lock(&a.contended, lockFreed)
		for parity := range sh.list {
			for fd := sh.list[parity]; fd != nil; {
				next := fd.next
				if int32(fd.tid-tid) <= 0 {
					sh.unlinkLocked(fd)
					list = append(list, fd)
				}
				fd = next
			}
		}
		sh.mu.unlock()
	}
	return list
}

// discardFreed issues one discard for each run of touching extents, across transactions and groups.
func (a *Allocator) discardFreed(list []*FreeData, discard func(start Cluster, n uint32)) {
	for i := 0; i < len(list); {
		start := a.cluster(list[i].group, list[i].start())
		n := list[i].n
		for i++; i < len(list) && a.cluster(list[i].group, list[i].start()) == start+Cluster(n) && n+list[i].n > n; i++ {
			n += list[i].n
		}
		discard(start, n)
		a.stripeFor(uint32(start)).inc(cDiscardCalls)
	}
}

// release returns committed extents of one group to its buddy.
func (a *Allocator) release(gi *GroupInfo, list []*FreeData, discarded bool) {
	st := a.stripeFor(uint32(gi.num))
	gi.mu.lock(&a.contended, lockGroup)
	b, err := a.loadLocked(gi) // nil for a corrupt group: the entries are dropped all the same
	gi.disk.lock(&a.contended, lockDisk)
	for _, fd := range list {
		gi.freed.remove(&fd.node)
	}
	gi.disk.unlock()
	total := int64(0)
	for _, fd := range list {
		if err == nil {
			b.markFree(fd.node.key, fd.n)
		}
		total += int64(fd.n)
	}
	if err == nil {
		if !discarded {
			gi.state.And(^uint32(groupTrimmed))
		}
		a.publishLocked(gi)
	}
	gi.mu.unlock()
	st.pending.Add(-total)
	st.add(cReleased, uint64(total))
	st.add(cReleasedExtents, uint64(len(list)))
	a.recycle(gi, list)
	if invariants {
		a.mustCheck(gi)
	}
}

func (a *Allocator) recycle(gi *GroupInfo, list []*FreeData) {
	sh := a.shardOf(gi.num)
	sh.mu.lock(&a.contended, lockFreed)
	for _, fd := range list {
		fd.next, sh.pool = sh.pool, fd
	}
	sh.mu.unlock()
}
