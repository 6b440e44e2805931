package journal

import (
	"errors"
	"sync"
	"testing"
	"time"

	"extfused/blockdev"
)

// onStep runs fn once when the machine reaches the step.
func (r *rig) onStep(step string, fn func()) {
	done := false
	r.j.step = func(s string) {
		if s == step && !done {
			done = true
			fn()
		}
	}
}

// A commit writes what its transaction left, not what the next one does to the
// same buffers meanwhile; at every step at which it can happen.
func TestCommitKeepsContent(t *testing.T) {
	for _, step := range []string{"switched", "logged", "flushed", "commit block", "durable"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, rigParams{incompat: IncompatCsumV3})
			r.op(1, 10, 11)
			var tid TID
			r.onStep(step, func() { tid = r.op(2, 10) })
			r.commit()
			dev := r.crash()
			r.expect(dev, 10, 1)
			r.expect(dev, 11, 1)
			if got, ok := r.j.RunningTID(); !ok || got != tid || got != r.j.CommittedTID()+1 {
				t.Errorf("running %d after %d", got, r.j.CommittedTID())
			}
			if copies := r.j.Stats().CopyOuts; (copies == 1) != (step == "switched") {
				t.Errorf("%d copies", copies)
			}
			r.commit()
			r.expect(r.crash(), 10, 2)
			r.check()
		})
	}
}

// A block of the committing transaction that the next one frees is still
// logged by the first, and revoked by the second.
func TestForgetDuringCommit(t *testing.T) {
	for _, step := range []string{"switched", "logged", "durable"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, rigParams{})
			r.op(1, 10)
			r.onStep(step, func() {
				h := r.begin(1)
				r.forget(h, 10)
				r.stop(h)
			})
			r.commit()
			r.expect(r.crash(), 10, 1)
			if freed, err := r.j.CheckpointOnce(); err != nil || freed != 0 {
				t.Errorf("checkpoint freed %d (%v): the block is home only by the log", freed, err)
			}
			r.commit()
			r.expect(r.crash(), 10, 0) // revoked: the old content stays
			if freed, err := r.j.CheckpointOnce(); err != nil || freed == 0 {
				t.Errorf("checkpoint freed %d, %v", freed, err)
			}
			r.expect(r.dev, 10, 0)
			r.check()
		})
	}
}

// Freed and used again as metadata in the same transaction: no revoke, and the
// new content is logged; also when the old one is being committed right now.
func TestRevokeCancelled(t *testing.T) {
	reuse := func(r *rig) {
		h := r.begin(2)
		r.forget(h, 10)
		if n := h.t.revokes.count.Load(); n != 1 {
			t.Errorf("%d revokes", n)
		}
		r.set(h, 10, 2)
		r.stop(h)
		if n := h2revokes(r); n != 0 {
			t.Errorf("%d revokes after re-use", n)
		}
	}
	for _, step := range []string{"before", "switched", "durable"} {
		r := newRig(t, rigParams{})
		r.op(1, 10)
		if step != "before" {
			r.onStep(step, func() { reuse(r) })
		}
		r.commit()
		if step == "before" {
			reuse(r)
		}
		r.expect(r.crash(), 10, 1)
		r.commit()
		r.expect(r.crash(), 10, 2)
		r.check()
	}
}

func h2revokes(r *rig) int { return int(r.j.running.Load().revokes.count.Load()) }

// A transaction is not committed while one of its handles is open, and Begin
// waits as long, but no longer: it does not wait for the commit's I/O.
func TestBeginWaitsForSwitchOnly(t *testing.T) {
	r := newRig(t, rigParams{})
	h := r.begin(2)
	r.set(h, 10, 1)
	locked, inIO, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.j.step = func(s string) {
		switch s {
		case "locked":
			close(locked)
		case "logged":
			close(inIO)
			<-release
		}
	}
	committed := make(chan error, 1)
	go func() { committed <- r.j.CommitOnce() }()
	<-locked
	begun := make(chan *Handle, 1)
	go func() { h2, _ := r.j.Begin(1); begun <- h2 }()
	select {
	case <-begun:
		t.Fatal("a handle joined a locked transaction")
	case <-committed:
		t.Fatal("committed under an open handle")
	case <-time.After(20 * time.Millisecond):
	}
	if h.Extend(1) {
		t.Error("Extend in a locked transaction")
	}
	r.stop(h)
	<-inIO
	h2 := <-begun
	r.set(h2, 10, 2)
	r.stop(h2)
	close(release)
	r.must(<-committed)
	if r.j.Stats().BeginWait.Count != 1 {
		t.Error("the wait was not counted")
	}
	r.expect(r.crash(), 10, 1)
}

