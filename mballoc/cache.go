package mballoc

import "sync/atomic"

// buddyCache bounds the memory of loaded buddies. Every buddy can be dropped at any time its group
// is not locked, because bitmap, preallocations and freed extents say all it knows. The ring holds
// the loaded groups; a hand gives each that was used since it last passed a second chance.
type buddyCache struct {
	mu    mutex
	ring  []GroupNumber // guarded by mu
	pool  []*Buddy      // guarded by mu
	hand  int           // guarded by mu
	max   int           // buddies
	count atomic.Int64
	fresh func() *Buddy
}

// minBuddies stay loaded whatever the bound, so that allocations in progress do not throw out each
// other's.
const minBuddies = 4

func (c *buddyCache) init(bound int64, fresh func() *Buddy) {
	b := fresh()
	c.fresh = fresh
	c.pool = []*Buddy{b}
	c.max = max(int(bound/b.bytes()), minBuddies)
}

func (c *buddyCache) take() *Buddy {
	c.mu.m.Lock()
	defer c.mu.m.Unlock()
	if n := len(c.pool); n > 0 {
		b := c.pool[n-1]
		c.pool = c.pool[:n-1]
		return b
	}
	return c.fresh()
}

func (c *buddyCache) hasRoom() bool { return c.count.Load() < int64(c.max) }

func (c *buddyCache) giveBack(b *Buddy) {
	c.mu.m.Lock()
	c.pool = append(c.pool, b)
	c.mu.m.Unlock()
}

// loaded enters a group whose lock the caller holds, and evicts others when there are too many.
// Other groups' locks are only tried, so there is no order between them.
func (c *buddyCache) loaded(a *Allocator, gi *GroupInfo) {
	c.mu.lock(&a.contended, lockCache)
	defer c.mu.unlock()
	c.ring = append(c.ring, gi.num)
	for tries := 2 * len(c.ring); len(c.ring) > c.max && tries > 0; tries-- {
		c.hand %= len(c.ring)
		if g := c.ring[c.hand]; g == gi.num || !c.evictLocked(a, &a.groups[g]) {
			c.hand++
			continue
		}
		last := len(c.ring) - 1
		c.ring[c.hand] = c.ring[last]
		c.ring = c.ring[:last]
	}
	c.count.Store(int64(len(c.ring)))
}

func (c *buddyCache) evictLocked(a *Allocator, gi *GroupInfo) bool {
	if !gi.mu.tryLock() {
		return false
	}
	defer gi.mu.unlock()
	if gi.touched {
		gi.touched = false
		return false
	}
	c.pool = append(c.pool, gi.buddy)
	gi.buddy = nil
	a.stripeFor(uint32(gi.num)).inc(cEvicted)
	return true
}
