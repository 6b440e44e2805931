package mballoc

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// State bits of a group.
const (
	groupNeedInit    = 1 << iota // no buddy was ever built: the figures come from the descriptor
	groupReadStarted             // its bitmap was given to Prefetch, or was not worth it
	groupCorrupt                 // nothing is allocated here
	groupTrimmed                 // all its free space has been discarded
)

// GroupInfo is what always stays in memory of a group. The atomics can be read without a lock by
// whoever looks for a group; they are written with mu held. Until the first buddy is built they
// hold the most hopeful figures that the descriptor allows, so that an unread group is tried at
// most once before it is known.
type GroupInfo struct {
	mu      mutex // buddy, pas, the figures below, membership in the order lists
	disk    mutex // Marker calls and ReadBitmap for this group; freed; the extents of pas (with their owner's lock)
	num     GroupNumber
	state   atomic.Uint32
	free    atomic.Uint32
	frags   atomic.Uint32
	largest atomic.Int32 // largest free order, -1 for none: the list of largest free orders the group is in
	avg     atomic.Int32 // order of the average fragment, -1 for none: the list of average fragments the group is in
	npas    atomic.Int32 // length of pas
	touched bool         // used since the cache's hand last passed; mu
	buddy   *Buddy       // nil when evicted; mu
	pas     *PreallocSpace
	freed   tree[FreeData]
	_       [24]byte // two cache lines
}

func (gi *GroupInfo) is(bit uint32) bool { return gi.state.Load()&bit != 0 }

// avgOrder is the list of average fragments for a mean length: list i holds [2^i, 2^(i+1)), the
// last one everything above.
func (a *Allocator) avgOrder(free, frags uint32) int32 {
	if frags == 0 {
		return -1
	}
	return int32(min(floorLog2(max(free/frags, 1)), a.orders-1))
}

// initGroup sets a group up from its descriptor.
func (a *Allocator) initGroup(g GroupNumber) uint32 {
	gi := &a.groups[g]
	gi.num = g
	gi.largest.Store(-1)
	gi.avg.Store(-1)
	gi.state.Store(groupNeedInit)
	free := min(a.reader.FreeClusters(g), a.geo.groupLen(g))
	if free > 0 {
		order := int32(min(floorLog2(free), a.orders-1))
		a.setFiguresLocked(gi, free, 1, order)
	}
	return free
}

// setFiguresLocked publishes a group's counts and moves it between lists only where its order
// really changed (S2.2). gi.mu is held, or nobody else knows the group yet.
func (a *Allocator) setFiguresLocked(gi *GroupInfo, free, frags uint32, largest int32) {
	gi.free.Store(free)
	gi.frags.Store(frags)
	a.moveGroupLocked(a.largestLists, gi, &gi.largest, largest)
	a.moveGroupLocked(a.avgLists, gi, &gi.avg, a.avgOrder(free, frags))
}

func (a *Allocator) moveGroupLocked(lists []groupSet, gi *GroupInfo, now *atomic.Int32, order int32) {
	old := now.Load()
	if old == order {
		return
	}
	now.Store(order)
	if old >= 0 {
		lists[old].remove(&a.contended, gi.num)
	}
	if order >= 0 {
		lists[order].add(&a.contended, gi.num)
	}
	a.stripeFor(uint32(gi.num)).inc(cListMoves)
}

// publishLocked refreshes the figures after the buddy changed. gi.mu is held.
func (a *Allocator) publishLocked(gi *GroupInfo) {
	if gi.is(groupCorrupt) {
		return
	}
	b := gi.buddy
	a.setFiguresLocked(gi, b.nfree, b.frags, int32(b.largest()))
}

// loadLocked makes sure that the group's buddy is in memory. gi.mu is held.
func (a *Allocator) loadLocked(gi *GroupInfo) (*Buddy, error) {
	if gi.is(groupCorrupt) {
		return nil, &GroupError{Group: gi.num, What: "declared corrupt before"}
	}
	gi.touched = true
	if gi.buddy != nil {
		return gi.buddy, nil
	}
	b, err := a.generateLocked(gi)
	if err != nil {
		return nil, err
	}
	a.cache.loaded(a, gi)
	return b, nil
}

// generateLocked gives the group a buddy that the cache does not know yet. gi.mu is held.
func (a *Allocator) generateLocked(gi *GroupInfo) (*Buddy, error) {
	start := time.Now()
	b := a.cache.take()
	if err := a.buildLocked(gi, b); err != nil {
		a.cache.giveBack(b)
		return nil, err
	}
	gi.buddy = b
	gi.state.And(^uint32(groupNeedInit))
	a.publishLocked(gi)
	st := a.stripeFor(uint32(gi.num))
	st.inc(cBuddies)
	st.add(cBuddyNs, uint64(time.Since(start)))
	return b, nil
}

