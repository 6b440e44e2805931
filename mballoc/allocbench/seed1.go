package allocbench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// insertThenMerge is S1's "before": every freed extent is inserted in its group's tree and in the
// transaction's list first, and then absorbs neighbours of its transaction that it touches. Each
// step on the list takes the one lock of the file system.
type insertThenMerge struct {
	mu      sync.Mutex // the lists and the pending counter
	head    [2]*freed
	pending uint64
	locks   atomic.Uint64
	groups  []freedGroup
}

type freed struct {
	start, n, tid uint32
	next, prev    *freed
}

type freedGroup struct {
	mu   sync.Mutex
	tree []*freed // sorted
	_    [64]byte
}

func newInsertThenMerge(groups int) *insertThenMerge {
	return &insertThenMerge{groups: make([]freedGroup, groups)}
}

func (f *insertThenMerge) free(tx *simdisk.Tx, g mballoc.GroupNumber, start, n uint32) error {
	gr := &f.groups[g]
	gr.mu.Lock()
	defer gr.mu.Unlock()
	if err := tx.MarkFree(g, mballoc.GrpCluster(start), n); err != nil {
		return err
	}
	e := &freed{start: start, n: n, tid: tx.ID}
	i, _ := slices.BinarySearchFunc(gr.tree, start, func(e *freed, s uint32) int { return int(e.start) - int(s) })
	gr.tree = slices.Insert(gr.tree, i, e)
	f.push(e)
	if i > 0 && gr.tree[i-1].touches(e) {
		f.unlink(gr.tree[i-1])
		e.start, e.n = gr.tree[i-1].start, e.n+gr.tree[i-1].n
		gr.tree = slices.Delete(gr.tree, i-1, i)
		i--
	}
	if i+1 < len(gr.tree) && e.touches(gr.tree[i+1]) {
		f.unlink(gr.tree[i+1])
		e.n += gr.tree[i+1].n
		gr.tree = slices.Delete(gr.tree, i+1, i+2)
	}
	return nil
}

func (e *freed) touches(next *freed) bool { return e.tid == next.tid && e.start+e.n == next.start }

func (f *insertThenMerge) push(e *freed) {
	f.mu.Lock()
	head := &f.head[e.tid&1]
	e.next = *head
	if e.next != nil {
		e.next.prev = e
	}
	*head = e
	f.pending += uint64(e.n)
	f.mu.Unlock()
	f.locks.Add(1)
}

func (f *insertThenMerge) unlink(e *freed) {
	f.mu.Lock()
	if e.next != nil {
		e.next.prev = e.prev
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		f.head[e.tid&1] = e.next
	}
	f.mu.Unlock()
	f.locks.Add(1)
}

// seed1 frees files of 1 MiB in pieces of 8 KiB, each worker in groups of its own, the costly way
// and the product's.
func seed1(cfg SeedsConfig) ([]Row, error) {
	var rows []Row
	for i, workers := range cfg.Workers {
		var locksBefore, locksAfter float64
		rates, err := medians(2*cfg.Duration,
			func(d time.Duration) (float64, error) {
				disk, geo := usedDisk(workers)
				before := newInsertThenMerge(int(geo.Groups))
				r, err := freePieces(disk, geo, workers, d, before.free)
				locksBefore = ratio(before.locks.Load(), r.count)
				return r.rate, err
			},
			func(d time.Duration) (float64, error) {
				disk, geo := usedDisk(workers)
				a, err := mballoc.New(geo, disk, mballoc.Options{})
				if err != nil {
					return 0, err
				}
				r, err := freePieces(disk, geo, workers, d, func(tx *simdisk.Tx, g mballoc.GroupNumber, start, n uint32) error {
					return a.Free(tx, mballoc.Cluster(g)*mballoc.Cluster(geo.ClustersPerGroup)+mballoc.Cluster(start), n, 0)
				})
				s := a.Stats()
				locksAfter = ratio(s.FreedListLocks, s.FreedExtents)
				return r.rate, err
			})
		if err != nil {
			return nil, err
		}
		if i == 0 {
			rows = append(rows, Row{Seed: "S1", What: "list-lock acquisitions per freed extent", Unit: "locks", Before: locksBefore, After: locksAfter})
		}
		rows = append(rows, Row{Seed: "S1", What: fmt.Sprintf("freed extents, %d workers", workers), Unit: "1/s", Before: rates[0], After: rates[1], Higher: true})
	}
	return rows, nil
}

// usedDisk is a disk without a free cluster, with some groups for each worker.
func usedDisk(workers int) (*simdisk.Disk, mballoc.Geometry) {
	groups := mballoc.GroupNumber(max(256/workers, 8) * workers)
	geo := mballoc.Geometry{Groups: groups, ClustersPerGroup: 32768, Clusters: uint64(groups) * 32768, BlockSizeBits: 12, FlexSize: flexSize, CPUs: workers}
	d := simdisk.New(geo)
	for g := range groups {
		d.Fill(g)
	}
	return d, geo
}

// freePieces lets workers free everything in their groups by pieces of 8 KiB, as long as the time
// allows.
func freePieces(d *simdisk.Disk, geo mballoc.Geometry, workers int, duration time.Duration,
	free func(tx *simdisk.Tx, g mballoc.GroupNumber, start, n uint32) error) (opRate, error) {
	const piece = 2
	return measure(workers, duration, func(w int, stop *atomic.Bool) (n uint64, err error) {
		tx := d.Begin()
		for g := mballoc.GroupNumber(w); g < geo.Groups; g += mballoc.GroupNumber(workers) {
			for start := uint32(0); start < geo.ClustersPerGroup; start += piece {
				if err := free(tx, g, start, piece); err != nil {
					return n, err
				}
				if n++; n%64 == 0 && stop.Load() {
					return n, nil
				}
			}
		}
		return n, nil
	})
}
