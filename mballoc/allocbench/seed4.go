package allocbench

import (
	"fmt"
	"sync/atomic"
	"time"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// stateWord is a group's state on cache lines of its own.
type stateWord struct {
	bits atomic.Uint32
	_    [124]byte
}

// prefetchGroups is how many groups the passes of S4 go over.
const prefetchGroups = 4096

// seed4 passes over all groups again and again, as searches do, after every group's bit has been
// set.
func seed4(cfg SeedsConfig) ([]Row, error) {
	words := make([]stateWord, prefetchGroups)
	geo := mballoc.Geometry{Groups: prefetchGroups, ClustersPerGroup: 32768, Clusters: prefetchGroups * 32768, BlockSizeBits: 12, FlexSize: flexSize}
	a, err := mballoc.New(geo, simdisk.New(geo), mballoc.Options{})
	if err != nil {
		return nil, err
	}
	a.PrefetchAll()
	var rows []Row
	for _, workers := range []int{1, 4} {
		var atomics atomic.Uint64
		var atomicsBefore, atomicsAfter float64
		rates, err := medians(cfg.Duration,
			func(d time.Duration) (float64, error) {
				atomics.Store(0)
				r, err := passes(workers, d, func() {
					for i := range words { // S4's "before": the atomic, whatever the bit says
						words[i].bits.Or(2)
					}
					atomics.Add(uint64(len(words)))
				})
				atomicsBefore = ratio(atomics.Load(), r.count)
				return r.rate * prefetchGroups, err
			},
			func(d time.Duration) (float64, error) {
				first := a.Stats().PrefetchAtomics
				r, err := passes(workers, d, func() { a.PrefetchAll() })
				atomicsAfter = ratio(a.Stats().PrefetchAtomics-first, r.count)
				return r.rate * prefetchGroups, err
			})
		if err != nil {
			return nil, err
		}
		if workers == 1 {
			rows = append(rows, Row{Seed: "S4", What: "atomic read-modify-writes on group state per later pass", Unit: fmt.Sprintf("of %d", prefetchGroups),
				Before: atomicsBefore, After: atomicsAfter})
		}
		rows = append(rows, Row{Seed: "S4", What: fmt.Sprintf("groups passed, %d threads", workers), Unit: "1/s", Before: rates[0], After: rates[1], Higher: true})
	}
	return rows, nil
}

func passes(workers int, duration time.Duration, pass func()) (opRate, error) {
	return measure(workers, duration, func(_ int, stop *atomic.Bool) (n uint64, err error) {
		for !stop.Load() {
			pass()
			n++
		}
		return n, nil
	})
}
