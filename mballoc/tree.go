package mballoc

// treeNode makes a T a member of a tree. It is embedded in T, so that insertion allocates nothing.
type treeNode[T any] struct {
	key, prio   uint32
	left, right *treeNode[T]
	item        *T
}

// tree is an ordered set (a treap: search tree by key, heap by a hash of the key) of extents that
// do not overlap, keyed by their start, so that no two keys are the same. An owner may change the key
// of a member in place as long as it does not reach a neighbour. Not safe for concurrent use.
type tree[T any] struct {
	root *treeNode[T]
	n    int
}

// mix32 spreads the bits of x (the finalizer of MurmurHash3).
func mix32(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

func (t *tree[T]) insert(n *treeNode[T], key uint32, item *T) {
	n.key, n.prio, n.item = key, mix32(key), item
	p := &t.root
	for *p != nil && (*p).prio >= n.prio {
		if key < (*p).key {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	rest, l, r := *p, &n.left, &n.right
	for rest != nil { // split what hangs here around the key
		if rest.key < key {
			*l, l, rest = rest, &rest.right, rest.right
		} else {
			*r, r, rest = rest, &rest.left, rest.left
		}
	}
	*l, *r, *p = nil, nil, n
	t.n++
}

// remove takes out a member; it reports whether n was one.
func (t *tree[T]) remove(n *treeNode[T]) bool {
	p := &t.root
	for *p != n {
		if *p == nil {
			return false
		}
		if n.key < (*p).key {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	l, r := n.left, n.right
	for l != nil && r != nil { // merge the two sub-trees
		if l.prio >= r.prio {
			*p, p, l = l, &l.right, l.right
		} else {
			*p, p, r = r, &r.left, r.left
		}
	}
	if l != nil {
		*p = l
	} else {
		*p = r
	}
	n.left, n.right = nil, nil
	t.n--
	return true
}

// around finds the last member with a key <= key and the first with a key > key.
func (t *tree[T]) around(key uint32) (floor, above *T) {
	for n := t.root; n != nil; {
		if n.key <= key {
			floor, n = n.item, n.right
		} else {
			above, n = n.item, n.left
		}
	}
	return floor, above
}

// floor finds the last member with a key <= key.
func (t *tree[T]) floor(key uint32) *T {
	f, _ := t.around(key)
	return f
}

// each calls fn in ascending order until it returns false.
func (t *tree[T]) each(fn func(*T) bool) { eachNode(t.root, fn) }

func eachNode[T any](n *treeNode[T], fn func(*T) bool) bool {
	for n != nil {
		if !eachNode(n.left, fn) || !fn(n.item) {
			return false
		}
		n = n.right
	}
	return true
}
