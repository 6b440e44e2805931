package journal

import (
	"sync"
	"testing"
	"time"
)

// shared returns how many waits there were for each commit when callers ask one
// after the other, working for a moment in between, on a device that needs a
// while to flush.
func shared(t *testing.T, o Options, callers, rounds int) float64 {
	r := newRig(t, rigParams{started: true, logBlocks: 256, blocks: 512, opt: o})
	r.dev.Device = slowFlush{r.dev.Device}
	var wg sync.WaitGroup
	for id := range callers {
		wg.Go(func() {
			for v := range rounds {
				time.Sleep(time.Duration(id) * 200 * time.Microsecond)
				h := r.begin(1)
				r.set(h, uint64(10+id), uint64(v+1))
				tid := h.TID()
				r.stop(h)
				r.must(r.j.WaitCommit(tid))
			}
		})
	}
	wg.Wait()
	s := r.j.Stats()
	r.must(r.j.Close())
	return float64(s.SyncWaits) / float64(s.Commits)
}

// Callers who come one after the other share a commit that is held back for
// the last of them; with max_batch_time=0 those who are late wait for the next.
func TestBatch(t *testing.T) {
	const callers, rounds = 16, 20
	with, without := shared(t, Options{}, callers, rounds), shared(t, Options{MaxBatch: -1}, callers, rounds)
	t.Logf("%.1f waits for a commit, %.1f without holding commits back", with, without)
	if with < 0.75*callers || with <= without {
		t.Errorf("%.1f of %d callers share a commit, %.1f without holding commits back", with, callers, without)
	}
}

// A single caller is never held back, nor is a commit that nobody waits for.
func TestBatchOfOne(t *testing.T) {
	r := newRig(t, rigParams{started: true, logBlocks: 256, blocks: 512, opt: Options{MinBatch: time.Hour, MaxBatch: time.Hour}})
	start := time.Now()
	for v := range uint64(20) {
		r.must(r.j.WaitCommit(r.op(v+1, 10)))
	}
	r.j.batch.callers.Store(16)
	r.op(30, 10)
	r.commit()
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
	r.must(r.j.Close())
}
