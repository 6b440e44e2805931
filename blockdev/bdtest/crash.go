package bdtest

import (
	"fmt"
	"math/rand/v2"

	"extfused/blockdev"
)

// SectorSize is the unit that a power cut keeps or loses whole: what disks
// promise at least.
const SectorSize = 512

// Loss says what a power cut does to writes that no flush covers. Each write
// that reached the device's cache may or may not have reached the medium, in
// any order; of two that overlap, losing the later one is the same as having
// them the other way round.
type Loss struct {
	Kind LossKind
	Seed uint64 // for the random kinds; the same seed loses the same
}

// LossKind is how unflushed writes are lost.
type LossKind uint8

const (
	KeepAll   LossKind = iota // everything issued reached the medium
	DropAll                   // nothing since the last flush did
	DropSome                  // each write whole, or not at all
	TearSome                  // each sector of each write, or not
	TearLast                  // all but the last write; of that some sectors
	DropOne                   // all but one write
	KeepOne                   // none but one write
	lossKinds                 // how many there are
)

func (l Loss) String() string {
	names := [...]string{"keep-all", "drop-all", "drop-some", "tear-some", "tear-last", "drop-one", "keep-one"}
	return fmt.Sprintf("%s/%d", names[l.Kind], l.Seed)
}

// RandomLoss derives one of all kinds of loss from a seed.
func RandomLoss(seed uint64) Loss {
	rnd := rand.New(rand.NewPCG(seed, 0x105e))
	return Loss{Kind: LossKind(rnd.IntN(int(lossKinds))), Seed: seed}
}

// Player goes through a Recorder's log from its start and builds the images
// that power cuts leave. Each operation is applied once, however many states
// are built: a state is an overlay of a few differences.
//
//	durable   base + every operation that a completed flush covers
//	full      base + every operation up to the position
//	State     an overlay of full from which some of the pending are taken out,
//	          or of durable to which some are added
//
// A Player is used by one goroutine; the states it made may be used by others
// until the next Advance, which changes what is below them.
type Player struct {
	base    blockdev.Device
	log     []Op
	pos     int // operations applied to full
	durable *blockdev.Overlay
	full    *blockdev.Overlay
	pending []int // operations in full and not in durable, ascending
}

// NewPlayer starts at position 0, the base alone. It sees what was logged up
// to now.
func (r *Recorder) NewPlayer() *Player {
	return &Player{
		base: r.base, log: r.Log(),
		durable: blockdev.NewOverlay(r.base), full: blockdev.NewOverlay(r.base),
	}
}

// Len is the number of operations; Advance goes from 0 to Len.
func (p *Player) Len() int { return len(p.log) }

// Pos is the number of operations the power cut comes after.
func (p *Player) Pos() int { return p.pos }

// Next is the operation that the next step applies.
func (p *Player) Next() Op { return p.log[p.pos] }

// Pending is the number of writes, discards and zeroes at risk now.
func (p *Player) Pending() int { return len(p.pending) }

// Advance moves the cut to after the first pos operations. It goes forward
// only. States made before must not be used afterwards.
func (p *Player) Advance(pos int) error {
	if pos < p.pos || pos > len(p.log) {
		return fmt.Errorf("bdtest: cannot move from operation %d to %d of %d", p.pos, pos, len(p.log))
	}
	for ; p.pos < pos; p.pos++ {
		if err := p.step(p.pos); err != nil {
			return err
		}
	}
	return nil
}

func (p *Player) step(i int) error {
	switch op := p.log[i]; op.Kind {
	case OpMark:
		return nil
	case OpFlush:
		return p.settle(op.Covers)
	default:
		p.pending = append(p.pending, i)
		return apply(p.full, op, 0, op.Len)
	}
}

// settle moves pending operations below covers into durable.
func (p *Player) settle(covers int) error {
	n := 0
	for n < len(p.pending) && p.pending[n] < covers {
		op := p.log[p.pending[n]]
		if err := apply(p.durable, op, 0, op.Len); err != nil {
			return err
		}
		n++
	}
	p.pending = append(p.pending[:0], p.pending[n:]...)
	return nil
}

// apply does bytes [from, to) of an operation.
func apply(d blockdev.Device, op Op, from, to int64) error {
	switch op.Kind {
	case OpWrite:
		_, err := d.WriteAt(op.Data[from:to], op.Off+from)
		return err
	case OpZero, OpDiscard:
		return d.Zero(op.Off+from, to-from)
	}
	return nil
}

