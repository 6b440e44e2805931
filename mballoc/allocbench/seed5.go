package allocbench

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// seed5Workers look things up at the same time.
const seed5Workers = 8

// seed5 looks up extents in a cache of each worker's own and counts the hits: not at all, in one
// place, in a place per stripe.
func seed5(cfg SeedsConfig) ([]Row, error) {
	var shared struct {
		_    [64]byte
		hits atomic.Uint64
		_    [64]byte
	}
	type padded struct {
		hits atomic.Uint64
		_    [120]byte
	}
	sharded := make([]padded, seed5Workers)
	lookups := func(count func(w int)) func(time.Duration) (float64, error) {
		return func(d time.Duration) (float64, error) {
			r, err := measure(seed5Workers, d, func(w int, stop *atomic.Bool) (uint64, error) { return lookUp(w, stop, count), nil })
			return r.rate, err
		}
	}
	rates, err := medians(2*cfg.Duration, lookups(func(int) {}), lookups(func(int) { shared.hits.Add(1) }), lookups(func(w int) { sharded[w].hits.Add(1) }))
	if err != nil {
		return nil, err
	}
	return []Row{{Seed: "S5", What: fmt.Sprintf("cached look-ups with counted hits, %d workers", seed5Workers), Unit: "1/s", Before: rates[1], After: rates[2],
		Higher: true, Note: fmt.Sprintf("not counted: %.0f", rates[0])}}, nil
}

// lookUp looks up random blocks in a cache of 4,096 extents until stopped.
func lookUp(w int, stop *atomic.Bool, count func(w int)) (n uint64) {
	keys := lookupKeys()
	for !stop.Load() {
		for range 256 {
			n++
			at := uint32(n*2654435761) % (uint32(len(keys)) * 8)
			if _, ok := slices.BinarySearch(keys, at/8*8); ok {
				count(w)
			}
		}
	}
	return n
}

// lookupKeys are the starts of a file's extents.
func lookupKeys() []uint32 {
	keys := make([]uint32, 4096)
	for i := range keys {
		keys[i] = uint32(i) * 8
	}
	return keys
}
