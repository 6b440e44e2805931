package mballoc

import "math/bits"

// Buddy is the in-core state of one group: which clusters are in use (on disk, preallocated, or
// freed and not committed), and which maximal aligned chunks of 2^order free clusters that leaves.
// Guarded by the group's lock.
//
// Invariants: a free cluster belongs to exactly one chunk; free[k] (k >= 1) has a bit for each
// chunk of order k; order 0 has no bit of its own: a free cluster in no larger chunk is one of
// order 0; two free buddies of an order below the highest are always one chunk of the next.
type Buddy struct {
	n         uint32     // clusters in the group
	nfree     uint32     // free clusters
	frags     uint32     // free runs
	firstFree uint32     // nothing below it is free
	orders    uint32     // bit k: counters[k] is not 0
	counters  []uint32   // chunks per order
	used      []uint64   // bit per cluster
	free      [][]uint64 // free[k], k >= 1: bit i is the chunk i<<k
}

func newBuddy(clusters uint32, orders int) *Buddy {
	b := &Buddy{counters: make([]uint32, orders), free: make([][]uint64, orders), used: make([]uint64, (clusters+63)/64)}
	for k := 1; k < orders; k++ {
		b.free[k] = make([]uint64, (clusters>>k+63)/64+1)
	}
	return b
}

// bytes is the memory of a buddy.
func (b *Buddy) bytes() int64 {
	n := int64(len(b.used)*8 + len(b.counters)*4)
	for _, w := range b.free {
		n += int64(len(w) * 8)
	}
	return n
}

// reset makes all n clusters of the group used.
func (b *Buddy) reset(n uint32) {
	b.n, b.nfree, b.frags, b.firstFree, b.orders = n, 0, 0, n, 0
	for i := range b.used {
		b.used[i] = ^uint64(0)
	}
	clear(b.counters)
	for _, w := range b.free {
		clear(w)
	}
}

// generate derives chunks and counts from used, after used has been filled by hand.
func (b *Buddy) generate() {
	b.firstFree = 0
	for i := b.nextFree(0); i < b.n; {
		end := b.runEnd(i)
		if b.frags == 0 {
			b.firstFree = i
		}
		b.frags++
		b.nfree += end - i
		b.addRun(i, end)
		i = b.nextFree(end)
	}
	if b.frags == 0 {
		b.firstFree = b.n
	}
}

func (b *Buddy) isUsed(pos uint32) bool { return b.used[pos>>6]>>(pos&63)&1 != 0 }

// nextFree is the first free cluster >= pos, or n.
func (b *Buddy) nextFree(pos uint32) uint32 {
	if pos < b.firstFree {
		pos = b.firstFree
	}
	return scanBits(b.used, pos, b.n, ^uint64(0))
}

// runEnd is the end of the free run that pos is in.
func (b *Buddy) runEnd(pos uint32) uint32 {
	top := len(b.counters) - 1
	if b.counters[top] > 0 { // whole chunks of the highest order need no look at their bits
		for pos < b.n {
			if pos&(1<<top-1) != 0 {
				next := min((pos>>top+1)<<top, b.n)
				if end := scanBits(b.used, pos, next, 0); end < next {
					return end
				}
				pos = next
			} else if testBit(b.free[top], pos>>top) {
				pos += 1 << top
			} else {
				break
			}
		}
	}
	return scanBits(b.used, pos, b.n, 0)
}

// runStart is the start of the free run that ends before pos.
func (b *Buddy) runStart(pos uint32) uint32 {
	for pos > 0 && pos&63 != 0 && !b.isUsed(pos-1) {
		pos--
	}
	if pos&63 != 0 || pos == 0 {
		return pos
	}
	for pos > 0 && b.used[pos>>6-1] == 0 {
		pos -= 64
	}
	if pos > 0 {
		pos -= uint32(bits.LeadingZeros64(b.used[pos>>6-1]))
	}
	return pos
}

// scanBits finds the first bit in [pos, end) that is set in words ^ flip, or end.
func scanBits(words []uint64, pos, end uint32, flip uint64) uint32 {
	if pos >= end {
		return end
	}
	i := pos >> 6
	w := (words[i] ^ flip) &^ (1<<(pos&63) - 1)
	for w == 0 {
		i++
		if i<<6 >= end {
			return end
		}
		w = words[i] ^ flip
	}
	return min(i<<6|uint32(bits.TrailingZeros64(w)), end)
}

func testBit(w []uint64, i uint32) bool { return w[i>>6]>>(i&63)&1 != 0 }

// setRange sets or clears the bits [start, end) of words.
func setRange(words []uint64, start, end uint32, on bool) {
	for start < end {
		mask := ^uint64(0) << (start & 63)
		next := (start | 63) + 1
		if next > end {
			mask &= 1<<(end&63) - 1
			next = end
		}
		if on {
			words[start>>6] |= mask
		} else {
			words[start>>6] &^= mask
		}
		start = next
	}
}

// allClear tells whether no bit of [start, end) is set.
func allClear(words []uint64, start, end uint32) bool { return scanBits(words, start, end, 0) == end }

