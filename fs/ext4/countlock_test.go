package ext4

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"extfused/fs/ondisk"
)

// TestCountLock: writers exclude everybody, readers writers only, and no count
// is lost, however often they are taken.
func TestCountLock(t *testing.T) {
	const readers, writers, rounds = 8, 3, 3000
	var l countLock
	var hits, misses, reading atomic.Uint64
	value := [2]int{} // both the same, except for a writer
	take := func() {
		h, m := l.take()
		hits.Add(h)
		misses.Add(m)
	}
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for k := range rounds {
				l.rlock()
				reading.Add(1)
				if value[0] != value[1] {
					t.Error("reading while a writer writes")
				}
				reading.Add(^uint64(0))
				l.runlock([]uint64{lockHit, lockMiss, lockPlain}[k%3])
			}
		})
	}
	for w := range writers {
		wg.Go(func() {
			for k := range rounds {
				if (k+w)%5 > 0 {
					l.lock()
				} else if !l.tryLock() {
					continue
				}
				if reading.Load() != 0 {
					t.Error("writing while readers read")
				}
				value[0]++
				value[1]++
				l.unlock()
				if k%100 == 0 {
					take()
				}
			}
		})
	}
	wg.Wait()
	take()
	if want := uint64(readers * rounds / 3); hits.Load() != want || misses.Load() != want {
		t.Errorf("%d hits, %d misses counted, want %d of each", hits.Load(), misses.Load(), want)
	}
	if l.state.Load() != 0 {
		t.Errorf("state %x with nobody there", l.state.Load())
	}
}

// TestCountLockIsTakenInTime: before a count can run over, runlock says so.
func TestCountLockIsTakenInTime(t *testing.T) {
	for _, count := range []uint64{lockHit, lockMiss} {
		var l countLock
		n := uint64(0)
		for full := false; !full; n++ {
			l.rlock()
			full = l.runlock(count)
		}
		h, m := l.take()
		if h+m != n || h != 0 && m != 0 || n < 1<<20 {
			t.Errorf("%d counted as %d hits and %d misses", n, h, m)
		}
	}
}

// lookups is a cache of 4096 runs that are looked up by n goroutines; each has
// its own, as processes have their files.
func lookups(n int) (*esCache, []extentStatus) {
	c, es := newESCache(1<<30), make([]extentStatus, n)
	for k := range es {
		for b := range uint32(4096) {
			es[k].insert(c, esRun{l: ondisk.LBlock(b * 8), n: 4, st: esWritten, p: ondisk.FsBlock(b * 100)})
		}
	}
	return c, es
}

// lookUpAll is 1024 lookups, half of them hits.
func lookUpAll(c *esCache, e *extentStatus, hit, miss uint64) (found int) {
	for k := range uint32(1024) {
		if _, ok := e.lookupCounting(c, ondisk.LBlock(k*2654435761%32768), hit, miss); ok {
			found++
		}
	}
	return found
}

// TestCountingIsFree: with 8 goroutines looking things up at once, those that
// count hits and misses need no more than 1 % longer than those that do not. It
// is the same code with another addend; slices of both kinds alternate, and
// the fastest of each kind count, since what else a machine does only makes
// slices longer.
func TestCountingIsFree(t *testing.T) {
	const workers, slicesOfEach = 8, 400
	c, es := lookups(workers)
	ratios := make([]float64, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			e := &es[w]
			best := [2]time.Duration{time.Hour, time.Hour}
			for k := range 2 * slicesOfEach {
				start := time.Now()
				if kind := (k ^ k>>1) & 1; kind == 0 { // 0 1 1 0: neither is always first
					lookUpAll(c, e, lockPlain, lockPlain)
					best[0] = min(best[0], time.Since(start))
				} else {
					lookUpAll(c, e, lockHit, lockMiss)
					best[1] = min(best[1], time.Since(start))
				}
			}
			ratios[w] = float64(best[1]) / float64(best[0])
			e.count(c)
		})
	}
	wg.Wait()
	slices.Sort(ratios)
	t.Logf("counting takes %.4f of the time without, median of %d workers: %.4f", ratios[workers/2], workers, ratios)
	if ratios[workers/2] > 1.01 {
		t.Errorf("counting costs %.1f %% of a lookup", 100*(ratios[workers/2]-1))
	}
	if s := c.stats(); s.Hits+s.Misses != workers*slicesOfEach*1024 || s.Hits == 0 || s.Misses == 0 {
		t.Errorf("%d hits and %d misses counted of %d lookups", s.Hits, s.Misses, workers*slicesOfEach*1024)
	}
}

func BenchmarkExtentLookup(b *testing.B) {
	for name, add := range map[string][2]uint64{"counted": {lockHit, lockMiss}, "not counted": {}} {
		b.Run(name, func(b *testing.B) {
			c, es := lookups(1)
			for k := uint32(0); b.Loop(); k++ {
				es[0].lookupCounting(c, ondisk.LBlock(k*2654435761%32768), add[0], add[1])
			}
		})
	}
}