// A block is written home by a checkpoint, and in the middle of that freed.
// The commit of the freeing must not let anybody reuse the block before the
// write has ended.
func TestCommitWaitsForHomeWrite(t *testing.T) {
	r := newRig(t, rigParams{})
	var order []string
	var mu sync.Mutex
	note := func(s string) { mu.Lock(); order = append(order, s); mu.Unlock() }
	r.j.OnCommit(func(tid TID, err error) { note("reusable") })
	r.op(1, 10)
	r.commit()
	order = nil

	inWrite, release := make(chan struct{}), make(chan struct{})
	gate := &gated{Device: r.dev.Device, off: 10 * 1024, in: inWrite, out: release, after: func() { note("written") }}
	r.dev.Device = gate
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.j.CheckpointOnce(); err != nil {
			t.Error(err)
		}
	})
	<-inWrite
	h := r.begin(1)
	b := r.c.Lookup(10)
	r.must(h.Forget(b))
	b.Put()
	r.stop(h)
	wg.Go(func() {
		if err := r.j.CommitOnce(); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	close(release)
	wg.Wait()
	if len(order) != 2 || order[0] != "written" {
		t.Errorf("order of events: %v", order)
	}
}

// gated is a device on which the write to off stops until out is closed.
type gated struct {
	blockdev.Device
	off     int64
	in, out chan struct{}
	after   func()
}

func (g *gated) WriteAt(p []byte, off int64) (int, error) {
	if off == g.off {
		close(g.in)
		<-g.out
		defer g.after()
	}
	return g.Device.WriteAt(p, off)
}

// A buffer that the running transaction holds is not written home, since it
// may be half changed; when that has committed, it need not be written for the
// old transaction any more.
func TestCheckpointLeavesBusyBuffers(t *testing.T) {
	r := newRig(t, rigParams{})
	r.op(1, 10, 11)
	r.commit()
	r.op(2, 10)
	freed, busy, err := r.j.checkpoint(1<<30, true)
	if err != nil || freed != 0 || !busy {
		t.Errorf("freed %d, busy %v, %v", freed, busy, err)
	}
	r.expect(r.dev, 10, 0)
	r.expect(r.dev, 11, 1)
	r.commit()
	r.dev.reset()
	if freed, err := r.j.CheckpointOnce(); err != nil || freed == 0 {
		t.Errorf("freed %d, %v", freed, err)
	}
	if w, f := r.dev.count(); w != 2 || f != 2 {
		t.Errorf("checkpoint of one block: %d writes, %d flushes; want home and superblock, each flushed", w, f)
	}
	r.expect(r.dev, 10, 2)
	r.check()
}

// With the superblock's new tail not durable, its old log blocks must not be
// overwritten: the old tail would find the log ended.
func TestTailDurableBeforeReuse(t *testing.T) {
	r := newRig(t, rigParams{})
	many := func(n int) (blks []uint64) {
		for i := range n {
			blks = append(blks, uint64(10+i))
		}
		return blks
	}
	v := uint64(0)
	for r.j.avail >= r.j.reserve { // fill the log as far as it goes
		v++
		r.op(v, many(r.j.maxTx)...)
		r.commit()
	}
	image := ram(readAll(t, r.dev))
	r.dev.reset()
	v++
	r.op(v, many(r.j.maxTx)...) // Begin has to checkpoint first
	r.onStep("logged", func() {
		for _, keep := range []func(int) bool{
			func(i int) bool { return true },
			func(i int) bool { return r.dev.events[i].off != int64(r.p.runs[0].Block)*1024 }, // no superblock
		} {
			dev := ram(newCrasher(image, r.dev.events).at(len(r.dev.events), keep))
			recoverOn(t, r.p, dev)
			for _, blk := range many(r.j.maxTx) {
				r.expect(dev, blk, v-1)
			}
		}
	})
	r.commit()
}

// What each kind of commit costs.
func TestCommitCost(t *testing.T) {
	for _, c := range []struct {
		name    string
		p       rigParams
		writes  int
		flushes int
	}{
		{"ordered", rigParams{}, 2, 2},
		{"async", rigParams{incompat: IncompatCsumV3 | IncompatAsyncCommit}, 1, 1},
		{"nobarrier", rigParams{opt: Options{NoBarrier: true}}, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.p)
			r.op(1, 10)
			r.dev.reset()
			r.commit() // the first one marks the log in use
			if w, f := r.dev.count(); w != c.writes+1 || f != c.flushes {
				t.Errorf("first commit: %d writes, %d flushes", w, f)
			}
			h := r.begin(3)
			for blk := range uint64(3) {
				r.set(h, 10+blk, 1)
			}
			r.forget(h, 30)
			r.stop(h)
			r.dev.reset()
			r.commit()
			if w, f := r.dev.count(); w != c.writes || f != c.flushes {
				t.Errorf("commit: %d writes, %d flushes", w, f)
			}
		})
	}
}

