package extent

import (
	"bytes"
	"fmt"
	"testing"

	"extfused/fs/ondisk"
)

// memStore keeps nodes in memory and watches how they are used: who changes a
// node must have asked for it with write set, and must say Dirty afterwards.
type memStore struct {
	t         testing.TB
	blockSize int
	nodes     map[ondisk.FsBlock][]byte
	next      ondisk.FsBlock
	failNew   int // fail the n-th New from now; 0: never

	// of the present operation
	seen            map[ondisk.FsBlock][]byte // content at the first Get
	writable, dirty map[ondisk.FsBlock]bool
	gets            int
	check           bool // run CheckNode in Get
}

var errNoSpace = fmt.Errorf("no space")

func newStore(t testing.TB, blockSize int) *memStore {
	s := &memStore{t: t, blockSize: blockSize, nodes: map[ondisk.FsBlock][]byte{}, next: 1 << 20, check: true}
	s.begin()
	return s
}

func (s *memStore) begin() {
	s.seen = map[ondisk.FsBlock][]byte{}
	s.writable, s.dirty = map[ondisk.FsBlock]bool{}, map[ondisk.FsBlock]bool{}
	s.gets = 0
}

// end checks the discipline, and returns the number of nodes dirtied.
func (s *memStore) end() int {
	s.t.Helper()
	for blk, old := range s.seen {
		now, ok := s.nodes[blk]
		if ok && !bytes.Equal(old, now) && !(s.writable[blk] && s.dirty[blk]) {
			s.t.Fatalf("node %d was changed: write access %v, said dirty %v", blk, s.writable[blk], s.dirty[blk])
		}
	}
	n := len(s.dirty)
	s.begin()
	return n
}

func (s *memStore) Get(blk ondisk.FsBlock, write bool) ([]byte, error) {
	b, ok := s.nodes[blk]
	if !ok {
		return nil, ondisk.Corrupt("no node %d", blk)
	}
	if s.check {
		if err := CheckNode(b, 0); err != nil {
			return nil, err
		}
	}
	if s.seen[blk] == nil {
		s.seen[blk] = bytes.Clone(b)
	}
	s.gets++
	s.writable[blk] = s.writable[blk] || write
	return b, nil
}

func (s *memStore) New() (ondisk.FsBlock, []byte, error) {
	if s.failNew > 0 {
		if s.failNew--; s.failNew == 0 {
			return 0, nil, errNoSpace
		}
	}
	s.next++
	b := make([]byte, s.blockSize)
	s.nodes[s.next] = b
	s.seen[s.next] = bytes.Clone(b)
	s.writable[s.next] = true
	return s.next, b, nil
}

func (s *memStore) Dirty(blk ondisk.FsBlock) error {
	if !s.writable[blk] {
		s.t.Fatalf("node %d is dirtied without write access", blk)
	}
	s.dirty[blk] = true
	return nil
}

func (s *memStore) Free(blk ondisk.FsBlock) error {
	if _, ok := s.nodes[blk]; !ok {
		s.t.Fatalf("node %d is freed twice", blk)
	}
	delete(s.nodes, blk)
	delete(s.dirty, blk)
	return nil
}

func newTree(t testing.TB, blockSize int) (*Tree, *memStore) {
	s := newStore(t, blockSize)
	root := make([]byte, RootSize)
	Init(root)
	return &Tree{Root: root, Store: s, BlockSize: blockSize}, s
}

// verify walks the tree, checks each node and that keys match exactly, that
// there is no node that the tree does not reach, and returns the extents.
func verify(t testing.TB, tr *Tree) []Extent {
	t.Helper()
	s := tr.Store.(*memStore)
	reached := 0
	firsts := map[ondisk.FsBlock]uint32{}
	err := tr.EachNode(func(blk ondisk.FsBlock, b []byte) error {
		if blk != 0 {
			reached++
			if key(b, 0) != firsts[blk] {
				t.Fatalf("node %d starts at %d, its parent says %d", blk, key(b, 0), firsts[blk])
			}
			if room(b) != ondisk.ExtentRoom(s.blockSize) {
				t.Fatalf("node %d has eh_max %d", blk, room(b))
			}
		}
		for i := range entries(b) {
			if depthOf(b) > 0 {
				x := ondisk.GetExtentIdx(b, i)
				firsts[x.Leaf] = uint32(x.Block)
			}
		}
		for _, z := range b[offset(entries(b)):offset(room(b))] {
			if z != 0 {
				t.Fatalf("node %d has something behind its last entry", blk)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if reached != len(s.nodes) {
		t.Fatalf("the tree reaches %d nodes, %d are allocated", reached, len(s.nodes))
	}
	var out []Extent
	if err := tr.Iterate(0, func(e Extent) bool { out = append(out, e); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}
