package mballoc_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// The statements S1 to S4 of the founding documents, by counts.

// S1: a freed extent that touches one of its transaction takes no list lock; one that closes a gap,
// or touches none, takes one.
func TestFreedExtentsTakeAtMostOneListLock(t *testing.T) {
	const file, piece = 256, 2 // fallocate2: 1 MiB by 8 KiB
	orders := map[string]func([]int){
		"ascending":  func([]int) {},
		"descending": func(p []int) { slices.Reverse(p) },
		"random":     func(p []int) { rand.New(rand.NewPCG(1, 2)).Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] }) },
		"every second, then the rest": func(p []int) {
			slices.SortStableFunc(p, func(a, b int) int { return a%2 - b%2 })
		},
	}
	for name, arrange := range orders {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, geo4k(2), mballoc.Options{}, func(d *simdisk.Disk) { d.SetUsed(0, 0, file) })
			pieces := make([]int, file/piece)
			for i := range pieces {
				pieces[i] = i
			}
			arrange(pieces)
			for _, p := range pieces {
				before := r.a.Stats()
				if err := r.a.Free(r.d.Begin(), mballoc.Cluster(p*piece), piece, 0); err != nil {
					t.Fatal(err)
				}
				after := r.a.Stats()
				locks := after.FreedListLocks - before.FreedListLocks
				want := after.FreedInserted - before.FreedInserted + after.FreedJoined - before.FreedJoined
				if locks > 1 || locks != want {
					t.Fatalf("piece %d: %d lock acquisitions, inserted or joined %d", p, locks, want)
				}
			}
			s := r.a.Stats()
			if s.FreedExtents != file/piece || s.FreedInserted+s.FreedFolded != s.FreedExtents || s.FreedInserted-s.FreedJoined != 1 {
				t.Fatalf("%+v", s)
			}
			if name == "ascending" || name == "descending" {
				if s.FreedListLocks != 1 {
					t.Fatalf("%d lock acquisitions for %d touching extents", s.FreedListLocks, s.FreedExtents)
				}
			}
			released := 0
			r.j.Commit(func(start mballoc.Cluster, n uint32) {
				released++
				if start != 0 || n != file {
					t.Errorf("discard %d+%d", start, n)
				}
			})
			if released != 1 || r.a.PendingClusters() != 0 {
				t.Fatalf("%d discards, %d pending", released, r.a.PendingClusters())
			}
		})
	}
}

// S1: extents of different transactions are not merged, and only the committed one comes back.
func TestFreedExtentsOfTwoTransactions(t *testing.T) {
	r := newRig(t, geo4k(1), mballoc.Options{}, func(d *simdisk.Disk) { d.SetUsed(0, 0, 64) })
	if err := r.a.Free(r.d.Begin(), 0, 32, 0); err != nil {
		t.Fatal(err)
	}
	first := r.d.NextTID()
	if err := r.a.Free(r.d.Begin(), 32, 32, 0); err != nil {
		t.Fatal(err)
	}
	if s := r.a.Stats(); s.FreedInserted != 2 || s.FreedFolded != 0 || s.Pending != 64 {
		t.Fatalf("%+v", s)
	}
	r.a.Committed(first, nil)
	if got := r.a.PendingClusters(); got != 32 {
		t.Fatalf("pending %d", got)
	}
	if err := r.a.Free(r.d.Begin(), 40, 1, 0); err == nil {
		t.Fatal("a second free of the same cluster is no error")
	}
}

// fullBut makes a file system of n groups whose only free clusters are the last group and what
// crumbs says.
func fullBut(n int, crumbs bool) func(*simdisk.Disk) {
	return func(d *simdisk.Disk) {
		for g := range n - 1 {
			d.Fill(mballoc.GroupNumber(g))
			if crumbs && g%512 == 3 {
				d.SetFree(mballoc.GroupNumber(g), 77, 1)
			}
		}
	}
}

// considered runs 100 allocations for files with goals all over, which no stream goal helps, and
// returns the groups considered for each.
func considered(t *testing.T, n int, optimize string, crumbs bool) float64 {
	r := newRig(t, geo4k(n), mballoc.Options{}, fullBut(n, crumbs))
	if err := r.a.Set("mb_optimize_scan", optimize); err != nil {
		t.Fatal(err)
	}
	const allocs = 100
	for i := range allocs {
		f := file{ino: uint32(100 + i), goal: mballoc.Cluster(i * n / allocs * 32768), flags: mballoc.NoWriter}
		if err := f.append(r, 33+uint32(i%5), 4096); err != nil {
			t.Fatal(err)
		}
	}
	var sum uint64
	for _, c := range r.a.Stats().Criteria {
		sum += c.GroupsConsidered
	}
	return float64(sum) / allocs
}

