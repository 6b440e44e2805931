package mballoc_test

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// The layering of the module: the allocator reaches nothing of ours.
func TestImportsNothingOfOurs(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "extfused/mballoc").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "\nextfused/mballoc\n") {
		t.Fatalf("go list does not know this package:\n%s", out)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "extfused/") && dep != "extfused/mballoc" || strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") {
			t.Errorf("mballoc imports %s", dep)
		}
	}
}

func TestBadGeometry(t *testing.T) {
	good := geo4k(4)
	for name, change := range map[string]func(*mballoc.Geometry){
		"no groups":          func(g *mballoc.Geometry) { g.Groups = 0 },
		"block size":         func(g *mballoc.Geometry) { g.BlockSizeBits = 20 },
		"group too long":     func(g *mballoc.Geometry) { g.ClustersPerGroup = 65536 },
		"odd group":          func(g *mballoc.Geometry) { g.ClustersPerGroup = 1001 },
		"too many clusters":  func(g *mballoc.Geometry) { g.Clusters++ },
		"too few clusters":   func(g *mballoc.Geometry) { g.Clusters = 32768 },
		"no clusters":        func(g *mballoc.Geometry) { g.Clusters = 0 },
		"clusters too large": func(g *mballoc.Geometry) { g.ClusterBits = 40 },
	} {
		geo := good
		change(&geo)
		if _, err := mballoc.New(geo, simdisk.New(good), mballoc.Options{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := mballoc.New(good, simdisk.New(good), mballoc.Options{}); err != nil {
		t.Error(err)
	}
}

// A group whose bitmap cannot be read or contradicts its descriptor is left alone; the others
// serve.
func TestCorruptGroup(t *testing.T) {
	for _, how := range []string{"unreadable", "count differs"} {
		t.Run(how, func(t *testing.T) {
			told := make(chan *mballoc.GroupError, 10)
			geo := geo4k(3)
			d := simdisk.New(geo)
			lie := &liar{d, how}
			a, err := mballoc.New(geo, lie, mballoc.Options{OnCorrupt: func(e *mballoc.GroupError) { told <- e }})
			if err != nil {
				t.Fatal(err)
			}
			for range 40 {
				res, err := a.Allocate(d.Begin(), &mballoc.Request{Ino: 2, Len: 100, Goal: 32768 + 5, HasGoal: true, Flags: mballoc.TryGoal})
				if err != nil || res.Start/32768 == 1 {
					t.Fatalf("%v, %v", res, err)
				}
			}
			if e := <-told; e.Group != 1 || len(told) != 0 {
				t.Errorf("told %v, and %d more", e, len(told))
			}
			if want := uint64(2*32768 - 4000); a.FreeClusters() != want {
				t.Errorf("free clusters %d, want %d", a.FreeClusters(), want)
			}
			if err := a.Free(d.Begin(), 32768+7, 3, 0); err != nil {
				t.Errorf("a free in a corrupt group: %v", err)
			}
			if s, err := a.GroupStat(1); err != nil || !s.Corrupt {
				t.Errorf("%+v %v", s, err)
			}
			var ge *mballoc.GroupError
			if err := a.Warm(99); !errors.As(err, &ge) {
				t.Errorf("warming a group past the end: %v", err)
			}
		})
	}
}

// liar spoils group 1.
type liar struct {
	*simdisk.Disk
	how string
}

func (l *liar) ReadBitmap(g mballoc.GroupNumber, dst []byte) error {
	if g == 1 && l.how == "unreadable" {
		return errInjected
	}
	err := l.Disk.ReadBitmap(g, dst)
	if g == 1 {
		dst[77] ^= 4
	}
	return err
}

// An error of the marker undoes the allocation; what the file system says and what the buddy says
// stay equal.
func TestMarkerErrorChangesNothing(t *testing.T) {
	r := newRig(t, geo4k(2), mballoc.Options{}, nil)
	f := file{ino: 12}
	if err := f.append(r, 40, 4096); err != nil {
		t.Fatal(err)
	}
	free := r.a.FreeClusters()
	r.d.MarkErr = func(mballoc.GroupNumber) error { return errInjected }
	for _, req := range []mballoc.Request{
		{Ino: 2, Len: 5},
		{Ino: 12, State: &f.state, Logical: 40, Len: 4, Size: 44 * 4096, Flags: mballoc.Data},
		{Ino: 13, State: new(mballoc.InodeState), Len: 4, Size: 4 * 4096, Flags: mballoc.Data},
		{Ino: 14, State: new(mballoc.InodeState), Len: 400, Size: 400 * 4096, Flags: mballoc.Data},
	} {
		if res, err := r.a.Allocate(r.d.Begin(), &req); !errors.Is(err, errInjected) || res.Len != 0 {
			t.Errorf("%v %v", res, err)
		}
	}
	for _, flags := range []mballoc.FreeFlags{0, mballoc.FreeNow} {
		if err := r.a.Free(r.d.Begin(), f.extents[0].Start, 4, flags); !errors.Is(err, errInjected) {
			t.Error(err)
		}
	}
	if got := r.a.FreeClusters(); got != free || r.a.PendingClusters() != 0 {
		t.Errorf("free clusters %d, were %d", got, free)
	}
}

func TestFreeOfWhatIsNot(t *testing.T) {
	r := newRig(t, geo4k(2), mballoc.Options{}, nil)
	for _, c := range []struct {
		start mballoc.Cluster
		n     uint32
	}{{2 * 32768, 1}, {2*32768 - 1, 2}, {1 << 40, 1}, {100, 10}} {
		for _, flags := range []mballoc.FreeFlags{0, mballoc.FreeNow} {
			if err := r.a.Free(r.d.Begin(), c.start, c.n, flags); err == nil {
				t.Errorf("free of %d+%d: no error", c.start, c.n)
			}
		}
	}
}

// The reserves: an ordinary request stops at root's share, root at the last reserve, and a request
// that must not fail takes that, too.
func TestReserves(t *testing.T) {
	geo := mballoc.Geometry{Groups: 1, ClustersPerGroup: 8192, Clusters: 8192, BlockSizeBits: 10, CPUs: 2}
	r := newRig(t, geo, mballoc.Options{RootClusters: 400, ReservedClusters: 100}, nil)
	var got []uint64
	for _, flags := range []mballoc.Flags{0, mballoc.UseRoot, mballoc.UseReserved} {
		n := uint64(0)
		for {
			res, err := r.a.Allocate(r.d.Begin(), &mballoc.Request{Ino: 2, Len: 7, Flags: flags})
			if err != nil {
				break
			}
			n += uint64(res.Len)
		}
		got = append(got, n)
	}
	if got[0] != 8192-500 || got[1] != 400 || got[2] != 100 {
		t.Errorf("ordinary, root, reserved got %v", got)
	}
	r.a.SetReserved(0, 0)
	if n := r.a.AvailableClusters(); n != 0 {
		t.Errorf("%d available", n)
	}
}

// Preallocation: exact windows, use out of order, splits, and nothing left after the discard.
func TestInodePreallocation(t *testing.T) {
	r := newRig(t, geo4k(2), mballoc.Options{}, nil)
	var s mballoc.InodeState
	at := func(logical mballoc.LCluster) mballoc.Cluster {
		return r.alloc(&mballoc.Request{Ino: 12, State: &s, Logical: logical, Len: 1, Size: 1 << 20, Flags: mballoc.Data}).Start
	}
	base := at(100) - 100
	for _, l := range []mballoc.LCluster{7, 200, 0, 255, 101, 99, 50} {
		if got := at(l); got != base+mballoc.Cluster(l) {
			t.Errorf("logical %d at %d, the window starts at %d", l, got, base)
		}
	}
	if got := r.a.PreallocLen(); got != 256-8 {
		t.Errorf("%d clusters preallocated", got)
	}
	st := r.a.Stats()
	if st.PreallocHits != 7 || st.GroupsScanned != 1 {
		t.Errorf("%d served by preallocation, %d groups searched", st.PreallocHits, st.GroupsScanned)
	}
	r.a.DiscardInode(&s)
	if s.PAs() != 0 || r.a.PreallocLen() != 0 || r.a.FreeInCore() != 2*32768-8 {
		t.Errorf("%d preallocations left", s.PAs())
	}
}

// Trim reports all free space once, and nothing the second time; freed space turns up again.
func TestTrim(t *testing.T) {
	r := newRig(t, geo4k(4), mballoc.Options{}, func(d *simdisk.Disk) {
		d.Fill(2)
		d.SetUsed(1, 10, 100)
	})
	trim := func(minLen uint64) uint64 {
		n, err := r.a.Trim(0, 4*32768, minLen, func(mballoc.Cluster, uint32) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := trim(16); got != 3*32768-100-10 {
		t.Errorf("first trim: %d", got)
	}
	if got := trim(16); got != 0 {
		t.Errorf("second trim: %d", got)
	}
	if got := trim(1); got != 3*32768-100 {
		t.Errorf("trim of shorter runs: %d", got)
	}
	if err := r.a.Free(r.d.Begin(), 2*32768, 50, 0); err != nil {
		t.Fatal(err)
	}
	r.j.Commit(nil)
	if got := trim(1); got != 50 {
		t.Errorf("trim after a free: %d", got)
	}
	if err := r.a.Free(r.d.Begin(), 32768+20, 1, 0); err != nil {
		t.Fatal(err)
	}
	r.j.Commit(nil)
	if got := trim(1); got != 32768-99 { // all of the group, not only what came back
		t.Errorf("trim after a free in a trimmed group: %d", got)
	}
	if err := r.a.Free(r.d.Begin(), 32768+30, 1, 0); err != nil {
		t.Fatal(err)
	}
	r.j.Commit(func(mballoc.Cluster, uint32) {})
	if got := trim(1); got != 0 {
		t.Errorf("trim after a free that was discarded: %d", got)
	}
	if _, err := r.a.Trim(0, 4*32768, 0, func(mballoc.Cluster, uint32) error { return errInjected }); !errors.Is(err, errInjected) {
		t.Errorf("a failing discard: %v", err)
	}
	if got := r.a.FreeInCore(); got != 3*32768-48 {
		t.Errorf("%d clusters free after trims", got)
	}
}

// A file system of 131,072 groups (16 TiB) stays far below 1 GiB with every group known and freed
// extents in each.
func TestMemoryOfManyGroups(t *testing.T) {
	const groups = 131072 / slow
	d := simdisk.New(geo4k(groups))
	before := heap()
	a, err := mballoc.New(geo4k(groups), d, mballoc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	empty := heap() - before
	for g := range mballoc.GroupNumber(groups) {
		if err := a.Warm(g); err != nil {
			t.Fatal(err)
		}
	}
	all := heap() - before
	s := a.Stats()
	t.Logf("%d MiB before, %d MiB after all groups were looked at, %d buddies in memory", empty>>20, all>>20, s.BuddiesLoaded)
	if all > 128<<20 || s.Buddies != groups || s.BuddiesLoaded*uint64(a.BuddyBytes()) > 64<<20 {
		t.Errorf("%d MiB, %d buddies generated, %d loaded", all>>20, s.Buddies, s.BuddiesLoaded)
	}
	runtime.KeepAlive(d)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Requests of any length and place are served or refused, never more than asked; also at the ends
// of the file and of the file system.
func TestOddRequests(t *testing.T) {
	r := newRig(t, geo4k(2), mballoc.Options{}, nil)
	var s mballoc.InodeState
	for _, req := range []mballoc.Request{
		{Len: 1 << 31}, {Len: 40000, Flags: mballoc.Data}, {Len: 10, Logical: 1<<32 - 10, Flags: mballoc.Data},
		{Len: 10, Logical: 1<<32 - 10, Flags: mballoc.Data, Size: 1 << 62}, {Len: 1, Goal: 1 << 60, HasGoal: true, Flags: mballoc.TryGoal},
		{Len: 1, Left: mballoc.Neighbour{Logical: 9, Physical: 1 << 50, Valid: true}, Logical: 10, Flags: mballoc.Data},
		{Len: 1, Right: mballoc.Neighbour{Logical: 6000, Physical: 1 << 50, Valid: true}, Logical: 5000, Flags: mballoc.Data},
		{Len: 3, Goal: 65535, HasGoal: true, Flags: mballoc.TryGoal},
	} {
		req.State = &s
		res, err := r.a.Allocate(r.d.Begin(), &req)
		if err != nil || res.Len == 0 || res.Len > req.Len {
			t.Errorf("%+v: %v %v", req, res, err)
			continue
		}
		if err := r.a.Free(r.d.Begin(), res.Start, res.Len, mballoc.FreeNow); err != nil {
			t.Error(err)
		}
		r.a.DiscardInode(&s)
	}
	if _, err := r.a.Allocate(r.d.Begin(), &mballoc.Request{}); err == nil {
		t.Error("a request for nothing succeeds")
	}
	res, err := r.a.Allocate(r.d.Begin(), &mballoc.Request{Len: 3, Goal: 500, HasGoal: true, Flags: mballoc.GoalOnly})
	if err != nil || res.Start != 500 {
		t.Errorf("goal only: %v %v", res, err)
	}
	if _, err = r.a.Allocate(r.d.Begin(), &mballoc.Request{Len: 3, Goal: 502, HasGoal: true, Flags: mballoc.GoalOnly}); !errors.Is(err, mballoc.ErrNoSpace) {
		t.Errorf("goal only at a used goal: %v", err)
	}
}

// A trim that is just discarding all the free space there is makes an allocation wait, not fail.
func TestTrimIsNoReasonForNoSpace(t *testing.T) {
	r := newRig(t, geo4k(1), mballoc.Options{}, func(d *simdisk.Disk) {
		d.Fill(0)
		d.SetFree(0, 1000, 64)
	})
	holds, allocated := make(chan struct{}), make(chan error, 1)
	go func() {
		<-holds
		_, err := r.a.Allocate(r.d.Begin(), &mballoc.Request{Ino: 12, Len: 4, Flags: mballoc.Data})
		allocated <- err
	}()
	n, err := r.a.Trim(0, 32768, 1, func(start mballoc.Cluster, n uint32) error {
		if start != 1000 || n != 64 {
			t.Errorf("discard %d+%d", start, n)
		}
		close(holds)
		select {
		case err := <-allocated:
			t.Errorf("allocated while the run was held: %v", err)
			allocated <- err
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	})
	if n != 64 || err != nil {
		t.Fatalf("trimmed %d, %v", n, err)
	}
	if err := <-allocated; err != nil {
		t.Errorf("allocation during a trim: %v", err)
	}
}
