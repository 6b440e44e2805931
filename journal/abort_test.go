package journal

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
)

// Whatever device operation fails, first in a commit and then in a checkpoint:
// everybody waiting gets the error, the errno is in the superblock, nothing
// that was promised is lost, and nothing is written any more.
func TestDeviceErrors(t *testing.T) {
	eachFormat(t, func(t *testing.T, p rigParams) {
		for n := range 12 {
			failNth(t, p, n)
		}
	})
}

// failNth makes device operation n of a commit and a checkpoint fail.
func failNth(t *testing.T, p rigParams, n int) {
	r := newRig(t, p)
	r.op(1, 10, 11)
	r.commit()
	count, failed := 0, false
	r.dev.fail = func(bool, int64) error {
		count++
		if count-1 == n {
			failed = true
			return &blockdev.OpError{Op: "write", Err: syscall.ENOSPC}
		}
		return nil
	}
	tid := r.op(2, 10, 12)
	durable := uint64(1)
	err := r.j.WaitCommit(tid)
	if err == nil {
		durable = 2
		_, err = r.j.CheckpointOnce()
	}
	if err == nil {
		err = r.j.Close()
	}
	if !failed {
		if err != nil {
			t.Errorf("no failure, but %v", err)
		}
		return
	}
	if !errors.Is(err, ErrAborted) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("operation %d failed: %v", n, err)
	}
	r.expectAborted(tid, durable)
}

func (r *rig) expectAborted(tid TID, durable uint64) {
	r.t.Helper()
	if h, err := r.j.Begin(1); !errors.Is(err, ErrAborted) {
		r.t.Errorf("Begin: %v, %v", h, err)
	}
	if err := r.j.WaitCommit(tid); (err == nil) != (durable == 2) {
		r.t.Errorf("WaitCommit of version %d: %v", durable, err)
	}
	r.dev.reset()
	for _, err := range []error{r.j.Commit(), r.j.CommitOnce(), r.j.Flush(), r.j.Close()} {
		if err != nil && !errors.Is(err, ErrAborted) && !errors.Is(err, ErrClosed) {
			r.t.Error(err)
		}
	}
	if w, _ := r.dev.count(); w != 0 {
		r.t.Errorf("%d writes after the abort", w)
	}
	j, err := Open(r.p.params(r.dev.Device))
	r.must(err)
	if j.Errno() != -int32(syscall.ENOSPC) {
		r.t.Errorf("errno %d", j.Errno())
	}
	r.must(j.ClearErrno())
	dev := r.crash()
	r.expectAtLeast(dev, 10, durable)
	r.expectAtLeast(dev, 11, 1)
	j, err = Open(r.p.params(dev))
	r.must(err)
	if j.Errno() != 0 || j.NeedsRecovery() {
		r.t.Errorf("errno %d, needs recovery %v", j.Errno(), j.NeedsRecovery())
	}
}

// expectAtLeast allows a newer version: what could not be promised may have
// reached the device all the same.
func (r *rig) expectAtLeast(dev blockdev.Device, blk, want uint64) {
	r.t.Helper()
	got, err := version(dev, r.p.blockSize, blk)
	r.must(err)
	if got < want {
		r.t.Errorf("block %d has version %d, want %d at least", blk, got, want)
	}
}

// An abort sets free all who wait: for a commit, for a locked transaction, for
// credits, for log space.
func TestAbortWakes(t *testing.T) {
	r := newRig(t, rigParams{started: true})
	h := r.begin(r.j.MaxCredits())
	r.set(h, 10, 1)
	tid := h.TID()
	errs := make(chan error, 4)
	go func() { _, err := r.j.Begin(r.j.MaxCredits()); errs <- err }() // for credits
	go func() { errs <- r.j.WaitCommit(tid) }()                        // for h
	time.Sleep(5 * time.Millisecond)
	go func() { _, err := r.j.Begin(1); errs <- err }() // for the locked transaction
	go func() { errs <- r.j.Commit() }()
	time.Sleep(5 * time.Millisecond)
	r.j.Abort(errInjected)
	if err := h.Stop(); !errors.Is(err, ErrAborted) {
		t.Errorf("Stop: %v", err)
	}
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, errInjected) {
			t.Errorf("woken with %v", err)
		}
	}
	if err := r.j.Close(); !errors.Is(err, errInjected) {
		t.Errorf("Close: %v", err)
	}
}
