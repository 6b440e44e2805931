// Package mballoc is the block allocator: a multi-block allocator modelled on that of Linux ext4,
// which sees the world through two small interfaces and imports nothing of this module.
//
// # The one equation
//
//	in-core buddy = on-disk bitmap + preallocated + freed but not yet committed
//
// A cluster is in exactly one of four states. Free in the buddy: it can be allocated. Set in the
// on-disk bitmap: a file has it. In a PreallocSpace: set aside for a file or for the small files of
// a locality group, free on disk. In a group's tree of freed extents: free on disk, but the
// transaction that freed it has not committed. Because the equation is exact at every moment (a
// PreallocSpace is always just what is left of it), a buddy can be thrown away at any time and
// built again from its three terms; that is how a file system of 16 TiB needs no more memory for
// buddies than Options.BuddyBytes.
//
// # Interface
//
// The unit is the cluster everywhere; without bigalloc that is a block. The caller implements
// GroupReader (long-lived: bitmaps and descriptor counts) and Marker (bound to one journal handle:
// changes bitmap and descriptor), and then:
//
//	a, err := New(geometry, reader, Options{...})
//	res, err := a.Allocate(marker, &Request{...})     // res.Len <= request.Len; *NoSpaceError
//	err = a.Free(marker, start, n, 0)                  // waits for Committed; with FreeNow it does not
//	a.Committed(tid, discard)                          // from the journal's commit callback
//	a.DiscardInode(&state)                             // last close by a writer, truncate, punch
//
// On *NoSpaceError with Pending > 0 the caller ends its handle, forces a commit, and calls again.
//
// Allocate tries, in this order: preallocation of the inode; that of a locality group (small
// files); the goal cluster; and then, for each criterion from CrPower2Aligned to CrAnyFree, the
// goal's group first and other groups after it. Before it fails it discards all preallocation and
// tries again.
//
// # Locks, outermost first
//
//	InodeState.mu             one inode's preallocations; held through an allocation for that inode
//	└ LocalityGroup.mu        held through an allocation that uses the locality group
//	  └ GroupInfo.mu          buddy, figures, list of preallocations; held while a group is searched
//	    ├ GroupInfo.disk      Marker calls, freed tree, extents of preallocations; held for one mark
//	    │ └ freedShard.mu     a transaction's list of freed extents
//	    ├ groupSet.mu         one order list
//	    └ buddyCache.mu       the ring of loaded buddies (evicting only tries other groups' mu)
//	space.exact               near the reserves only; leaf
//
// No goroutine holds two locks of one kind. An allocation that discards the preallocation of others
// holds none of its own.
//
// GroupInfo.mu and GroupInfo.disk are two locks so that the two most frequent operations need not
// wait for a search of the group. An allocation from a preallocation changes the on-disk bitmap but
// not the buddy: those clusters were in use in core before. A free changes the on-disk bitmap and
// the freed tree, and the buddy only after the commit. Allocating and freeing share no lock but the
// disk lock of a group in which both happen at the same moment, and that is held for a few bit
// operations.
//
// Stream goals, figures of groups that a search looks at, tunables and counters are atomics;
// counters are striped.
package mballoc
