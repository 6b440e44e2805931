package mballoc_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// owners finds clusters that two files have at once.
type owners struct {
	t *testing.T
	c []atomic.Uint32
}

func (o *owners) take(e mballoc.Result, ino uint32) {
	for c := e.Start; c < e.Start+mballoc.Cluster(e.Len); c++ {
		if old := o.c[c].Swap(ino); old != 0 {
			o.t.Errorf("cluster %d: allocated to %d while %d has it", c, ino, old)
		}
	}
}

// TestStress runs 16 goroutines that allocate, free, commit, discard, trim, tune and look, on a
// file system that is mostly full and has fewer buddies in memory than groups. A freed cluster may
// not turn up again before its commit.
func TestStress(t *testing.T) {
	geo := mballoc.Geometry{Groups: 12, ClustersPerGroup: 8192, Clusters: 12*8192 - 500, BlockSizeBits: 10, FlexSize: 4, CPUs: 4}
	r := newRig(t, geo, mballoc.Options{BuddyBytes: 1, RootClusters: 100, ReservedClusters: 20}, nil)
	own := &owners{t, make([]atomic.Uint32, geo.Clusters)}
	rounds := 30000 / slow
	var wg, background sync.WaitGroup
	for w := range uint32(12) {
		wg.Go(func() { r.churn(own, w, rounds) })
	}
	var stop atomic.Bool
	for _, fn := range []func(*rand.Rand){
		func(rng *rand.Rand) { r.commitReleasing(own) },
		func(rng *rand.Rand) {
			r.a.DiscardAll()
			runtime.Gosched()
		},
		func(rng *rand.Rand) {
			_, err := r.a.Trim(mballoc.Cluster(rng.Uint64N(geo.Clusters)), rng.Uint64N(20000), rng.Uint64N(64), func(start mballoc.Cluster, n uint32) error {
				for c := start; c < start+mballoc.Cluster(n); c++ {
					if ino := own.c[c].Load(); ino != 0 {
						return fmt.Errorf("cluster %d of inode %d trimmed", c, ino)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		},
		func(rng *rand.Rand) {
			names := r.a.Names()
			_ = r.a.Set(names[rng.IntN(len(names))], fmt.Sprint(rng.IntN(20)))
			r.views()
		},
	} {
		background.Go(func() {
			for rng := rand.New(rand.NewPCG(1, 1)); !stop.Load(); {
				fn(rng)
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	background.Wait()
	r.commitReleasing(own)
	if got := r.a.FreeClusters(); got != geo.Clusters || r.a.PendingClusters() != 0 {
		t.Errorf("%d clusters free of %d, %d pending", got, geo.Clusters, r.a.PendingClusters())
	}
	r.a.DiscardAll()
	if got := r.a.FreeInCore(); got != geo.Clusters {
		t.Errorf("%d free in core after everything is gone", got)
	}
	t.Logf("%+v", r.a.Stats())
}

const pendingOwner = 1 << 31

// commitReleasing commits; the owners' table learns from the discards that the clusters are free
// now.
func (r *rig) commitReleasing(own *owners) {
	r.j.Commit(func(start mballoc.Cluster, n uint32) {
		for c := start; c < start+mballoc.Cluster(n); c++ {
			if old := own.c[c].Swap(0); old != pendingOwner {
				r.t.Errorf("cluster %d committed as free, but %x has it", c, old)
			}
		}
	})
}

func (r *rig) views() {
	for _, view := range []func(io.Writer) error{r.a.WriteMBGroups, r.a.WriteMBStats, r.a.WriteMBStructsSummary} {
		if err := view(io.Discard); err != nil {
			r.t.Error(err)
		}
	}
}

// churn grows files of its own, until they are as large as they are to be or the file system is
// full, and frees them.
func (r *rig) churn(own *owners, w uint32, rounds int) {
	rng := rand.New(rand.NewPCG(uint64(w), 7))
	f := file{ino: 1000 + w, writer: w}
	limit := uint32(0)
	for range rounds {
		if f.len == 0 {
			limit = 1 + rng.Uint32N(1<<rng.IntN(14))
			f.flags = []mballoc.Flags{0, mballoc.NoWriter, mballoc.NoPrealloc, mballoc.UseRoot, mballoc.UseReserved}[rng.IntN(5)]
			f.goal = mballoc.Cluster(rng.Uint64N(12 * 8192))
		}
		before, at := f.len, len(f.extents)
		var lastLen uint32
		if at > 0 {
			lastLen = f.extents[at-1].Len
		}
		err := f.append(r, 1+rng.Uint32N(60), 1024)
		if err != nil && !errors.Is(err, mballoc.ErrNoSpace) {
			r.t.Error(err)
			return
		}
		if f.len > before {
			f.own(own, at, lastLen)
		}
		if f.len >= limit || err != nil {
			r.drop(&f, own)
		}
	}
	r.drop(&f, own)
}

// own enters what the file has got since it had at extents, the last of lastLen clusters.
func (f *file) own(own *owners, at int, lastLen uint32) {
	for i := max(at-1, 0); i < len(f.extents); i++ {
		e := f.extents[i]
		if i == at-1 {
			e.Start, e.Len = e.Start+mballoc.Cluster(lastLen), e.Len-lastLen
		}
		own.take(e, f.ino)
	}
}

func (r *rig) drop(f *file, own *owners) {
	r.a.DiscardInode(&f.state)
	for _, e := range f.extents {
		err := r.j.Op(func(tx *simdisk.Tx) error {
			for c := e.Start; c < e.Start+mballoc.Cluster(e.Len); c++ {
				own.c[c].Store(pendingOwner)
			}
			return r.a.Free(tx, e.Start, e.Len, 0)
		})
		if err != nil {
			r.t.Error(err)
		}
	}
	f.extents, f.len = nil, 0
}
