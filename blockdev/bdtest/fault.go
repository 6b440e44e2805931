package bdtest

import (
	"sync"
	"syscall"

	"extfused/blockdev"
)

// Rule makes some operations of a Fault device fail.
type Rule struct {
	Ops OpKind // which kinds; 0 means OpAny

	// Off and Len limit the rule to operations that touch [Off, Off+Len).
	// Len 0 means everywhere; flushes touch everything.
	Off, Len int64

	Skip  int // matching operations that still succeed
	Count int // how many fail after those; 0 means all of them

	// Err is the cause reported; nil means syscall.EIO.
	Err error

	// Tear lets the first Tear bytes of a failing write reach the device.
	Tear int

	// Silent reports success all the same: a lying disk.
	Silent bool
}

func (r *Rule) matches(kind OpKind, off, n int64) bool {
	ops := r.Ops
	if ops == 0 {
		ops = OpAny
	}
	if ops&kind == 0 {
		return false
	}
	return r.Len == 0 || kind == OpFlush || off < r.Off+r.Len && r.Off < off+n
}

// Fault is a device whose operations fail by rules. The first rule that
// matches and is due decides.
type Fault struct {
	dev blockdev.Device

	mu    sync.Mutex
	rules []*Rule        // +checklocks:mu
	seen  map[OpKind]int // +checklocks:mu  operations so far
	hits  int            // +checklocks:mu
}

// NewFault wraps dev; without rules nothing fails.
func NewFault(dev blockdev.Device, rules ...Rule) *Fault {
	f := &Fault{dev: dev, seen: make(map[OpKind]int)}
	f.Add(rules...)
	return f
}

// Add puts rules behind those there are.
func (f *Fault) Add(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rules {
		f.rules = append(f.rules, &r)
	}
}

// Heal removes all rules.
func (f *Fault) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Hits is how many operations failed (silently or not).
func (f *Fault) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Seen is how many operations of a kind were asked for.
func (f *Fault) Seen(kind OpKind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[kind]
}

// strike returns the rule that fails this operation, or nil.
func (f *Fault) strike(kind OpKind, off, n int64) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[kind]++
	for _, r := range f.rules {
		if !r.matches(kind, off, n) {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		if r.Count < 0 {
			continue
		}
		if r.Count > 0 {
			if r.Count--; r.Count == 0 {
				r.Count = -1 // used up
			}
		}
		f.hits++
		hit := *r
		return &hit
	}
	return nil
}

func (r *Rule) error(kind OpKind, off, n int64) error {
	if r.Silent {
		return nil
	}
	err := r.Err
	if err == nil {
		err = syscall.EIO
	}
	return &blockdev.OpError{Op: kind.String(), Off: off, Len: n, Err: err}
}

func (f *Fault) Size() int64    { return f.dev.Size() }
func (f *Fault) ReadOnly() bool { return f.dev.ReadOnly() }
func (f *Fault) Close() error   { return f.dev.Close() }

func (f *Fault) ReadAt(p []byte, off int64) (int, error) {
	if r := f.strike(OpRead, off, int64(len(p))); r != nil {
		if err := r.error(OpRead, off, int64(len(p))); err != nil {
			return 0, err
		}
		clear(p)
		return len(p), nil
	}
	return f.dev.ReadAt(p, off)
}

func (f *Fault) WriteAt(p []byte, off int64) (int, error) {
	r := f.strike(OpWrite, off, int64(len(p)))
	if r == nil {
		return f.dev.WriteAt(p, off)
	}
	n := 0
	if r.Tear > 0 {
		var err error
		if n, err = f.dev.WriteAt(p[:min(r.Tear, len(p))], off); err != nil {
			return n, err
		}
	}
	if err := r.error(OpWrite, off, int64(len(p))); err != nil {
		return n, err
	}
	return len(p), nil
}