// allSet tells whether every bit of [start, end) is set.
func allSet(words []uint64, start, end uint32) bool {
	return scanBits(words, start, end, ^uint64(0)) == end
}

// largest is the highest order that has a chunk, or -1.
func (b *Buddy) largest() int { return bits.Len32(b.orders) - 1 }

func (b *Buddy) addChunk(pos uint32, order int) {
	if order > 0 {
		i := pos >> order
		b.free[order][i>>6] |= 1 << (i & 63)
	}
	b.counters[order]++
	b.orders |= 1 << order
}

func (b *Buddy) dropChunk(pos uint32, order int) {
	if order > 0 {
		i := pos >> order
		b.free[order][i>>6] &^= 1 << (i & 63)
	}
	b.counters[order]--
	if b.counters[order] == 0 {
		b.orders &^= 1 << order
	}
}

// orderFor is the order of the largest aligned chunk that starts at pos and does not pass end.
func (b *Buddy) orderFor(pos, end uint32) int {
	order := bits.Len32(end-pos) - 1
	if pos != 0 {
		order = min(order, bits.TrailingZeros32(pos))
	}
	return min(order, len(b.counters)-1)
}

// addRun adds [pos, end) as chunks that have no free buddy outside of it.
func (b *Buddy) addRun(pos, end uint32) {
	for pos < end {
		order := b.orderFor(pos, end)
		b.addChunk(pos, order)
		pos += 1 << order
	}
}

// orderOf is the order of the chunk a free cluster belongs to.
func (b *Buddy) orderOf(pos uint32) int {
	for k := 1; k < len(b.free); k++ {
		if b.orders>>k&1 != 0 && testBit(b.free[k], pos>>k) {
			return k
		}
	}
	return 0
}

// markUsed takes [start, start+n), all of it free.
func (b *Buddy) markUsed(start, n uint32) {
	end := start + n
	left := start > 0 && !b.isUsed(start-1)
	right := end < b.n && !b.isUsed(end)
	switch {
	case left && right:
		b.frags++
	case !left && !right:
		b.frags--
	}
	for pos := start; pos < end; {
		order := b.orderOf(pos)
		base := pos >> order << order
		next := base + 1<<order
		b.dropChunk(base, order)
		b.addRun(base, pos)
		if next > end {
			b.addRun(end, next)
		}
		pos = next
	}
	setRange(b.used, start, end, true)
	b.nfree -= n
	if start == b.firstFree {
		b.firstFree = end
	}
}

// markFree gives [start, start+n) back, all of it used.
func (b *Buddy) markFree(start, n uint32) {
	end := start + n
	left := start > 0 && !b.isUsed(start-1)
	right := end < b.n && !b.isUsed(end)
	switch {
	case left && right:
		b.frags--
	case !left && !right:
		b.frags++
	}
	setRange(b.used, start, end, false)
	for pos := start; pos < end; {
		order := b.orderFor(pos, end)
		b.coalesce(pos, order)
		pos += 1 << order
	}
	b.nfree += n
	b.firstFree = min(b.firstFree, start)
}

// coalesce adds a chunk and joins it with its buddy as long as that is free as a whole.
func (b *Buddy) coalesce(pos uint32, order int) {
	for order < len(b.counters)-1 {
		buddy := pos ^ 1<<order
		if buddy >= b.n || !b.isChunk(buddy, order) {
			break
		}
		b.dropChunk(buddy, order)
		pos &^= 1 << order
		order++
	}
	b.addChunk(pos, order)
}

// isChunk tells whether a free chunk of exactly this order starts at pos. For order 0 it relies on
// its one caller: the cluster's buddy was in use until now, so a free cluster cannot be part of a
// larger chunk.
func (b *Buddy) isChunk(pos uint32, order int) bool {
	if order == 0 {
		return !b.isUsed(pos)
	}
	return testBit(b.free[order], pos>>order)
}

// findChunk is the first chunk of the smallest order >= order.
func (b *Buddy) findChunk(order int) (pos uint32, ok bool) {
	fit := b.orders >> order << order
	if fit == 0 {
		return 0, false
	}
	order = bits.TrailingZeros32(fit)
	if order == 0 {
		return b.firstSingle(), true
	}
	for i, w := range b.free[order][b.firstFree>>order>>6:] {
		if w != 0 {
			i += int(b.firstFree >> order >> 6)
			return uint32(i<<6+bits.TrailingZeros64(w)) << order, true
		}
	}
	return 0, false
}

// firstSingle is the first chunk of order 0; there is one.
func (b *Buddy) firstSingle() uint32 {
	for pos := b.nextFree(0); pos < b.n; {
		end := b.runEnd(pos)
		if pos&1 != 0 || end == pos+1 {
			return pos
		}
		if end&1 != 0 {
			return end - 1
		}
		pos = b.nextFree(end)
	}
	return b.n
}

// onesBelow counts the set bits of the first n.
func onesBelow(words []uint64, n uint32) uint32 {
	var c int
	for _, w := range words[:n>>6] {
		c += bits.OnesCount64(w)
	}
	if n&63 != 0 {
		c += bits.OnesCount64(words[n>>6] & (1<<(n&63) - 1))
	}
	return uint32(c)
}
