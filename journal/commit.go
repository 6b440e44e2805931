package journal

import (
	"cmp"
	"slices"
	"time"
)

// CommitOnce commits the running transaction, waiting until its handles have
// stopped and it is durable. A transaction in which nothing was dirtied or
// freed is left running, and nothing is written. The caller has no handle.
func (j *Journal) CommitOnce() error {
	j.commitMu.Lock()
	defer j.commitMu.Unlock()
	return j.commitLocked()
}

func (j *Journal) commitLocked() error {
	if err := j.Err(); err != nil {
		return err
	}
	t := j.running.Load()
	if t == nil || !t.touched.Load() {
		return nil
	}
	j.awaitOthers(t)
	start := time.Now()
	j.lockTransaction(t)
	j.stats.lockWait.observe(time.Since(start))
	err := j.runHook(t)
	j.switchRunning(t)
	j.gather(t)
	if err == nil {
		err = j.writeTransaction(t)
	}
	if err != nil {
		return j.fail(t, err)
	}
	j.committed.Store(uint32(t.tid))
	j.learn(t, time.Since(start))
	close(t.durable)
	j.finish(t)
	j.stats.commit(t, time.Since(start))
	return nil
}

func (j *Journal) at(step string) {
	if j.step != nil {
		j.step(step)
	}
}

// lockTransaction keeps new handles out and waits for the others to stop.
func (j *Journal) lockTransaction(t *Transaction) {
	t.state.Store(uint32(Locked))
	t.lock()
	j.at("locked")
	t.waitDrained()
}

func (j *Journal) runHook(t *Transaction) error {
	if j.beforeCommit == nil || j.aborted.Load() {
		return nil
	}
	return j.beforeCommit(&Handle{j: j, t: t, credits: j.hookCredits})
}

// switchRunning makes t the committing transaction. From here on new handles
// start the next one; what they want to change of t's buffers they copy out.
func (j *Journal) switchRunning(t *Transaction) {
	t.state.Store(uint32(Flush))
	j.mu.Lock()
	j.committing = t
	j.running.Store(nil)
	j.cond.Broadcast()
	j.mu.Unlock()
	j.at("switched")
}

// gather sorts out what is to become of the buffers that joined t.
func (j *Journal) gather(t *Transaction) {
	slot := t.tid & 1
	t.logged = make([]*journalHead, 0, max(t.dirty.Load(), 0))
	for jh := t.heads.Load(); jh != nil; jh = jh.link[slot] {
		jh.buf.Lock()
		in := jh.inTx
		jh.buf.Unlock()
		switch {
		case in.forgot:
			t.forgot = append(t.forgot, jh)
		case in.modified:
			t.logged = append(t.logged, jh)
		default:
			t.idle = append(t.idle, jh)
		}
	}
	slices.SortFunc(t.logged, func(a, b *journalHead) int { return cmp.Compare(a.blk, b.blk) })
}

// writeTransaction puts t into the log and makes it durable. The log has room:
// that was reserved when t was created.
func (j *Journal) writeTransaction(t *Transaction) error {
	t.state.Store(uint32(Commit))
	w := &j.writer
	j.cp.Lock()
	t.logStart = j.cp.head
	j.cp.Unlock()
	w.begin(t.tid, t.logStart)
	if err := j.markInUse(t); err != nil {
		return err
	}
	if err := w.revokes(t.revokes.sorted()); err != nil {
		return err
	}
	if err := w.metadata(t.logged); err != nil {
		return err
	}
	if err := j.writeCommitBlock(w); err != nil {
		return err
	}
	t.logLen = w.used
	return nil
}

// writeCommitBlock is the point of no return, with the flushes around it: the
// transaction, and the file data it speaks of, must be durable before the
// commit block is; unless that is asynchronous and its checksums tell a whole
// transaction from a torn one.
func (j *Journal) writeCommitBlock(w *logWriter) error {
	if !j.lay.async {
		if err := w.flush(); err != nil {
			return err
		}
	}
	j.at("logged")
	if j.external {
		if err := j.flush(j.fsDev); err != nil {
			return err
		}
	}
	if !j.lay.async {
		if err := j.flush(j.log.dev); err != nil {
			return err
		}
		j.at("flushed")
	}
	if err := j.Err(); err != nil {
		return err
	}
	if err := w.commit(time.Now()); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	j.at("commit block")
	return j.flush(j.log.dev)
}

// fail ends a transaction that could not be written.
func (j *Journal) fail(t *Transaction, err error) error {
	j.Abort(err)
	t.err = j.Err()
	close(t.durable)
	j.mu.Lock()
	j.committing = nil
	j.cond.Broadcast()
	j.mu.Unlock()
	j.callBack(t)
	return t.err
}

// finish hands a durable transaction's buffers on: to its checkpoint list, to
// the running transaction, or to nobody.
func (j *Journal) finish(t *Transaction) {
	j.at("durable")
	if len(t.forgot) > 0 {
		// A home write that began before its block was freed must have ended
		// before the callbacks let the block be used again.
		j.homeMu.Lock()
		//lint:ignore SA2001 waiting for it is the point
		j.homeMu.Unlock()
	}
	j.cp.Lock()
	j.finishHeads(t)
	t.state.Store(uint32(Finished))
	j.cp.queue = append(j.cp.queue, t)
	j.cp.head = j.geo.add(t.logStart, uint32(t.logLen))
	j.cp.headTID = t.tid + 1
	j.cp.Unlock()
	t.heads.Store(nil)
	for blk := range t.revokes.blocks {
		j.cache.Forget(blk, 1) // no-one reads it again as what it was
	}

	j.mu.Lock()
	j.committing = nil
	j.avail += j.reserve - t.logLen
	starved := j.starved > 0
	j.cond.Broadcast()
	j.mu.Unlock()
	j.callBack(t)
	if starved || j.cpTarget() > 0 {
		kick(j.cpKick)
	}
}

// callBack tells the world about t.
func (j *Journal) callBack(t *Transaction) {
	for _, fn := range j.onCommit {
		fn(t.tid, t.err)
	}
	close(t.done)
}

// finishHeads takes t's buffers out of it. cp is locked.
func (j *Journal) finishHeads(t *Transaction) {
	t.cpList = t.logged
	for _, jh := range t.logged {
		jh.finishLocked(j, t)
	}
	for _, jh := range t.forgot {
		jh.finishLocked(j, nil)
	}
	for _, jh := range t.idle {
		jh.finishLocked(j, jh.cp)
	}
	t.logged, t.forgot, t.idle = nil, nil, nil
}

// finishLocked takes jh out of its transaction, whose content of it is durable,
// and leaves the duty of writing it home to the transaction cp. cp.Mutex is held.
func (jh *journalHead) finishLocked(j *Journal, cp *Transaction) {
	b := jh.buf
	b.Lock()
	j.setCpLocked(jh, cp)
	jh.leaveTx(j)
	released := jh.release(j)
	b.Unlock()
	if released {
		b.Put()
	}
}

// setCpLocked changes which transaction's log protects the buffer. cp.Mutex and the buffer
// are locked.
func (j *Journal) setCpLocked(jh *journalHead, cp *Transaction) {
	if jh.cp == cp {
		return
	}
	if jh.cp != nil {
		jh.cp.cpCount--
		j.cp.pinned--
	}
	if cp != nil {
		cp.cpCount++
		j.cp.pinned++
	}
	jh.cp = cp
}
