package mballoc_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// geo4k is a file system of 4 KiB blocks with full groups of 128 MiB.
func geo4k(groups int) mballoc.Geometry {
	return mballoc.Geometry{Groups: mballoc.GroupNumber(groups), ClustersPerGroup: 32768, Clusters: uint64(groups) * 32768,
		BlockSizeBits: 12, FlexSize: 16, CPUs: 2}
}

type rig struct {
	t *testing.T
	d *simdisk.Disk
	a *mballoc.Allocator
	j *simdisk.Journal
}

func newRig(t *testing.T, geo mballoc.Geometry, o mballoc.Options, prepare func(*simdisk.Disk)) *rig {
	t.Helper()
	d := simdisk.New(geo)
	if prepare != nil {
		prepare(d)
	}
	a, err := mballoc.New(geo, d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Check(); err != nil {
			t.Error(err)
		}
	})
	return &rig{t, d, a, &simdisk.Journal{D: d, A: a}}
}

func (r *rig) alloc(req *mballoc.Request) mballoc.Result {
	r.t.Helper()
	res, err := r.a.Allocate(r.d.Begin(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// file is a growing file: its extents, and the request for more.
type file struct {
	ino     uint32
	state   mballoc.InodeState
	len     uint32 // clusters
	extents []mballoc.Result
	goal    mballoc.Cluster
	flags   mballoc.Flags
	writer  uint32
}

// append grows the file by n clusters of size bytes each; it returns the error of the first failing
// allocation.
func (f *file) append(r *rig, n uint32, clusterSize uint64) error {
	end := f.len + n
	for f.len < end {
		req := mballoc.Request{Ino: f.ino, State: &f.state, Logical: mballoc.LCluster(f.len), Len: end - f.len, Goal: f.goal, HasGoal: true,
			Size: uint64(end) * clusterSize, Flags: mballoc.Data | f.flags, Writer: f.writer}
		if k := len(f.extents); k > 0 {
			last := f.extents[k-1]
			req.Left = mballoc.Neighbour{Logical: mballoc.LCluster(f.len - 1), Physical: last.Start + mballoc.Cluster(last.Len) - 1, Valid: true}
		}
		var res mballoc.Result
		err := r.j.Op(func(tx *simdisk.Tx) (err error) {
			res, err = r.a.Allocate(tx, &req)
			return err
		})
		if err != nil {
			return err
		}
		f.len += res.Len
		if k := len(f.extents); k > 0 && f.extents[k-1].Start+mballoc.Cluster(f.extents[k-1].Len) == res.Start {
			f.extents[k-1].Len += res.Len
		} else {
			f.extents = append(f.extents, res)
		}
	}
	return nil
}

// truncate frees all of the file.
func (f *file) truncate(r *rig) error {
	r.a.DiscardInode(&f.state)
	for _, e := range f.extents {
		if err := r.j.Op(func(tx *simdisk.Tx) error { return r.a.Free(tx, e.Start, e.Len, 0) }); err != nil {
			return err
		}
	}
	f.extents, f.len = nil, 0
	return nil
}

func TestSequentialFileIsOneExtent(t *testing.T) {
	r := newRig(t, geo4k(4), mballoc.Options{}, nil)
	f := file{ino: 12}
	for range 1000 {
		if err := f.append(r, 16, 4096); err != nil {
			t.Fatal(err)
		}
	}
	r.a.DiscardInode(&f.state)
	if len(f.extents) > 2 { // the first 64 KiB come from a locality group
		t.Fatalf("%d extents: %v", len(f.extents), f.extents)
	}
	if got := r.a.FreeClusters(); got != 4*32768-16000 {
		t.Fatalf("free clusters %d", got)
	}
}

func TestNoSpaceAndPending(t *testing.T) {
	r := newRig(t, geo4k(1), mballoc.Options{}, nil)
	f := file{ino: 12}
	var err error
	for err == nil {
		err = f.append(r, 512, 4096)
	}
	var full *mballoc.NoSpaceError
	if !errors.Is(err, mballoc.ErrNoSpace) || !errors.As(err, &full) || full.Pending != 0 || f.len != 32768 {
		t.Fatalf("%v after %d clusters", err, f.len)
	}
	if err := f.truncate(r); err != nil {
		t.Fatal(err)
	}
	if err = f.append(r, 1, 4096); !errors.As(err, &full) || full.Pending != 32768 {
		t.Fatalf("allocation before the commit: %v", err)
	}
	r.j.Commit(nil)
	if err := f.append(r, 32768, 4096); err != nil {
		t.Fatal(err)
	}
}

// A file that is written back in several requests at once, which arrive in any order, is in one
// piece: what lies before a request is set aside along with it. What nobody comes for goes back.
func TestRequestsOutOfOrder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		n     uint32 // clusters of a request
		order []uint32
		want  int
	}{
		{"large file, backwards", 256, []uint32{5, 4, 3, 2, 1, 0}, 1},
		{"large file, the second last", 256, []uint32{0, 2, 3, 4, 5, 1}, 1},
		{"large file, the first last", 256, []uint32{3, 1, 5, 2, 4, 0}, 1},
		{"small file, backwards", 4, []uint32{2, 1, 0}, 1},
		{"small file, the last first", 4, []uint32{2, 0, 1}, 1},
		{"a hole stays a hole", 4, []uint32{2, 0}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, geo4k(4), mballoc.Options{}, nil)
			f := file{ino: 12}
			m := map[uint32]mballoc.Cluster{} // logical -> physical
			size := uint64(0)
			other := file{ino: 100} // small: the locality group is there already
			for _, k := range tc.order {
				if err := other.append(r, 1, 4096); err != nil {
					t.Fatal(err)
				}
				other = file{ino: other.ino + 1}
				for l, end := k*tc.n, (k+1)*tc.n; l < end; {
					size = max(size, uint64(end)<<12)
					res := r.alloc(f.at(m, l, end-l, size))
					for i := range res.Len {
						m[l+i] = res.Start + mballoc.Cluster(i)
					}
					l += res.Len
				}
			}
			pieces, last := 0, int64(-2)
			for l := range tc.n * 8 {
				c, ok := m[l]
				if ok && int64(c) != last+1 {
					pieces++
				}
				if last = -2; ok {
					last = int64(c)
				}
			}
			r.a.DiscardInode(&f.state)
			r.a.DiscardAll()
			if n := r.a.PreallocLen(); pieces != tc.want || n != 0 {
				t.Errorf("%d pieces, want %d; %d clusters set aside at the end", pieces, tc.want, n)
			}
		})
	}
}