// buildLocked fills b: bits set on disk, preallocated, and freed but not committed. gi.mu is held.
func (a *Allocator) buildLocked(gi *GroupInfo, b *Buddy) error {
	gi.disk.lock(&a.contended, lockDisk)
	defer gi.disk.unlock()
	want, err := a.readBitmapLocked(gi, b)
	if err != nil {
		return a.corruptLocked(gi, "cannot read the block bitmap", err)
	}
	if got := b.n - onesBelow(b.used, b.n); got != want {
		return a.corruptLocked(gi, "free clusters in bitmap and descriptor differ", nil)
	}
	for pa := gi.pas; pa != nil; pa = pa.next {
		if !a.overlay(b, pa.start, pa.length) {
			return a.corruptLocked(gi, "preallocated clusters are in use on disk", nil)
		}
	}
	ok := true
	gi.freed.each(func(fd *FreeData) bool {
		ok = a.overlay(b, fd.start(), fd.n)
		return ok
	})
	if !ok {
		return a.corruptLocked(gi, "freed clusters are in use on disk", nil)
	}
	b.generate()
	return nil
}

// readBitmapLocked reads the on-disk bitmap into b and returns the descriptor's free count. gi.disk
// is held, so that both are of one moment.
func (a *Allocator) readBitmapLocked(gi *GroupInfo, b *Buddy) (uint32, error) {
	buf := a.bitmaps.Get().(*[]byte)
	defer a.bitmaps.Put(buf)
	if err := a.reader.ReadBitmap(gi.num, *buf); err != nil {
		return 0, err
	}
	b.reset(a.geo.groupLen(gi.num))
	raw := *buf
	for i := range b.used {
		if len(raw) >= 8 {
			b.used[i] = binary.LittleEndian.Uint64(raw)
			raw = raw[8:]
			continue
		}
		var last [8]byte // a group whose length is no multiple of 64
		copy(last[:], raw)
		b.used[i] = binary.LittleEndian.Uint64(last[:])
	}
	if end := uint32(len(b.used) * 64); b.n < end {
		setRange(b.used, b.n, end, true)
	}
	return a.reader.FreeClusters(gi.num), nil
}

func (a *Allocator) overlay(b *Buddy, start GrpCluster, n uint32) bool {
	s := uint32(start)
	if !allClear(b.used, s, s+n) {
		return false
	}
	setRange(b.used, s, s+n, true)
	return true
}

// corruptLocked takes a group out of service; its free clusters no longer count. gi.mu is held.
func (a *Allocator) corruptLocked(gi *GroupInfo, what string, err error) error {
	e := &GroupError{Group: gi.num, What: what, Err: err}
	if gi.state.Or(groupCorrupt)&groupCorrupt != 0 {
		return e
	}
	a.addFree(a.stripeFor(uint32(gi.num)), -int64(min(a.reader.FreeClusters(gi.num), a.geo.groupLen(gi.num))))
	a.setFiguresLocked(gi, 0, 0, -1)
	if a.onCorrupt != nil {
		go a.onCorrupt(e) // it may take locks that our caller holds
	}
	return e
}

// Warm builds the buddy of g if it was never built, so that the order lists know the group. Meant
// for a background pass; it may do I/O. It throws out no other group's buddy: when there is no room
// for one more, this one is dropped again.
func (a *Allocator) Warm(g GroupNumber) error {
	if g >= a.geo.Groups {
		return &GroupError{Group: g, What: "no such group"}
	}
	gi := &a.groups[g]
	if !gi.is(groupNeedInit) || gi.is(groupCorrupt) {
		return nil
	}
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	if gi.buddy != nil || a.cache.hasRoom() {
		_, err := a.loadLocked(gi)
		return err
	}
	b, err := a.generateLocked(gi)
	if err == nil {
		gi.buddy = nil
		a.cache.giveBack(b)
	}
	return err
}

// Unread tells whether reading the bitmap of g would teach something: it has free clusters, and no
// buddy of it was ever built.
func (a *Allocator) Unread(g GroupNumber) bool {
	gi := &a.groups[g]
	return gi.is(groupNeedInit) && !gi.is(groupCorrupt) && gi.free.Load() > 0 && !a.reader.Uninit(g)
}
