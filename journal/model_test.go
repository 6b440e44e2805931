package journal

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"extfused/blockdev"
)

var (
	modelSeed  = flag.Uint64("journal.seed", 1, "seed of the model test")
	modelLives = flag.Int("journal.lives", 3, "how often the model test crashes and goes on, per format")
)

type kind uint8

const (
	free kind = iota
	meta
	data
)

// cell is what the model knows of a block.
type cell struct {
	kind    kind
	version uint64
	freedIn TID
	freed   bool
}

// model is the twin: what each committed transaction left, and what has been
// promised when.
type model struct {
	*rig
	rng     *rand.Rand
	cells   map[uint64]cell
	snaps   map[TID]map[uint64]cell
	base    TID // state at mount
	acks    []ack
	version uint64
	depth   int
	image   []byte // of the device at mount
}

// ack: before event number at, tid was promised to be durable.
type ack struct {
	at  int
	tid TID
}

const modelBlocks = 48 // blocks 8..8+modelBlocks are played with

func newModel(t *testing.T, p rigParams, dev blockdev.Device, cells map[uint64]cell, seed uint64) *model {
	m := &model{rig: mountRig(t, p, dev), rng: rand.New(rand.NewPCG(seed, 7)), cells: cells,
		snaps: map[TID]map[uint64]cell{}, version: seed << 20}
	m.dev.reset()
	m.image = readAll(t, dev)
	m.base = m.j.CommittedTID()
	m.snaps[m.base] = clone(cells)
	m.j.step = m.onStep
	m.j.OnCommit(func(tid TID, err error) {
		if err != nil {
			t.Errorf("transaction %d: %v", tid, err)
		}
	})
	return m
}

func clone(c map[uint64]cell) map[uint64]cell {
	out := make(map[uint64]cell, len(c))
	for k, v := range c {
		out[k] = v
	}
	return out
}

