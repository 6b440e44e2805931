package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
)

// event is a write (data != nil), or a flush.
type event struct {
	off  int64
	data []byte
}

// recorder keeps every write and flush that passes, in order.
type recorder struct {
	blockdev.Device
	mu     sync.Mutex
	events []event
	quiet  bool
	fail   func(write bool, off int64) error // nil: never
}

func (r *recorder) WriteAt(p []byte, off int64) (int, error) {
	if err := r.record(event{off, p}); err != nil {
		return 0, err
	}
	return r.Device.WriteAt(p, off)
}

func (r *recorder) Flush() error {
	if err := r.record(event{}); err != nil {
		return err
	}
	return r.Device.Flush()
}

func (r *recorder) record(e event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(e.data != nil, e.off); err != nil {
			return err
		}
	}
	if !r.quiet {
		e.data = bytes.Clone(e.data) // nil stays nil
		r.events = append(r.events, e)
	}
	return nil
}

func (r *recorder) count() (writes, flushes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.data != nil {
			writes++
		} else {
			flushes++
		}
	}
	return writes, flushes
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// rigParams describe a file system of numbered blocks with a log in it.
type rigParams struct {
	blockSize int
	blocks    int   // of the file system
	runs      []Run // nil: the log is the last logBlocks blocks
	logBlocks uint32
	incompat  FeatureIncompat
	compat    FeatureCompat
	sequence  TID
	opt       Options
	started   bool
	quiet     bool // the recorder keeps nothing
}

type rig struct {
	t   testing.TB
	p   rigParams
	dev *recorder
	c   *bcache.Cache
	j   *Journal
}

func (p *rigParams) setDefaults() {
	if p.blockSize == 0 {
		p.blockSize = 1024
	}
	if p.logBlocks == 0 {
		p.logBlocks = 64
	}
	if p.blocks == 0 {
		p.blocks = 60 + int(p.logBlocks)
	}
	if p.runs == nil {
		p.runs = []Run{{Block: uint64(p.blocks) - uint64(p.logBlocks), Len: p.logBlocks}}
	}
}

func (p *rigParams) params(dev blockdev.Device) Params {
	return Params{Runs: p.runs, FsDev: dev, FsBlocks: uint64(p.blocks), BlockSize: p.blockSize, Options: p.opt}
}

// format makes the memory device with an empty log.
func (p *rigParams) format(t testing.TB) blockdev.Device {
	t.Helper()
	dev := make(ram, p.blocks*p.blockSize)
	b := make([]byte, p.blockSize)
	err := FormatSuperBlock(b, FormatParams{BlockSize: p.blockSize, Blocks: p.logBlocks, Incompat: p.incompat,
		Compat: p.compat, UUID: [16]byte{1, 2, 3}, Sequence: p.sequence})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.WriteAt(b, int64(p.runs[0].Block)*int64(p.blockSize)); err != nil {
		t.Fatal(err)
	}
	return dev
}

func newRig(t testing.TB, p rigParams) *rig {
	t.Helper()
	p.setDefaults()
	return mountRig(t, p, p.format(t))
}

