package journal

import (
	"errors"
	"math"
	"syscall"
)

// Flush commits and checkpoints everything and marks the log empty on disk, as
// before a remount to read-only. Handles begun meanwhile wait. The caller has
// no handle open.
func (j *Journal) Flush() error {
	j.mu.Lock()
	j.barrier++
	j.mu.Unlock()
	err := j.drain()
	j.mu.Lock()
	j.barrier--
	j.cond.Broadcast()
	j.mu.Unlock()
	return err
}

// drain leaves no transaction, and an empty log. New ones are barred.
func (j *Journal) drain() error {
	j.commitMu.Lock()
	defer j.commitMu.Unlock()
	if err := j.commitLocked(); err != nil {
		return err
	}
	j.retire()
	if err := j.commitLocked(); err != nil {
		return err
	}
	if _, _, err := j.checkpoint(math.MaxInt, false); err != nil {
		return err
	}
	j.cp.Lock()
	left, tid := len(j.cp.queue), j.cp.headTID
	j.cp.Unlock()
	if left > 0 {
		return j.bug("log is not empty after a checkpoint of everything")
	}
	if err := j.markEmpty(tid); err != nil {
		j.Abort(err)
		return j.Err()
	}
	return nil
}

func (j *Journal) bug(what string) error {
	j.Abort(errors.New("journal: " + what))
	return j.Err()
}

// retire ends a running transaction in which nothing was changed: its buffers
// leave it, and its number is used again. commitMu is held.
func (j *Journal) retire() {
	t := j.running.Load()
	if t == nil || t.touched.Load() {
		return
	}
	j.lockTransaction(t)
	if t.touched.Load() { // by a handle that was still open
		return
	}
	j.gather(t)
	j.cp.Lock()
	j.finishHeads(t)
	j.cp.Unlock()
	j.mu.Lock()
	j.running.Store(nil)
	j.nextTID = t.tid
	j.avail += j.reserve
	j.cond.Broadcast()
	j.mu.Unlock()
	close(t.durable)
	close(t.done)
}

// Close commits and checkpoints everything, marks the log empty, and stops the
// goroutines. It waits for open handles; Begin fails from now on. After an
// abort it writes nothing and returns the reason.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.closed = true
	j.barrier++
	started := j.started
	j.cond.Broadcast()
	j.mu.Unlock()
	err := j.Err()
	if err == nil && j.writer.j != nil { // it was prepared for transactions
		err = j.drain()
	}
	if started {
		close(j.quit)
		j.workers.Wait()
	}
	return err
}

// Abort stops the journal: nothing is written to the log or home any more, all
// who wait get err, and so does everybody from now on. The errno is recorded in
// the superblock if that can still be written, unless it is ESHUTDOWN, which
// speaks of no fault. Only the first call counts.
func (j *Journal) Abort(err error) {
	if err == nil || !j.recordAbort(err) {
		return
	}
	j.aborted.Store(true)
	close(j.abortCh)
	j.mu.Lock()
	if t := j.running.Load(); t != nil {
		t.lock()
	}
	j.cond.Broadcast()
	j.mu.Unlock()
	if no := errnoOf(err); no != syscall.ESHUTDOWN {
		_ = j.writeSuper(func(s *SuperBlock) { s.Errno = -int32(no) })
		_ = j.flush(j.log.dev)
	}
	if j.onAbort != nil {
		j.onAbort(err)
	}
}

func (j *Journal) recordAbort(err error) bool {
	wrapped := error(&abortError{err})
	return j.abortReason.CompareAndSwap(nil, &wrapped)
}

// abortError is both ErrAborted and its cause.
type abortError struct{ cause error }

func (e *abortError) Error() string   { return "journal has aborted: " + e.cause.Error() }
func (e *abortError) Unwrap() []error { return []error{ErrAborted, e.cause} }

// errnoOf is the number to record for err: EIO if it has none of its own.
func errnoOf(err error) syscall.Errno {
	var no syscall.Errno
	if errors.As(err, &no) && no != 0 {
		return no
	}
	return syscall.EIO
}

// Errno is what an abort has left in the superblock: a negative errno, 0 if
// nothing. It stays until ClearErrno.
func (j *Journal) Errno() int32 { return j.SuperBlock().Errno }

// ClearErrno takes the abort's errno off the superblock, durably, when the file system
// has taken note.
func (j *Journal) ClearErrno() error {
	if j.Errno() == 0 {
		return nil
	}
	if err := j.writeSuper(func(s *SuperBlock) { s.Errno = 0 }); err != nil {
		return err
	}
	return j.flush(j.log.dev)
}