// A transaction without a change is not written, whoever asks.
func TestEmptyCommit(t *testing.T) {
	r := newRig(t, rigParams{})
	image := readAll(t, r.dev)
	h := r.begin(5)
	b, err := r.c.Read(10, nil)
	r.must(err)
	r.must(h.GetWriteAccess(b))
	b.Put()
	tid := h.TID()
	h.SetSync()
	r.stop(h)
	r.must(r.j.WaitCommit(tid))
	r.must(r.j.Commit())
	r.commit()
	if got, ok := r.j.RunningTID(); !ok || got != tid {
		t.Errorf("transaction %d was used up (%d, %v)", tid, got, ok)
	}
	r.must(r.j.Flush())
	r.check()
	r.must(r.j.Close())
	if w, f := r.dev.count(); w != 0 || f != 0 {
		t.Errorf("%d writes, %d flushes", w, f)
	}
	if string(image) != string(readAll(t, r.dev)) {
		t.Error("the device has changed")
	}
	if h, err := r.j.Begin(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Begin after Close: %v, %v", h, err)
	}
}

// The numbers of transactions after a recovery are beyond all in the log, also
// when the file system is opened again before it commits anything.
func TestSequenceMovesOn(t *testing.T) {
	r := newRig(t, rigParams{})
	r.op(1, 10)
	r.commit()
	r.op(2, 10)
	var dev ram
	r.onStep("logged", func() { dev = readAll(t, r.dev) }) // interrupted, but in the log
	r.commit()
	last := r.j.CommittedTID() - 1
	for range 3 {
		j, err := Open(r.p.params(dev))
		r.must(err)
		_, err = j.Recover()
		r.must(err)
		if !j.nextTID.After(last + 1) {
			t.Errorf("next transaction is %d, the log may hold %d", j.nextTID, last+1)
		}
		r.must(j.Close())
	}
}

// Handles that do not fit wait for others to stop rather than cut the
// transaction short; what is larger than any transaction is refused.
func TestCredits(t *testing.T) {
	r := newRig(t, rigParams{opt: Options{StrictCredits: true}})
	full := r.j.MaxCredits()
	if _, err := r.j.Begin(full + 1); !errors.Is(err, ErrTooManyCredits) {
		t.Errorf("Begin(%d): %v", full+1, err)
	}
	if _, err := r.j.Begin(-1); !errors.Is(err, ErrTooManyCredits) {
		t.Errorf("Begin(-1): %v", err)
	}
	h := r.begin(full - 1)
	if h.Extend(2) || !h.Extend(1) || h.Credits() != full {
		t.Errorf("Extend: %d credits of %d", h.Credits(), full)
	}
	begun := make(chan TID)
	go func() {
		h2 := r.begin(3)
		begun <- h2.TID()
		r.stop(h2)
	}()
	select {
	case <-begun:
		t.Fatal("more credits were given than there are")
	case <-time.After(10 * time.Millisecond):
	}
	tid := h.TID()
	r.set(h, 10, 1)
	r.stop(h)
	if got := <-begun; got != tid {
		t.Errorf("joined %d rather than wait for %d", got, tid)
	}
	h = r.begin(0)
	b, err := r.c.Get(12)
	r.must(err)
	defer b.Put()
	if err := h.DirtyMetadata(b); !errors.Is(err, ErrNotAccessed) {
		t.Errorf("DirtyMetadata without access: %v", err)
	}
	r.must(h.GetWriteAccess(b))
	if err := h.DirtyMetadata(b); !errors.Is(err, ErrNoCredits) {
		t.Errorf("DirtyMetadata without credits: %v", err)
	}
	r.stop(h)
}