// S2: with the lists, the groups considered for an allocation do not grow with the file system;
// without them they do.
func TestGroupsConsideredDoNotGrow(t *testing.T) {
	for _, crumbs := range []bool{false, true} {
		small, large := considered(t, 64, "1", crumbs), considered(t, 131072/slow, "1", crumbs)
		t.Logf("crumbs %v: %.1f groups considered of 64, %.1f of 131072 / %d", crumbs, small, large, slow)
		if large > small+1 {
			t.Errorf("crumbs %v: %.1f groups considered of 64, %.1f of 131072 / %d", crumbs, small, large, slow)
		}
	}
	small, large := considered(t, 64, "0", false), considered(t, 16384, "0", false)
	t.Logf("linear: %.1f groups considered of 64, %.1f of 16384", small, large)
	if large < 10*small {
		t.Errorf("linear scan does not scan: %.1f of 64, %.1f of 16384", small, large)
	}
}

// S2.1: the goal's group is taken when it has room, however well others are placed.
func TestGoalGroupFirst(t *testing.T) {
	r := newRig(t, geo4k(64), mballoc.Options{}, func(d *simdisk.Disk) {
		for c := uint32(0); c < 32768; c += 1024 { // the goal's group is the worst of all
			d.SetUsed(40, mballoc.GrpCluster(c), 512)
		}
	})
	for i := range uint32(20) {
		f := file{ino: 100 + i, goal: 40 * 32768}
		if err := f.append(r, 300, 4096); err != nil {
			t.Fatal(err)
		}
		if g := f.extents[0].Start / 32768; i == 0 && g != 40 {
			t.Fatalf("goal in group 40, got group %d", g)
		}
	}
}

// S2.2: a group moves between lists only when its order changes: 32,768 allocations of one cluster
// pass through at most all orders.
func TestListMovesOnlyOnChange(t *testing.T) {
	r := newRig(t, geo4k(1), mballoc.Options{}, nil)
	for range 32768 {
		r.alloc(&mballoc.Request{Ino: 2, Len: 1, HasGoal: true})
	}
	if s := r.a.Stats(); s.ListMoves > 40 || s.ListMoves < 14 {
		t.Fatalf("%d list moves for %d allocations", s.ListMoves, s.Success)
	}
}

// touched is the number of groups in which files have clusters.
func touched(files []*file) int {
	groups := map[mballoc.Cluster]bool{}
	for _, f := range files {
		for _, e := range f.extents {
			groups[e.Start/32768] = true
			groups[(e.Start+mballoc.Cluster(e.Len)-1)/32768] = true
		}
	}
	return len(groups)
}

// S2.4: files of 100 KB, and smaller ones, are packed together, whether they are open or closed
// when their clusters are allocated, and wherever their directories' goals are.
func TestSmallFilesArePacked(t *testing.T) {
	for _, tc := range []struct {
		name     string
		clusters uint32
		files    int
		flags    mballoc.Flags
		goals    int
		least    int
		slack    int
	}{
		{"2000 files of 100 KB, open", 25, 2000, 0, 1, 2, 5},
		{"2000 files of 100 KB, closed", 25, 2000, mballoc.NoWriter, 1, 2, 5},
		{"20000 files of 12 KB, closed, 20 directories", 3, 20000, mballoc.NoWriter, 20, 2, 2},
		{"20000 files of 12 KB, open, 20 directories", 3, 20000, 0, 20, 2, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, geo4k(48), mballoc.Options{}, nil)
			var files []*file
			for i := range tc.files {
				f := &file{ino: uint32(100 + i), flags: tc.flags, goal: mballoc.Cluster(i%tc.goals) * 2 * 32768}
				if err := f.append(r, tc.clusters, 4096); err != nil {
					t.Fatal(err)
				}
				r.a.DiscardInode(&f.state)
				if len(f.extents) > 1 {
					t.Errorf("file %d is not contiguous: %v", i, f.extents)
				}
				files = append(files, f)
			}
			if got := touched(files); got > tc.least+tc.slack {
				t.Errorf("%d groups touched, the least is %d", got, tc.least)
			} else {
				t.Logf("%d groups touched, the least is %d", got, tc.least)
			}
		})
	}
}

// S2.4: a large file that nobody has open for writing gets no preallocation; one that is open does.
func TestClosedLargeFileGetsNoPreallocation(t *testing.T) {
	for _, flags := range []mballoc.Flags{0, mballoc.NoWriter} {
		r := newRig(t, geo4k(4), mballoc.Options{}, nil)
		f := file{ino: 12, flags: flags}
		if err := f.append(r, 100, 4096); err != nil {
			t.Fatal(err)
		}
		want := uint64(0)
		if flags == 0 {
			want = 28 // the window is 512 KiB
		}
		if got := r.a.PreallocLen(); got != want {
			t.Errorf("flags %x: %d clusters preallocated, want %d", flags, got, want)
		}
	}
}

