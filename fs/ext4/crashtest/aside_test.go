package crashtest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// syncAside syncs again and again next to the workload, until stop is called, if
// the seed is odd.
//
// Without it a commit comes when the workload asks for one, hardly ever between
// two transactions of one operation, or of two calls that belong together: that
// takes a pause as long as the commit timer's. With it there is one everywhere.
//
// What a sync promises holds for the operations that had ended when it began.
func (w *workload) syncAside(t *testing.T, seed uint64) (stop func()) {
	if seed%2 == 0 {
		return func() {}
	}
	rng := rand.New(rand.NewPCG(seed, 11))
	pause := int64(time.Microsecond) << rng.IntN(13) // on average; 4 ms at most
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rng.Int64N(2 * pause))):
			}
			before := int(w.done.Load())
			if err := w.fs.Sync(); err != nil {
				t.Errorf("sync next to the workload: %v", err)
				return
			}
			w.rec.Mark(promise{tree: before, content: before})
		}
	}()
	return sync.OnceFunc(func() { close(quit); <-ended })
}
