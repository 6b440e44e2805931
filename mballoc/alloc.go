package mballoc

import "fmt"

// FreeExtent is a run of clusters that an allocation wants, found or took.
type FreeExtent struct {
	Logical LCluster
	Group   GroupNumber
	Start   GrpCluster
	Len     uint32
}

// AllocationContext is the state of one allocation.
type AllocationContext struct {
	a   *Allocator
	m   Marker
	req Request // a copy: a pointer would send every request of every caller to the heap
	st  *stripe
	lg  *LocalityGroup // locked, when the request is for a small file

	OrigEx  FreeExtent // what was asked for
	GoalEx  FreeExtent // what would be best: normalised, at the goal
	BestEx  FreeExtent // best found so far; Len 0 for none
	FoundEx FreeExtent // what the request got, without preallocation
	window  FreeExtent // logical start and length of the normalised request; GoalEx may be trimmed

	hasGoalStart bool   // GoalEx.Start is a place, not only a group
	adjacent     bool   // the goal continues the file's last extent or preallocation
	gap          uint32 // clusters before the request that are set aside along with it, see setGap
	stream       bool   // large file that is being written
	prealloc     bool   // more than was asked for may be taken
	done         bool   // BestEx has been taken
	order2       int    // order of a request that is a power of two, or 0
	cr           Criterion
	found        int // extents compared
	loads        int // unread bitmaps read by fast criteria
	streamGroup  GroupNumber
	hasStream    bool
	prefetchAt   GroupNumber // groups below it have been prefetched by this allocation
	prefetched   int
	err          error // the marker's
}

// maxAllocRetries bounds how often an allocation starts again after preallocation was discarded or
// clusters came back.
const maxAllocRetries = 8

// maxTrimWaits bounds how many discards of a trim one allocation waits for: each time all that was
// free was being trimmed, which is one run or very few.
const maxTrimWaits = 64

// Allocate finds clusters for r and marks them used through m. It returns at least one and at most
// r.Len clusters, consecutive on disk. An error that errors.Is ErrNoSpace is a *NoSpaceError; any
// other comes from the marker, and nothing has been allocated.
//
// The caller holds no lock that a GroupReader or Marker takes, and serialises data requests of one
// inode.
func (a *Allocator) Allocate(m Marker, r *Request) (Result, error) {
	if r.Len == 0 {
		return Result{}, fmt.Errorf("mballoc: request for no clusters")
	}
	st := a.stripeFor(r.Ino)
	want := min(r.Len, a.geo.ClustersPerGroup)
	n := a.claim(st, want, r.Flags)
	if n == 0 {
		st.inc(cFailed)
		return Result{}, &NoSpaceError{}
	}
	res, err := a.allocate(m, r, st, n)
	a.addFree(st, int64(n)-int64(res.Len))
	st.add(cAllocated, uint64(res.Len))
	if err == nil && invariants {
		g, _ := a.split(res.Start)
		a.mustCheck(&a.groups[g])
	}
	return res, err
}

// allocate serves a request whose n clusters are claimed, giving up preallocation for it before it
// fails.
func (a *Allocator) allocate(m Marker, r *Request, st *stripe, n uint32) (Result, error) {
	for try, waits, seen := 0, 0, uint64(0); ; try++ {
		trims := a.trims.seen()
		res, err := a.allocateOnce(m, r, st, n, try == 0)
		if err != errNothing {
			return res, err
		}
		if r.Flags&GoalOnly != 0 {
			return Result{}, &NoSpaceError{}
		}
		if waits < maxTrimWaits && a.trims.wait(trims) {
			try, waits = try-1, waits+1
			continue
		}
		gone, now := a.DiscardAll(), a.sum(cPAGone)+a.sum(cReleasedExtents)
		if try >= maxAllocRetries || try > 0 && gone == 0 && now == seen {
			st.inc(cFailed)
			return Result{}, &NoSpaceError{Pending: a.PendingClusters()}
		}
		seen = now // others may have given something back since we looked: look once more
	}
}

// errNothing says inside the package that no group had anything.
var errNothing = fmt.Errorf("nothing found")

