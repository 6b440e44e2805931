package extent

import "extfused/fs/ondisk"

// The root lives in the inode, which every operation on a mapping logs anyway;
// neither it nor the bitmaps and descriptors of the blocks that are allocated
// or freed are counted here.

// InsertCredits is how many extent nodes an Insert of n extents that follow
// each other, or a Convert of n extents, may dirty in a tree of this depth.
//
// One extent changes its leaf, and each full node on the way up is split in
// two: two nodes a level. If the root is full as well, it moves down into one
// more. A node that has just been split in the middle has room for half of
// what it holds, so n extents split at most once more per that many, in the
// leaves; the levels above see one new entry for each split below. Convert
// turns one entry into five at most, of which one was there: four times n.
func InsertCredits(depth, n, blockSize int) int {
	half := max(ondisk.ExtentRoom(blockSize)/2, 1)
	total := 2*max(depth, 1) + 1
	for level, more := 0, 4*n; level < max(depth, 1) && more > 1; level++ {
		more = (more + half - 1) / half
		total += more
	}
	return total
}

// InsertNodes is how many nodes one Insert, or the conversion of one extent,
// may allocate: one for each level below the root, and one for the growth.
func InsertNodes(depth int) int { return max(depth, 1) + 1 }

// RemoveCredits is how many extent nodes a Remove with this maxOps may dirty.
//
// Nodes that lose all their entries are freed without being written. Of the
// leaves, the one where the range ends may keep a tail and the one where it
// stops may keep a head. Each leaf that goes is taken out of one node above,
// and costs two of the budget, itself and its last extent; those above that
// may have to learn a new first key, once. A range inside one extent is an
// insert.
func RemoveCredits(depth, maxOps, blockSize int) int {
	n := min(depth, 1) * 2
	if depth > 1 {
		n += depth - 1 + (maxOps+1)/2
	}
	return max(n, InsertCredits(depth, 1, blockSize))
}
