package extent

import "extfused/fs/ondisk"

// Insert maps a range that is not mapped (ErrOverlap otherwise). It is folded
// into a neighbour in the same leaf if it continues it; one that is longer
// than an extent can be becomes several. Only the leaf is changed unless it is
// full, or its first key changes.
//
// If a node cannot be allocated the Store's error is returned, and the pieces
// before the one that failed stay mapped.
func (t *Tree) Insert(e Extent) error {
	if e.Len == 0 || e.End() > MaxLBlocks {
		return ErrRange
	}
	for e.Len > 0 {
		n := min(e.Len, maxLen(e.Unwritten))
		if err := t.insertOne(e.until(uint64(e.Logical) + uint64(n))); err != nil {
			return err
		}
		if n == e.Len {
			break
		}
		e = e.from(uint64(e.Logical) + uint64(n))
	}
	return nil
}

func (t *Tree) insertOne(e Extent) error {
	var p path
	if err := t.descend(&p, e.Logical); err != nil {
		return err
	}
	leaf := p.leaf()
	at, old, next := leaf.i+1, 0, leaf.hi
	if at < leaf.n {
		next = uint64(key(leaf.b, at))
	}
	if e.End() > next {
		return ErrOverlap
	}
	if leaf.i >= 0 {
		left, err := t.extentAt(leaf.b, leaf.i, leaf.blk, leaf.hi)
		if err != nil {
			return err
		}
		if left.End() > uint64(e.Logical) {
			return ErrOverlap
		}
		if joins(left, e) {
			left.Len += e.Len
			e, at, old = left, at-1, 1
		}
	}
	if at+old < leaf.n {
		right, err := t.extentAt(leaf.b, at+old, leaf.blk, leaf.hi)
		if err != nil {
			return err
		}
		if joins(e, right) {
			e.Len += right.Len
			old++
		}
	}
	return t.replace(&p, at, old, []Extent{e})
}

// replace puts list into the leaf at the end of p, in the place of old entries
// from at on, and splits nodes until there is room. Each round makes room in
// one node, the uppermost that is full, so there are few of them.
func (t *Tree) replace(p *path, at, old int, list []Extent) error {
	find := list[0].Logical
	if old > 0 {
		find = ondisk.LBlock(key(p.leaf().b, at))
	}
	for range 2*ondisk.ExtentMaxDepth + 2 {
		leaf := p.leaf()
		if leaf.n-old+len(list) <= room(leaf.b) {
			return t.edit(p, at, old, list)
		}
		if err := t.makeRoom(p, at, old); err != nil {
			return err
		}
		if err := t.descend(p, find); err != nil {
			return err
		}
		at = p.leaf().i
		if old == 0 {
			at++
		}
	}
	return corruptAt(p.leaf().blk, "extent node stays full however often it is split")
}

// edit changes a leaf that has the room. The parents' keys are lowered before,
// and raised after: a key that is too low harms nobody.
func (t *Tree) edit(p *path, at, old int, list []Extent) error {
	leaf := p.leaf()
	if at == 0 && len(list) > 0 {
		if err := t.fixKeys(p, p.depth, uint32(list[0].Logical), true); err != nil {
			return err
		}
	}
	if err := t.own(leaf); err != nil {
		return err
	}
	splice(leaf.b, at, old, len(list))
	for i, e := range list {
		putExtent(leaf.b, at+i, e)
	}
	leaf.n = entries(leaf.b)
	if err := t.dirty(leaf); err != nil {
		return err
	}
	if at == 0 {
		return t.fixKeys(p, p.depth, key(leaf.b, 0), false)
	}
	return nil
}

// fixKeys makes first the key of the node at level lv in the nodes above it.
func (t *Tree) fixKeys(p *path, lv int, first uint32, lowerOnly bool) error {
	for lv--; lv >= 0; lv-- {
		s := &p.step[lv]
		if k := key(s.b, s.i); k == first || lowerOnly && k < first {
			return nil
		}
		if err := t.own(s); err != nil {
			return err
		}
		setKey(s.b, s.i, first)
		if err := t.dirty(s); err != nil {
			return err
		}
		if s.i != 0 {
			return nil
		}
	}
	return nil
}

// makeRoom splits the leaf of p if the node above it has room, else the
// uppermost node of the full ones; if that is the root, the tree grows. The
// path is of no use afterwards. old is 0 or 1: more entries than that are only
// replaced when some of them join, which needs no room.
func (t *Tree) makeRoom(p *path, at, old int) error {
	lv := p.depth
	for lv > 0 && p.step[lv-1].n >= room(p.step[lv-1].b) {
		lv--
	}
	if lv == 0 {
		return t.growRoot(p.depth)
	}
	s := &p.step[lv]
	if s.n < 8 { // real ones have 84 at least
		return corruptAt(s.blk, "extent node has room for %d entries only", room(s.b))
	}
	mid := s.n / 2
	switch {
	case lv < p.depth:
		if s.i == s.n-1 { // the file grows at its end: leave full nodes behind
			mid = s.n - 1
		}
	case at+old == s.n:
		mid = min(at, s.n-1)
	}
	return t.split(p, lv, max(mid, 1))
}