// allocateOnce tries inode preallocation, locality group, goal and criteria in this order. prealloc
// allows to take more than asked.
func (a *Allocator) allocateOnce(m Marker, r *Request, st *stripe, n uint32, prealloc bool) (Result, error) {
	if s := r.State; s != nil {
		s.mu.lock(&a.contended, lockInode)
		defer s.mu.unlock()
		if res, ok, err := a.useInodePALocked(m, r, st, n); ok {
			return res, err
		}
		n = s.clipLocked(uint32(r.Logical), n)
	}
	ac := AllocationContext{a: a, m: m, req: *r, st: st}
	ac.OrigEx = FreeExtent{Logical: r.Logical, Len: n}
	ac.setGoal()
	ac.groupOrFile(prealloc)
	ac.setGap()
	if ac.lg != nil && ac.displaced() {
		ac.leaveLocality(prealloc)
	}
	if ac.lg != nil {
		defer ac.lg.mu.unlock()
		if res, ok, err := ac.useLocalityLocked(); ok {
			return res, err
		}
	}
	ac.normalize()
	ac.regular()
	if ac.err != nil {
		return Result{}, ac.err
	}
	if !ac.done {
		return Result{}, errNothing
	}
	ac.finish()
	return ac.result(), nil
}

func (ac *AllocationContext) result() Result {
	return Result{Start: ac.a.cluster(ac.FoundEx.Group, ac.FoundEx.Start), Len: ac.FoundEx.Len}
}

// groupOrFile decides between a locality group, inode preallocation and none (S2.4): small files
// are packed by locality groups, open or closed; a large file gets inode preallocation while
// somebody has it open for writing.
func (ac *AllocationContext) groupOrFile(prealloc bool) {
	r, a := &ac.req, ac.a
	if r.Flags&Data == 0 || r.Flags&GoalOnly != 0 {
		return
	}
	blocks := (ac.fileBytes() + 1<<a.geo.BlockSizeBits - 1) >> a.geo.BlockSizeBits
	small := blocks <= uint64(a.knobs.get(mbStreamReq)) && a.knobs.get(mbGroupPrealloc) > 0
	if small && r.Flags&NoPrealloc == 0 {
		ac.lg = a.lockLocality(r.Writer, ac.lastLocality())
		ac.prealloc = prealloc
		return
	}
	open := r.Flags&NoWriter == 0
	ac.stream = !small && open
	ac.prealloc = prealloc && ac.stream && r.State != nil && r.Flags&(NoPrealloc|NoNormalize) == 0
}

// displaced tells that a small file which is being written piece by piece would not get this piece
// behind the last one from the locality group: other files have grown in between.
func (ac *AllocationContext) displaced() bool {
	if !ac.adjacent || ac.req.State == nil || ac.req.Flags&(NoWriter|NoNormalize) != 0 {
		return false
	}
	goal := ac.goal()
	pa := ac.a.pickGroupPALocked(ac.lg, goal, ac.gap+ac.OrigEx.Len)
	return pa != nil && ac.a.cluster(pa.group, pa.start) != goal
}

// leaveLocality turns the request into one of a large file.
func (ac *AllocationContext) leaveLocality(prealloc bool) {
	ac.lg.mu.unlock()
	ac.lg = nil
	ac.stream, ac.prealloc = true, prealloc
}

// fileBytes is the size the file is about to have.
func (ac *AllocationContext) fileBytes() uint64 {
	end := (uint64(ac.OrigEx.Logical) + uint64(ac.OrigEx.Len)) << ac.a.geo.clusterSizeBits()
	if ac.req.Size != 0 && ac.req.Size < end && ac.req.Size > end-1<<ac.a.geo.clusterSizeBits() {
		return ac.req.Size // the last cluster is not full
	}
	return max(ac.req.Size, end)
}

