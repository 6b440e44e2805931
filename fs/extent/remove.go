package extent

import (
	"math"

	"extfused/fs/ondisk"
)

// Remove unmaps the logical blocks from..to, both included, and hands each
// piece to release. It works from the end backwards and stops when it has
// changed maxOps things (extents released and nodes freed; 0 or less means no
// bound), a few more at most: done is then false, and a second call goes on.
// Whatever has been removed when it stops is removed for good, so that a file
// being truncated can be cut in as many transactions as needed.
//
// An error of release stops the removal; the piece it was given stays mapped.
// (The middle of an extent is the exception: see below.)
//
// When the range lies strictly inside one extent, that is split first, which
// may need a node and fail for want of it before anything is released.
func (t *Tree) Remove(from, to ondisk.LBlock, maxOps int, release func(Extent) error) (done bool, err error) {
	if maxOps <= 0 {
		maxOps = math.MaxInt
	}
	r := remover{t: t, from: uint64(from), end: min(uint64(to)+1, MaxLBlocks), budget: maxOps, release: release}
	for r.from < r.end && !r.done {
		if r.budget <= 0 {
			return false, nil
		}
		if err := r.lastLeaf(); err != nil {
			return false, err
		}
	}
	return true, t.shrinkRoot()
}

// remover is the state of one Remove.
type remover struct {
	t         *Tree
	p         path
	from, end uint64 // still to be removed
	budget    int
	release   func(Extent) error
	done      bool // nothing is left in [from, end)
}

// lastLeaf removes what it may from the last leaf that has a part of the
// range, and lowers r.end.
func (r *remover) lastLeaf() error {
	t, p := r.t, &r.p
	if err := t.descend(p, ondisk.LBlock(r.end-1)); err != nil {
		return err
	}
	leaf := p.leaf()
	if leaf.i < 0 {
		r.done = true
		return nil
	}
	e, err := t.extentAt(leaf.b, leaf.i, leaf.blk, leaf.hi)
	if err != nil {
		return err
	}
	if uint64(e.Logical) < r.from && r.end < e.End() {
		r.done = true
		return r.punch(e)
	}
	return r.cutLeaf(leaf)
}

// punch removes the middle of e.
func (r *remover) punch(e Extent) error {
	rest := []Extent{e.until(r.from), e.from(r.end)}
	if err := r.t.replace(&r.p, r.p.leaf().i, 1, rest); err != nil {
		return err
	}
	return r.release(e.from(r.from).until(r.end))
}

// cutLeaf goes backwards through the leaf's entries. The lowest one touched
// may keep its head, the highest its tail.
func (r *remover) cutLeaf(leaf *step) error {
	low, first := leaf.i+1, uint64(key(leaf.b, 0))
	var keep [2]Extent
	head, tail := keep[:0], keep[1:1]
	var failed error
	for i := leaf.i; i >= 0; i-- {
		e, err := r.t.extentAt(leaf.b, i, leaf.blk, leaf.hi)
		if err != nil {
			failed = err
			break
		}
		if e.End() <= r.from {
			r.done = true
			break
		}
		if r.budget <= 0 {
			break
		}
		a, b := max(uint64(e.Logical), r.from), min(e.End(), r.end)
		if failed = r.release(e.from(a).until(b)); failed != nil {
			break
		}
		low, r.budget = i, r.budget-1
		if b < e.End() {
			tail = append(tail, e.from(b))
		}
		if uint64(e.Logical) < a {
			head = append(head, e.until(a))
			r.done = true
			break
		}
	}
	if low == 0 && len(head) == 0 && first <= r.from {
		r.done = true
	}
	if low <= leaf.i {
		r.end = uint64(key(leaf.b, low))
		if err := r.apply(low, leaf.i+1-low, append(head, tail...)); err != nil {
			return err
		}
	}
	return failed
}

// apply takes the cut entries out of the leaf, or the leaf out of the tree.
func (r *remover) apply(at, old int, keep []Extent) error {
	if leaf := r.p.leaf(); old == leaf.n && len(keep) == 0 && r.p.depth > 0 {
		return r.dropLeaf()
	}
	return r.t.edit(&r.p, at, old, keep)
}

// dropLeaf frees the leaf, and the nodes above it that it was the last entry
// of. None of these is written: only the lowest node that stays.
func (r *remover) dropLeaf() error {
	t, p := r.t, &r.p
	lv := p.depth - 1
	for lv > 0 && p.step[lv].n == 1 {
		lv--
	}
	s := &p.step[lv]
	if err := t.own(s); err != nil {
		return err
	}
	if s.n == 1 { // the root, and the tree is empty
		Init(s.b)
	} else {
		splice(s.b, s.i, 1, 0)
	}
	if err := t.dirty(s); err != nil {
		return err
	}
	if s.i == 0 && s.n > 1 {
		if err := t.fixKeys(p, lv, key(s.b, 0), false); err != nil {
			return err
		}
	}
	for lv++; lv <= p.depth; lv++ {
		r.budget--
		if err := t.Store.Free(p.step[lv].blk); err != nil {
			return err
		}
	}
	return nil
}

// shrinkRoot takes the only node below the root into it, as long as it fits.
func (t *Tree) shrinkRoot() error {
	for {
		root, _, depth, err := t.root()
		if err != nil || depth == 0 || entries(root) != 1 {
			return err
		}
		b, blk, err := t.child(root, 0, depth-1, 0, MaxLBlocks)
		if err != nil {
			return err
		}
		n := entries(b)
		if n > ondisk.ExtentRoom(RootSize) {
			return nil
		}
		clear(root[offset(0):])
		copy(root[offset(0):], b[offset(0):offset(n)])
		putHeader(root, depth-1, n, ondisk.ExtentRoom(RootSize))
		t.RootDirty = true
		if err := t.Store.Free(blk); err != nil {
			return err
		}
	}
}