// Whatever the order, a file's preallocations are disjoint, none of them is empty, and all of them
// go back: those that follow each other without a gap, too.
func TestRequestsInRandomOrder(t *testing.T) {
	r := newRig(t, geo4k(8), mballoc.Options{}, nil)
	rng := rand.New(rand.NewPCG(5, 1))
	touching := 0
	for k := range uint32(150) {
		f := file{ino: 12 + k}
		m := map[uint32]mballoc.Cluster{}
		order := rng.Perm(2 + rng.IntN(10))
		n := uint32(1) << rng.IntN(9)
		size := uint64(0)
		for _, piece := range order {
			l := uint32(piece) * n
			for end := l + n - uint32(rng.IntN(int(n)+1)/2); l < end; {
				size = max(size, uint64(end)<<12)
				res := r.alloc(f.at(m, l, end-l, size))
				for i := range res.Len {
					m[l+i] = res.Start + mballoc.Cluster(i)
				}
				l += res.Len
				last := uint64(0)
				for _, pa := range f.state.Ranges() {
					if pa[0] >= pa[1] || pa[0] < last {
						t.Fatalf("file %d, after the request up to %d: preallocations %v", k, end, f.state.Ranges())
					}
					if last == pa[0] && last > 0 {
						touching++
					}
					last = pa[1]
				}
			}
		}
		r.a.DiscardInode(&f.state)
		if err := r.a.Check(); err != nil {
			t.Fatalf("file %d: %v", k, err)
		}
	}
	r.a.DiscardAll()
	if n := r.a.PreallocLen(); n != 0 || touching == 0 {
		t.Errorf("%d clusters set aside at the end; %d times two preallocations touched", n, touching)
	}
}

// at is the request for n clusters at l of a file that is mapped as m says.
func (f *file) at(m map[uint32]mballoc.Cluster, l, n uint32, size uint64) *mballoc.Request {
	req := &mballoc.Request{Ino: f.ino, State: &f.state, Logical: mballoc.LCluster(l), Len: n, Size: size, Flags: mballoc.Data}
	for k := range m {
		c := mballoc.Neighbour{Logical: mballoc.LCluster(k), Physical: m[k], Valid: true}
		if k < l && (!req.Left.Valid || c.Logical > req.Left.Logical) {
			req.Left = c
		}
		if k >= l+n && (!req.Right.Valid || c.Logical < req.Right.Logical) {
			req.Right = c
		}
	}
	return req
}
