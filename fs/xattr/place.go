package xattr

// Flags of setxattr(2).
const (
	Create  = 1 // fail if the attribute exists
	Replace = 2 // fail if it does not
)

// Change says which of an inode's two areas an operation changed.
type Change struct{ Inode, Block bool }

// Get finds an attribute in the inode, or else in the block.
func Get(inode, block Area, n Name) (Area, Entry, bool) {
	if e, ok := inode.Find(n); ok {
		return inode, e, true
	}
	e, ok := block.Find(n)
	return block, e, ok
}

// Set stores an attribute where ext4 does: in the inode if it fits, else in
// the block, and in one of them only. Both views are changed in place; the
// caller works on copies of what others share, and on a fresh block (InitBlock)
// if the inode has none, which Change.Block then asks it to keep.
//
// With ErrNoSpace (and ErrExists, ErrNotFound by flags) nothing is changed.
func Set(inode, block Area, n Name, value []byte, flags int) (Change, error) {
	return Store(inode, block, n, Stored{Bytes: value}, flags)
}

// Store is Set for a value that may be in an inode of its own.
func Store(inode, block Area, n Name, value Stored, flags int) (Change, error) {
	_, inInode := inode.Find(n)
	_, inBlock := block.Find(n)
	switch {
	case flags&Create != 0 && (inInode || inBlock):
		return Change{}, ErrExists
	case flags&Replace != 0 && !inInode && !inBlock:
		return Change{}, ErrNotFound
	}
	err := inode.Store(n, value)
	if err == nil {
		return Change{Inode: true, Block: inBlock && block.Remove(n)}, nil
	}
	if err != ErrNoSpace {
		return Change{}, err
	}
	if err := block.Store(n, value); err != nil {
		return Change{}, err
	}
	return Change{Inode: inInode && inode.Remove(n), Block: true}, nil
}

// Remove takes an attribute out of whichever area has it. A block that is
// Empty afterwards is of no use any more.
func Remove(inode, block Area, n Name) (Change, error) {
	c := Change{Inode: inode.Remove(n), Block: block.Remove(n)}
	if !c.Inode && !c.Block {
		return c, ErrNotFound
	}
	return c, nil
}