func readAll(t testing.TB, dev blockdev.Device) []byte {
	b := make([]byte, dev.Size())
	if _, err := dev.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// onStep interleaves: whatever can happen between two steps of a commit or a
// checkpoint happens there at random.
func (m *model) onStep(step string) {
	if step == "switched" {
		m.snaps[m.j.committing.tid] = clone(m.cells)
	}
	if step == "locked" || m.depth > 1 {
		return
	}
	m.depth++
	defer func() { m.depth-- }()
	for m.rng.IntN(3) == 0 {
		switch n := m.rng.IntN(8); {
		case n == 0 && m.j.commitMu.TryLock():
			m.j.commitMu.Unlock()
			m.commitNow()
		case n == 1 && m.j.cpRun.TryLock():
			m.j.cpRun.Unlock()
			m.checkpointNow()
		case m.canBegin():
			m.randomOp()
		}
	}
}

// canBegin says whether Begin will not have to wait, which nobody would end.
func (m *model) canBegin() bool {
	m.j.mu.Lock()
	defer m.j.mu.Unlock()
	t := m.j.running.Load()
	if t == nil {
		return m.j.avail >= m.j.reserve
	}
	return wordCredits(t.word.Load())+maxOp <= m.j.maxTx && !t.locked()
}

func (m *model) commitNow() {
	m.must(m.j.CommitOnce())
	m.dev.mu.Lock()
	m.acks = append(m.acks, ack{len(m.dev.events), m.j.CommittedTID()})
	m.dev.mu.Unlock()
}

func (m *model) checkpointNow() {
	_, err := m.j.CheckpointOnce()
	m.must(err)
}

// maxOp is how many blocks an operation changes at most.
const maxOp = 13

// randomOp changes a few blocks with one handle.
func (m *model) randomOp() {
	n := 1 + m.rng.IntN(1+m.rng.IntN(maxOp))
	h := m.begin(n)
	for range n {
		m.change(h, 8+m.rng.Uint64N(modelBlocks))
	}
	m.stop(h)
}

func (m *model) change(h *Handle, blk uint64) {
	m.version++
	c := m.cells[blk]
	settled := !c.freed || m.j.CommittedTID().AtLeast(c.freedIn)
	switch roll := m.rng.IntN(10); {
	case c.kind == meta && roll < 3:
		m.forget(h, blk)
		c = cell{kind: free, freed: true, freedIn: h.TID()}
	case c.kind == meta,
		c.kind == free && roll < 5 && (settled || c.freedIn == h.TID()):
		m.set(h, blk, m.version)
		c = cell{kind: meta, version: m.version}
	case c.kind == free && settled:
		m.writeData(blk)
		c = cell{kind: data}
	case c.kind == data && roll < 5:
		m.writeData(blk)
	case c.kind == data:
		c = cell{kind: free, freed: true, freedIn: h.TID()}
	}
	m.cells[blk] = c
}

func (m *model) writeData(blk uint64) {
	b := make([]byte, m.p.blockSize)
	fill(b, blk, m.version)
	_, err := m.dev.WriteAt(b, int64(blk)*int64(m.p.blockSize))
	m.must(err)
}

// promised is the last transaction that must be found when events [0, n) were
// on the device.
func (m *model) promised(n int) TID {
	tid := m.base
	for _, a := range m.acks {
		if a.at <= n {
			tid = a.tid
		}
	}
	return tid
}

// crasher builds images of a device that stopped between two events. What was
// flushed is there; the writes since then are subject to keep.
type crasher struct {
	events  []event
	durable []byte // everything up to the last flush
	pending int    // first event after it
}

func newCrasher(image []byte, events []event) *crasher {
	return &crasher{events: events, durable: bytes.Clone(image)}
}

// at is the image after events [0, n); n must not decrease from call to call.
// Of the pending writes, keep chooses sectors of 512 bytes.
func (c *crasher) at(n int, keep func(write int) bool) []byte {
	for i := c.pending; i < n; i++ {
		if c.events[i].data == nil {
			c.apply(c.durable, c.pending, i, func(int) bool { return true })
			c.pending = i + 1
		}
	}
	img := bytes.Clone(c.durable)
	c.apply(img, c.pending, n, keep)
	return img
}

func (c *crasher) apply(img []byte, from, to int, keep func(write int) bool) {
	const sector = 512
	for i := from; i < to; i++ {
		e := c.events[i]
		for s := 0; s < len(e.data); s += sector {
			if keep(i) {
				copy(img[e.off+int64(s):], e.data[s:min(s+sector, len(e.data))])
			}
		}
	}
}

// keepers are the ways in which unflushed writes go missing: not, whole writes,
// single sectors.
func keepers(rng *rand.Rand) []func(write int) bool {
	fate := map[int]bool{}
	return []func(int) bool{
		func(int) bool { return true },
		func(i int) bool {
			if _, ok := fate[i]; !ok {
				fate[i] = rng.IntN(2) == 0
			}
			return fate[i]
		},
		func(int) bool { return rng.IntN(2) == 0 },
		func(int) bool { return rng.IntN(8) != 0 },
	}
}

// verify recovers the crash image and compares it with the model.
func (m *model) verify(n int, img []byte) (TID, ram, error) {
	dev := ram(bytes.Clone(img))
	j, err := Open(m.p.params(dev))
	if err != nil {
		return 0, nil, err
	}
	st, err := j.Recover()
	if err != nil {
		return 0, nil, err
	}
	tid := m.foundTID(st)
	if !tid.AtLeast(m.promised(n)) {
		return 0, nil, fmt.Errorf("found up to transaction %d, promised %d (%+v)", tid, m.promised(n), st)
	}
	snap, ok := m.snaps[tid]
	if !ok {
		return 0, nil, fmt.Errorf("found up to transaction %d, which never was", tid)
	}
	return tid, dev, m.compare(snap, img, dev)
}

// foundTID is the last transaction in effect after a recovery. Without any in
// the log, that is the one before the first that the superblock expected.
func (m *model) foundTID(st RecoveryStats) TID {
	switch {
	case st.Transactions > 0:
		return st.Last
	case st.Needed:
		return st.NextTID - 3
	}
	return m.base
}

func (m *model) compare(snap map[uint64]cell, before []byte, dev ram) error {
	bs := m.p.blockSize
	for blk := uint64(8); blk < 8+modelBlocks; blk++ {
		c := snap[blk]
		if c.kind == meta {
			got, err := version(dev, bs, blk)
			if err != nil || got != c.version {
				return fmt.Errorf("block %d: version %x, want %x (%v)", blk, got, c.version, err)
			}
			continue
		}
		if at := int(blk) * bs; !bytes.Equal(before[at:at+bs], dev[at:at+bs]) {
			return fmt.Errorf("replay touched block %d, which is not metadata", blk)
		}
	}
	return nil
}

// recutReplay cuts a recovery of img at each of its writes, and recovers again.
func (m *model) recutReplay(img []byte) error {
	rec := &recorder{Device: ram(bytes.Clone(img))}
	recoverOn(m.t, m.p, rec)
	want := m.home(rec.Device.(ram))
	c := newCrasher(img, rec.events)
	for n := range rec.events {
		for _, keep := range keepers(m.rng) {
			dev := ram(c.at(n, keep))
			recoverOn(m.t, m.p, dev)
			if !bytes.Equal(m.home(dev), want) {
				return fmt.Errorf("replay cut at event %d of %d gives another result", n, len(rec.events))
			}
		}
	}
	return nil
}

// home is the image without the log.
func (m *model) home(img ram) []byte {
	return img[:(8+modelBlocks)*m.p.blockSize]
}

// play runs random operations, and then looks at every crash they could have
// ended in. It returns one of them to go on from.
func (m *model) play(steps int) (blockdev.Device, map[uint64]cell) {
	for range steps {
		switch n := m.rng.IntN(16); {
		case n == 0:
			m.checkpointNow()
		case n < 7:
			m.commitNow()
		default:
			m.randomOp()
		}
	}
	m.check()
	pick := m.rng.IntN(len(m.dev.events) + 1)
	var dev blockdev.Device
	var cells map[uint64]cell
	c := newCrasher(m.image, m.dev.events)
	for n := 0; n <= len(m.dev.events); n++ {
		for variant, keep := range keepers(m.rng) {
			img := c.at(n, keep)
			tid, recovered, err := m.verify(n, img)
			if err != nil {
				m.t.Fatalf("cut at event %d of %d, variant %d: %v", n, len(m.dev.events), variant, err)
			}
			if n == pick {
				dev, cells = recovered, m.snaps[tid]
				m.must(m.recutReplay(img))
			}
		}
	}
	return dev, settle(cells)
}

// settle forgets which transaction freed what: all that is history.
func settle(cells map[uint64]cell) map[uint64]cell {
	out := clone(cells)
	for blk, c := range out {
		c.freed = false
		out[blk] = c
	}
	return out
}

// Whatever prefix of the writes reaches the device, with any of those after
// the last flush missing: recovery gives the state of one committed
// transaction, not older than what was promised, and leaves alone what is not
// metadata. The next life goes on from such a crash, with the same log.
func TestModelCrash(t *testing.T) {
	eachFormat(t, func(t *testing.T, p rigParams) {
		seed := *modelSeed
		t.Logf("seed %d", seed)
		dev, cells := blockdev.Device(nil), map[uint64]cell{}
		p.opt.StrictCredits = true
		p.setDefaults()
		dev = p.format(t)
		lives, steps := *modelLives, 50
		if testing.Short() {
			lives, steps = 1, 15
		}
		for life := range uint64(lives) {
			m := newModel(t, p, dev, cells, seed*100+life+1)
			dev, cells = m.play(steps)
		}
	})
}
