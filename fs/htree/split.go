package htree

import (
	"cmp"
	"slices"
	"sync"

	"extfused/fs/ondisk"
)

// insertIndexed looks for the name and for room in the leaf of its hash and in
// those that continue the hash, then places it, or makes room.
func (d *Dir) insertIndexed(name string, ino ondisk.InodeNumber, ftype uint8) error {
	var pa path
	if err := d.openRoot(&pa); err != nil {
		return err
	}
	h := d.hashString(pa.version, name)
	at, err := d.findRoom(&pa, h, name)
	if err != nil {
		return err
	}
	if at.off >= 0 {
		d.place(at.b, at.off, name, ino, ftype)
		return d.Store.Dirty(at.blk)
	}
	return d.insertSplit(h, name, ino, ftype)
}

// findRoom returns a slot for name of hash h, off -1 if there is none.
func (d *Dir) findRoom(pa *path, h uint32, name string) (entry, error) {
	at, need := entry{off: -1}, ondisk.DirRecLen(len(name))
	leaf, err := d.descend(pa, h)
	for {
		if err != nil {
			return at, err
		}
		b, err1 := d.Store.Get(leaf, at.off < 0)
		if err1 != nil {
			return at, err1
		}
		s, what := d.scanLeaf(b, name, need)
		if what != "" {
			return at, d.corrupt(leaf, what)
		}
		if s.off >= 0 {
			return at, ErrExist
		}
		if at.off < 0 && s.slot >= 0 {
			at, need = entry{blk: leaf, b: b, off: s.slot}, 0
		}
		if !pa.continues(h) {
			return at, nil
		}
		leaf, _, err = d.forward(pa)
	}
}

// insertSplit makes room in the leaf of hash h: by moving its entries
// together, or by splitting it, for which the nodes above may have to be
// split first, one a turn. Each turn leaves a whole tree behind.
func (d *Dir) insertSplit(h uint32, name string, ino ondisk.InodeNumber, ftype uint8) error {
	need := ondisk.DirRecLen(len(name))
	for range 2*maxLevels + 1 {
		var pa path
		if err := d.openRoot(&pa); err != nil {
			return err
		}
		leaf, err := d.descend(&pa, h)
		if err != nil {
			return err
		}
		b, err := d.Store.Get(leaf, true)
		if err != nil {
			return err
		}
		if slot := d.compact(b, need); slot >= 0 {
			d.place(b, slot, name, ino, ftype)
			return d.Store.Dirty(leaf)
		}
		if s := pa.last(); s.full() {
			if err := d.growIndex(&pa); err != nil {
				return err
			}
			continue
		}
		at, err := d.splitLeaf(&pa, leaf, b, h)
		if err != nil {
			return err
		}
		d.place(at.b, at.off, name, ino, ftype)
		return d.Store.Dirty(at.blk)
	}
	return d.corrupt(0, "index does not get room by splitting")
}

// growIndex splits the uppermost of the full nodes at the path's end, or gives
// the tree another level if all are full.
func (d *Dir) growIndex(pa *path) error {
	i := pa.n - 1
	for i > 0 && pa.s[i-1].full() {
		i--
	}
	if i == 0 {
		return d.growRoot(pa)
	}
	return d.splitNode(&pa.s[i-1], &pa.s[i].node)
}

// growRoot moves the root's entries to a new node, the only one below it.
func (d *Dir) growRoot(pa *path) error {
	if pa.n == d.levels() {
		return ErrDirFull
	}
	n, err := d.newNode()
	if err != nil {
		return err
	}
	b, err := d.Store.Get(0, true)
	if err != nil {
		return err
	}
	root := rootNode(b)
	count := root.Count()
	limit := n.Limit()
	copy(n.DxEntries, root.entries(0, count))
	n.SetLimit(limit)
	clear(root.entries(1, count))
	root.SetCount(1)
	root.SetBlock(0, n.blk)
	var info ondisk.DxRootInfo
	if err := info.Decode(b); err != nil {
		return ondisk.InInode(err, d.Ino)
	}
	info.IndirectLevels++
	info.Encode(b)
	if err := d.Store.Dirty(n.blk); err != nil {
		return err
	}
	return d.Store.Dirty(0)
}

// splitNode moves the upper half of n to a new node behind it.
func (d *Dir) splitNode(parent *step, n *node) error {
	hi, err := d.newNode()
	if err != nil {
		return err
	}
	lo, err := d.writable(*n)
	if err != nil {
		return err
	}
	up, err := d.writable(parent.node)
	if err != nil {
		return err
	}
	count, limit := lo.Count(), lo.Limit()
	half := count / 2
	hash := lo.Hash(half)
	copy(hi.DxEntries, lo.entries(half, count))
	clear(lo.entries(half, count))
	hi.SetLimit(limit)
	hi.SetCount(count - half)
	lo.SetCount(half)
	up.insert(parent.at+1, hash, hi.blk)
	return d.dirty(hi.blk, lo.blk, up.blk)
}

// newNode appends a block with the head of an inner node.
func (d *Dir) newNode() (node, error) {
	l, b, err := d.Store.New()
	if err != nil {
		return node{}, err
	}
	d.NBlocks = l + 1
	d.setRecLen(b, 0, d.BlockSize)
	n := innerNode(l, b)
	n.SetLimit(ondisk.DxLimit(d.BlockSize, ondisk.DxNodeEntries, d.HasCsum))
	return n, nil
}

// writable is n with the right to change it.
func (d *Dir) writable(n node) (node, error) {
	b, err := d.Store.Get(n.blk, true)
	if err != nil {
		return node{}, err
	}
	return node{n.blk, b, b[len(n.b)-len(n.DxEntries):]}, nil
}

