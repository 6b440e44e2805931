package bcache

import (
	"cmp"
	"slices"
)

// WriteDirty writes all dirty buffers home in ascending order, adjacent ones
// in one device write. It does not flush. A buffer that is marked dirty again
// while it is written stays dirty. After an error the buffers of the failed
// write are dirty again, the others have been tried, and the first error is
// returned.
func (c *Cache) WriteDirty() error {
	if c.nDirty.Load() == 0 {
		return nil
	}
	bufs := c.collect(func(b *Buffer) bool { return b.dirty.Load() })
	err := c.write(bufs, takeDirty, markAgain)
	for _, b := range bufs {
		b.Put()
	}
	return err
}

// takeDirty clears the mark before the content is copied: a later change that
// marks again is written again.
func takeDirty(b *Buffer) bool {
	was := b.dirty.Load()
	b.setDirty(false)
	return was
}

func markAgain(b *Buffer) { b.setDirty(true) }

// WriteBuffers writes the given pinned buffers home, sorted ascending,
// adjacent ones in one device write. It does not flush, and it leaves dirty
// marks alone. The slice is sorted in place.
func (c *Cache) WriteBuffers(bufs []*Buffer) error {
	return c.write(bufs, nil, nil)
}

// WriteBuffersIf is WriteBuffers for those buffers that ok accepts. ok is
// called with the buffer locked, just before its content is copied out under
// the same lock, so what it decides by JH is true of the content written.
func (c *Cache) WriteBuffersIf(bufs []*Buffer, ok func(*Buffer) bool) error {
	return c.write(bufs, ok, nil)
}

// write sorts, copies out in runs, and writes. failed is told of each buffer
// of a run whose write failed; every run is tried, the first error returned.
func (c *Cache) write(bufs []*Buffer, ok func(*Buffer) bool, failed func(*Buffer)) error {
	if len(bufs) == 0 {
		return nil
	}
	slices.SortFunc(bufs, func(a, b *Buffer) int { return cmp.Compare(a.block, b.block) })
	mem := c.staging.Get().(*[]byte)
	defer c.staging.Put(mem)
	w := runWriter{c: c, mem: *mem, failed: failed}
	for i, b := range bufs {
		if i > 0 && b == bufs[i-1] {
			continue
		}
		w.add(b, ok)
	}
	w.flush()
	return w.err
}

// runWriter gathers adjacent buffers in mem.
type runWriter struct {
	c      *Cache
	mem    []byte
	run    []*Buffer
	failed func(*Buffer)
	err    error
}

func (w *runWriter) add(b *Buffer, ok func(*Buffer) bool) {
	bs := w.c.blockSize
	if n := len(w.run); n > 0 && (w.run[n-1].block+1 != b.block || (n+1)*bs > len(w.mem)) {
		w.flush()
	}
	b.Lock()
	take := ok == nil || ok(b)
	if take {
		copy(w.mem[len(w.run)*bs:], b.data)
	}
	b.Unlock()
	if take {
		w.run = append(w.run, b)
	}
}

func (w *runWriter) flush() {
	if len(w.run) == 0 {
		return
	}
	bs := w.c.blockSize
	_, err := w.c.dev.WriteAt(w.mem[:len(w.run)*bs], int64(w.run[0].block)*int64(bs))
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		if w.failed != nil {
			for _, b := range w.run {
				w.failed(b)
			}
		}
	}
	w.run = w.run[:0]
}
