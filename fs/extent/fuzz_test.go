package extent

import (
	"errors"
	"testing"

	"extfused/fs/ondisk"
)

// fuzzTree makes a tree whose root and nodes are raw bytes: node blk is the
// blk-th block behind the root.
func fuzzTree(t testing.TB, data []byte, check bool) (*Tree, *memStore) {
	const bs = 1024
	s := newStore(t, bs)
	s.check = check
	root := make([]byte, RootSize)
	n := copy(root, data)
	for blk := ondisk.FsBlock(1); n < len(data) && blk < 64; blk++ {
		b := make([]byte, bs)
		n += copy(b, data[n:])
		s.nodes[blk] = b
	}
	return &Tree{Root: root, Store: s, BlockSize: bs, MaxBlock: 1 << 24}, s
}

// Whatever the bytes, every method ends after a number of reads that the image's
// size bounds, with an error or not, and a tree that was valid stays so.
func FuzzTree(f *testing.F) {
	tr, s := newTree(f, 1024)
	for i := range 200 {
		e := Extent{Logical: ondisk.LBlock(i * 3), Len: 2, Physical: ondisk.FsBlock(i*5 + 100), Unwritten: i%3 == 0}
		if err := tr.Insert(e); err != nil {
			f.Fatal(err)
		}
	}
	seed := append([]byte(nil), tr.Root...)
	for i := range len(s.nodes) { // nodes are numbered upwards from 1<<20+1
		ondisk.PutExtentIdx(seed, i, ondisk.ExtentIdx{Block: ondisk.LBlock(key(seed, i)), Leaf: ondisk.FsBlock(i + 1)})
		seed = append(seed, s.nodes[1<<20+1+ondisk.FsBlock(i)]...)
	}
	f.Add(seed, uint32(100), uint32(50), uint8(1))
	f.Add(seed[:RootSize], uint32(0), uint32(1000), uint8(2))
	f.Add([]byte{0x0A, 0xF3, 2, 0, 4, 0, 5, 0}, uint32(7), uint32(3), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, l, n uint32, op uint8) {
		tr, s := fuzzTree(t, data, op&0x80 != 0)
		valid := tr.EachNode(func(ondisk.FsBlock, []byte) error { return nil }) == nil
		fuzzReads(t, tr, ondisk.LBlock(l))
		n = n%5000 + 1
		var err error
		switch op % 4 {
		case 0:
			err = tr.Insert(Extent{Logical: ondisk.LBlock(l), Len: n, Physical: 77})
		case 1:
			err = tr.Convert(ondisk.LBlock(l), n, op&4 != 0)
		default:
			_, err = tr.Remove(ondisk.LBlock(l), ondisk.LBlock(min(uint64(l)+uint64(n), 1<<32-1)), int(op>>3&7),
				func(Extent) error { return nil })
		}
		if s.gets > 20000 {
			t.Fatalf("%d reads", s.gets)
		}
		var bad *ondisk.CorruptError
		if valid && errors.As(err, &bad) {
			t.Fatalf("a valid tree gives %v", err)
		}
		if valid {
			if err := tr.EachNode(func(ondisk.FsBlock, []byte) error { return nil }); err != nil {
				t.Fatalf("a valid tree became %v", err)
			}
		}
	})
}

func fuzzReads(t *testing.T, tr *Tree, l ondisk.LBlock) {
	if e, mapped, err := tr.Lookup(l); err == nil && (e.Len == 0 || mapped && (e.Logical > l || e.End() <= uint64(l))) {
		t.Fatalf("Lookup(%d) = %v, %v", l, e, mapped)
	}
	last := uint64(0)
	_ = tr.Iterate(l, func(e Extent) bool {
		if uint64(e.Logical) < last || e.Len == 0 || e.End() > MaxLBlocks {
			t.Fatalf("Iterate gives %v after %d", e, last)
		}
		last = e.End()
		return true
	})
	_, _, _, _, _ = tr.Neighbours(l)
	_, _ = tr.FindGoal(l)
}

// Each kind of damage is refused, and named.
func TestDamageIsRefused(t *testing.T) {
	build := func() (*Tree, *memStore) {
		tr, s := newTree(t, 1024)
		for i := range 300 { // 4 leaves below the root
			e := Extent{Logical: ondisk.LBlock(i * 3), Len: 2, Physical: ondisk.FsBlock(i*5 + 100)}
			if err := tr.Insert(e); err != nil {
				t.Fatal(err)
			}
		}
		tr.MaxBlock = 1 << 22
		return tr, s
	}
	tr, _ := build()
	first := ondisk.GetExtentIdx(tr.Root, 0).Leaf
	for name, harm := range map[string]func(tr *Tree, leaf []byte){
		"root magic":        func(tr *Tree, _ []byte) { tr.Root[0]++ },
		"root depth 6":      func(tr *Tree, _ []byte) { tr.Root[6] = 6 },
		"root entries":      func(tr *Tree, _ []byte) { tr.Root[2] = 5 },
		"root max":          func(tr *Tree, _ []byte) { tr.Root[4] = 5 },
		"root empty":        func(tr *Tree, _ []byte) { tr.Root[2] = 0 },
		"index to 0":        func(tr *Tree, _ []byte) { clear(tr.Root[offset(0)+4 : offset(1)]) },
		"index outside":     func(tr *Tree, _ []byte) { tr.Root[offset(0)+8] = 1 },
		"index order":       func(tr *Tree, _ []byte) { setKey(tr.Root, 1, 0) },
		"leaf magic":        func(_ *Tree, b []byte) { b[1]++ },
		"leaf depth":        func(_ *Tree, b []byte) { b[6]++ },
		"leaf entries":      func(_ *Tree, b []byte) { b[3]++ },
		"leaf max":          func(_ *Tree, b []byte) { b[4] = 200 },
		"leaf empty":        func(_ *Tree, b []byte) { setEntries(b, 0) },
		"leaf before range": func(tr *Tree, b []byte) { setKey(tr.Root, 0, 1) },
		"leaf behind range": func(_ *Tree, b []byte) { setKey(b, entries(b)-1, 1<<30) },
		"length 0":          func(_ *Tree, b []byte) { clear(b[offset(0)+4 : offset(0)+6]) },
		"overlap":           func(_ *Tree, b []byte) { b[offset(0)+4] = 4 },
		"block 0":           func(_ *Tree, b []byte) { clear(b[offset(0)+6 : offset(1)]) },
		"block outside":     func(_ *Tree, b []byte) { b[offset(0)+6] = 1 },
		"leaf order":        func(_ *Tree, b []byte) { setKey(b, 3, key(b, 2)) },
	} {
		tr, s := build()
		s.check = false
		harm(tr, s.nodes[first])
		var bad *ondisk.CorruptError
		if err := tr.EachNode(func(ondisk.FsBlock, []byte) error { return nil }); !errors.As(err, &bad) {
			t.Errorf("%s: EachNode says %v", name, err)
		}
		if name == "leaf order" || name == "index order" {
			continue // the hot path sees only what it passes
		}
		if _, _, err := tr.Lookup(0); !errors.As(err, &bad) {
			t.Errorf("%s: Lookup says %v", name, err)
		}
		if err := tr.Iterate(0, func(Extent) bool { return true }); !errors.As(err, &bad) {
			t.Errorf("%s: Iterate says %v", name, err)
		}
	}
}