// mountRig opens what is on dev, recovers it and makes it ready.
func mountRig(t testing.TB, p rigParams, dev blockdev.Device) *rig {
	t.Helper()
	p.setDefaults()
	r := &rig{t: t, p: p, dev: &recorder{Device: dev, quiet: p.quiet}}
	var err error
	if r.j, err = Open(p.params(r.dev)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.j.Recover(); err != nil {
		t.Fatal(err)
	}
	r.attachCache()
	return r
}

// attachCache makes the opened journal ready for transactions.
func (r *rig) attachCache() {
	r.t.Helper()
	r.c = bcache.New(r.dev, r.p.blockSize, bcache.Options{MaxBytes: 1 << 20})
	r.j.SetCache(r.c)
	start := r.j.prepare
	if r.p.started {
		start = r.j.Start
	}
	r.must(start())
}

func (r *rig) begin(credits int) *Handle {
	r.t.Helper()
	h, err := r.j.Begin(credits)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) stop(h *Handle) {
	r.t.Helper()
	if err := h.Stop(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// fill is the content of version v of block blk.
func fill(b []byte, blk uint64, v uint64) {
	for i := 0; i+16 <= len(b); i += 16 {
		binary.LittleEndian.PutUint64(b[i:], blk)
		binary.LittleEndian.PutUint64(b[i+8:], v)
	}
}

// set changes block blk to version v within h.
func (r *rig) set(h *Handle, blk, v uint64) {
	r.t.Helper()
	b, err := r.c.Get(blk)
	r.must(err)
	defer b.Put()
	r.must(h.GetWriteAccess(b))
	fill(b.Data(), blk, v)
	b.SetUptodate()
	r.must(h.DirtyMetadata(b))
}

// forget frees block blk within h.
func (r *rig) forget(h *Handle, blk uint64) {
	r.t.Helper()
	r.must(h.Revoke(blk))
}

// op does all of changes (block to version) in one handle.
func (r *rig) op(v uint64, blks ...uint64) TID {
	r.t.Helper()
	h := r.begin(len(blks))
	for _, blk := range blks {
		r.set(h, blk, v)
	}
	tid := h.TID()
	r.stop(h)
	return tid
}

func (r *rig) commit() {
	r.t.Helper()
	r.must(r.j.CommitOnce())
}

// version reads the version of block blk from dev, 0 if it was never written.
func version(dev blockdev.Device, blockSize int, blk uint64) (uint64, error) {
	b := make([]byte, blockSize)
	if _, err := dev.ReadAt(b, int64(blk)*int64(blockSize)); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(b[8:])
	want := make([]byte, blockSize)
	if v != 0 || binary.LittleEndian.Uint64(b) != 0 {
		fill(want, blk, v)
	}
	if !bytes.Equal(b, want) {
		return 0, fmt.Errorf("block %d is torn", blk)
	}
	return v, nil
}

func (r *rig) expect(dev blockdev.Device, blk, want uint64) {
	r.t.Helper()
	got, err := version(dev, r.p.blockSize, blk)
	r.must(err)
	if got != want {
		r.t.Errorf("block %d has version %d, want %d", blk, got, want)
	}
}

// crash returns what the device holds now, recovered by a fresh journal.
func (r *rig) crash() blockdev.Device {
	r.t.Helper()
	dev := blockdev.NewOverlay(r.dev.Device)
	recoverOn(r.t, r.p, dev)
	return dev
}

func recoverOn(t testing.TB, p rigParams, dev blockdev.Device) RecoveryStats {
	t.Helper()
	j, err := Open(p.params(dev))
	if err != nil {
		t.Fatal(err)
	}
	st, err := j.Recover()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// check verifies what the journal's own fields must agree on at rest.
func (r *rig) check() {
	r.t.Helper()
	if err := r.j.checkInvariants(); err != nil {
		r.t.Error(err)
	}
}

// checkInvariants counts again what is kept counted. No handle is open and no
// commit or checkpoint is under way.
func (j *Journal) checkInvariants() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cp.Lock()
	defer j.cp.Unlock()
	used, pinned := 0, 0
	for _, t := range j.cp.queue {
		n := 0
		for _, jh := range t.cpList {
			if jh.cp == t {
				n++
			}
		}
		if n != t.cpCount {
			return fmt.Errorf("transaction %d counts %d buffers and has %d", t.tid, t.cpCount, n)
		}
		used += t.logLen
		pinned += n
	}
	reserved := 0
	if j.running.Load() != nil {
		reserved = j.reserve
	}
	if free := int(j.geo.usable()) - 1 - used - reserved; free != j.avail {
		return fmt.Errorf("log space: %d available, counted %d", j.avail, free)
	}
	if pinned != j.cp.pinned {
		return fmt.Errorf("%d pinned, counted %d", j.cp.pinned, pinned)
	}
	return nil
}

// setMagic gives block blk a content that begins with the magic number.
func (r *rig) setMagic(h *Handle, blk uint64) {
	b, err := r.c.Get(blk)
	r.must(err)
	defer b.Put()
	r.must(h.GetCreateAccess(b))
	clear(b.Data())
	copy(b.Data(), []byte{0xC0, 0x3B, 0x39, 0x98, 5})
	b.SetUptodate()
	r.must(h.DirtyMetadata(b))
}

var errInjected = errors.New("injected")
