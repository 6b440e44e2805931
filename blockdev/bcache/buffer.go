package bcache

import (
	"sync"
	"sync/atomic"

	"extfused/blockdev"
)

// What is known of a buffer's content.
const (
	stateEmpty      = iota // none: fresh from Get, or a read is under way or failed
	stateUnverified        // from the device, by Prefetch: nobody has checked it
	stateUptodate
)

// The word Buffer.refs counts pins in its low 32 bits and, in its high 32
// bits, every pin ever taken, which gives the hits without a counter that all
// CPUs fight over. The low half of a dead buffer is negative.
const (
	onePin   = 1<<32 | 1
	deadBias = 1 << 31 // added to the low half
)

// Buffer is one block in memory. It is valid while pinned: from the call that
// returned it until Put.
type Buffer struct {
	block uint64
	data  []byte
	cache *Cache
	next  atomic.Pointer[Buffer] // chain of the bucket; written under shard.mu

	refs  atomic.Uint64
	state atomic.Uint32
	used  atomic.Uint32 // CLOCK: looked at since the hand passed
	dirty atomic.Bool

	index int        // place in shard.ring; guarded by shard.mu
	fill  sync.Mutex // held by whoever reads the content from the device

	mu sync.Mutex

	// JH is the journal's head of this buffer, guarded by Lock. While it is
	// not nil the journal keeps a pin.
	JH any // +checklocks:mu
}

func (b *Buffer) Block() uint64 { return b.block }

// Data is the block's content, in the cache's own memory.
func (b *Buffer) Data() []byte { return b.data }

// Lock guards JH, and the journal's copy-out. It is held for moments, and
// never over I/O.
func (b *Buffer) Lock()   { b.mu.Lock() }
func (b *Buffer) Unlock() { b.mu.Unlock() }

func pins(refs uint64) int32 { return int32(uint32(refs)) }

// pin adds a pin unless the buffer is dead.
func (b *Buffer) pin() bool {
	if pins(b.refs.Add(onePin)) > 0 {
		if b.used.Load() == 0 {
			b.used.Store(1)
		}
		return true
	}
	b.refs.Add(^uint64(onePin - 1))
	return false
}

// Ref adds another pin to a pinned buffer.
func (b *Buffer) Ref() { b.refs.Add(1) }

// Put takes one pin back. One too many is a bug of the caller, and panics.
func (b *Buffer) Put() {
	if pins(b.refs.Add(^uint64(0))) < 0 {
		panic("bcache: a buffer was put more often than pinned")
	}
}

// Uptodate tells whether Data is the block's content.
func (b *Buffer) Uptodate() bool { return b.state.Load() == stateUptodate }

// SetUptodate says that Data now is the block's content.
func (b *Buffer) SetUptodate() { b.state.Store(stateUptodate) }

// Dirty tells whether the buffer waits for WriteDirty.
func (b *Buffer) Dirty() bool { return b.dirty.Load() }

// MarkDirty makes the next WriteDirty write the buffer, after a change that
// no journal looks after. The caller has a pin.
func (b *Buffer) MarkDirty() { b.setDirty(true) }

func (b *Buffer) setDirty(on bool) {
	if b.dirty.Load() == on || !b.dirty.CompareAndSwap(!on, on) {
		return
	}
	if on {
		b.cache.nDirty.Add(1)
	} else {
		b.cache.nDirty.Add(-1)
	}
}

// load makes the buffer up to date. The caller holds fill.
func (b *Buffer) load(verify func(data []byte) error) error {
	if b.state.Load() == stateUptodate {
		return nil
	}
	if b.state.Load() == stateEmpty {
		off := int64(b.block) * int64(b.cache.blockSize)
		n, err := b.cache.dev.ReadAt(b.data, off)
		if n < len(b.data) {
			if err == nil {
				err = errShort
			}
			return wrapRead(err, off, len(b.data))
		}
	}
	if verify != nil {
		if err := verify(b.data); err != nil {
			b.state.Store(stateEmpty)
			return err
		}
	}
	b.state.Store(stateUptodate)
	return nil
}

func wrapRead(err error, off int64, n int) error {
	if _, ok := err.(*blockdev.OpError); ok {
		return err
	}
	return &blockdev.OpError{Op: "read", Off: off, Len: int64(n), Err: err}
}

// settle waits for a read under way, and empties a block that was prefetched
// but never verified: its new owner wants it zeroed.
func (b *Buffer) settle() {
	b.fill.Lock()
	if b.state.Load() == stateUnverified {
		clear(b.data)
		b.state.Store(stateEmpty)
	}
	b.fill.Unlock()
}
