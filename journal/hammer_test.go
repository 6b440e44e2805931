package journal

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hammer is many goroutines that each own some blocks and share some, for the
// race detector, and for the promise of WaitCommit.
type hammer struct {
	*rig
	shared  sync.Mutex // guards the content of blocks 8..15
	version atomic.Uint64
	syncs   atomic.Uint64
}

func (m *hammer) worker(id int, seed uint64, until time.Time) error {
	rng := rand.New(rand.NewPCG(seed, uint64(id)))
	own := uint64(16 + id*4)
	var last uint64
	for time.Now().Before(until) {
		v := m.version.Add(1)
		tid, err := m.change(rng, own, v)
		if err != nil {
			return err
		}
		last = v
		if rng.IntN(8) == 0 {
			if err := m.j.WaitCommit(tid); err != nil {
				return err
			}
			if !m.j.CommittedTID().AtLeast(tid) {
				return errors.New("WaitCommit returned before the commit")
			}
			m.syncs.Add(1)
		}
		if rng.IntN(16) == 0 {
			if err := m.freeAndReuse(own+3, v, rng); err != nil {
				return err
			}
		}
	}
	return m.finalCheck(own, last)
}

// change updates a shared block and its own ones with one handle.
func (m *hammer) change(rng *rand.Rand, own, v uint64) (TID, error) {
	h, err := m.j.Begin(4)
	if err != nil {
		return 0, err
	}
	tid := h.TID()
	m.shared.Lock()
	err = m.write(h, 8+rng.Uint64N(8), v)
	m.shared.Unlock()
	for i := range uint64(3) {
		if err == nil {
			err = m.write(h, own+i, v)
		}
	}
	if rng.IntN(32) == 0 && err == nil {
		if !h.Extend(1) {
			if err := h.Restart(2); err != nil {
				return 0, err
			}
			tid = h.TID()
		}
		err = m.write(h, own, v)
	}
	return tid, errors.Join(err, h.Stop())
}

func (m *hammer) write(h *Handle, blk, v uint64) error {
	b, err := m.c.Get(blk)
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.GetWriteAccess(b); err != nil {
		return err
	}
	fill(b.Data(), blk, v)
	b.SetUptodate()
	return h.DirtyMetadata(b)
}

// freeAndReuse logs a block, frees it, and when that is committed writes data
// there: the data must stay.
func (m *hammer) freeAndReuse(blk, v uint64, rng *rand.Rand) error {
	h, err := m.j.Begin(1)
	if err != nil {
		return err
	}
	err = errors.Join(m.write(h, blk, v), h.Stop())
	if rng.IntN(2) == 0 && err == nil {
		err = m.j.Commit()
	}
	if h, err2 := m.j.Begin(1); err2 == nil {
		err = errors.Join(err, h.Revoke(blk))
		tid := h.TID()
		err = errors.Join(err, h.Stop(), m.j.WaitCommit(tid))
	}
	if err != nil {
		return err
	}
	data := make([]byte, m.p.blockSize)
	fill(data, blk, v+1<<40)
	if _, err := m.dev.WriteAt(data, int64(blk)*int64(m.p.blockSize)); err != nil {
		return err
	}
	time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
	got, err := version(m.dev, m.p.blockSize, blk)
	if err == nil && got != v+1<<40 {
		err = errors.New("a stale home write came over data")
	}
	return err
}

func (m *hammer) finalCheck(own, last uint64) error {
	b, err := m.c.Get(own + 1)
	if err != nil {
		return err
	}
	defer b.Put()
	want := make([]byte, m.p.blockSize)
	fill(want, own+1, last)
	if string(want) != string(b.Data()) {
		return errors.New("own block has changed")
	}
	return nil
}

func TestHammer(t *testing.T) {
	for name, p := range map[string]rigParams{
		"small log": {logBlocks: 80, blocks: 400},
		"4k v3":     {logBlocks: 1024, blocks: 1400, blockSize: 4096, incompat: IncompatCsumV3 | Incompat64Bit},
	} {
		t.Run(name, func(t *testing.T) {
			p.opt = Options{StrictCredits: true, IdleCommit: 2 * time.Millisecond, CommitInterval: 10 * time.Millisecond}
			m := &hammer{rig: newRig(t, p)}
			m.dev.quiet = true
			last := m.countCallbacks(t)
			m.must(m.j.Start())
			runHammer(t, m)
			m.must(m.j.Close())
			m.check()
			if got := m.j.CommittedTID(); got != TID(last.Load()) {
				t.Errorf("callbacks ended at %d, commits at %d", last.Load(), got)
			}
			s := m.j.Stats()
			t.Logf("%d handles, %d commits, %d syncs, %d checkpoints, %d copy-outs, longest wait %v",
				s.Handles, s.Commits, m.syncs.Load(), s.Checkpoints, s.CopyOuts, s.BeginWait.Max)
			if s.PinnedBlocks != 0 || s.Pending != 0 {
				t.Errorf("after Close: %+v", s)
			}
		})
	}
}

// countCallbacks checks that OnCommit sees every transaction in order.
func (m *hammer) countCallbacks(t *testing.T) *atomic.Uint32 {
	last := &atomic.Uint32{}
	last.Store(uint32(m.j.CommittedTID()))
	m.j.OnCommit(func(tid TID, err error) {
		if tid != TID(last.Load())+1 || err != nil {
			t.Errorf("callback for %d after %d: %v", tid, last.Load(), err)
		}
		last.Store(uint32(tid))
	})
	return last
}

func runHammer(t *testing.T, m *hammer) {
	d := 2 * time.Second
	if testing.Short() {
		d /= 4
	}
	until := time.Now().Add(d)
	var wg sync.WaitGroup
	for id := range 16 {
		wg.Go(func() {
			if err := m.worker(id, *modelSeed, until); err != nil {
				t.Errorf("worker %d: %v", id, err)
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			m.j.Stats()
			if err := m.j.Flush(); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	wg.Wait()
}
