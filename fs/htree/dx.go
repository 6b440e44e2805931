package htree

import "extfused/fs/ondisk"

const (
	dotdotOff = minRecLen // ".." in the root
	maxLevels = 3
)

// node is a root or an inner node: the block, and its entries in it.
type node struct {
	blk ondisk.LBlock
	b   []byte
	ondisk.DxEntries
}

func rootNode(b []byte) node { return node{0, b, b[ondisk.DxRootEntries:]} }

func innerNode(l ondisk.LBlock, b []byte) node { return node{l, b, b[ondisk.DxNodeEntries:]} }

func (n *node) full() bool { return n.Count() == n.Limit() }

// entries is the bytes of entries [from, to).
func (n *node) entries(from, to int) []byte {
	return n.DxEntries[from*ondisk.DxEntrySize : to*ondisk.DxEntrySize]
}

// insert puts an entry at index i, which is not 0; there is room.
func (n *node) insert(i int, hash uint32, l ondisk.LBlock) {
	count := n.Count()
	copy(n.entries(i+1, count+1), n.entries(i, count))
	n.SetHash(i, hash)
	n.SetBlock(i, l)
	n.SetCount(count + 1)
}

// search returns the index of the last entry whose hash is not above h.
func (n *node) search(h uint32) int {
	lo, hi := 1, n.Count()
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if n.Hash(mid) > h {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

func (p *Params) levels() int {
	if p.LargeDir {
		return maxLevels
	}
	return maxLevels - 1
}

// step is a node on a path and the entry taken there.
type step struct {
	node
	at int
}

// path leads from the root to a leaf. Between two moves, lo is the hash bound
// of the leaf (0 for the first one), bit 0 set if it continues a collision.
type path struct {
	s       [maxLevels]step
	n       int // levels in use
	lo      uint32
	moves   ondisk.LBlock // leaves left behind; more than there are blocks is a loop
	version uint8
}

func (pa *path) last() *step { return &pa.s[pa.n-1] }

// following returns the hash bound of the next leaf; ok is false at the end.
func (pa *path) following() (hash uint32, ok bool) {
	for i := pa.n - 1; i >= 0; i-- {
		if s := &pa.s[i]; s.at+1 < s.Count() {
			return s.Hash(s.at + 1), true
		}
	}
	return 0, false
}

// openRoot reads block 0 as the root of the tree and checks it.
func (d *Dir) openRoot(pa *path) error {
	if d.NBlocks == 0 {
		return d.corrupt(0, "directory without a block")
	}
	b, err := d.Store.Get(0, false)
	if err != nil {
		return err
	}
	var info ondisk.DxRootInfo
	if err := info.Decode(b); err != nil {
		return ondisk.InInode(err, d.Ino)
	}
	if what := d.checkRoot(b, &info); what != "" {
		return d.corrupt(0, what)
	}
	pa.version = info.HashVersion
	pa.n = int(info.IndirectLevels) + 1
	pa.s[0].node = rootNode(b)
	return d.checkNode(&pa.s[0].node)
}

func (d *Dir) checkRoot(b []byte, info *ondisk.DxRootInfo) string {
	dot, dotdot := dirent(b, 0), dirent(b, dotdotOff)
	switch {
	case dot.RecLen(d.BlockSize) != dotdotOff || string(dot.Name()) != ".",
		dotdot.RecLen(d.BlockSize) != d.BlockSize-dotdotOff ||
			dotdot.NameLen() != 2 || string(dotdot.Name()) != "..":
		return "index root does not begin with . and .."
	case !d.inodeOK(dot.Inode()) || !d.inodeOK(dotdot.Inode()):
		return "entry with an inode number out of range"
	case info.HashVersion > ondisk.HashTea:
		return "index with an unknown hash version"
	case int(info.IndirectLevels) >= d.levels():
		return "index too deep"
	}
	return ""
}

func (d *Dir) checkNode(n *node) error {
	base := len(n.b) - len(n.DxEntries)
	if n.Limit() != ondisk.DxLimit(d.BlockSize, base, d.HasCsum) {
		return d.corrupt(n.blk, "index node with a wrong limit")
	}
	if c := n.Count(); c == 0 || c > n.Limit() {
		return d.corrupt(n.blk, "index node with a wrong count")
	}
	return nil
}

func (d *Dir) readNode(l ondisk.LBlock) (node, error) {
	b, err := d.Store.Get(l, false)
	if err != nil {
		return node{}, err
	}
	if e := dirent(b, 0); e.Inode() != 0 || e.RecLen(d.BlockSize) != d.BlockSize || e.NameLen() != 0 {
		return node{}, d.corrupt(l, "not an index node")
	}
	n := innerNode(l, b)
	return n, d.checkNode(&n)
}

// child returns the block that step i of the path points to.
func (d *Dir) child(pa *path, i int) (ondisk.LBlock, error) {
	s := &pa.s[i]
	l := s.Block(s.at)
	if l == 0 || l >= d.NBlocks {
		return 0, d.corrupt(s.blk, "index entry points outside the directory")
	}
	for j := range i + 1 {
		if pa.s[j].blk == l {
			return 0, d.corrupt(s.blk, "index entry points to a node above it")
		}
	}
	return l, nil
}

// descend goes from the root, which is open, to the leaf of hash h.
func (d *Dir) descend(pa *path, h uint32) (ondisk.LBlock, error) {
	pa.lo, pa.moves = 0, 0
	for i := 0; ; i++ {
		s := &pa.s[i]
		s.at = s.search(h)
		if s.at > 0 {
			if s.Hash(s.at) < pa.lo {
				return 0, d.corrupt(s.blk, "index hashes out of order")
			}
			pa.lo = s.Hash(s.at)
		}
		l, err := d.child(pa, i)
		if err != nil || i == pa.n-1 {
			return l, err
		}
		if pa.s[i+1].node, err = d.readNode(l); err != nil {
			return 0, err
		}
	}
}

// forward goes to the next leaf; ok is false at the end.
func (d *Dir) forward(pa *path) (leaf ondisk.LBlock, ok bool, err error) {
	i := pa.n - 1
	for i >= 0 && pa.s[i].at+1 >= pa.s[i].Count() {
		i--
	}
	if i < 0 {
		return 0, false, nil
	}
	s := &pa.s[i]
	s.at++
	if s.Hash(s.at)|1 < pa.lo|1 {
		return 0, false, d.corrupt(s.blk, "index hashes out of order")
	}
	if pa.moves++; pa.moves > d.NBlocks {
		return 0, false, d.corrupt(s.blk, "index has more leaves than the directory has blocks")
	}
	pa.lo = s.Hash(s.at)
	for ; ; i++ {
		if leaf, err = d.child(pa, i); err != nil || i == pa.n-1 {
			return leaf, err == nil, err
		}
		if pa.s[i+1].node, err = d.readNode(leaf); err != nil {
			return 0, false, err
		}
		pa.s[i+1].at = 0
	}
}

// findDot finds "." or ".." in the root.
func (d *Dir) findDot(name string, write bool) (entry, error) {
	var pa path
	if err := d.openRoot(&pa); err != nil {
		return entry{}, err
	}
	b, err := d.Store.Get(0, write)
	if err != nil {
		return entry{}, err
	}
	if name == "." {
		return entry{0, b, 0, -1}, nil
	}
	return entry{0, b, dotdotOff, 0}, nil
}

// findIndexed looks into the leaf of the name's hash, and into those behind it
// as long as they continue that hash.
func (d *Dir) findIndexed(name string, write bool) (entry, error) {
	var pa path
	if err := d.openRoot(&pa); err != nil {
		return entry{}, err
	}
	h := d.hashString(pa.version, name)
	leaf, err := d.descend(&pa, h)
	if err != nil {
		return entry{}, err
	}
	for {
		b, err := d.Store.Get(leaf, write)
		if err != nil {
			return entry{}, err
		}
		s, what := d.scanLeaf(b, name, 0)
		if what != "" {
			return entry{}, d.corrupt(leaf, what)
		}
		if s.off >= 0 {
			return entry{leaf, b, s.off, s.prev}, nil
		}
		if !pa.continues(h) {
			return entry{}, ErrNotFound
		}
		if leaf, _, err = d.forward(&pa); err != nil {
			return entry{}, err
		}
	}
}

// continues tells whether the next leaf has names of hash h too.
func (pa *path) continues(h uint32) bool {
	next, ok := pa.following()
	return ok && next&^1 == h
}

// emptyIndexed looks into all leaves of the tree.
func (d *Dir) emptyIndexed() (bool, error) {
	var pa path
	if err := d.openRoot(&pa); err != nil {
		return false, err
	}
	leaf, err := d.descend(&pa, 0)
	for ok := true; ok; leaf, ok, err = d.forward(&pa) {
		if err != nil {
			return false, err
		}
		b, err := d.Store.Get(leaf, false)
		if err != nil {
			return false, err
		}
		if empty, err := d.emptyLeaf(leaf, b, 0); !empty || err != nil {
			return false, err
		}
	}
	return err == nil, err
}
