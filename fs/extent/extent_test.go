package extent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"extfused/fs/ondisk"
)

func TestEmptyTree(t *testing.T) {
	tr, _ := newTree(t, 4096)
	e, mapped, err := tr.Lookup(7)
	if err != nil || mapped || e.Logical != 7 || e.Len != MaxLBlocks-7 {
		t.Fatalf("%v %v %v", e, mapped, err)
	}
	if done, err := tr.Remove(0, 1<<32-1, 0, nil); !done || err != nil || tr.RootDirty {
		t.Fatal(done, err, tr.RootDirty)
	}
	if err := tr.Convert(5, 1, false); err != ErrNotMapped {
		t.Fatal(err)
	}
	if _, ok := tr.FindGoal(3); ok {
		t.Fatal("a goal from nothing")
	}
}

// A file that is appended to dirties one node for each append, fills its
// nodes, and merges what is contiguous.
func TestAppending(t *testing.T) {
	tr, s := newTree(t, 1024)
	const n = 84 * 84 * 2
	grew := 0
	for i := range uint32(n) {
		tr.RootDirty = false
		if err := tr.Insert(Extent{Logical: ondisk.LBlock(i * 2), Len: 1, Physical: ondisk.FsBlock(1000 + i*2)}); err != nil {
			t.Fatal(err)
		}
		d := s.end()
		if tr.RootDirty {
			d++
		}
		if d != 1 {
			grew++
		}
		if limit := InsertCredits(tr.Depth(), 1, 1024) + 1; d > limit {
			t.Fatalf("append %d dirtied %d nodes, credits say %d", i, d, limit)
		}
	}
	if grew > n/80 {
		t.Fatalf("%d of %d appends dirtied more than one node", grew, n)
	}
	if got := verify(t, tr); len(got) != n {
		t.Fatalf("%d extents", len(got))
	}
	if leaves := len(s.nodes); leaves > n/83+8 {
		t.Fatalf("%d nodes for %d extents: they are not filled", leaves, n)
	}
	one, s1 := newTree(t, 4096)
	for i := range uint32(100000) {
		if err := one.Insert(Extent{Logical: ondisk.LBlock(i), Len: 1, Physical: ondisk.FsBlock(5000 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := verify(t, one); len(got) != 4 || got[0].Len != 32768 || len(s1.nodes) != 0 {
		t.Fatalf("contiguous blocks became %v", got)
	}
}

func TestLengthLimits(t *testing.T) {
	tr, s := newTree(t, 4096)
	must := func(err error, want string) {
		t.Helper()
		s.end()
		if got := fmt.Sprint(verify(t, tr)); err != nil || got != want {
			t.Fatalf("%v: %s, want %s", err, got, want)
		}
	}
	must(tr.Insert(Extent{Logical: 0, Len: 40000, Physical: 100}),
		"[[0+32768 at 100] [32768+7232 at 32868]]")
	must(tr.Convert(0, 32768, true),
		"[[0+32767 at 100 unwritten] [32767+1 at 32867 unwritten] [32768+7232 at 32868]]")
	must(tr.Convert(0, 40000, true),
		"[[0+32767 at 100 unwritten] [32767+7233 at 32867 unwritten]]")
	must(tr.Insert(Extent{Logical: MaxLBlocks - 1, Len: 1, Physical: 9}),
		"[[0+32767 at 100 unwritten] [32767+7233 at 32867 unwritten] [4294967294+1 at 9]]")
	must(tr.Convert(0, 40000, false),
		"[[0+32767 at 100] [32767+7233 at 32867] [4294967294+1 at 9]]")
	if err := tr.Insert(Extent{Logical: MaxLBlocks - 1, Len: 2, Physical: 9}); err != ErrRange {
		t.Fatal(err)
	}
}

// model is what a tree must agree with.
type model map[ondisk.LBlock]Extent // of one block each

func (m model) mappedIn(l ondisk.LBlock, n uint32) (some, all bool) {
	all = true
	for i := range n {
		_, ok := m[l+ondisk.LBlock(i)]
		some, all = some || ok, all && ok
	}
	return
}

func (m model) put(e Extent) {
	for i := range e.Len {
		l := e.Logical + ondisk.LBlock(i)
		m[l] = Extent{Logical: l, Len: 1, Physical: e.At(l), Unwritten: e.Unwritten}
	}
}

// compare checks Iterate's result, and Lookup and Neighbours at some places.
func (m model) compare(t *testing.T, tr *Tree, space uint32, rnd *rand.Rand) {
	t.Helper()
	n := 0
	for _, e := range verify(t, tr) {
		n += int(e.Len)
		for i := range e.Len {
			l := e.Logical + ondisk.LBlock(i)
			if w, ok := m[l]; !ok || w.Physical != e.At(l) || w.Unwritten != e.Unwritten {
				t.Fatalf("block %d is %v in the tree, %v in the model", l, e, w)
			}
		}
	}
	if n != len(m) {
		t.Fatalf("%d blocks in the tree, %d in the model", n, len(m))
	}
	for range 20 {
		l := ondisk.LBlock(rnd.Uint32N(space))
		e, mapped, err := tr.Lookup(l)
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := m[l]; ok != mapped || ok && (e.At(l) != w.Physical || e.Unwritten != w.Unwritten) {
			t.Fatalf("Lookup(%d): %v %v, model %v", l, e, mapped, w)
		}
		if !mapped {
			m.checkHole(t, l, e, space)
		}
		m.checkNeighbours(t, tr, l, space)
	}
}

func (m model) checkHole(t *testing.T, l ondisk.LBlock, e Extent, space uint32) {
	t.Helper()
	end := uint64(l)
	for ; end < uint64(space); end++ {
		if _, ok := m[ondisk.LBlock(end)]; ok {
			break
		}
	}
	if end == uint64(space) {
		end = MaxLBlocks
	}
	if e.Logical != l || e.End() != end {
		t.Fatalf("hole at %d is %v, should end at %d", l, e, end)
	}
}

func (m model) checkNeighbours(t *testing.T, tr *Tree, l ondisk.LBlock, space uint32) {
	t.Helper()
	left, right, hasLeft, hasRight, err := tr.Neighbours(l)
	if err != nil {
		t.Fatal(err)
	}
	wl := int64(l)
	for ; wl >= 0; wl-- {
		if _, ok := m[ondisk.LBlock(wl)]; ok {
			break
		}
	}
	if hasLeft != (wl >= 0) || hasLeft && (int64(left.Logical) > wl || int64(left.End())-1 < wl) {
		t.Fatalf("left of %d: %v %v, model %d", l, left, hasLeft, wl)
	}
	from := l + 1
	if hasLeft && left.End() > uint64(from) {
		from = ondisk.LBlock(left.End())
	}
	for ; uint32(from) < space; from++ {
		if _, ok := m[from]; ok {
			break
		}
	}
	if hasRight != (uint32(from) < space) || hasRight && right.Logical != from {
		t.Fatalf("right of %d: %v %v, model %d", l, right, hasRight, from)
	}
}

// event does one random thing to tree and model.
func (m model) event(t *testing.T, tr *Tree, rnd *rand.Rand, space uint32) string {
	s := tr.Store.(*memStore)
	l := ondisk.LBlock(rnd.Uint32N(space))
	n := min(1+rnd.Uint32N([]uint32{2, 8, 400}[rnd.IntN(3)]), space-uint32(l))
	some, all := m.mappedIn(l, n)
	depth, maxOps := tr.Depth(), 0
	var what string
	var credits int
	switch op := rnd.IntN(10); {
	case op < 5:
		e := Extent{Logical: l, Len: n, Physical: ondisk.FsBlock(l) + 1000, Unwritten: rnd.IntN(2) == 0}
		if rnd.IntN(3) == 0 {
			e.Physical += ondisk.FsBlock(1+rnd.IntN(50)) << 13
		}
		what = fmt.Sprintf("insert %v", e)
		if err := tr.Insert(e); some != errors.Is(err, ErrOverlap) || !some && err != nil {
			t.Fatalf("%s: %v (mapped: %v)", what, err, some)
		}
		if !some {
			m.put(e)
		}
		credits = InsertCredits(depth, 1, s.blockSize)
	case op < 7:
		u := rnd.IntN(2) == 0
		what = fmt.Sprintf("convert %d+%d unwritten=%v", l, n, u)
		err := tr.Convert(l, n, u)
		if all != (err == nil) || !all && err != ErrNotMapped {
			t.Fatalf("%s: %v (all mapped: %v)", what, err, all)
		}
		for i := range n { // up to the first hole
			e, ok := m[l+ondisk.LBlock(i)]
			if !ok {
				break
			}
			e.Unwritten = u
			m[e.Logical] = e
		}
		credits = InsertCredits(depth, int(n), s.blockSize)
	default:
		maxOps = rnd.IntN(6)
		what = fmt.Sprintf("remove %d+%d by %d", l, n, maxOps)
		m.remove(t, tr, l, l+ondisk.LBlock(n)-1, maxOps)
		return what
	}
	if d := s.end(); d > credits {
		t.Fatalf("%s dirtied %d nodes, %d credits at depth %d", what, d, credits, depth)
	}
	return what
}

func (m model) remove(t *testing.T, tr *Tree, from, to ondisk.LBlock, maxOps int) {
	t.Helper()
	s := tr.Store.(*memStore)
	last := uint64(to) + 1
	for {
		depth, released := tr.Depth(), 0
		done, err := tr.Remove(from, to, maxOps, func(e Extent) error {
			released++
			if e.End() > last || e.Logical < from {
				t.Fatalf("released %v after %d, removing %d to %d", e, last, from, to)
			}
			last = uint64(e.Logical)
			for i := range e.Len {
				l := e.Logical + ondisk.LBlock(i)
				if w, ok := m[l]; !ok || w.Physical != e.At(l) || w.Unwritten != e.Unwritten {
					t.Fatalf("released %v, block %d is %v", e, l, w)
				}
				delete(m, l)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		d := s.end()
		if maxOps > 0 && (released > maxOps || d > RemoveCredits(depth, maxOps, s.blockSize)) {
			t.Fatalf("%d released and %d nodes dirtied by %d operations at depth %d", released, d, maxOps, depth)
		}
		if done {
			return
		}
		if released == 0 {
			t.Fatal("a round of Remove did nothing")
		}
	}
}

func TestModel(t *testing.T) {
	for _, c := range []struct {
		seed   uint64
		space  uint32
		events int
	}{{1, 60, 3000}, {2, 1000, 3000}, {3, 20000, 3000}, {4, 3000, 3000}} {
		t.Run(fmt.Sprintf("seed %d", c.seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(c.seed, 9))
			tr, _ := newTree(t, 1024)
			m := model{}
			for i := range c.events {
				what := m.event(t, tr, rnd, c.space)
				if t.Failed() {
					t.Fatalf("at event %d", i)
				}
				_ = what
				if c.space < 5000 || i%50 == 0 {
					m.compare(t, tr, c.space, rnd)
				}
			}
			m.compare(t, tr, c.space, rnd)
			m.remove(t, tr, 0, 1<<32-1, 3)
			if s := tr.Store.(*memStore); len(m) != 0 || len(s.nodes) != 0 || tr.Depth() != 0 {
				t.Fatalf("after removing all: %d blocks, %d nodes, depth %d", len(m), len(s.nodes), tr.Depth())
			}
		})
	}
}

// Single blocks in random order, then removed in random order: deep trees,
// every split and every way to lose a node.
func TestDeepRandomOrder(t *testing.T) {
	const n = 30000
	rnd := rand.New(rand.NewPCG(77, 1))
	tr, s := newTree(t, 1024)
	m := model{}
	deepest := 0
	for k, i := range rnd.Perm(n) {
		e := Extent{Logical: ondisk.LBlock(i * 2), Len: 1, Physical: ondisk.FsBlock(i*3 + 1)}
		if err := tr.Insert(e); err != nil {
			t.Fatal(err)
		}
		m.put(e)
		if d := s.end(); d > InsertCredits(tr.Depth(), 1, 1024) {
			t.Fatalf("%d nodes dirtied", d)
		}
		if deepest = max(deepest, tr.Depth()); k%5000 == 0 {
			m.compare(t, tr, 2*n, rnd)
		}
	}
	if deepest < 2 {
		t.Fatalf("depth %d only", deepest)
	}
	m.compare(t, tr, 2*n, rnd)
	for k, i := range rnd.Perm(n) {
		m.remove(t, tr, ondisk.LBlock(i*2), ondisk.LBlock(i*2), 1)
		if k%5000 == 0 {
			m.compare(t, tr, 2*n, rnd)
		}
	}
	if len(s.nodes) != 0 || tr.Depth() != 0 || len(verify(t, tr)) != 0 {
		t.Fatalf("%d nodes left at depth %d", len(s.nodes), tr.Depth())
	}
}

// Punching out whole leaves, the first of their parents among them, keeps the
// keys above exact.
func TestLosingFirstLeaves(t *testing.T) {
	for from := range 20 {
		tr, s := newTree(t, 1024)
		const n = 20000
		for i := range n {
			if err := tr.Insert(Extent{Logical: ondisk.LBlock(i * 2), Len: 1, Physical: ondisk.FsBlock(i*3 + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if tr.Depth() < 2 {
			t.Fatalf("depth %d", tr.Depth())
		}
		m := model{}
		for _, e := range verify(t, tr) {
			m.put(e)
		}
		s.end()
		// 83 entries a leaf, 83 leaves a node: around the second node's start
		at := ondisk.LBlock(2 * 83 * (73 + from))
		m.remove(t, tr, at, at+2*83*3, 2)
		m.compare(t, tr, 2*n, rand.New(rand.NewPCG(1, 1)))
	}
}

// A node that cannot be allocated leaves a sound tree that still maps all.
func TestNoSpaceLeavesNoDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	tr, s := newTree(t, 1024)
	m := model{}
	failed := 0
	for i := range 20000 {
		s.failNew = rnd.IntN(3)
		l := ondisk.LBlock(rnd.Uint32N(20000) * 2)
		e := Extent{Logical: l, Len: 1, Physical: ondisk.FsBlock(3*uint64(l) + 1)}
		_, there := m[l]
		err := tr.Insert(e)
		switch {
		case there && err == ErrOverlap:
		case err == errNoSpace:
			failed++
			m.compare(t, tr, 40000, rnd)
		case err == nil && !there:
			m.put(e)
		default:
			t.Fatalf("event %d: %v", i, err)
		}
		s.end()
	}
	s.failNew = 0
	if failed < 20 {
		t.Fatalf("only %d failures", failed)
	}
	m.compare(t, tr, 40000, rnd)
}

func TestReleaseErrorStops(t *testing.T) {
	tr, s := newTree(t, 1024)
	for i := range 10 {
		if err := tr.Insert(Extent{Logical: ondisk.LBlock(i * 10), Len: 5, Physical: ondisk.FsBlock(100 + i*10)}); err != nil {
			t.Fatal(err)
		}
	}
	bad := errors.New("bad")
	n := 0
	_, err := tr.Remove(0, 1000, 0, func(Extent) error {
		if n++; n == 4 {
			return bad
		}
		return nil
	})
	s.end()
	if got := verify(t, tr); err != bad || len(got) != 7 || got[6].Logical != 60 {
		t.Fatalf("%v, left %v", err, got)
	}
}

func TestFindGoal(t *testing.T) {
	tr, _ := newTree(t, 4096)
	if err := tr.Insert(Extent{Logical: 100, Len: 10, Physical: 5000}); err != nil {
		t.Fatal(err)
	}
	for l, want := range map[ondisk.LBlock]ondisk.FsBlock{110: 5010, 120: 5020, 105: 5005, 90: 4990} {
		if g, ok := tr.FindGoal(l); !ok || g != want {
			t.Errorf("goal for %d: %d %v, want %d", l, g, ok, want)
		}
	}
	if err := tr.Insert(Extent{Logical: 1 << 20, Len: 1, Physical: 10}); err != nil {
		t.Fatal(err)
	}
	if g, _ := tr.FindGoal(1<<20 - 1000000); g != 5000+ondisk.FsBlock(1<<20-1000000-100) {
		t.Errorf("goal %d", g)
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	tr, s := newTree(t, 1024)
	for i := range 30000 {
		if err := tr.Insert(Extent{Logical: ondisk.LBlock(i * 2), Len: 1, Physical: ondisk.FsBlock(i*2 + 10)}); err != nil {
			t.Fatal(err)
		}
	}
	tr.Store = plainStore{s}
	if a := testing.AllocsPerRun(100, func() {
		if e, ok, err := tr.Lookup(30000); !ok || err != nil || e.Physical != 30010 {
			t.Fatal(e, ok, err)
		}
		if _, ok, err := tr.Lookup(30001); ok || err != nil {
			t.Fatal(ok, err)
		}
	}); a != 0 {
		t.Fatalf("%v allocations", a)
	}
}

// plainStore looks at nothing, as a store with a warm cache does.
type plainStore struct{ *memStore }

func (p plainStore) Get(blk ondisk.FsBlock, write bool) ([]byte, error) { return p.nodes[blk], nil }
func (p plainStore) Dirty(ondisk.FsBlock) error                         { return nil }

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{3, 300, 100000} {
		tr, s := newTree(b, 4096)
		for i := range n {
			if err := tr.Insert(Extent{Logical: ondisk.LBlock(i * 2), Len: 1, Physical: ondisk.FsBlock(i*2 + 10)}); err != nil {
				b.Fatal(err)
			}
		}
		tr.Store = plainStore{s}
		b.Run(fmt.Sprintf("%d extents", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, _, err := tr.Lookup(ondisk.LBlock(i * 7919 % (2 * n))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	tr, s := newTree(b, 4096)
	tr.Store = plainStore{s}
	for i := 0; b.Loop(); i++ {
		if i%100000 == 0 {
			Init(tr.Root)
		}
		l := i % 100000
		if err := tr.Insert(Extent{Logical: ondisk.LBlock(l * 2), Len: 1, Physical: ondisk.FsBlock(l*2 + 10)}); err != nil {
			b.Fatal(err)
		}
	}
}
