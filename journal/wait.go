package journal

import "time"

// RunningTID is the number of the running transaction, if there is one.
func (j *Journal) RunningTID() (TID, bool) {
	if t := j.running.Load(); t != nil {
		return t.tid, true
	}
	return 0, false
}

// CommittedTID is the number of the last transaction that is durable.
func (j *Journal) CommittedTID() TID { return TID(j.committed.Load()) }

// CommitStart asks for the commit of transaction tid, and waits for nothing.
func (j *Journal) CommitStart(tid TID) {
	j.want(tid)
	kick(j.commitKick)
}

// want records that everything up to tid is to be committed.
func (j *Journal) want(tid TID) {
	for {
		old := j.wanted.Load()
		if !tid.After(TID(old)) || j.wanted.CompareAndSwap(old, uint32(tid)) {
			return
		}
	}
}

// WaitCommit makes transaction tid durable, if it is not, and all before it,
// and returns when they are and the OnCommit functions have seen them. A
// transaction that changed nothing is as durable as the one before it. The
// caller has no handle open.
func (j *Journal) WaitCommit(tid TID) error {
	return j.wait(tid, func(t *Transaction) chan struct{} { return t.done })
}

// WaitDurable is WaitCommit that does not wait for the OnCommit functions.
func (j *Journal) WaitDurable(tid TID) error {
	return j.wait(tid, func(t *Transaction) chan struct{} { return t.durable })
}

// Commit makes everything durable that was done by handles that have stopped.
func (j *Journal) Commit() error {
	j.mu.Lock()
	t := j.running.Load()
	if t == nil || !t.touched.Load() {
		if c := j.committing; c != nil {
			t = c
		}
	}
	j.mu.Unlock()
	if t == nil {
		return j.Err()
	}
	return j.WaitCommit(t.tid)
}

func (j *Journal) wait(tid TID, which func(*Transaction) chan struct{}) error {
	j.stats.waits.Add(1)
	t := j.find(tid)
	if t == nil {
		if j.CommittedTID().AtLeast(tid) {
			return nil
		}
		return j.Err()
	}
	j.joinWait(t)
	j.want(t.tid)
	j.commitOrKick(t.tid)
	select {
	case <-which(t):
		return t.err
	case <-j.abortCh:
		return j.abortedWait(t)
	}
}

// abortedWait tells what became of t: it may have been durable already.
func (j *Journal) abortedWait(t *Transaction) error {
	select {
	case <-t.durable:
		return t.err
	default:
		return j.Err()
	}
}

// find returns the transaction whose commit makes everything up to tid durable:
// the running one, if it is that and has changed something, or else the
// committing one, unless that is a later one. Nil: there is nothing to wait for.
func (j *Journal) find(tid TID) *Transaction {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.running.Load(); t != nil && t.tid == tid && t.touched.Load() {
		return t
	}
	if t := j.committing; t != nil && tid.AtLeast(t.tid) {
		return t
	}
	return nil
}

// commitOrKick commits in the caller's goroutine, which saves waking another,
// if nobody else is committing. Otherwise whoever is will see that more is
// wanted, and have the goroutine do it: all who ask meanwhile share that commit.
func (j *Journal) commitOrKick(tid TID) {
	if !j.commitMu.TryLock() {
		if j.isStarted() {
			j.wakeIfWanted()
			return
		}
		j.commitMu.Lock()
	}
	if t := j.running.Load(); t != nil && tid.AtLeast(t.tid) {
		_ = j.commitLocked() // waiters learn it from the transaction
	}
	j.commitMu.Unlock()
	j.wakeIfWanted()
}

func (j *Journal) isStarted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.started
}

// wakeIfWanted is called after commitMu was released or found held: a request
// made while it was held must not be lost.
func (j *Journal) wakeIfWanted() {
	if TID(j.wanted.Load()).After(j.CommittedTID()) {
		kick(j.commitKick)
	}
}

// commitLoop is the goroutine that commits on request, by age, and when a
// transaction lies idle.
func (j *Journal) commitLoop() {
	defer j.workers.Done()
	var w ageWatch
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-j.quit:
			return
		case <-j.abortCh:
			return
		case <-j.commitKick:
		case <-timer.C:
		}
		j.commitWanted()
		if w.due(j, time.Now()) {
			_ = j.CommitOnce()
		}
		timer.Reset(w.next(j))
	}
}

func (j *Journal) commitWanted() {
	for {
		t := j.running.Load()
		if t == nil || !t.touched.Load() || !TID(j.wanted.Load()).AtLeast(t.tid) || j.aborted.Load() {
			return
		}
		_ = j.CommitOnce()
	}
}

// ageWatch notices that the running transaction has grown old, or idle.
type ageWatch struct {
	t       *Transaction
	handles uint64
	since   time.Time // no handle has joined since
}

// due says whether the running transaction should be committed now.
func (w *ageWatch) due(j *Journal, now time.Time) bool {
	t := j.running.Load()
	if t == nil || !t.touched.Load() {
		w.t = nil
		return false
	}
	word := t.word.Load()
	if t != w.t || wordHandles(word) != w.handles || word&updatesMask != 0 {
		w.t, w.handles, w.since = t, wordHandles(word), now
	}
	idle := j.opt.IdleCommit > 0 && now.Sub(w.since) >= j.opt.IdleCommit
	return idle || now.Sub(t.started) >= j.opt.CommitInterval
}

// next is how long to sleep before looking again.
func (w *ageWatch) next(j *Journal) time.Duration {
	t := j.running.Load()
	if t == nil || !t.touched.Load() {
		return time.Hour // the first change kicks
	}
	d := j.opt.CommitInterval - time.Since(t.started)
	if j.opt.IdleCommit > 0 {
		d = min(d, j.opt.IdleCommit/2)
	}
	return max(d, time.Millisecond)
}
