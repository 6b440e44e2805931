package journal

import "extfused/blockdev/bcache"

// GetWriteAccess tells that the handle is going to change b, and must come
// before the first change. Where the committing transaction still needs the
// present content, it is copied out. It never does I/O, waits only for b's
// lock, and may be repeated at will.
func (h *Handle) GetWriteAccess(b *bcache.Buffer) error {
	if h.j.aborted.Load() {
		return h.j.Err()
	}
	b.Lock()
	jh := headOf(b)
	if in := jh.in(h.t); in == nil || in.forgot {
		h.join(b, jh, in)
	}
	b.Unlock()
	return nil
}

// GetCreateAccess is GetWriteAccess for a block that has just been allocated:
// what the buffer holds is of no interest, and the caller sets all of it. If
// the block was freed in the same transaction, that is undone: the journal
// will not be told to ignore it.
func (h *Handle) GetCreateAccess(b *bcache.Buffer) error {
	return h.GetWriteAccess(b)
}

// join makes the locked b part of h's transaction. in is its entry there, if
// it has been freed in it.
func (h *Handle) join(b *bcache.Buffer, jh *journalHead, in *joined) {
	t := h.t
	if jh == nil {
		jh = h.j.attach(b)
	}
	if jh.tx != nil && jh.tx != t {
		h.j.freeze(jh)
	}
	switch {
	case in != nil:
		in.forgot = false
	case jh.tx == nil:
		jh.tx = t
		t.push(jh)
	default:
		jh.next = t
		t.push(jh)
	}
	if t.revokes.count.Load() != 0 {
		t.revokes.cancel(jh.blk)
	}
}

// freeze keeps the content that the committing transaction, jh.tx, has yet to
// copy to the log. The buffer is locked.
func (j *Journal) freeze(jh *journalHead) {
	if jh.copied || jh.frozen != nil || !jh.inTx.modified {
		return
	}
	jh.frozen = j.getFrozen()
	copy(*jh.frozen, jh.buf.Data())
	j.stats.copyOuts.Add(1)
}

// DirtyMetadata makes b's content, which the caller has finished changing for
// now (checksums included), part of the transaction. The first one for a
// buffer in a transaction costs a credit. The content that counts is the one
// at the time the transaction commits, when all its handles have stopped.
func (h *Handle) DirtyMetadata(b *bcache.Buffer) error {
	b.Lock()
	in := headOf(b).in(h.t)
	if in != nil && in.modified {
		b.Unlock()
		return nil
	}
	var err error
	switch {
	case in == nil || in.forgot:
		err = ErrNotAccessed
	case !h.spend():
		err = ErrNoCredits
	default:
		in.modified = true
	}
	b.Unlock()
	if err == nil {
		h.dirtied()
	}
	return err
}

// spend takes a credit, or borrows one: half a change cannot be taken back, so
// an operation that was estimated too low goes on while the log allows it.
func (h *Handle) spend() bool {
	if h.credits > 0 {
		h.credits--
		return true
	}
	if h.j.opt.StrictCredits {
		return false
	}
	h.j.stats.overdrafts.Add(1)
	return h.t.addCredits(1, h.j.maxTx+h.j.overdraft, true)
}

// dirtied counts a buffer that will be logged.
func (h *Handle) dirtied() {
	n := h.t.dirty.Add(1)
	if int(n) == h.j.softTx {
		h.j.CommitStart(h.t.tid)
	}
	h.touch()
}

// touch marks the transaction as worth a commit, and wakes the goroutine that
// watches its age.
func (h *Handle) touch() {
	if !h.t.touched.Load() && h.t.touched.CompareAndSwap(false, true) {
		kick(h.j.commitKick)
	}
}

// Forget tells that b, a metadata block, has been freed in this transaction,
// by which it is then no longer logged; and records a revoke, so that replay
// does not bring back an older version from the log over whatever the block is
// used for next. The caller keeps its pin, and leaves the content alone.
func (h *Handle) Forget(b *bcache.Buffer) error {
	t := h.t
	b.Lock()
	jh := headOf(b)
	switch in := jh.in(t); {
	case in != nil:
		if in.modified {
			h.credits++
			t.dirty.Add(-1)
		}
		*in = joined{forgot: true}
	case jh == nil: // in no transaction, and home
	case jh.tx == nil:
		jh.tx, jh.inTx = t, joined{forgot: true}
		t.push(jh)
	default:
		jh.next, jh.inNext = t, joined{forgot: true}
		t.push(jh)
	}
	b.Unlock()
	return h.revoke(b.Block())
}

// Revoke is Forget for a block whose buffer the caller does not have.
func (h *Handle) Revoke(blk uint64) error {
	if b := h.j.cache.Lookup(blk); b != nil {
		defer b.Put()
		return h.Forget(b)
	}
	return h.revoke(blk)
}

func (h *Handle) revoke(blk uint64) error {
	if blk > 1<<32-1 && !h.j.lay.wide {
		return ErrBlockRange
	}
	if h.revokes > 0 {
		h.revokes--
		h.t.revokes.giveBack(1)
	}
	n := h.t.revokes.add(blk, h.j.revokeSlack)
	if n > h.j.revokeSlack {
		return ErrNoCredits
	}
	if n == max(h.j.revokeSlack*3/4, 1) {
		h.j.CommitStart(h.t.tid)
	}
	h.touch()
	return nil
}

// ReserveRevokes promises the handle that it can free n blocks with Forget or
// Revoke, besides the few that any handle may free unasked. Where that many are
// more than the transaction can record with what others were promised it
// promises fewer, down to min, and else nothing: RestartCommitted helps. It
// returns what the handle now has, earlier promises included, and is not for
// MaxRevokes or more at a time.
func (h *Handle) ReserveRevokes(n, min int) int {
	for ; n > h.revokes; n = h.revokes + (n-h.revokes)/2 {
		if n < min {
			break
		}
		if h.t.revokes.reserve(n-h.revokes, h.j.MaxRevokes()) {
			h.revokes = n
			break
		}
	}
	return h.revokes
}

// MaxRevokes is how many freed blocks a transaction promises its handles to
// record at most. As many as a third of that can be recorded unasked.
func (j *Journal) MaxRevokes() int { return max(j.revokeSlack*3/4, 1) }
