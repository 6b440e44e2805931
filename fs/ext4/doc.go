// Package ext4 is the file system: it mounts an image, keeps inodes, names,
// extents and files in order, and holds the locks. The format is fs/ondisk's,
// the algorithms on bytes are fs/extent's and fs/htree's, free space is
// mballoc's and durability the journal's.
//
// # Lock order
//
// A lock further down or further right may be taken while one above it is
// held, never the other way round:
//
//	inodeOps.fsyncMu            under nothing; held while a commit or a flush is waited
//	                            for, and over Inode.mu where times wait in memory
//
//	Inode.mu                    several at once only in namei_lock.go, in ascending
//	|                           order of number; out of order they are only tried
//	+- journal handle           begin may wait for a commit, and a commit waits for all
//	   |                        handles; so whoever holds a handle takes no Inode.mu,
//	   |                        evicts no inode and begins no second handle
//	   +- xattrShares shard     the count of a shared attribute block; also without a
//	   |                        handle, to read such a block
//	   |  +- Inode.mu of the inode of an attribute's value (eainode.go): it has no
//	   |                        name, and whoever holds it begins no handle
//	   +- orphans.mu            the orphan list; encodes inodes that are on it
//	   |  +- superState.mu      the superblock
//	   +- mballoc's group lock
//	      +- group.mu           descriptor and bitmaps of one group
//	         +- bcache buffer   leaf; never held over I/O
//
//	extentStatus.mu             leaf, but for the shrinker's shard, under any of the above
//	icache shard mu             leaf: held for a map access only, under any of the above
//
// group.mu and the icache shard locks are leaves apart from the buffer lock:
// nothing that may wait for I/O happens under them.
//
// # Lives of an inode
//
// An in-core Inode is found by number in a sharded table. It is referenced by
// lookups (which the FUSE kernel side counts and forgets), open files, and
// pins of running operations; all of them are one counter. When the counter
// drops to zero, an inode with links goes to the shard's list of idle inodes,
// which is bounded; one without links is evicted: its blocks and its number
// are freed. Dirty inodes need no write-back: markDirty encodes straight into
// the buffer of the inode table, within the handle.
package ext4
