package mballoc

import (
	"math/bits"
	"sync/atomic"
)

// groupSet is one of the "lists" of groups of S2: the groups of one order. It is kept as bits, one
// a group, below summary levels of one bit a word, so that members come out in the order of their
// numbers (which packs allocations) and the next one from any position is found in a handful of
// loads even with a million groups. Members change under the set's own lock; look-ups take no lock
// and may see a set that has just become empty.
type groupSet struct {
	mu     mutex
	count  atomic.Int64
	levels [][]atomic.Uint64
}

func (s *groupSet) init(groups GroupNumber) {
	for n := int(groups); ; {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]atomic.Uint64, n))
		if n == 1 {
			return
		}
	}
}

func (s *groupSet) add(c *contention, g GroupNumber) {
	s.mu.lock(c, lockList)
	for i, pos := 0, uint32(g); i < len(s.levels); i, pos = i+1, pos>>6 {
		s.levels[i][pos>>6].Or(1 << (pos & 63))
	}
	s.count.Add(1)
	s.mu.unlock()
}

func (s *groupSet) remove(c *contention, g GroupNumber) {
	s.mu.lock(c, lockList)
	for i, pos := 0, uint32(g); i < len(s.levels); i, pos = i+1, pos>>6 {
		bit := uint64(1) << (pos & 63)
		if s.levels[i][pos>>6].And(^bit)&^bit != 0 {
			break // other members keep the summary bit
		}
	}
	s.count.Add(-1)
	s.mu.unlock()
}

func (s *groupSet) has(g GroupNumber) bool {
	return s.levels[0][g>>6].Load()>>(g&63)&1 != 0
}

// next finds the first member >= from.
func (s *groupSet) next(from GroupNumber) (GroupNumber, bool) {
	if s.count.Load() == 0 {
		return 0, false
	}
	pos := uint32(from)
	for i := 0; i < len(s.levels); {
		w := pos >> 6
		if int(w) >= len(s.levels[i]) {
			return 0, false
		}
		word := s.levels[i][w].Load() &^ (1<<(pos&63) - 1)
		if word == 0 { // nothing more in this word (or it has just gone): the next one, by the level above
			pos, i = w+1, i+1
			continue
		}
		pos = w<<6 | uint32(bits.TrailingZeros64(word))
		if i == 0 {
			return GroupNumber(pos), true
		}
		pos, i = pos<<6, i-1
	}
	return 0, false
}

// setCursor walks a set once around, from a starting group to the end and then from 0 up to it.
type setCursor struct {
	set         *groupSet
	start, next GroupNumber
	wrapped     bool
}

func (s *groupSet) from(start GroupNumber) setCursor {
	return setCursor{set: s, start: start, next: start}
}

func (c *setCursor) step() (GroupNumber, bool) {
	if g, ok := c.set.next(c.next); ok && (!c.wrapped || g < c.start) {
		c.next = g + 1
		return g, true
	}
	if c.wrapped || c.start == 0 {
		return 0, false
	}
	c.wrapped, c.next = true, 0
	return c.step()
}
