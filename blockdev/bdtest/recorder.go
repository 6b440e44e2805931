package bdtest

import (
	"fmt"
	"sync"

	"extfused/blockdev"
)

// OpKind is the kind of a device operation. Kinds are bits, so that a Rule
// can name several.
type OpKind uint8

const (
	OpRead OpKind = 1 << iota
	OpWrite
	OpFlush
	OpDiscard
	OpZero
	OpMark // not an operation: a remark of the test, see Recorder.Mark

	OpAny = OpRead | OpWrite | OpFlush | OpDiscard | OpZero
)

func (k OpKind) String() string {
	switch k {
	case OpRead:
		return "read"
	case OpWrite:
		return "write"
	case OpFlush:
		return "flush"
	case OpDiscard:
		return "discard"
	case OpZero:
		return "zero"
	case OpMark:
		return "mark"
	}
	return fmt.Sprintf("ops(%#x)", uint8(k))
}

// Op is one operation of a Recorder's log.
type Op struct {
	Kind OpKind
	Off  int64
	Len  int64
	Data []byte // what a write wrote; never changed

	// Covers is how many operations of the log a flush makes durable: those
	// that had returned when the flush began. Others that are logged before it
	// were still under way then.
	Covers int

	Note any // what was passed to Mark
}

func (o Op) String() string {
	switch o.Kind {
	case OpFlush:
		return fmt.Sprintf("flush of %d operations", o.Covers)
	case OpMark:
		return fmt.Sprintf("mark %v", o.Note)
	}
	return fmt.Sprintf("%s %d bytes at %d", o.Kind, o.Len, o.Off)
}

// Recorder is a device that keeps every write, flush, discard and zero in
// order. Its base is never written: the live content is an overlay of it, so
// base plus a prefix of the log is what a power cut at that moment finds.
//
// The data of a write is kept once in the log; many small ones share an
// allocation.
type Recorder struct {
	base blockdev.Device
	live *blockdev.Overlay

	mu    sync.Mutex
	log   []Op   // +checklocks:mu
	arena []byte // +checklocks:mu  free rest of the present slab
	bytes int64  // +checklocks:mu
}

const slabSize = 1 << 20

// NewRecorder records what is written over base, which must not change as
// long as states are built from the log.
func NewRecorder(base blockdev.Device) *Recorder {
	return &Recorder{base: base, live: blockdev.NewOverlay(base)}
}

func (r *Recorder) Size() int64    { return r.base.Size() }
func (r *Recorder) ReadOnly() bool { return false }

// Close ends the live device; the log and the base stay usable.
func (r *Recorder) Close() error { return nil }

func (r *Recorder) ReadAt(p []byte, off int64) (int, error) { return r.live.ReadAt(p, off) }

// keepLocked copies p into the arena.
func (r *Recorder) keepLocked(p []byte) []byte {
	if len(p) > len(r.arena) {
		if len(p) >= slabSize/4 {
			return append([]byte(nil), p...)
		}
		r.arena = make([]byte, slabSize)
	}
	kept := r.arena[:len(p):len(p)]
	r.arena = r.arena[len(p):]
	copy(kept, p)
	return kept
}

// WriteAt applies and logs under one lock, so that the log has the order in
// which overlapping writes took effect.
func (r *Recorder) WriteAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.live.WriteAt(p, off)
	if err != nil {
		return n, err
	}
	r.bytes += int64(len(p))
	r.log = append(r.log, Op{Kind: OpWrite, Off: off, Len: int64(len(p)), Data: r.keepLocked(p)})
	return n, nil
}

func (r *Recorder) Discard(off, n int64) error { return r.rangeOp(OpDiscard, off, n, r.live.Discard) }
func (r *Recorder) Zero(off, n int64) error    { return r.rangeOp(OpZero, off, n, r.live.Zero) }

func (r *Recorder) rangeOp(kind OpKind, off, n int64, do func(off, n int64) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := do(off, n); err != nil {
		return err
	}
	r.log = append(r.log, Op{Kind: kind, Off: off, Len: n})
	return nil
}

func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, Op{Kind: OpFlush, Covers: len(r.log)})
	return nil
}

// Mark puts a remark into the log, such as "fsync of file 7 returned", and
// returns the length of the log after it: a cut at that length or later must
// keep the promise.
func (r *Recorder) Mark(note any) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, Op{Kind: OpMark, Note: note})
	return len(r.log)
}

// Len is the number of operations logged so far.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.log)
}

// Log returns the operations so far. They must not be changed.
func (r *Recorder) Log() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log[:len(r.log):len(r.log)]
}

// DataBytes is how much write data the log holds.
func (r *Recorder) DataBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}
