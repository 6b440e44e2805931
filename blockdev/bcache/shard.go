package bcache

import (
	"sync"
	"sync/atomic"
)

// A shard owns the buckets whose low bits are its number, and keeps their
// buffers in a ring that the hand of a CLOCK goes round.
type shard struct {
	mu    sync.Mutex
	ring  []*Buffer // +checklocks:mu
	hand  int       // +checklocks:mu
	limit int       // evictable buffers; constant

	// held is how many buffers of the last full round could not be evicted;
	// heldNow counts in the present round.
	held, heldNow int // +checklocks:mu

	pastPins  uint64 // +checklocks:mu  pins of buffers that are gone
	evictions uint64 // +checklocks:mu
	inserts   uint64 // +checklocks:mu
	misses    atomic.Uint64
	_         [32]byte
}

// Work per insertion: the hand always moves a little, so that held is current,
// and further while the shard is too large.
const (
	stepsAlways = 4
	stepsFull   = 64
)

func (c *Cache) shardOf(blk uint64) *shard {
	return &c.shards[c.bucketOf(blk)%shardCount]
}

// insert returns blk pinned: as it is found (fresh false), or a new zeroed
// buffer, whose fill lock is then held if locked is set.
func (c *Cache) insert(blk uint64, locked bool) (b *Buffer, fresh bool) {
	fresh1 := &Buffer{block: blk, data: make([]byte, c.blockSize), cache: c}
	fresh1.refs.Store(1)
	if locked {
		fresh1.fill.Lock()
	}
	h := c.bucketOf(blk)
	s := &c.shards[h%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := c.buckets[h].head.Load(); b != nil; b = b.next.Load() {
		if b.block == blk {
			b.pin() // cannot be dead: what dies under the lock is unlinked under it
			return b, false
		}
	}
	s.evictLocked(c)
	fresh1.next.Store(c.buckets[h].head.Load())
	fresh1.index = len(s.ring)
	s.ring = append(s.ring, fresh1)
	s.inserts++
	c.buckets[h].head.Store(fresh1)
	return fresh1, true
}

// evictLocked makes room for one more buffer, if it can be made cheaply.
func (s *shard) evictLocked(c *Cache) {
	for step := 0; len(s.ring) > 0; step++ {
		full := len(s.ring)-s.held >= s.limit
		if step >= stepsFull || step >= stepsAlways && !full {
			return
		}
		if s.hand >= len(s.ring) {
			s.hand, s.held, s.heldNow = 0, s.heldNow, 0
		}
		b := s.ring[s.hand]
		switch {
		case b.dirty.Load() || pins(b.refs.Load()) != 0:
			s.heldNow++
			s.hand++
		case !full:
			s.hand++
		case b.used.Load() != 0:
			b.used.Store(0)
			s.hand++
		case s.killLocked(c, b):
			s.evictions++
		default:
			s.heldNow++
			s.hand++
		}
	}
}

// killLocked removes b if nobody pins it, it is clean, and no journal has it.
func (s *shard) killLocked(c *Cache, b *Buffer) bool {
	refs := b.refs.Load()
	if pins(refs) != 0 || !b.refs.CompareAndSwap(refs, refs|deadBias) {
		return false
	}
	// From here on nobody can pin b, and only a pin's holder changes these.
	b.mu.Lock()
	held := b.JH != nil
	b.mu.Unlock()
	if held || b.dirty.Load() {
		b.refs.Add(^uint64(deadBias - 1))
		return false
	}
	s.unlinkLocked(c, b)
	s.pastPins += refs >> 32
	return true
}

// unlinkLocked takes b out of its chain and the ring. Readers that stand on b
// still find the rest of the chain behind it.
func (s *shard) unlinkLocked(c *Cache, b *Buffer) {
	link := &c.buckets[c.bucketOf(b.block)].head
	for link.Load() != b {
		link = &link.Load().next
	}
	link.Store(b.next.Load())
	last := len(s.ring) - 1
	s.ring[b.index] = s.ring[last]
	s.ring[b.index].index = b.index
	s.ring[last] = nil
	s.ring = s.ring[:last]
}

// dropIfIdle uses up the caller's pin on b, and removes b if that was the last.
func (c *Cache) dropIfIdle(b *Buffer) {
	s := c.shardOf(b.block)
	s.mu.Lock()
	b.Put()
	s.killLocked(c, b)
	s.mu.Unlock()
}

// dropFailed is dropIfIdle for a buffer whose content could not be read;
// somebody may have filled it in the meantime.
func (c *Cache) dropFailed(b *Buffer) {
	if b.state.Load() == stateUptodate {
		b.Put()
		return
	}
	c.dropIfIdle(b)
}

// collect returns the buffers that want accepts, each with a pin for the
// caller. It must not be called with a buffer locked.
func (c *Cache) collect(want func(*Buffer) bool) []*Buffer {
	var out []*Buffer
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, b := range s.ring {
			if want(b) {
				b.Ref()
				out = append(out, b)
			}
		}
		s.mu.Unlock()
	}
	return out
}

// Stats are counters since New, and sizes at the moment of the call.
type Stats struct {
	Hits      uint64 // finds that needed no device read
	Misses    uint64 // blocks read from the device
	Evictions uint64
	Buffers   int64 // in the cache now
	Bytes     int64 // their content
	Dirty     int64 // buffers waiting for WriteDirty
	Held      int64 // buffers that are pinned (by a journal, too) or dirty
}

// Stats walks the cache; it is for people and scrapers, not for hot paths.
func (c *Cache) Stats() Stats {
	st := Stats{Dirty: max(c.nDirty.Load(), 0)}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Hits += s.pastPins
		st.Evictions += s.evictions
		st.Buffers += int64(len(s.ring))
		for _, b := range s.ring {
			refs := b.refs.Load()
			st.Hits += refs >> 32
			if pins(refs) != 0 || b.dirty.Load() {
				st.Held++
			}
		}
		s.mu.Unlock()
		st.Misses += s.misses.Load()
	}
	st.Bytes = st.Buffers * int64(c.blockSize)
	return st
}
