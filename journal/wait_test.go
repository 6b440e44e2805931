package journal

import (
	"testing"
	"time"
)

// Whoever waits for a transaction in which nothing has changed yet, as one who
// has only just begun to change something makes others do, waits for the one
// before it: its changes are the ones that they were promised.
func TestWaitForUntouchedTransaction(t *testing.T) {
	for name, wait := range map[string]func(*Journal, TID) error{
		"durable": (*Journal).WaitDurable, "commit": (*Journal).WaitCommit,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigParams{})
			first := r.op(1, 10)
			done := make(chan error, 1)
			r.onStep("logged", func() {
				h := r.begin(1)
				tid := h.TID()
				r.stop(h)
				if tid != first+1 {
					t.Errorf("transaction %d follows %d", tid, first)
				}
				go func() { done <- wait(r.j, tid) }()
				select {
				case err := <-done:
					t.Errorf("waited for %d and got %v; %d is durable", tid, err, r.j.CommittedTID())
					done <- err
				case <-time.After(50 * time.Millisecond):
				}
			})
			r.commit()
			if err := <-done; err != nil {
				t.Error(err)
			}
			r.expect(r.crash(), 10, 1)
			r.check()
		})
	}
}
