package bdtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"extfused/blockdev"
)

func TestDecoratorsConform(t *testing.T) {
	mem := func() blockdev.Device { return blockdev.NewMem(1<<20 + 4096*3 + 100) }
	for name, mk := range map[string]func() blockdev.Device{
		"Recorder": func() blockdev.Device { return NewRecorder(mem()) },
		"Fault":    func() blockdev.Device { return NewFault(mem()) },
		"Volatile": func() blockdev.Device { return NewVolatile(mem()) },
		"State": func() blockdev.Device {
			d, err := NewRecorder(mem()).CrashImage(0, Loss{})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) { Run(t, mk) })
	}
}

const sectors = 256

// word reads the number a sector was last written with.
func words(t *testing.T, d blockdev.Device) []uint64 {
	t.Helper()
	p := make([]byte, sectors*SectorSize)
	if _, err := d.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	out := make([]uint64, sectors)
	for i := range out {
		s := p[i*SectorSize : (i+1)*SectorSize]
		out[i] = binary.LittleEndian.Uint64(s)
		for k := 8; k < SectorSize; k += 8 {
			if binary.LittleEndian.Uint64(s[k:]) != out[i] {
				t.Fatalf("sector %d is torn inside", i)
			}
		}
	}
	return out
}

func stamp(n int, v uint64) []byte {
	p := make([]byte, n*SectorSize)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], v)
	}
	return p
}