// split moves the entries from mid on of the node at level lv to a new node
// to its right. The node above has room.
func (t *Tree) split(p *path, lv, mid int) error {
	s, up := &p.step[lv], &p.step[lv-1]
	if err := t.own(s); err != nil {
		return err
	}
	if err := t.own(up); err != nil {
		return err
	}
	blk, b, err := t.Store.New()
	if err != nil {
		return err
	}
	putHeader(b, depthOf(s.b), s.n-mid, ondisk.ExtentRoom(t.BlockSize))
	copy(b[offset(0):], s.b[offset(mid):offset(s.n)])
	clear(s.b[offset(mid):offset(s.n)])
	setEntries(s.b, mid)
	splice(up.b, up.i+1, 0, 1)
	ondisk.PutExtentIdx(up.b, up.i+1, ondisk.ExtentIdx{Block: ondisk.LBlock(key(b, 0)), Leaf: blk})
	if err := t.Store.Dirty(blk); err != nil {
		return err
	}
	if err := t.dirty(s); err != nil {
		return err
	}
	return t.dirty(up)
}

// growRoot moves the root's entries down into a new node, the only one below.
func (t *Tree) growRoot(depth int) error {
	if depth >= ondisk.ExtentMaxDepth {
		return ErrTooDeep
	}
	blk, b, err := t.Store.New()
	if err != nil {
		return err
	}
	root := t.Root[:RootSize]
	n := entries(root)
	putHeader(b, depth, n, ondisk.ExtentRoom(t.BlockSize))
	copy(b[offset(0):], root[offset(0):offset(n)])
	first := key(root, 0)
	clear(root[offset(0):])
	putHeader(root, depth+1, 1, ondisk.ExtentRoom(RootSize))
	ondisk.PutExtentIdx(root, 0, ondisk.ExtentIdx{Block: ondisk.LBlock(first), Leaf: blk})
	t.RootDirty = true
	return t.Store.Dirty(blk)
}

// Convert makes the n blocks from l on unwritten, or written. All of them must
// be mapped (ErrNotMapped); those that are so already are left alone. Extents
// are split where the range ends inside them, and joined where that has become
// possible. After an error the blocks before the place of the error are
// converted, so the call can be repeated.
func (t *Tree) Convert(l ondisk.LBlock, n uint32, unwritten bool) error {
	end := uint64(l) + uint64(n)
	if end > MaxLBlocks {
		return ErrRange
	}
	for at := uint64(l); at < end; {
		var p path
		if err := t.descend(&p, ondisk.LBlock(at)); err != nil {
			return err
		}
		leaf := p.leaf()
		if leaf.i < 0 {
			return ErrNotMapped
		}
		e, err := t.extentAt(leaf.b, leaf.i, leaf.blk, leaf.hi)
		if err != nil {
			return err
		}
		if at >= e.End() {
			return ErrNotMapped
		}
		stop := min(end, e.End())
		if e.Unwritten != unwritten {
			if err := t.convertPart(&p, e, at, stop); err != nil {
				return err
			}
		}
		at = stop
	}
	return nil
}

// joiner collects adjacent extents, folding each into the one before it when
// they join. One leaf entry turns into five at most: the neighbours, two ends
// that keep their state, and a middle that may have grown too long for one.
type joiner struct {
	list [6]Extent
	n    int
}

func (j *joiner) add(e Extent) {
	if e.Len == 0 {
		return
	}
	if j.n > 0 && joins(j.list[j.n-1], e) {
		j.list[j.n-1].Len += e.Len
		return
	}
	j.list[j.n] = e
	j.n++
}

// convertPart flips blocks [from, to) of e, the entry that p ends at.
func (t *Tree) convertPart(p *path, e Extent, from, to uint64) error {
	leaf := p.leaf()
	at, old := leaf.i, 1
	var j joiner
	if from == uint64(e.Logical) && at > 0 {
		at, old = at-1, old+1
		j.add(getExtent(leaf.b, at))
	}
	j.add(e.until(from))
	mid := e.from(from).until(to)
	mid.Unwritten = !mid.Unwritten
	first := min(mid.Len, maxLen(mid.Unwritten))
	j.add(mid.until(uint64(mid.Logical) + uint64(first)))
	if first < mid.Len {
		j.add(mid.from(uint64(mid.Logical) + uint64(first)))
	}
	if to < e.End() {
		j.add(e.from(to))
	} else if leaf.i+1 < leaf.n {
		old++
		j.add(getExtent(leaf.b, leaf.i+1))
	}
	list := j.list[:j.n]
	// Neighbours that joined with nothing stay as they are.
	if old > 1 && list[0] == getExtent(leaf.b, at) {
		at, old, list = at+1, old-1, list[1:]
	}
	if old > 1 && list[len(list)-1] == getExtent(leaf.b, at+old-1) {
		old, list = old-1, list[:len(list)-1]
	}
	return t.replace(p, at, old, list)
}
