// Package extent works on extent trees, which map the logical blocks of a
// file to physical ones. It is a pure algorithm on bytes: no lock, no I/O, no
// journal. The caller holds whatever guards the inode's mapping: exclusively
// for the methods that change the tree, shared for those that don't.
//
//	i_block   | header | idx  | idx  |      |      |   60 bytes: 4 entries
//	                      |      |
//	node      | header | leaf ... eh_max   | tail |    one block each
//
// Every node is a header of 12 bytes and entries of 12 bytes. In a node of
// eh_depth 0 these are extents, above it index entries; the key of an index
// entry is the first key of the node below it, exactly (the kernel refuses
// anything else, this package tolerates a lower one).
//
// A changing method brings the tree from one valid state to the next in steps
// that each leave it valid, so one that fails for want of a block leaves no
// damage.
package extent

import (
	"errors"
	"fmt"

	"extfused/fs/ondisk"
)

// Extent is a run of blocks that is contiguous logically and physically.
type Extent struct {
	Logical   ondisk.LBlock
	Len       uint32 // blocks
	Physical  ondisk.FsBlock
	Unwritten bool // allocated, reads as zeroes
}

// End is the first logical block behind the extent.
func (e Extent) End() uint64 { return uint64(e.Logical) + uint64(e.Len) }

// At is the physical block of logical block l, which lies in the extent.
func (e Extent) At(l ondisk.LBlock) ondisk.FsBlock {
	return e.Physical + ondisk.FsBlock(l-e.Logical)
}

func (e Extent) String() string {
	u := ""
	if e.Unwritten {
		u = " unwritten"
	}
	return fmt.Sprintf("[%d+%d at %d%s]", e.Logical, e.Len, e.Physical, u)
}

// from cuts off what lies before logical block l.
func (e Extent) from(l uint64) Extent {
	d := l - uint64(e.Logical)
	e.Logical, e.Len, e.Physical = ondisk.LBlock(l), e.Len-uint32(d), e.Physical+ondisk.FsBlock(d)
	return e
}

// until cuts off what lies at logical block l and behind.
func (e Extent) until(l uint64) Extent {
	e.Len = uint32(l - uint64(e.Logical))
	return e
}

// MaxLBlocks is the number of logical blocks a file can have: 0xFFFFFFFF is
// not a valid block (the kernel's EXT_MAX_BLOCKS).
const MaxLBlocks = 1<<32 - 1

// RootSize is the room of the root node in an inode's i_block.
const RootSize = 60

// Store holds the nodes below the root. A slice that it returns stays valid
// until the Tree method that asked for it returns.
type Store interface {
	// Get returns the content of node blk, with its checksum verified. write
	// says that it is about to be changed. When the content comes from the
	// device, Get should run CheckNode on it once; the tree itself checks, on
	// each visit, only what costs nothing.
	Get(blk ondisk.FsBlock, write bool) ([]byte, error)
	// New allocates a node: zeroed, and about to be changed.
	New() (ondisk.FsBlock, []byte, error)
	// Dirty says that blk has been changed: its checksum must be set.
	Dirty(blk ondisk.FsBlock) error
	// Free gives a node back; its content is of no interest any more.
	Free(blk ondisk.FsBlock) error
}

// Tree is the extent tree of one inode. A Tree holds no state but what it
// points to, and may be made anew for each call.
type Tree struct {
	Root      []byte // i_block: RootSize bytes, changed in place
	Store     Store
	BlockSize int // bytes
	// MaxBlock is the number of blocks of the file system: every physical
	// block must be below it. 0 means no bound.
	MaxBlock ondisk.FsBlock
	// RootDirty is set when Root was changed; the caller resets it.
	RootDirty bool
}

// Errors of callers, not of images.
var (
	ErrOverlap   = errors.New("extent: the range is mapped already")
	ErrNotMapped = errors.New("extent: the range is not mapped")
	ErrRange     = errors.New("extent: beyond the last logical block")
	ErrTooDeep   = errors.New("extent: the tree cannot grow any deeper")
)

// Init makes root the root of an empty tree.
func Init(root []byte) {
	clear(root[:RootSize])
	putHeader(root[:RootSize], 0, 0, ondisk.ExtentRoom(RootSize))
}

// maxLen is the longest extent: the top bit of ee_len marks unwritten ones,
// and exactly 0x8000 is still a written one.
func maxLen(unwritten bool) uint32 {
	if unwritten {
		return ondisk.ExtentMaxUnwrittenLen
	}
	return ondisk.ExtentMaxInitLen
}

