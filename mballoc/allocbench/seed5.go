package allocbench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// seed5Workers look things up at the same time.
const seed5Workers = 8

// seed5Slice is how many look-ups are timed at once: so few that most slices are not interrupted.
const seed5Slice = 1024

// seed5Variant says how a hit is counted: what is added to the state of the reader's lock when the
// reader leaves, and whether a counter of all workers is increased.
type seed5Variant struct {
	hit    uint64
	shared bool
}

// seed5Cache is a worker's cache: runs behind a readers' lock, of which only the readers' two
// atomic operations are here.
type seed5Cache struct {
	state atomic.Uint64
	keys  []uint32
	_     [96]byte
}

// seed5 looks up extents in a cache of each worker's own and counts the hits: not at all, in one
// place, and in the atomic operation that ends the reading anyway. The variants alternate slice by
// slice in every worker, and the medians count.
func seed5(cfg SeedsConfig) ([]Row, error) {
	variants := []seed5Variant{{}, {shared: true}, {hit: 1 << 41}}
	var shared struct {
		_    [64]byte
		hits atomic.Uint64
		_    [64]byte
	}
	times := make([][3][]float64, seed5Workers)
	var stop atomic.Bool
	timer := time.AfterFunc(6*cfg.Duration, func() { stop.Store(true) })
	defer timer.Stop()
	var wg sync.WaitGroup
	for w := range times {
		wg.Go(func() {
			c := &seed5Cache{keys: lookupKeys()}
			for k := 0; !stop.Load() || k < len(variants); k++ {
				v := (k + w) % len(variants)
				start := time.Now()
				c.lookUp(variants[v], &shared.hits)
				times[w][v] = append(times[w][v], float64(time.Since(start))/seed5Slice)
			}
		})
	}
	wg.Wait()
	var ns [3]float64
	for v := range ns {
		var all []float64
		for w := range times {
			all = append(all, times[w][v]...)
		}
		slices.Sort(all)
		ns[v] = all[len(all)/2]
	}
	return []Row{{Seed: "S5", What: fmt.Sprintf("cached look-up with counted hits, %d workers", seed5Workers), Unit: "ns", Before: ns[1], After: ns[2],
		Note: fmt.Sprintf("not counted: %.2f", ns[0])}}, nil
}

// lookUp looks up a slice of random blocks.
func (c *seed5Cache) lookUp(v seed5Variant, shared *atomic.Uint64) {
	for n := range uint32(seed5Slice) {
		c.state.Add(1)
		at := n * 2654435761 % (uint32(len(c.keys)) * 8)
		_, ok := slices.BinarySearch(c.keys, at/8*8)
		add := ^uint64(0)
		if ok {
			add += v.hit
		}
		c.state.Add(add)
		if ok && v.shared {
			shared.Add(1)
		}
	}
}

// lookupKeys are the starts of a file's extents.
func lookupKeys() []uint32 {
	keys := make([]uint32, 4096)
	for i := range keys {
		keys[i] = uint32(i) * 8
	}
	return keys
}
