package mballoc

import (
	"math/rand/v2"
	"testing"
)

// rebuilt is a buddy with the same clusters in use, built at once.
func rebuilt(b *Buddy) *Buddy {
	w := newBuddy(uint32(len(b.used)*64), len(b.counters))
	w.reset(b.n)
	copy(w.used, b.used)
	w.generate()
	return w
}

func TestBuddyAgainstRebuild(t *testing.T) {
	for _, n := range []uint32{64, 1000, 8192, 32768 - 72} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		b := newBuddy((n+63)/64*64, 14)
		b.reset(n)
		setRange(b.used, 0, n, false)
		b.generate()
		for step := range 3000 {
			start := rng.Uint32N(n)
			size := 1 + rng.Uint32N(1<<rng.IntN(11))
			end := min(start+size, n)
			if allClear(b.used, start, end) {
				b.markUsed(start, end-start)
			} else if allSet(b.used, start, end) {
				b.markFree(start, end-start)
			} else if b.isUsed(start) {
				end = scanBits(b.used, start, end, ^uint64(0))
				b.markFree(start, end-start)
			} else {
				end = min(b.runEnd(start), end)
				b.markUsed(start, end-start)
			}
			if err := b.equal(rebuilt(b)); err != nil {
				t.Fatalf("n %d step %d: %v", n, step, err)
			}
			checkSearches(t, b, rng.Uint32N(n))
		}
	}
}

// checkSearches compares the searches with the plain meaning of the bitmap.
func checkSearches(t *testing.T, b *Buddy, pos uint32) {
	t.Helper()
	if b.isUsed(pos) {
		pos = b.nextFree(pos)
		if pos == b.n {
			return
		}
	}
	start, end := pos, pos
	for start > 0 && !b.isUsed(start-1) {
		start--
	}
	for end < b.n && !b.isUsed(end) {
		end++
	}
	if got := b.runEnd(pos); got != end {
		t.Fatalf("runEnd(%d) = %d, should be %d", pos, got, end)
	}
	if got := b.runStart(pos); got != start {
		t.Fatalf("runStart(%d) = %d, should be %d", pos, got, start)
	}
	for order := range b.counters {
		at, ok := b.findChunk(order)
		if ok != (b.orders>>order != 0) {
			t.Fatalf("findChunk(%d) = %v, orders %x", order, ok, b.orders)
		}
		if ok && (at&(1<<order-1) != 0 || !allClear(b.used, at, at+1<<order)) {
			t.Fatalf("findChunk(%d) = %d: not aligned or not free", order, at)
		}
	}
}

func TestTreeAgainstSortedMap(t *testing.T) {
	type item struct{ node treeNode[item] }
	rng := rand.New(rand.NewPCG(3, 4))
	var tr tree[item]
	have := map[uint32]*item{}
	for range 20000 {
		k := rng.Uint32N(500)
		if it := have[k]; it != nil {
			if !tr.remove(&it.node) || tr.remove(&it.node) {
				t.Fatalf("remove %d", k)
			}
			delete(have, k)
		} else {
			it := &item{}
			have[k] = it
			tr.insert(&it.node, k, it)
		}
		q := rng.Uint32N(520)
		floor, above := tr.around(q)
		var wantFloor, wantAbove *item
		for i := int(q); i >= 0 && wantFloor == nil; i-- {
			wantFloor = have[uint32(i)]
		}
		for i := q + 1; i < 520 && wantAbove == nil; i++ {
			wantAbove = have[i]
		}
		if floor != wantFloor || above != wantAbove || tr.n != len(have) {
			t.Fatalf("around(%d) is wrong with %d members", q, len(have))
		}
	}
	last := -1
	tr.each(func(it *item) bool {
		if int(it.node.key) <= last {
			t.Fatalf("%d after %d", it.node.key, last)
		}
		last = int(it.node.key)
		return true
	})
}

func TestGroupSetAgainstMap(t *testing.T) {
	var c contention
	for _, n := range []GroupNumber{1, 64, 65, 5000, 300000} {
		var s groupSet
		s.init(n)
		rng := rand.New(rand.NewPCG(5, uint64(n)))
		have := map[GroupNumber]bool{}
		for range 2000 {
			g := GroupNumber(rng.Uint32N(uint32(n)))
			if have[g] {
				s.remove(&c, g)
				delete(have, g)
			} else {
				s.add(&c, g)
				have[g] = true
			}
			from := GroupNumber(rng.Uint32N(uint32(n)))
			got, ok := s.next(from)
			want, found := GroupNumber(0), false
			for g := range have {
				if g >= from && (!found || g < want) {
					want, found = g, true
				}
			}
			if ok != found || ok && got != want {
				t.Fatalf("n %d: next(%d) = %d %v, should be %d %v", n, from, got, ok, want, found)
			}
		}
		seen := map[GroupNumber]bool{}
		for cur := s.from(n / 2); ; {
			g, ok := cur.step()
			if !ok {
				break
			}
			if seen[g] || !have[g] {
				t.Fatalf("n %d: cursor gives %d", n, g)
			}
			seen[g] = true
		}
		if len(seen) != len(have) || int(s.count.Load()) != len(have) {
			t.Fatalf("n %d: cursor gave %d of %d", n, len(seen), len(have))
		}
	}
}
