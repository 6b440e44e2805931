package htree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"extfused/fs/ondisk"
)

var errNoSpace = errors.New("no space in the test's store")

// memStore keeps a directory in memory and holds Dir to the rules of Store:
// no change before write access, no change without Dirty, no Dirty without
// write access, New at the end only.
type memStore struct {
	t      testing.TB
	size   int
	blocks [][]byte
	shadow [][]byte // as of the last Dirty
	access map[ondisk.LBlock]bool
	room   int // New fails when this many blocks exist; 0: no limit
	csum   *ondisk.Csum
	seed   uint32
}

func newMemStore(t testing.TB, size int) *memStore {
	return &memStore{t: t, size: size, access: map[ondisk.LBlock]bool{}}
}

func (m *memStore) Get(l ondisk.LBlock, write bool) ([]byte, error) {
	if int(l) >= len(m.blocks) {
		return nil, fmt.Errorf("read of block %d of %d", l, len(m.blocks))
	}
	if write && !m.access[l] {
		m.unchanged(l)
		m.access[l] = true
	}
	if _, ok := m.access[l]; !ok {
		m.access[l] = false
	}
	return m.blocks[l], nil
}

func (m *memStore) New() (ondisk.LBlock, []byte, error) {
	if m.room != 0 && len(m.blocks) >= m.room {
		return 0, nil, errNoSpace
	}
	l := ondisk.LBlock(len(m.blocks))
	m.blocks = append(m.blocks, make([]byte, m.size))
	m.shadow = append(m.shadow, make([]byte, m.size))
	m.access[l] = true
	return l, m.blocks[l], nil
}

func (m *memStore) Dirty(l ondisk.LBlock) error {
	if !m.access[l] {
		m.t.Fatalf("Dirty(%d) without write access", l)
	}
	if m.csum != nil {
		m.csum.SetDir(m.seed, m.blocks[l])
	}
	copy(m.shadow[l], m.blocks[l])
	return nil
}

func (m *memStore) unchanged(l ondisk.LBlock) {
	if !bytes.Equal(m.blocks[l], m.shadow[l]) {
		m.t.Fatalf("block %d was changed without write access or without Dirty", l)
	}
}

// end checks that all changes since the last end were announced.
func (m *memStore) end() {
	for l := range m.access {
		m.unchanged(l)
	}
	clear(m.access)
}

// checkTree verifies a whole directory by its own walk: every block is used
// once, hashes are sorted and hold for the names below, collision bits say
// the truth, tails are there. It returns the names.
func checkTree(t testing.TB, d *Dir, m *memStore) map[string]ondisk.InodeNumber {
	t.Helper()
	c := &treeChecker{t: t, d: d, m: m, names: map[string]ondisk.InodeNumber{}, used: map[ondisk.LBlock]bool{}}
	if !d.Indexed {
		for l := range m.blocks {
			c.leaf(ondisk.LBlock(l))
		}
		if c.names["."] == 0 || c.names[".."] == 0 {
			t.Fatal(". or .. is missing")
		}
		return c.names
	}
	b := m.blocks[0]
	if b[28] > 2 || b[29] != 8 || b[31] != 0 {
		t.Fatalf("root info % x", b[24:32])
	}
	c.version = b[28]
	c.names["."] = dirent(b, 0).Inode()
	c.names[".."] = dirent(b, 12).Inode()
	c.used[0] = true
	c.last = -1
	c.node(b, 32, int(b[30]), 0)
	if len(c.used) != len(m.blocks) {
		t.Fatalf("%d blocks of %d in the tree", len(c.used), len(m.blocks))
	}
	return c.names
}

type treeChecker struct {
	t       testing.TB
	d       *Dir
	m       *memStore
	version uint8
	names   map[string]ondisk.InodeNumber
	used    map[ondisk.LBlock]bool
	last    int64 // largest hash so far
}

func (c *treeChecker) node(b []byte, base, levels int, bound uint32) {
	limit, count := int(binary.LittleEndian.Uint16(b[base:])), int(binary.LittleEndian.Uint16(b[base+2:]))
	tail := 0
	if c.d.HasCsum {
		tail = 8
	}
	if limit != (len(b)-base-tail)/8 || count < 1 || count > limit {
		c.t.Fatalf("limit %d count %d", limit, count)
	}
	for i := range count {
		e := b[base+8*i:]
		if i > 0 {
			h := binary.LittleEndian.Uint32(e)
			if h|1 < bound|1 {
				c.t.Fatalf("hash %#x after %#x", h, bound)
			}
			bound = h
		}
		l := ondisk.LBlock(binary.LittleEndian.Uint32(e[4:]))
		if int(l) >= len(c.m.blocks) || c.used[l] {
			c.t.Fatalf("block %d twice or out of range", l)
		}
		c.used[l] = true
		if levels == 0 {
			c.boundedLeaf(l, bound)
			continue
		}
		n := c.m.blocks[l]
		if binary.LittleEndian.Uint32(n) != 0 || dirent(n, 0).RecLen(len(n)) != len(n) {
			c.t.Fatalf("node %d has no empty entry in front", l)
		}
		c.node(n, 8, levels-1, bound)
	}
}

// boundedLeaf checks a leaf against its bound and the largest hash before.
func (c *treeChecker) boundedLeaf(l ondisk.LBlock, bound uint32) {
	names := c.leaf(l)
	before := c.last
	for _, name := range names {
		h, _ := c.d.Hash(c.version, []byte(name))
		if h < bound&^1 {
			c.t.Fatalf("leaf %d: %q has hash %#x below its bound %#x", l, name, h, bound)
		}
		if int64(h) < before || int64(h) == before && bound != h|1 {
			c.t.Fatalf("leaf %d (bound %#x): %q has hash %#x, the leaf before goes up to %#x", l, bound, name, h, before)
		}
		c.last = max(c.last, int64(h))
	}
}

func (c *treeChecker) leaf(l ondisk.LBlock) (names []string) {
	b := c.m.blocks[l]
	limit := len(b)
	if c.d.HasCsum {
		limit -= 12
		if ondisk.DirTail(b) == nil {
			c.t.Fatalf("leaf %d has no tail", l)
		}
	}
	for off := 0; off < limit; {
		e, next, err := ondisk.DirEntryAt(b, off)
		if err != nil || next > limit {
			c.t.Fatalf("leaf %d: %v (next %d)", l, err, next)
		}
		if e.Inode() != 0 {
			name := string(e.Name())
			if c.names[name] != 0 {
				c.t.Fatalf("%q is there twice", name)
			}
			c.names[name] = e.Inode()
			names = append(names, name)
		}
		off = next
	}
	return names
}