// workload logs random operations; the k-th stamps the sectors it covers with k.
func workload(t *testing.T, seed uint64, ops int) *Recorder {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 2))
	base := blockdev.NewMem(sectors * SectorSize)
	if _, err := base.WriteAt(stamp(sectors, 1<<40), 0); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(base)
	for k := range ops {
		s := rnd.IntN(sectors)
		n := min(1+rnd.IntN(20), sectors-s)
		var err error
		switch rnd.IntN(10) {
		case 0:
			err = r.Flush()
		case 1:
			err = r.Zero(int64(s)*SectorSize, int64(n)*SectorSize)
		case 2:
			r.Mark(k)
		default:
			_, err = r.WriteAt(stamp(n, uint64(r.Len())), int64(s)*SectorSize)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// allowed computes, straight from the log, every value a sector may have after
// a cut at pos: the durable one, and those of later unflushed operations.
func allowed(log []Op, pos int) (durable []uint64, last []uint64, all []map[uint64]bool) {
	flushed := 0
	for i := range pos {
		if log[i].Kind == OpFlush {
			flushed = i
		}
	}
	durable = make([]uint64, sectors)
	for i := range durable {
		durable[i] = 1 << 40
	}
	value := func(i int) uint64 {
		if log[i].Kind == OpWrite {
			return uint64(i)
		}
		return 0
	}
	each := func(i int, do func(s int64)) {
		for s := log[i].Off / SectorSize; s < (log[i].Off+log[i].Len)/SectorSize; s++ {
			do(s)
		}
	}
	for i := range flushed {
		each(i, func(s int64) { durable[s] = value(i) })
	}
	last = append([]uint64(nil), durable...)
	all = make([]map[uint64]bool, sectors)
	for s := range all {
		all[s] = map[uint64]bool{durable[s]: true}
	}
	for i := flushed; i < pos; i++ {
		each(i, func(s int64) { last[s], all[s][value(i)] = value(i), true })
	}
	return durable, last, all
}

// TestCrashStatesAreLegal checks every state of a random log against values
// computed independently, and that losses really differ.
func TestCrashStatesAreLegal(t *testing.T) {
	for seed := range uint64(3) {
		r := workload(t, seed, 150)
		p := r.NewPlayer()
		lostSome, keptSome := 0, 0
		for pos := 0; pos <= p.Len(); pos++ {
			if err := p.Advance(pos); err != nil {
				t.Fatal(err)
			}
			durable, last, all := allowed(r.Log(), pos)
			for kind := range lossKinds {
				l := Loss{Kind: kind, Seed: uint64(pos)}
				d, err := p.State(l)
				if err != nil {
					t.Fatal(err)
				}
				got := words(t, d)
				for s, v := range got {
					if !all[s][v] || kind == KeepAll && v != last[s] || kind == DropAll && v != durable[s] {
						t.Fatalf("seed %d cut %d %v: sector %d is %d (durable %d, last %d)", seed, pos, l, s, v, durable[s], last[s])
					}
					if v != last[s] {
						lostSome++
					} else if v != durable[s] {
						keptSome++
					}
				}
				if pos%10 == 0 {
					checkReproducible(t, p, l, got)
				}
			}
		}
		if lostSome < 1000 || keptSome < 1000 {
			t.Fatalf("only %d sectors lost and %d kept: losses do not lose", lostSome, keptSome)
		}
	}
}

// checkReproducible builds the state again, after scribbling over it.
func checkReproducible(t *testing.T, p *Player, l Loss, want []uint64) {
	t.Helper()
	for range 2 {
		d, err := p.State(l)
		if err != nil {
			t.Fatal(err)
		}
		if got := words(t, d); !slices.Equal(got, want) {
			t.Fatalf("%v differs when built again", l)
		}
		if err := d.Zero(0, d.Size()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDropOneLosesExactlyOne(t *testing.T) {
	r := NewRecorder(blockdev.NewMem(sectors * SectorSize))
	for i := range 20 { // disjoint
		if _, err := r.WriteAt(stamp(4, uint64(i+1)), int64(i)*4*SectorSize); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(50) {
		for _, c := range []struct {
			kind LossKind
			lost int
		}{{DropOne, 1}, {KeepOne, 19}} {
			d, err := r.CrashImage(r.Len(), Loss{Kind: c.kind, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			lost := 0
			for i, w := range words(t, d)[:80] {
				if w == 0 && i%4 == 0 {
					lost++
				}
			}
			if lost != c.lost {
				t.Fatalf("%v lost %d writes, want %d", Loss{Kind: c.kind, Seed: seed}, lost, c.lost)
			}
		}
	}
}

func TestRecorderKeepsDataOnceAndUnchanged(t *testing.T) {
	r := NewRecorder(blockdev.NewMem(1 << 20))
	p := make([]byte, 4096)
	for i := range 100 {
		p[0] = byte(i)
		if _, err := r.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	p[0] = 0xFF
	if r.DataBytes() != 100*4096 {
		t.Fatalf("%d bytes kept", r.DataBytes())
	}
	for i, op := range r.Log() {
		if op.Data[0] != byte(i) {
			t.Fatalf("operation %d changed to %d", i, op.Data[0])
		}
	}
	if at := r.Mark("done"); at != 101 || r.Log()[100].Note != "done" {
		t.Fatalf("mark at %d", at)
	}
}

func TestFaultRules(t *testing.T) {
	mem := blockdev.NewMem(1 << 20)
	full := errors.New("full")
	f := NewFault(mem,
		Rule{Ops: OpWrite, Skip: 2, Count: 1, Err: full, Tear: 3},
		Rule{Ops: OpRead, Off: 8192, Len: 4096},
		Rule{Ops: OpFlush, Skip: 1},
	)
	ones := bytes.Repeat([]byte{1}, 10)
	for i := range 4 {
		n, err := f.WriteAt(ones, int64(i)*100)
		if i == 2 && (n != 3 || !errors.Is(err, full)) || i != 2 && err != nil {
			t.Fatalf("write %d: %d, %v", i, n, err)
		}
	}
	p := make([]byte, 10)
	if _, err := mem.ReadAt(p, 200); err != nil || !bytes.Equal(p, []byte{1, 1, 1, 0, 0, 0, 0, 0, 0, 0}) {
		t.Fatalf("torn write left %v", p)
	}
	for _, c := range []struct {
		off  int64
		fail bool
	}{{0, false}, {8182, false}, {8183, true}, {12287, true}, {12288, false}} {
		_, err := f.ReadAt(p, c.off)
		if c.fail != errors.Is(err, syscall.EIO) {
			t.Errorf("read at %d: %v", c.off, err)
		}
	}
	if e1, e2, e3 := f.Flush(), f.Flush(), f.Flush(); e1 != nil || e2 == nil || e3 == nil {
		t.Errorf("flushes: %v, %v, %v", e1, e2, e3)
	}
	if f.Seen(OpFlush) != 3 || f.Hits() != 5 {
		t.Errorf("seen %d, hit %d", f.Seen(OpFlush), f.Hits())
	}
	f.Heal()
	f.Add(Rule{Ops: OpWrite, Silent: true})
	if n, err := f.WriteAt(ones, 5000); n != 10 || err != nil {
		t.Errorf("lying write: %d, %v", n, err)
	}
	if _, err := f.ReadAt(p, 5000); err != nil || p[0] != 0 {
		t.Errorf("the lie was stored: %v %v", p, err)
	}
}

func TestVolatileLosesWhatWasNotFlushed(t *testing.T) {
	mem := blockdev.NewMem(sectors * SectorSize)
	v := NewVolatile(mem)
	write := func(s int, val uint64) {
		t.Helper()
		if _, err := v.WriteAt(stamp(1, val), int64(s)*SectorSize); err != nil {
			t.Fatal(err)
		}
	}
	write(1, 11)
	if w := words(t, mem); w[1] != 0 {
		t.Fatal("a write reached the device before the flush")
	}
	if err := v.Flush(); err != nil {
		t.Fatal(err)
	}
	write(1, 12)
	write(2, 22)
	if w := words(t, v); w[1] != 12 || w[2] != 22 {
		t.Fatal("the cache does not show what was written")
	}
	if err := v.Cut(Loss{Kind: DropAll}); err != nil {
		t.Fatal(err)
	}
	if w := words(t, mem); w[1] != 11 || w[2] != 0 {
		t.Fatalf("after the cut: %d %d", w[1], w[2])
	}
	if _, err := v.WriteAt(stamp(1, 1), 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("write after the cut: %v", err)
	}
}

// A journal-like log of many unflushed blocks: what a state costs.
func BenchmarkState(b *testing.B) {
	r := NewRecorder(blockdev.NewMem(1 << 30))
	p := make([]byte, 4096)
	for i := range 2000 {
		if _, err := r.WriteAt(p, int64(i)*3*4096); err != nil {
			b.Fatal(err)
		}
	}
	pl := r.NewPlayer()
	if err := pl.Advance(pl.Len()); err != nil {
		b.Fatal(err)
	}
	for kind := range lossKinds {
		b.Run(Loss{Kind: kind}.String(), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := pl.State(Loss{Kind: kind, Seed: uint64(i)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
