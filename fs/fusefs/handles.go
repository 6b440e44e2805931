package fusefs

import (
	"sync"
	"sync/atomic"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// openFile is what a file handle stands for.
type openFile struct {
	*ext4.File
	ino ondisk.InodeNumber
}

// handles maps file handles to open files. Getting one takes no lock; handles
// are never 0.
//
// Invariant: chunks only grow; slot h-1 is non-nil exactly while h is open,
// and is in free exactly while it is nil and below next.
type handles struct {
	chunks [maxChunks]atomic.Pointer[handleChunk]
	open   atomic.Int64

	mu struct {
		sync.Mutex
		// +checklocks:Mutex
		free []uint64
		// +checklocks:Mutex
		next uint64
	}
}

const (
	chunkBits = 10
	maxChunks = 1 << 12 // times 1024: over four million open files
)

type handleChunk [1 << chunkBits]atomic.Pointer[openFile]

// add stores an open file and returns its handle, or 0 when there are too many.
func (t *handles) add(o *openFile) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := t.mu.next
	if n := len(t.mu.free); n > 0 {
		slot = t.mu.free[n-1]
		t.mu.free = t.mu.free[:n-1]
	} else if slot>>chunkBits >= maxChunks {
		return 0
	} else {
		t.mu.next++
	}
	c := t.chunks[slot>>chunkBits].Load()
	if c == nil {
		c = new(handleChunk)
		t.chunks[slot>>chunkBits].Store(c)
	}
	c[slot&(1<<chunkBits-1)].Store(o)
	t.open.Add(1)
	return slot + 1
}

// slot is the place of a handle, nil for a number that was never handed out.
func (t *handles) slot(h uint64) *atomic.Pointer[openFile] {
	h-- // 0 becomes the largest number
	if h>>chunkBits >= maxChunks {
		return nil
	}
	c := t.chunks[h>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return &c[h&(1<<chunkBits-1)]
}

// get returns the open file of a handle, nil if there is none.
func (t *handles) get(h uint64) *openFile {
	if s := t.slot(h); s != nil {
		return s.Load()
	}
	return nil
}

// remove takes a handle out of the table and returns its file.
func (t *handles) remove(h uint64) *openFile {
	s := t.slot(h)
	if s == nil {
		return nil
	}
	o := s.Swap(nil)
	if o != nil {
		t.mu.Lock()
		t.mu.free = append(t.mu.free, h-1)
		t.mu.Unlock()
		t.open.Add(-1)
	}
	return o
}

// removeAll empties the table; for the end of a mount.
func (t *handles) removeAll(fn func(*openFile)) {
	t.mu.Lock()
	next := t.mu.next
	t.mu.Unlock()
	for h := uint64(1); h <= next; h++ {
		if o := t.remove(h); o != nil {
			fn(o)
		}
	}
}
