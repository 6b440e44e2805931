package journal

import (
	"sync/atomic"
	"time"
)

// Callers of fsync who work side by side finish their turns at different times.
// If each commit began as soon as the first one asks, those who come a moment
// later would wait for a whole commit, then for their own, and half of them
// would share each. So a commit that somebody waits for is held back until as
// many wait as did lately, but no longer than a commit takes.

// Defaults of Options.MinBatch and MaxBatch: those of ext4's mount options
// min_batch_time and max_batch_time.
const (
	DefaultMinBatch = 0
	DefaultMaxBatch = 15 * time.Millisecond
)

// batch is what commits learn of those who wait for them.
type batch struct {
	callers atomic.Int32  // who waited for the last commit, or for the next one when it ended
	average time.Duration // of what a commit takes; guarded by commitMu
	joined  chan struct{} // somebody waits for the running transaction
}

// joinWait counts a caller who waits for t.
func (j *Journal) joinWait(t *Transaction) {
	if n := t.waiters.Add(1); n > 1 {
		kick(j.batch.joined)
	}
}

// awaitOthers returns when as many callers wait for t as commits have had
// lately, or when a commit's time has passed. It returns at once for a single
// caller, and for a commit that nobody waits for.
//
// +checklocks:j.commitMu
func (j *Journal) awaitOthers(t *Transaction) {
	want := j.batch.callers.Load()
	if want < 2 || t.waiters.Load() == 0 || t.waiters.Load() >= want {
		return
	}
	limit := min(max(j.batch.average, j.opt.MinBatch), j.opt.MaxBatch)
	if limit <= 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for t.waiters.Load() < want {
		select {
		case <-j.batch.joined:
		case <-timer.C:
			return
		case <-j.abortCh:
			return
		case <-j.quit:
			return
		}
	}
}

// learn notes who waited for t, which has been committed in the time took.
//
// +checklocks:j.commitMu
func (j *Journal) learn(t *Transaction, took time.Duration) {
	callers := t.waiters.Load()
	if next := j.running.Load(); next != nil {
		callers += next.waiters.Load()
	}
	j.batch.callers.Store(callers)
	if j.batch.average == 0 {
		j.batch.average = took
	}
	j.batch.average += (took - j.batch.average) / 8
}