func (d *Dir) dirty(blocks ...ondisk.LBlock) error {
	for _, l := range blocks {
		if err := d.Store.Dirty(l); err != nil {
			return err
		}
	}
	return nil
}

// hashed is an entry of a leaf that is about to be split.
type hashed struct {
	hash      uint32
	off, size int
}

// splitter is scratch space for a leaf split.
type splitter struct {
	ents []hashed
	buf  []byte
}

var splitters = sync.Pool{New: func() any { return new(splitter) }}

// splitLeaf moves the entries of b with the higher hashes, about half the
// bytes, to a new leaf behind it, and returns a slot on the side of hash h,
// large enough for any name. The path's last node has room.
func (d *Dir) splitLeaf(pa *path, leaf ondisk.LBlock, b []byte, h uint32) (entry, error) {
	sp := splitters.Get().(*splitter)
	defer splitters.Put(sp)
	d.collect(sp, b, pa.version)
	cut := d.cut(sp.ents)
	if cut == 0 {
		return entry{}, d.corrupt(leaf, "full block with fewer than two entries")
	}
	hash := sp.ents[cut].hash
	bound := hash
	if sp.ents[cut-1].hash == hash {
		bound |= 1
	}
	s := pa.last()
	if next, ok := pa.following(); bound < pa.lo || ok && bound|1 > next|1 {
		return entry{}, d.corrupt(leaf, "names with hashes of another block")
	}
	l, nb, err := d.Store.New()
	if err != nil {
		return entry{}, err
	}
	d.NBlocks = l + 1
	up, err := d.writable(s.node)
	if err != nil {
		return entry{}, err
	}
	sp.buf = append(sp.buf[:0], b...)
	loLast := d.pack(b, sp.buf, sp.ents[:cut])
	hiLast := d.pack(nb, sp.buf, sp.ents[cut:])
	d.initTail(nb)
	up.insert(s.at+1, bound, l)
	if err := d.dirty(leaf, l, up.blk); err != nil {
		return entry{}, err
	}
	if h >= hash {
		return entry{blk: l, b: nb, off: hiLast}, nil
	}
	return entry{blk: leaf, b: b, off: loLast}, nil
}

// collect lists the entries of b, whose chain has been checked, by hash.
func (p *Params) collect(sp *splitter, b []byte, version uint8) {
	sp.ents = sp.ents[:0]
	limit := p.leafLimit()
	for off := 0; off < limit; off += p.recLen(b, off) {
		if dirent(b, off).Inode() == 0 {
			continue
		}
		h, _ := p.Hash(version, dirent(b, off).Name())
		sp.ents = append(sp.ents, hashed{h, off, ondisk.DirRecLen(dirent(b, off).NameLen())})
	}
	slices.SortFunc(sp.ents, func(x, y hashed) int {
		return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.off, y.off))
	})
}

// cut returns the index of the first entry to move: from the end, as many as
// fill half a block. It is 0 if there are not two entries.
func (p *Params) cut(ents []hashed) int {
	size, i := 0, len(ents)
	for i > 1 && size+ents[i-1].size/2 <= p.BlockSize/2 {
		i--
		size += ents[i].size
	}
	if i == len(ents) {
		i--
	}
	return max(i, 0)
}

// pack fills the entry area of leaf dst with the given entries of src, which
// is another slice, and returns the offset of the last, which has the slack.
func (p *Params) pack(dst, src []byte, ents []hashed) int {
	limit, to, last := p.leafLimit(), 0, 0
	for _, e := range ents {
		copy(dst[to:to+e.size], src[e.off:e.off+e.size])
		p.setRecLen(dst, to, e.size)
		last, to = to, to+e.size
	}
	clear(dst[to:limit])
	p.setRecLen(dst, last, limit-last)
	return last
}

// makeIndexed turns a linear directory of one block b, writable, into a root
// with one leaf.
func (d *Dir) makeIndexed(b []byte) error {
	from, err := d.afterDots(b)
	if err != nil {
		return err
	}
	self, parent := dirent(b, 0).Inode(), dirent(b, d.recLen(b, 0)).Inode()
	l, nb, err := d.Store.New()
	if err != nil {
		return err
	}
	d.NBlocks = l + 1
	limit, to, last := d.leafLimit(), 0, 0
	for off := from; off < limit; off += d.recLen(b, off) {
		if dirent(b, off).Inode() != 0 {
			n := ondisk.DirRecLen(dirent(b, off).NameLen())
			copy(nb[to:to+n], b[off:off+n])
			d.setRecLen(nb, to, n)
			last, to = to, to+n
		}
	}
	d.setRecLen(nb, last, limit-last)
	d.initTail(nb)
	d.initRoot(b, self, parent, l)
	d.Indexed = true
	return d.dirty(l, 0)
}

// initRoot fills b with a root of one level and one leaf.
func (d *Dir) initRoot(b []byte, self, parent ondisk.InodeNumber, leaf ondisk.LBlock) {
	clear(b)
	d.putDirent(b, 0, dotdotOff, self, ".", ondisk.FtDir)
	d.putDirent(b, dotdotOff, d.BlockSize-dotdotOff, parent, "..", ondisk.FtDir)
	info := ondisk.DxRootInfo{HashVersion: d.HashVersion, InfoLength: ondisk.DxRootInfoSize}
	info.Encode(b)
	root := rootNode(b)
	root.SetLimit(ondisk.DxLimit(d.BlockSize, ondisk.DxRootEntries, d.HasCsum))
	root.SetCount(1)
	root.SetBlock(0, leaf)
}