// setGoal takes the goal from the request: right behind the file's last extent, or where the caller
// says.
func (ac *AllocationContext) setGoal() {
	r, a := &ac.req, ac.a
	var c Cluster
	switch {
	case r.Left.Valid && r.Left.Logical+1 == r.Logical && uint64(r.Left.Physical)+1 < a.geo.Clusters:
		c = r.Left.Physical + 1
		ac.hasGoalStart, ac.adjacent = true, true
	case r.HasGoal && uint64(r.Goal) < a.geo.Clusters:
		c = r.Goal
		ac.hasGoalStart = r.Flags&(TryGoal|GoalOnly) != 0
	case r.Left.Valid && uint64(r.Left.Physical) < a.geo.Clusters:
		c = r.Left.Physical
	}
	ac.GoalEx.Group, ac.GoalEx.Start = a.split(c)
	ac.GoalEx.Logical, ac.GoalEx.Len = ac.OrigEx.Logical, ac.OrigEx.Len
}

// useLocked takes ex for the request: buddy, on-disk bitmap and preallocation change together.
// gi.mu is held, as are the locks of the inode's state and of the locality group.
func (ac *AllocationContext) useLocked(gi *GroupInfo, b *Buddy, ex FreeExtent) {
	a := ac.a
	if !ac.prealloc && ex.Len > ac.OrigEx.Len {
		ex.Len = ac.OrigEx.Len
	}
	ac.place(&ex)
	before := uint32(ac.OrigEx.Logical - ex.Logical)
	got := FreeExtent{Logical: ac.OrigEx.Logical, Group: gi.num, Start: ex.Start + GrpCluster(before), Len: min(ac.OrigEx.Len, ex.Len-before)}
	gi.disk.lock(&a.contended, lockDisk)
	if err := ac.m.MarkUsed(gi.num, got.Start, got.Len); err != nil {
		gi.disk.unlock()
		ac.err = err
		return
	}
	b.markUsed(uint32(ex.Start), ex.Len)
	ac.keepRestLocked(gi, ex, got, before)
	gi.disk.unlock()
	a.publishLocked(gi)
	ac.BestEx, ac.FoundEx, ac.done = ex, got, true
}

// place decides which part of the wanted window ex becomes: all of it, its end or its start,
// whichever covers the request, else from the request on. Exact requests have no window; with a
// locality group it is the gap and the request.
func (ac *AllocationContext) place(ex *FreeExtent) {
	goal, orig := ac.window, ac.OrigEx
	ex.Logical = orig.Logical
	if !ac.prealloc {
		return
	}
	if ac.lg != nil {
		if ex.Len >= ac.gap+orig.Len {
			ex.Logical -= LCluster(ac.gap)
		}
		return
	}
	end := uint64(goal.Logical) + uint64(goal.Len)
	covers := uint64(goal.Logical)+uint64(ex.Len) >= uint64(orig.Logical)+uint64(orig.Len)
	switch {
	case ex.Len >= goal.Len, ac.adjacent && covers:
		ex.Logical = goal.Logical
	case end-uint64(ex.Len) <= uint64(orig.Logical):
		ex.Logical = LCluster(end - uint64(ex.Len))
	case covers:
		ex.Logical = goal.Logical
	}
}

// keepRestLocked turns what the request does not use of ex into preallocation. gi.mu and gi.disk
// are held.
func (ac *AllocationContext) keepRestLocked(gi *GroupInfo, ex, got FreeExtent, before uint32) {
	a, after := ac.a, ex.Len-before-got.Len
	if before > 0 {
		a.newInodePALocked(ac.st, gi, ac.req.State, uint32(ex.Logical), ex.Start, before)
	}
	switch {
	case after > 0 && ac.lg != nil:
		a.newGroupPALocked(ac.st, gi, ac.lg, got.Start+GrpCluster(got.Len), after)
	case after > 0:
		a.newInodePALocked(ac.st, gi, ac.req.State, uint32(got.Logical)+got.Len, got.Start+GrpCluster(got.Len), after)
	}
}

// finish does what can wait until the group is unlocked.
func (ac *AllocationContext) finish() {
	a := ac.a
	ac.st.inc(cRegular)
	if ac.stream {
		a.rememberStream(ac.req.Ino, ac.FoundEx.Group)
	}
	if ac.lg != nil {
		ac.rememberLocality()
		a.trimGroupPAsLocked(ac.lg)
	}
	if s := ac.req.State; s != nil && s.pas.n > maxInodePAs {
		for s.pas.root != nil {
			a.discardInodePALocked(s.pas.root.item)
		}
	}
}