// State builds the image that a power cut at the present position leaves with
// the given loss. It is writable (a recovery can run on it) and independent of
// the Player's other states.
func (p *Player) State(l Loss) (blockdev.Device, error) {
	rnd := rand.New(rand.NewPCG(l.Seed, uint64(p.pos)))
	if l.Kind == KeepAll || len(p.pending) == 0 {
		return keepOpen(blockdev.NewOverlay(p.full)), nil
	}
	var pick func(k, n int) bool // keep sector k.. of the n-th pending one
	only := rnd.IntN(len(p.pending))
	odds := [...]float64{0.1, 0.5, 0.9}[rnd.IntN(3)]
	last := len(p.pending) - 1
	switch l.Kind {
	case DropAll:
		return keepOpen(blockdev.NewOverlay(p.durable)), nil
	case DropOne:
		pick = func(_, n int) bool { return n != only }
	case KeepOne:
		pick = func(_, n int) bool { return n == only }
	case TearLast:
		pick = func(_, n int) bool { return n != last || rnd.Float64() < odds }
	case TearSome:
		pick = func(_, _ int) bool { return rnd.Float64() < odds }
	default:
		keep := false
		pick = func(k, _ int) bool {
			if k == 0 {
				keep = rnd.Float64() < odds
			}
			return keep
		}
	}
	return p.build(pick, l.Kind == DropOne || l.Kind == TearLast)
}

// build applies the sectors that pick keeps, in order, to a copy of durable.
// mostlyKept only says which way is cheaper.
func (p *Player) build(pick func(k, n int) bool, mostlyKept bool) (blockdev.Device, error) {
	if mostlyKept {
		return p.takeOut(pick)
	}
	o := blockdev.NewOverlay(p.durable)
	for n, i := range p.pending {
		if err := p.keptRuns(p.log[i], func(k int) bool { return pick(k, n) }, func(from, to int64) error {
			return apply(o, p.log[i], from, to)
		}); err != nil {
			return nil, err
		}
	}
	return keepOpen(o), nil
}

// takeOut starts from everything, puts the durable content back over what one
// operation lost, and repeats the others that touch the place.
func (p *Player) takeOut(pick func(k, n int) bool) (blockdev.Device, error) {
	o := blockdev.NewOverlay(p.full)
	for n, i := range p.pending {
		op := p.log[i]
		err := p.keptRuns(op, func(k int) bool { return !pick(k, n) }, func(from, to int64) error {
			if err := copyRange(o, p.durable, op.Off+from, to-from); err != nil {
				return err
			}
			return p.repeat(o, n, op.Off+from, op.Off+to)
		})
		if err != nil {
			return nil, err
		}
	}
	return keepOpen(o), nil
}

// repeat applies the pending operations but the skipped one to [from, to).
func (p *Player) repeat(o *blockdev.Overlay, skip int, from, to int64) error {
	for n, i := range p.pending {
		op := p.log[i]
		a, b := max(from, op.Off), min(to, op.Off+op.Len)
		if n == skip || a >= b {
			continue
		}
		if err := apply(o, op, a-op.Off, b-op.Off); err != nil {
			return err
		}
	}
	return nil
}

func copyRange(dst, src blockdev.Device, off, n int64) error {
	buf := make([]byte, min(n, 1<<20))
	for n > 0 {
		b := buf[:min(n, int64(len(buf)))]
		if _, err := src.ReadAt(b, off); err != nil {
			return err
		}
		if _, err := dst.WriteAt(b, off); err != nil {
			return err
		}
		off, n = off+int64(len(b)), n-int64(len(b))
	}
	return nil
}

// keptRuns cuts an operation at the device's sector borders, asks for each
// sector in order, and calls do for each run of kept ones. Large zeroes are
// asked in fewer, larger pieces.
func (p *Player) keptRuns(op Op, keep func(k int) bool, do func(from, to int64) error) error {
	unit := int64(SectorSize)
	for op.Data == nil && op.Len/unit > 4096 {
		unit *= 2
	}
	start := int64(-1)
	for k, at := 0, int64(0); at < op.Len; k++ {
		next := (op.Off+at)/unit*unit + unit
		end := min(op.Len, next-op.Off)
		if keep(k) {
			if start < 0 {
				start = at
			}
		} else if start >= 0 {
			if err := do(start, at); err != nil {
				return err
			}
			start = -1
		}
		at = end
	}
	if start >= 0 {
		return do(start, op.Len)
	}
	return nil
}

// stateDevice keeps Close from closing what is below.
type stateDevice struct{ *blockdev.Overlay }

func keepOpen(o *blockdev.Overlay) blockdev.Device { return stateDevice{o} }

// Close does nothing: the memory goes with the last reference.
func (stateDevice) Close() error { return nil }

// CrashImage is the state after a cut at pos, for a test that wants just one.
func (r *Recorder) CrashImage(pos int, l Loss) (blockdev.Device, error) {
	p := r.NewPlayer()
	if err := p.Advance(pos); err != nil {
		return nil, err
	}
	return p.State(l)
}
