package htree

import (
	"encoding/binary"
	"errors"
	"testing"

	"extfused/fs/ondisk"
)

// damage is a change to the blocks of a good directory, and which operations
// must notice it.
type damage struct {
	what   string
	harm   func(blocks [][]byte)
	lookup bool // Lookup of a name in the damaged place
	list   bool // ReadDir and Empty
}

func set16(block, off int, v uint16) func([][]byte) {
	return func(b [][]byte) { binary.LittleEndian.PutUint16(b[block][off:], v) }
}

func set32(block, off int, v uint32) func([][]byte) {
	return func(b [][]byte) { binary.LittleEndian.PutUint32(b[block][off:], v) }
}

func set8(block, off int, v byte) func([][]byte) {
	return func(b [][]byte) { b[block][off] = v }
}

// leafDamage harms the entries of a leaf at the given block and offset.
func leafDamage(block, off int) []damage {
	return []damage{
		{"rec_len 0", set16(block, off+4, 0), true, true},
		{"rec_len 8", set16(block, off+4, 8), true, true},
		{"rec_len not a multiple of 4", set16(block, off+4, 18), true, true},
		{"rec_len too small for the name", set8(block, off+6, 200), true, true},
		{"rec_len over the end", set16(block, off+4, 4092), true, true},
		{"rec_len over the tail", set16(block, off+4, uint16(1024-off)), true, true},
		{"rec_len up to 8 bytes before the end", set16(block, off+4, uint16(1024-12-8-off)), true, true},
		{"inode out of range", set32(block, off, 1<<30+1), false, true},
		{"empty name", set8(block, off+6, 0), false, true},
		{"slash in a name", set8(block, off+8, '/'), false, true},
	}
}

func indexDamage() []damage {
	return []damage{
		{"root: .. is not there", set8(0, 12+9, 'x'), true, true},
		{"root: . has another length", set16(0, 4, 16), true, true},
		{"root: . has no inode", set32(0, 0, 0), true, true},
		{"root: .. reaches over the block", set16(0, 16, 1024), true, true},
		{"root: reserved field", set32(0, 24, 1), true, true},
		{"root: hash version", set8(0, 28, 6), true, true},
		{"root: info length", set8(0, 29, 12), true, true},
		{"root: too deep", set8(0, 30, 2), true, true},
		{"root: deeper than it is", set8(0, 30, 1), true, true},
		{"root: flags", set8(0, 31, 1), true, true},
		{"root: limit", set16(0, 32, 124), true, true},
		{"root: count 0", set16(0, 34, 0), true, true},
		{"root: count over limit", set16(0, 34, 124), true, true},
		{"root: first block 0", set32(0, 36, 0), true, true},
		{"root: first block out of range", set32(0, 36, 0x0fffffff), true, true},
		{"root: hashes out of order", set32(0, 40, 0xfffffff0), false, true},
	}
}

// TestCorrupt damages a small indexed directory and a linear one in each way
// that can be told from good, and expects a CorruptError.
func TestCorrupt(t *testing.T) {
	t.Run("indexed", func(t *testing.T) {
		for _, c := range indexDamage() {
			c.run(t, 300, "", 1)
		}
		for _, c := range leafDamage(1, 0) {
			c.run(t, 100, "", 1)
		}
	})
	t.Run("linear", func(t *testing.T) {
		for _, c := range leafDamage(0, 24) {
			c.run(t, 10, "name-009", 0)
		}
		damage{"block 0 without .", set8(0, 8, 'x'), false, true}.run(t, 10, "", 0)
		damage{"block 0 without ..", set32(0, 12, 0), false, true}.run(t, 10, "", 0)
	})
}

// run damages a directory of n names. Without a name, one that the leaf holds
// last is looked up, so that the damaged entry is before it.
func (c damage) run(t *testing.T, n int, name string, leaf int) {
	t.Helper()
	d, m := newDir(t, defaults(1024))
	fill(t, d, m, n, "name-%03d")
	if d.Indexed != (n > 50) {
		t.Fatal("wrong kind of directory")
	}
	if name == "" {
		for off := 0; off < d.leafLimit(); off += d.recLen(m.blocks[leaf], off) {
			name = string(dirent(m.blocks[leaf], off).Name())
		}
	}
	c.harm(m.blocks)
	var corrupt *ondisk.CorruptError
	if _, _, err := d.Lookup(name); errors.As(err, &corrupt) != c.lookup {
		t.Errorf("%s: Lookup(%q): %v", c.what, name, err)
	}
	err := d.ReadDir(0, func(Entry) bool { return true })
	if errors.As(err, &corrupt) != c.list {
		t.Errorf("%s: ReadDir: %v", c.what, err)
	}
	if err != nil && corrupt.Inode != d.Ino {
		t.Errorf("%s: %v does not name the directory", c.what, err)
	}
}

// TestIndexLoops: trees that lead back to themselves end.
func TestIndexLoops(t *testing.T) {
	for _, target := range []uint32{0, 1, 2} {
		p := defaults(1024)
		p.LargeDir = true
		d, m := newDir(t, p)
		fill(t, d, m, 6000, "some-longer-name-%d")
		if m.blocks[0][30] == 0 {
			t.Fatal("no inner node")
		}
		root := rootNode(m.blocks[0])
		for i := range root.Count() {
			root.SetBlock(i, ondisk.LBlock(target))
			if i > 0 {
				root.SetHash(i, 1)
			}
		}
		var corrupt *ondisk.CorruptError
		if err := d.ReadDir(0, func(Entry) bool { return true }); !errors.As(err, &corrupt) {
			t.Errorf("all to block %d: ReadDir: %v", target, err)
		}
	}
}

// TestDirTooShort: an inode may say it has fewer blocks than it uses, or none.
func TestDirTooShort(t *testing.T) {
	for _, n := range []int{10, 1000} {
		d, m := newDir(t, defaults(1024))
		fill(t, d, m, n, "name-%d")
		for blocks := range d.NBlocks {
			d.NBlocks = blocks
			var corrupt *ondisk.CorruptError
			if err := d.ReadDir(0, func(Entry) bool { return true }); !errors.As(err, &corrupt) {
				t.Errorf("%d names, %d blocks: %v", n, blocks, err)
			}
			if _, err := d.Empty(); blocks == 0 && !errors.As(err, &corrupt) {
				t.Errorf("Empty: %v", err)
			}
			if blocks == 0 {
				for _, err := range []error{d.Insert("x", 20, 1), d.Delete("x"), d.Set("x", 20, 1)} {
					if !errors.As(err, &corrupt) {
						t.Errorf("%d names, no block: %v", n, err)
					}
				}
			}
		}
	}
}