// S3: eight files written at once, 24 MB each in pieces of 64 KiB, get at most 5 extents each.
func TestInterleavedWriters(t *testing.T) {
	for _, size := range []uint64{4096, 1024, 65536} {
		groups := 32 << 30 / (8 * size * size)
		geo := mballoc.Geometry{Groups: mballoc.GroupNumber(groups), ClustersPerGroup: uint32(8 * size), Clusters: groups * 8 * size, FlexSize: 16, CPUs: 2}
		for geo.BlockSizeBits = 10; size>>geo.BlockSizeBits > 1; {
			geo.BlockSizeBits++
		}
		r := newRig(t, geo, mballoc.Options{}, nil)
		files := make([]file, 8)
		for range 24 << 20 >> 16 {
			for i := range files {
				f := &files[i]
				f.ino, f.writer = uint32(100+i), uint32(i)
				if err := f.append(r, uint32(65536/size), size); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range files {
			if n := len(files[i].extents); n > 5 {
				t.Errorf("block size %d: file %d has %d extents: %v", size, i, n, files[i].extents)
			}
			r.a.DiscardInode(&files[i].state)
		}
		t.Logf("block size %d: extents %v", size, extentCounts(files))
	}
}

func extentCounts(files []file) []int {
	var n []int
	for i := range files {
		n = append(n, len(files[i].extents))
	}
	return n
}

// S3: large files written one after the other follow each other without holes, also at odd lengths.
func TestLargeFilesPackWithoutHoles(t *testing.T) {
	r := newRig(t, geo4k(256), mballoc.Options{}, nil)
	var all []mballoc.Result
	var total uint64
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 500 {
		f := file{ino: uint32(100 + i), goal: mballoc.Cluster(rng.IntN(256)) * 32768}
		want := 10240 + rng.Uint32N(3000) // 40 to 52 MiB
		for f.len < want {
			if err := f.append(r, min(256, want-f.len), 4096); err != nil {
				t.Fatal(err)
			}
		}
		r.a.DiscardInode(&f.state)
		total += uint64(f.len)
		all = append(all, f.extents...)
	}
	slices.SortFunc(all, func(a, b mballoc.Result) int { return int(a.Start) - int(b.Start) })
	holes, groups := 0, map[mballoc.Cluster]bool{}
	for i, e := range all {
		groups[e.Start/32768] = true
		groups[(e.Start+mballoc.Cluster(e.Len)-1)/32768] = true
		if i > 0 && all[i-1].Start+mballoc.Cluster(all[i-1].Len) != e.Start {
			holes++
			from := all[i-1].Start + mballoc.Cluster(all[i-1].Len)
			metadata := e.Start%32768 == 0 && from/32768%16 == 0 // the first group of a flex group is left to metadata
			short := e.Start%32768 == 0 && e.Start-from < 256    // less than a request at the end of a group
			if !metadata && !short {
				t.Errorf("hole between %d and %d", from, e.Start)
			}
		}
	}
	least := int((total + 32767) / 32768)
	t.Logf("%d extents, %d holes, %d groups for %d", len(all), holes, len(groups), least)
	if len(all) > 500+20 {
		t.Errorf("%d extents for 500 files", len(all))
	}
}

// S3: allocating and freeing at once: workers of different groups never wait for each other.
func TestAllocatingAndFreeingShareNoLock(t *testing.T) {
	r := newRig(t, geo4k(64), mballoc.Options{Tunables: nil}, func(d *simdisk.Disk) {
		for g := range 32 {
			d.Fill(mballoc.GroupNumber(g))
		}
	})
	var wg sync.WaitGroup
	for w := range uint32(4) {
		wg.Go(func() { // frees in groups w*8 ... w*8+7
			for i := range uint32(8 * 32768 / 64) {
				if err := r.a.Free(r.d.Begin(), mballoc.Cluster(w*8*32768+i*64), 32, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() { // allocates in group 32+w
			for i := range uint32(4096) {
				req := mballoc.Request{Ino: 100 + w, Len: 8, Goal: mballoc.Cluster((32+w)*32768 + i*8), HasGoal: true, Flags: mballoc.TryGoal}
				if _, err := r.a.Allocate(r.d.Begin(), &req); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s := r.a.Stats()
	for _, class := range []string{"group", "disk", "locality_group", "inode"} {
		if s.Contended[class] != 0 {
			t.Errorf("%d contended acquisitions of %s locks", s.Contended[class], class)
		}
	}
}

// S4: the first pass over all groups sets every group's bit; later passes execute no atomic
// read-modify-write, also for groups that were never read because they are full.
func TestPrefetchPassesExecuteNoAtomics(t *testing.T) {
	const n = 1000
	r := newRig(t, geo4k(n), mballoc.Options{}, fullBut(n/2, false))
	if got := r.a.PrefetchAll(); got != n/2+1 {
		t.Errorf("%d groups read ahead, %d are worth it", got, n/2+1)
	}
	first := r.a.Stats().PrefetchAtomics
	if first != n {
		t.Errorf("%d atomics in the first pass over %d groups", first, n)
	}
	for range 10 {
		r.a.PrefetchAll()
	}
	if got := r.a.Stats().PrefetchAtomics - first; got != 0 {
		t.Errorf("%d atomics in later passes", got)
	}
	if got := r.d.Prefetches.Load(); got != n/2+1 {
		t.Errorf("%d groups prefetched", got)
	}
}

// S4: linear searches of an allocation go through the same path.
func TestSearchesExecuteNoAtomicsOnceSeen(t *testing.T) {
	const n = 500
	r := newRig(t, geo4k(n), mballoc.Options{}, fullBut(n, false))
	for _, kv := range [][2]string{{"mb_optimize_scan", "0"}, {"mb_prefetch_limit", "500"}} {
		if err := r.a.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		r.alloc(&mballoc.Request{Ino: uint32(i), Len: 3, HasGoal: true})
	}
	first := r.a.Stats()
	if first.PrefetchAtomics == 0 || first.PrefetchAtomics > n {
		t.Fatalf("%d atomics for %d groups", first.PrefetchAtomics, n)
	}
	for i := range 20 {
		r.alloc(&mballoc.Request{Ino: uint32(i), Len: 3, HasGoal: true})
	}
	if got := r.a.Stats().PrefetchAtomics - first.PrefetchAtomics; got != 0 {
		t.Errorf("%d atomics after all groups were seen", got)
	}
}

// ENOSPC: 8 writers fill a 100 MB group with pieces of 8 KiB; nearly everything holds data when the
// last one stops.
func TestFillToTheBrim(t *testing.T) {
	geo := mballoc.Geometry{Groups: 1, ClustersPerGroup: 32768, Clusters: 25600, BlockSizeBits: 12, CPUs: 2}
	for _, workers := range []int{1, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			r := newRig(t, geo, mballoc.Options{RootClusters: 1280}, nil)
			files := make([]file, workers)
			var wg sync.WaitGroup
			for i := range files {
				f := &files[i]
				f.ino, f.writer = uint32(100+i), uint32(i)
				wg.Go(func() {
					for f.append(r, 2, 4096) == nil {
					}
				})
			}
			wg.Wait()
			var got uint32
			for i := range files {
				got += files[i].len
			}
			if got != 25600-1280 {
				t.Errorf("%d clusters hold data of %d", got, 25600-1280)
			}
			if n := r.a.AvailableClusters(); n != 0 {
				t.Errorf("%d clusters still available", n)
			}
			root := file{ino: 99, flags: mballoc.UseRoot}
			if err := root.append(r, 1280, 4096); err != nil || r.a.FreeClusters() != 0 {
				t.Errorf("root's share: %v, %d free", err, r.a.FreeClusters())
			}
			for i := range files {
				if err := files[i].truncate(r); err != nil {
					t.Fatal(err)
				}
			}
			r.j.Commit(nil)
			again := file{ino: 98, flags: mballoc.UseRoot}
			if err := again.append(r, 100, 4096); err != nil {
				t.Errorf("after commit: %v", err)
			}
		})
	}
}

// Fragmented free space: every second 64 KiB file of a full 4 GiB image is gone; 20 MB in requests
// of 2 MB take bounded work.
func TestFragmentedSpaceTakesBoundedWork(t *testing.T) {
	for _, optimize := range []string{"1", "0"} {
		r := newRig(t, geo4k(32), mballoc.Options{}, func(d *simdisk.Disk) {
			for g := range 32 {
				for c := 0; c < 32768; c += 32 {
					d.SetUsed(mballoc.GroupNumber(g), mballoc.GrpCluster(c), 16)
				}
			}
		})
		if err := r.a.Set("mb_optimize_scan", optimize); err != nil {
			t.Fatal(err)
		}
		f := file{ino: 100}
		for range 10 {
			if err := f.append(r, 512, 4096); err != nil {
				t.Fatal(err)
			}
		}
		s := r.a.Stats()
		t.Logf("optimize %s: %d allocations, %d extents, criteria %+v", optimize, s.Success, len(f.extents), s.Criteria)
		regular := s.Success - s.PreallocHits
		if limit := regular * (200 + 32 + 1); s.ExtentsScanned > limit {
			t.Errorf("optimize %s: %d extents compared in %d searches", optimize, s.ExtentsScanned, regular)
		}
		if len(f.extents) > 320 {
			t.Errorf("%d extents for 320 free runs", len(f.extents))
		}
	}
}