func (f *Fault) Flush() error {
	if r := f.strike(OpFlush, 0, f.dev.Size()); r != nil {
		return r.error(OpFlush, 0, f.dev.Size())
	}
	return f.dev.Flush()
}

func (f *Fault) Discard(off, n int64) error {
	if r := f.strike(OpDiscard, off, n); r != nil {
		return r.error(OpDiscard, off, n)
	}
	return f.dev.Discard(off, n)
}

func (f *Fault) Zero(off, n int64) error {
	if r := f.strike(OpZero, off, n); r != nil {
		return r.error(OpZero, off, n)
	}
	return f.dev.Zero(off, n)
}

// Volatile is a device with a write cache in memory: what is written reaches
// dev only by Flush, and Cut loses the rest, as pulling the plug does.
type Volatile struct {
	dev blockdev.Device

	mu    sync.Mutex
	rec   *Recorder // +checklocks:mu  unflushed operations over dev
	isCut bool      // +checklocks:mu
}

// NewVolatile puts a cache before dev.
func NewVolatile(dev blockdev.Device) *Volatile {
	return &Volatile{dev: dev, rec: NewRecorder(dev)}
}

// Cut loses what no flush covered, as l says. Every later operation but Close
// fails with EIO; dev holds what is left.
func (v *Volatile) Cut(l Loss) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isCut = true
	state, err := v.rec.CrashImage(v.rec.Len(), l)
	if err != nil {
		return err
	}
	return v.writeBackLocked(state)
}

// writeBackLocked copies every range in the log from state to dev.
func (v *Volatile) writeBackLocked(state blockdev.Device) error {
	var ranges []Op
	for _, op := range v.rec.Log() {
		if op.Len > 0 {
			ranges = append(ranges, op)
		}
	}
	// All content is taken before any is written: state reads through to dev.
	contents := make([][]byte, len(ranges))
	for i, op := range ranges {
		contents[i] = make([]byte, op.Len)
		if _, err := state.ReadAt(contents[i], op.Off); err != nil {
			return err
		}
	}
	for i, op := range ranges {
		if _, err := v.dev.WriteAt(contents[i], op.Off); err != nil {
			return err
		}
	}
	return nil
}

// do runs one operation on the cache.
func (v *Volatile) do(kind OpKind, off, n int64, run func(r *Recorder) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isCut {
		return &blockdev.OpError{Op: kind.String(), Off: off, Len: n, Err: syscall.EIO}
	}
	return run(v.rec)
}

func (v *Volatile) Size() int64    { return v.dev.Size() }
func (v *Volatile) ReadOnly() bool { return v.dev.ReadOnly() }
func (v *Volatile) Close() error   { return v.dev.Close() }

func (v *Volatile) ReadAt(p []byte, off int64) (n int, err error) {
	err = v.do(OpRead, off, int64(len(p)), func(r *Recorder) (err error) {
		n, err = r.ReadAt(p, off)
		return err
	})
	return n, err
}

func (v *Volatile) WriteAt(p []byte, off int64) (n int, err error) {
	err = v.do(OpWrite, off, int64(len(p)), func(r *Recorder) (err error) {
		n, err = r.WriteAt(p, off)
		return err
	})
	return n, err
}

func (v *Volatile) Discard(off, n int64) error {
	return v.do(OpDiscard, off, n, func(r *Recorder) error { return r.Discard(off, n) })
}

func (v *Volatile) Zero(off, n int64) error {
	return v.do(OpZero, off, n, func(r *Recorder) error { return r.Zero(off, n) })
}

// Flush writes the cache back, in order, and flushes dev.
func (v *Volatile) Flush() error {
	return v.do(OpFlush, 0, v.dev.Size(), func(r *Recorder) error {
		for _, op := range r.Log() {
			if err := apply(v.dev, op, 0, op.Len); err != nil {
				return err
			}
		}
		v.rec = NewRecorder(v.dev)
		return v.dev.Flush()
	})
}
