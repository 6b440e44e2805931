package journal

import (
	"sync"
	"time"
)

// Handle is one operation's part in a transaction. It belongs to one
// goroutine, and is dead after Stop.
type Handle struct {
	j       *Journal
	t       *Transaction
	credits int // blocks it may still dirty for the first time
	revokes int // blocks it may still free of those it reserved
	sync    bool
}

var handlePool = sync.Pool{New: func() any { return new(Handle) }}

// Begin joins the running transaction, to dirty up to credits blocks that are
// not yet dirty in it. It may wait for a transaction that is being locked, for
// room in the transaction or for space in the log, all of which come from
// other goroutines stopping their handles or from the journal's own; so the
// caller has no other handle open, and holds no lock that a handle's owner
// needs in order to stop. It fails after an abort or Close, or if credits
// exceed MaxCredits.
func (j *Journal) Begin(credits int) (*Handle, error) {
	t := j.running.Load()
	if t == nil || credits < 0 || !t.join(credits, j.maxTx) {
		var err error
		if t, err = j.beginSlow(credits); err != nil {
			return nil, err
		}
	}
	h := handlePool.Get().(*Handle)
	h.j, h.t, h.credits, h.revokes, h.sync = j, t, credits, 0, false
	return h, nil
}

// beginSlow is Begin where there is no transaction, or none to join.
func (j *Journal) beginSlow(credits int) (*Transaction, error) {
	if credits < 0 || credits > j.MaxCredits() {
		return nil, ErrTooManyCredits
	}
	var waited time.Time
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if err := j.usableLocked(); err != nil {
			return nil, err
		}
		if t := j.joinLocked(credits); t != nil {
			if !waited.IsZero() {
				j.stats.beginWait.observe(time.Since(waited))
			}
			return t, nil
		}
		if waited.IsZero() {
			waited = time.Now()
		}
		if err := j.waitTurnLocked(credits); err != nil {
			return nil, err
		}
	}
}

func (j *Journal) usable() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.usableLocked()
}

func (j *Journal) usableLocked() error {
	if err := j.Err(); err != nil {
		return err
	}
	switch {
	case j.closed:
		return ErrClosed
	case j.maxTx == 0:
		return ErrNotStarted
	}
	return nil
}

// joinLocked joins the running transaction, or a new one if there is none and
// the log has room for the largest that it can become.
func (j *Journal) joinLocked(credits int) *Transaction {
	t := j.running.Load()
	if t == nil {
		if j.barrier > 0 || j.avail < j.reserve {
			return nil
		}
		t = newTransaction(j.nextTID, j.hookCredits)
		j.nextTID++
		j.avail -= j.reserve
		t.join(credits, j.maxTx)
		j.running.Store(t)
		return t
	}
	if t.join(credits, j.maxTx) {
		return t
	}
	return nil
}

// waitTurnLocked waits until joining is worth another try.
func (j *Journal) waitTurnLocked(credits int) error {
	t := j.running.Load()
	switch {
	case t == nil && j.barrier == 0:
		return j.waitSpaceLocked()
	case t == nil || t.locked():
		j.cond.Wait() // for the switch, or the end of the barrier
		return nil
	}
	// The transaction is full. If that is by what live handles have reserved
	// rather than by what was dirtied, one of them will give credits back.
	j.joinWaiters.Add(1)
	defer j.joinWaiters.Add(-1)
	w := t.word.Load()
	if w&lockedBit != 0 || wordCredits(w)+credits <= j.maxTx {
		return nil
	}
	if w&updatesMask == 0 || int(t.dirty.Load())*2 > j.maxTx {
		j.CommitStart(t.tid)
		if !j.started {
			j.mu.Unlock()
			err := j.CommitOnce()
			j.mu.Lock()
			return err
		}
	}
	j.cond.Wait()
	return nil
}

// waitSpaceLocked waits for a checkpoint to free log space.
func (j *Journal) waitSpaceLocked() error {
	if !j.started {
		j.mu.Unlock()
		_, err := j.CheckpointOnce()
		j.mu.Lock()
		if err == nil && j.avail < j.reserve && j.running.Load() == nil {
			j.cond.Wait()
		}
		return err
	}
	j.starved++
	kick(j.cpKick)
	j.cond.Wait()
	j.starved--
	return nil
}

// TID is the number of the transaction the handle is in.
func (h *Handle) TID() TID { return h.t.tid }

// Credits is how many more blocks the handle may dirty.
func (h *Handle) Credits() int { return h.credits }

// Journal is what the handle was begun on.
func (h *Handle) Journal() *Journal { return h.j }

// SetSync makes Stop wait until the transaction is durable.
func (h *Handle) SetSync() { h.sync = true }

// Extend asks for n more credits, without waiting. False means that the
// transaction has no room, or is about to commit: the caller brings what it
// does to a consistent point and calls Restart.
func (h *Handle) Extend(n int) bool {
	if n < 0 || !h.t.addCredits(n, h.j.maxTx, false) {
		return false
	}
	h.credits += n
	return true
}

// Restart ends the handle's part in its transaction and begins anew with n
// credits, in a later one if the present one is being locked or is full. What
// was done before may become durable without what comes after. It waits like
// Begin, under the same conditions. After an error the handle is in no
// transaction: only Stop may be called.
func (h *Handle) Restart(n int) error {
	j := h.j
	h.leave()
	h.t = nil
	t := j.running.Load()
	if t == nil || n < 0 || !t.join(n, j.maxTx) {
		var err error
		if t, err = j.beginSlow(n); err != nil {
			return err
		}
	}
	h.t, h.credits = t, n
	return nil
}

// Stop ends the handle. It returns the journal's error if it has aborted, and
// after SetSync whether the transaction became durable.
func (h *Handle) Stop() error {
	if h.t == nil { // after a failed Restart
		return h.j.usable()
	}
	j, tid, sync := h.j, h.t.tid, h.sync
	h.leave()
	h.t = nil
	handlePool.Put(h)
	if sync {
		return j.WaitCommit(tid)
	}
	return j.Err()
}

// RestartCommitted is Restart in a transaction that comes after the present
// one, which is durable when it returns.
func (h *Handle) RestartCommitted(n int) error {
	j, tid := h.j, h.t.tid
	h.leave()
	h.t = nil
	if err := j.WaitDurable(tid); err != nil {
		return err
	}
	t, err := j.beginSlow(n)
	if err != nil {
		return err
	}
	h.t, h.credits = t, n
	return nil
}

func (h *Handle) leave() {
	if h.revokes > 0 {
		h.t.revokes.giveBack(h.revokes)
		h.revokes = 0
	}
	h.t.leave(h.credits)
	h.credits = 0
	if h.j.joinWaiters.Load() != 0 {
		h.j.mu.Lock()
		h.j.cond.Broadcast()
		h.j.mu.Unlock()
	}
}

// kick puts a token into a channel of capacity one.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