// joins tells whether b can be folded into a, which stands before it.
func joins(a, b Extent) bool {
	return a.End() == uint64(b.Logical) && a.Unwritten == b.Unwritten &&
		a.Physical+ondisk.FsBlock(a.Len) == b.Physical && a.Len+b.Len <= maxLen(a.Unwritten)
}

// Lookup finds the extent that holds logical block l, whole. If there is none,
// mapped is false and the result is the hole: from l on, up to the next extent
// or the last possible block.
//
// It allocates nothing, and reads one node a level.
func (t *Tree) Lookup(l ondisk.LBlock) (e Extent, mapped bool, err error) {
	b, blk, depth, err := t.root()
	if err != nil {
		return Extent{}, false, err
	}
	hi := uint64(MaxLBlocks)
	for ; depth > 0; depth-- {
		i := max(search(b, l), 0)
		if i+1 < entries(b) {
			hi = uint64(key(b, i+1))
		}
		if b, blk, err = t.child(b, i, depth-1, blk, hi); err != nil {
			return Extent{}, false, err
		}
	}
	i := search(b, l)
	if i >= 0 {
		if e, err = t.extentAt(b, i, blk, hi); err != nil {
			return Extent{}, false, err
		}
		if uint64(l) < e.End() {
			return e, true, nil
		}
	}
	if i+1 < entries(b) {
		hi = uint64(key(b, i+1))
	}
	return Extent{Logical: l, Len: uint32(max(hi, uint64(l)+1) - uint64(l))}, false, nil
}

// Iterate calls fn for each extent that ends behind logical block from, in
// ascending order, until it returns false. fn must not change the tree.
func (t *Tree) Iterate(from ondisk.LBlock, fn func(Extent) bool) error {
	var p path
	last := uint64(0)
	for at := uint64(from); at < MaxLBlocks; {
		if err := t.descend(&p, ondisk.LBlock(at)); err != nil {
			return err
		}
		leaf := p.leaf()
		for i := max(leaf.i, 0); i < leaf.n; i++ {
			e, err := t.extentAt(leaf.b, i, leaf.blk, leaf.hi)
			if err != nil {
				return err
			}
			if uint64(e.Logical) < last {
				return corruptAt(leaf.blk, "extent %v comes after one that ends at %d", e, last)
			}
			if last = e.End(); last > at && !fn(e) {
				return nil
			}
		}
		if leaf.hi <= at {
			return corruptAt(leaf.blk, "extent index is not sorted near logical block %d", at)
		}
		at = leaf.hi
	}
	return nil
}

// Neighbours finds the extents around logical block l: left is the last one
// that starts at l or before, right the first that starts behind l.
func (t *Tree) Neighbours(l ondisk.LBlock) (left, right Extent, hasLeft, hasRight bool, err error) {
	var p path
	if err = t.descend(&p, l); err != nil {
		return
	}
	leaf := p.leaf()
	if leaf.i >= 0 {
		if left, err = t.extentAt(leaf.b, leaf.i, leaf.blk, leaf.hi); err != nil {
			return
		}
		hasLeft = true
	}
	next := leaf.i + 1
	if next == leaf.n && leaf.hi < MaxLBlocks {
		if err = t.descend(&p, ondisk.LBlock(leaf.hi)); err != nil {
			return
		}
		next = 0
	}
	if next < leaf.n {
		right, err = t.extentAt(leaf.b, next, leaf.blk, leaf.hi)
		hasRight = err == nil
	}
	return
}

// FindGoal proposes where logical block l should lie physically: as far from
// an extent near it as it is logically. Without an extent near by it is next
// to the leaf; without a tree there is no proposal.
func (t *Tree) FindGoal(l ondisk.LBlock) (ondisk.FsBlock, bool) {
	var p path
	if t.descend(&p, l) != nil {
		return 0, false
	}
	leaf := p.leaf()
	if leaf.n == 0 {
		return 0, false
	}
	e, err := t.extentAt(leaf.b, max(leaf.i, 0), leaf.blk, leaf.hi)
	if err != nil {
		return 0, false
	}
	goal := int64(e.Physical) + int64(l) - int64(e.Logical)
	if goal <= 0 || t.MaxBlock != 0 && goal >= int64(t.MaxBlock) {
		return e.Physical, true
	}
	return ondisk.FsBlock(goal), true
}

// Depth is the number of levels below the root; 0 if there is just the root.
func (t *Tree) Depth() int { return depthOf(t.Root) }