// A transaction that is full is committed so that Begin can go on, with and
// without goroutines; Restart moves to the next one.
func TestFullTransaction(t *testing.T) {
	for _, started := range []bool{false, true} {
		r := newRig(t, rigParams{started: started})
		for v := range uint64(20) {
			h := r.begin(r.j.MaxCredits() / 2)
			first := h.TID()
			for i := range h.Credits() {
				r.set(h, 10+uint64(i)+20*(v%2), v+1)
			}
			if v%3 == 0 {
				r.must(h.Restart(r.j.MaxCredits()))
				if h.TID() == first {
					t.Error("Restart for more than the transaction has stayed in it")
				}
			}
			r.stop(h)
		}
		r.must(r.j.Close())
		r.check()
	}
}

// BeforeCommit runs when no handle is open, and its changes are committed with
// the transaction.
func TestBeforeCommit(t *testing.T) {
	p := rigParams{}
	p.setDefaults()
	dev := p.format(t)
	r := &rig{t: t, p: p, dev: &recorder{Device: dev}}
	var err error
	r.j, err = Open(p.params(r.dev))
	r.must(err)
	calls := uint64(0)
	r.j.BeforeCommit(2, func(h *Handle) error {
		calls++
		if n := h.t.updates(); n != 0 {
			t.Errorf("%d handles are open", n)
		}
		r.set(h, 40, calls)
		return nil
	})
	r.attachCache()
	for v := range uint64(30) {
		r.op(v+1, 10)
		r.commit()
		r.expect(r.crash(), 40, v+1)
	}
	r.must(r.j.Close())
	if calls != 30 {
		t.Errorf("%d calls", calls)
	}
}

// Concurrent callers of WaitCommit share commits.
func TestSharedCommits(t *testing.T) {
	r := newRig(t, rigParams{started: true, logBlocks: 256, blocks: 512})
	r.dev.Device = slowFlush{r.dev.Device}
	var wg sync.WaitGroup
	const callers, rounds = 16, 10
	for id := range callers {
		wg.Go(func() {
			for v := range rounds {
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
	if s.SyncWaits != callers*rounds || s.Commits > callers*rounds/3 {
		t.Errorf("%d commits for %d waits", s.Commits, s.SyncWaits)
	}
	r.must(r.j.Close())
}

type slowFlush struct{ blockdev.Device }

func (s slowFlush) Flush() error {
	time.Sleep(2 * time.Millisecond)
	return s.Device.Flush()
}

// A transaction is committed when it is old, or when nobody has touched it for
// a while.
func TestCommitByAge(t *testing.T) {
	for name, o := range map[string]Options{
		"idle": {IdleCommit: 10 * time.Millisecond, CommitInterval: time.Hour},
		"age":  {IdleCommit: -1, CommitInterval: 10 * time.Millisecond},
	} {
		r := newRig(t, rigParams{started: true, opt: o})
		tid := r.op(1, 10)
		for deadline := time.Now().Add(20 * time.Second); !r.j.CommittedTID().AtLeast(tid); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not committed", name)
			}
			time.Sleep(time.Millisecond)
		}
		r.must(r.j.Close())
	}
}

// A block that begins with the magic number lies in the log without it, so
// that it cannot be taken for one of the log's own, and comes home with it.
func TestEscape(t *testing.T) {
	eachFormat(t, func(t *testing.T, p rigParams) {
		r := newRig(t, p)
		h := r.begin(1)
		r.setMagic(h, 10)
		r.stop(h)
		r.commit()
		b := make([]byte, r.p.blockSize)
		r.must(r.j.log.read(b, r.j.geo.first+1))
		if string(b[:5]) != "\x00\x00\x00\x00\x05" {
			t.Errorf("in the log it begins with %x", b[:5])
		}
		_, err := r.crash().ReadAt(b, 10*int64(r.p.blockSize))
		r.must(err)
		if string(b[:5]) != "\xC0\x3B\x39\x98\x05" {
			t.Errorf("at home it begins with %x", b[:5])
		}
	})
}
