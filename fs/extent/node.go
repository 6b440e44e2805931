package extent

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

var le = binary.LittleEndian

const entrySize = ondisk.ExtentEntrySize

// A node is a slice whose header has been checked; these read and write it.
func entries(b []byte) int             { return int(le.Uint16(b[2:])) }
func room(b []byte) int                { return int(le.Uint16(b[4:])) }
func depthOf(b []byte) int             { return int(le.Uint16(b[6:])) }
func setEntries(b []byte, n int)       { le.PutUint16(b[2:], uint16(n)) }
func offset(i int) int                 { return entrySize * (i + 1) }
func key(b []byte, i int) uint32       { return le.Uint32(b[offset(i):]) }
func setKey(b []byte, i int, k uint32) { le.PutUint32(b[offset(i):], k) }

func putHeader(b []byte, depth, n, room int) {
	h := ondisk.ExtentHeader{
		Magic: ondisk.ExtentMagic, Entries: uint16(n), Max: uint16(room), Depth: uint16(depth),
	}
	h.Encode(b)
}

// search finds the last entry whose key is at most l, or -1. On keys that are
// not sorted it finds something, and ends.
func search(b []byte, l ondisk.LBlock) int {
	lo, hi := 0, entries(b)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if key(b, m) <= uint32(l) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// splice replaces old entries from at on by room for n, and clears what is
// left over at the end. There must be room.
func splice(b []byte, at, old, n int) {
	have := entries(b)
	copy(b[offset(at+n):offset(have-old+n)], b[offset(at+old):offset(have)])
	if now := have - old + n; now < have {
		clear(b[offset(now):offset(have)])
	}
	setEntries(b, have-old+n)
}

func putExtent(b []byte, i int, e Extent) {
	ondisk.PutExtent(b, i, ondisk.ExtentLeaf{
		Block: e.Logical, Len: ondisk.EncodeExtentLen(e.Len, e.Unwritten), Start: e.Physical,
	})
}

func getExtent(b []byte, i int) Extent {
	x := ondisk.GetExtent(b, i)
	n, unwritten := x.Length()
	return Extent{Logical: x.Block, Len: n, Physical: x.Start, Unwritten: unwritten}
}

func corruptAt(blk ondisk.FsBlock, format string, args ...any) error {
	return ondisk.AtBlock(ondisk.Corrupt(format, args...), blk)
}

// headerOK is what ExtentHeader.Decode checks, in one load.
func headerOK(b []byte) bool {
	if len(b) < entrySize {
		return false
	}
	h := le.Uint64(b)
	magic, n, room, depth := uint16(h), uint16(h>>16), uint16(h>>32), uint16(h>>48)
	return magic == ondisk.ExtentMagic && n <= room && room != 0 &&
		int(room) <= ondisk.ExtentRoom(len(b)) && depth <= ondisk.ExtentMaxDepth
}

// badHeader says what is wrong with a header that is not OK.
func badHeader(b []byte) error {
	var h ondisk.ExtentHeader
	if err := h.Decode(b); err != nil {
		return err
	}
	return ondisk.Corrupt("extent node has a bad header")
}

// CheckRoot checks the root node of a tree, as CheckNode does.
func CheckRoot(root []byte, maxBlock ondisk.FsBlock) error {
	if len(root) < RootSize {
		return ondisk.Corrupt("extent root of %d bytes", len(root))
	}
	var h ondisk.ExtentHeader
	if err := h.Decode(root[:RootSize]); err != nil {
		return err
	}
	if h.Entries == 0 && h.Depth > 0 {
		return ondisk.Corrupt("extent root of depth %d is empty", h.Depth)
	}
	return checkEntries(root[:RootSize], maxBlock)
}

// CheckNode checks everything that can be said of a node by itself: header,
// order of the keys, lengths, and physical blocks against maxBlock (0: no
// bound). It costs time in proportion to the entries, and belongs where a node
// comes from the device.
func CheckNode(b []byte, maxBlock ondisk.FsBlock) error {
	var h ondisk.ExtentHeader
	if err := h.Decode(b); err != nil {
		return err
	}
	if h.Entries == 0 {
		return ondisk.Corrupt("extent node is empty")
	}
	return checkEntries(b, maxBlock)
}

func checkEntries(b []byte, maxBlock ondisk.FsBlock) error {
	end := uint64(0) // the least key that may follow
	for i := range entries(b) {
		if k := uint64(key(b, i)); k < end {
			return ondisk.Corrupt("extent node: entry %d starts at logical block %d, before %d", i, k, end)
		}
		if depthOf(b) > 0 {
			x := ondisk.GetExtentIdx(b, i)
			if x.Leaf == 0 || maxBlock != 0 && x.Leaf >= maxBlock {
				return ondisk.Corrupt("extent index entry %d points to block %d", i, x.Leaf)
			}
			end = uint64(x.Block) + 1
			continue
		}
		e := getExtent(b, i)
		if err := checkExtent(e, maxBlock); err != nil {
			return err
		}
		end = e.End()
	}
	return nil
}

func checkExtent(e Extent, maxBlock ondisk.FsBlock) error {
	if e.Len == 0 || e.End() > MaxLBlocks {
		return ondisk.Corrupt("extent %v has an impossible length", e)
	}
	if e.Physical == 0 || maxBlock != 0 && (e.Physical >= maxBlock || maxBlock-e.Physical < ondisk.FsBlock(e.Len)) {
		return ondisk.Corrupt("extent %v lies outside the file system", e)
	}
	return nil
}

// root checks the root's header.
func (t *Tree) root() (b []byte, blk ondisk.FsBlock, depth int, err error) {
	if len(t.Root) < RootSize {
		return nil, 0, 0, ondisk.Corrupt("extent root of %d bytes", len(t.Root))
	}
	b = t.Root[:RootSize]
	if !headerOK(b) {
		return nil, 0, 0, badHeader(b)
	}
	if depth = depthOf(b); depth > 0 && entries(b) == 0 {
		return nil, 0, 0, ondisk.Corrupt("extent root of depth %d is empty", depth)
	}
	return b, 0, depth, nil
}

// child reads the node below entry i of b, which is block parent, and checks
// what it costs nothing to check: header, depth, and that its first and last
// key lie in the range that the parent gives it. So no node can be reached by
// two ways, and no walk can be longer than the image is large.
func (t *Tree) child(b []byte, i, depth int, parent ondisk.FsBlock, hi uint64) ([]byte, ondisk.FsBlock, error) {
	x := ondisk.GetExtentIdx(b, i)
	if x.Leaf == 0 || t.MaxBlock != 0 && x.Leaf >= t.MaxBlock {
		return nil, 0, corruptAt(parent, "extent index entry %d points to block %d", i, x.Leaf)
	}
	c, err := t.Store.Get(x.Leaf, false)
	if err != nil {
		return nil, 0, err
	}
	if err := checkHeader(c, x.Leaf, depth); err != nil {
		return nil, 0, err
	}
	if key(c, 0) < uint32(x.Block) || uint64(key(c, entries(c)-1)) >= hi {
		return nil, 0, corruptAt(x.Leaf, "extent node has keys %d to %d where %d to %d are expected",
			key(c, 0), key(c, entries(c)-1), x.Block, hi-1)
	}
	return c, x.Leaf, nil
}

func checkHeader(b []byte, blk ondisk.FsBlock, depth int) error {
	if !headerOK(b) {
		return ondisk.AtBlock(badHeader(b), blk)
	}
	if depthOf(b) != depth {
		return corruptAt(blk, "extent node has depth %d, its parent expects %d", depthOf(b), depth)
	}
	if entries(b) == 0 {
		return corruptAt(blk, "extent node is empty")
	}
	return nil
}

// extentAt reads entry i of leaf b and checks it by itself, and against what
// follows: the next entry, or hi.
func (t *Tree) extentAt(b []byte, i int, blk ondisk.FsBlock, hi uint64) (Extent, error) {
	e := getExtent(b, i)
	if err := checkExtent(e, t.MaxBlock); err != nil {
		return Extent{}, ondisk.AtBlock(err, blk)
	}
	if i+1 < entries(b) {
		hi = uint64(key(b, i+1))
	}
	if e.End() > hi {
		return Extent{}, corruptAt(blk, "extent %v overlaps the next, which starts at %d", e, hi)
	}
	return e, nil
}

// step is one node on the way from the root to a leaf.
type step struct {
	blk ondisk.FsBlock // 0: the root
	b   []byte
	n   int    // entries
	i   int    // the entry taken; in a leaf the last with a key <= the one sought, or -1
	hi  uint64 // the keys of this node are below hi
}

// path is the way to a leaf.
type path struct {
	step  [ondisk.ExtentMaxDepth + 1]step
	depth int
}

func (p *path) leaf() *step { return &p.step[p.depth] }

// descend finds the leaf where l is, or would be inserted.
func (t *Tree) descend(p *path, l ondisk.LBlock) error {
	b, blk, depth, err := t.root()
	if err != nil {
		return err
	}
	p.depth = depth
	hi := uint64(MaxLBlocks)
	for lv := 0; ; lv++ {
		s := &p.step[lv]
		*s = step{blk: blk, b: b, n: entries(b), i: search(b, l), hi: hi}
		if lv == depth {
			return nil
		}
		s.i = max(s.i, 0)
		if s.i+1 < s.n {
			hi = uint64(key(b, s.i+1))
		}
		if b, blk, err = t.child(b, s.i, depth-lv-1, blk, hi); err != nil {
			return err
		}
	}
}

// own gets write access to a node of the path.
func (t *Tree) own(s *step) error {
	if s.blk == 0 {
		t.RootDirty = true
		return nil
	}
	b, err := t.Store.Get(s.blk, true)
	if err != nil {
		return err
	}
	s.b = b
	return nil
}

func (t *Tree) dirty(s *step) error {
	if s.blk == 0 {
		t.RootDirty = true
		return nil
	}
	return t.Store.Dirty(s.blk)
}

// EachNode calls fn for every node, the root (block 0) first, then depth
// first. Nodes are checked whole before fn sees them.
func (t *Tree) EachNode(fn func(blk ondisk.FsBlock, b []byte) error) error {
	if err := CheckRoot(t.Root, t.MaxBlock); err != nil {
		return err
	}
	var p path
	root := t.Root[:RootSize]
	p.step[0] = step{b: root, n: entries(root), hi: MaxLBlocks}
	top := depthOf(root)
	if err := fn(0, root); err != nil {
		return err
	}
	for lv := 0; lv >= 0; {
		s := &p.step[lv]
		if lv == top || s.i >= s.n {
			lv--
			continue
		}
		hi := s.hi
		if s.i+1 < s.n {
			hi = uint64(key(s.b, s.i+1))
		}
		b, blk, err := t.child(s.b, s.i, top-lv-1, s.blk, hi)
		if err == nil {
			err = ondisk.AtBlock(CheckNode(b, t.MaxBlock), blk)
		}
		if err == nil {
			err = fn(blk, b)
		}
		if err != nil {
			return err
		}
		s.i++
		lv++
		p.step[lv] = step{blk: blk, b: b, n: entries(b), hi: hi}
	}
	return nil
}
