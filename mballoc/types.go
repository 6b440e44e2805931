package mballoc

import (
	"errors"
	"fmt"
)

// GroupNumber counts block groups from 0.
type GroupNumber uint32

// Cluster is an absolute cluster number: 0 is the first cluster of group 0, so group g starts at
// g*ClustersPerGroup. Without bigalloc a cluster is a block, and the caller subtracts the first
// data block (1 on 1 KiB file systems) before it comes here.
type Cluster uint64

// GrpCluster is a cluster's index inside its group.
type GrpCluster uint32

// LCluster is a cluster's index inside a file.
type LCluster uint32

// Geometry is what the allocator must know about the file system. All lengths are in clusters
// unless the name says otherwise.
type Geometry struct {
	Groups           GroupNumber // number of groups, at least 1
	ClustersPerGroup uint32      // a multiple of 8, at most 8 * block size
	Clusters         uint64      // all clusters; the last group may be short
	BlockSizeBits    uint        // 10 ... 16
	ClusterBits      uint        // log2 of blocks per cluster, 0 without bigalloc
	FlexSize         uint32      // groups per flex group, 0 or 1 without flex_bg
	Stripe           uint32      // RAID stripe width, 0 when there is none
	CPUs             int         // how many allocations run at once; 0 takes GOMAXPROCS
}

// clusterSizeBits is log2 of the bytes in a cluster.
func (g *Geometry) clusterSizeBits() uint { return g.BlockSizeBits + g.ClusterBits }

// numOrders is how many buddy orders exist: 0 ... blocksize_bits + 1.
func (g *Geometry) numOrders() int { return int(g.BlockSizeBits) + 2 }

func (g *Geometry) validate() error {
	if g.BlockSizeBits < 10 || g.BlockSizeBits > 16 {
		return fmt.Errorf("mballoc: block size 2^%d is outside 1 KiB ... 64 KiB", g.BlockSizeBits)
	}
	if g.ClusterBits > 30-g.BlockSizeBits {
		return fmt.Errorf("mballoc: cluster of 2^%d blocks is too large", g.ClusterBits)
	}
	if g.ClustersPerGroup == 0 || g.ClustersPerGroup%8 != 0 || g.ClustersPerGroup > 8<<g.BlockSizeBits {
		return fmt.Errorf("mballoc: %d clusters per group", g.ClustersPerGroup)
	}
	per := uint64(g.ClustersPerGroup)
	if g.Groups == 0 || g.Clusters == 0 || (g.Clusters+per-1)/per != uint64(g.Groups) {
		return fmt.Errorf("mballoc: %d clusters do not make %d groups of %d", g.Clusters, g.Groups, g.ClustersPerGroup)
	}
	return nil
}

// groupLen is the number of clusters in group n; only the last group can be short.
func (g *Geometry) groupLen(n GroupNumber) uint32 {
	if n+1 < g.Groups {
		return g.ClustersPerGroup
	}
	return uint32(g.Clusters - uint64(n)*uint64(g.ClustersPerGroup))
}

// GroupReader shows the allocator the file system's block bitmaps. Implementations are safe for
// concurrent use; ReadBitmap(g) never runs at the same time as a Marker call for the same group,
// because both run under that group's disk lock.
type GroupReader interface {
	// ReadBitmap fills dst (ClustersPerGroup/8 bytes) with the on-disk bitmap of g, bit i of byte
	// i/8 set when cluster i is in use. For an uninitialised group it synthesises what the bitmap
	// would be. It may do I/O. Bits past the group's end are ignored.
	ReadBitmap(g GroupNumber, dst []byte) error
	// FreeClusters is the free count of g's descriptor, cheap and without I/O. It must equal the
	// zero bits of ReadBitmap, or the group is declared corrupt.
	FreeClusters(g GroupNumber) uint32
	// Uninit tells whether g has BLOCK_UNINIT set: reading its bitmap costs no I/O.
	Uninit(g GroupNumber) bool
	// Prefetch starts reading the bitmaps of g ... g+n-1 and does not wait.
	Prefetch(g GroupNumber, n int)
}

// Marker changes the on-disk bitmap, the descriptor and their checksums inside one running journal
// handle. Calls come with the group's disk lock held: calls for one group are serialised, must not
// block on I/O and must not call back into the allocator. When a call fails it must have changed
// nothing; the allocator then undoes its own part and returns the error.
type Marker interface {
	// TID is the transaction the handle belongs to. It is asked again at every call, because a
	// handle may be restarted.
	TID() uint32
	// MarkUsed sets n clear bits. A bit that is already set is corruption: return an error.
	MarkUsed(g GroupNumber, start GrpCluster, n uint32) error
	// MarkFree clears n set bits. A bit that is already clear is corruption (a double free): return
	// an error.
	MarkFree(g GroupNumber, start GrpCluster, n uint32) error
}

// Flags of a request.
type Flags uint32

const (
	// Data asks for normalisation and preallocation. Without it the request is for metadata: exact,
	// no preallocation.
	Data Flags = 1 << iota
	// TryGoal takes the goal cluster itself if it is free, before anything else. A request whose
	// Left neighbour ends right before Logical tries the cluster after it without being told.
	TryGoal
	// NoPrealloc keeps a data request from creating preallocation; an existing one is still used.
	NoPrealloc
	// GoalOnly fails with ErrNoSpace rather than look elsewhere than at the goal.
	GoalOnly
	// UseRoot may dip into the share reserved for root (s_r_blocks_count).
	UseRoot
	// UseReserved may dip into everything, also into the reserve that keeps metadata operations
	// alive (reserved_clusters).
	UseReserved
	// NoWriter says that nobody has the file open for writing: no inode preallocation, because
	// nobody would use it up.
	NoWriter
	// NoNormalize takes the request's length as it is (fallocate of a known range), and so creates
	// no inode preallocation.
	NoNormalize
)

// Neighbour is a mapped cluster next to the request in the file.
type Neighbour struct {
	Logical  LCluster
	Physical Cluster
	Valid    bool
}

// Request asks for clusters of one file. The caller serialises data requests of one inode (it holds
// the lock of the inode's mapping).
type Request struct {
	Ino     uint32
	State   *InodeState // nil for metadata: then no preallocation is used or made
	Logical LCluster    // first wanted cluster in the file
	Len     uint32      // how many, at least 1
	Goal    Cluster     // where it would be best; meaningful with HasGoal
	HasGoal bool
	Left    Neighbour // the last mapped cluster before Logical
	Right   Neighbour // the first mapped cluster at or after Logical+Len
	Size    uint64    // file size in bytes, this write included
	Flags   Flags
	Writer  uint32 // same for requests of one writing process (its pid will do): small files of one writer are packed together
}

// Result is what a request got: Len is at least 1 and at most the request's.
type Result struct {
	Start Cluster
	Len   uint32
}

// FreeFlags change what Free does.
type FreeFlags uint32

const (
	// FreeNow returns the clusters to the buddy at once, for file systems without a journal.
	// Otherwise they wait for Committed.
	FreeNow FreeFlags = 1 << iota
)

// ErrNoSpace is what errors.Is finds in a failed allocation. The error itself is a *NoSpaceError.
var ErrNoSpace = errors.New("no space left on device")

// NoSpaceError says that an allocation failed after all preallocation had been discarded.
type NoSpaceError struct {
	// Pending is how many clusters are freed but not committed. When it is not 0 the caller stops
	// its handle, commits the running transaction and tries again; when it is 0 the file system is
	// full.
	Pending uint64
}

func (e *NoSpaceError) Error() string {
	if e.Pending > 0 {
		return fmt.Sprintf("no space left on device (%d clusters wait for a commit)", e.Pending)
	}
	return ErrNoSpace.Error()
}

// Is makes errors.Is(err, ErrNoSpace) true.
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// GroupError says that a group's bitmap or its bookkeeping is wrong. The group takes no further
// allocation.
type GroupError struct {
	Group GroupNumber
	What  string
	Err   error // the cause, or nil
}

func (e *GroupError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("group %d: %s: %v", e.Group, e.What, e.Err)
	}
	return fmt.Sprintf("group %d: %s", e.Group, e.What)
}

func (e *GroupError) Unwrap() error { return e.Err }

// Options of New.
type Options struct {
	Tunables *Tunables // nil: DefaultTunables
	// RootClusters is root's share; ReservedClusters keeps metadata operations alive (ext4: 2 % of
	// the file system, at most 4096).
	RootClusters, ReservedClusters uint64
	// BuddyBytes bounds the memory of loaded buddies; 0 takes 64 MiB. At least a few buddies stay,
	// whatever the bound.
	BuddyBytes int64
	// StreamGoals is the number of goal slots for stream allocations; 0 derives it from CPUs and
	// groups.
	StreamGoals int
	// OnCorrupt is told once of each group that turns out corrupt. Called without a lock of the
	// allocator, possibly concurrently.
	OnCorrupt func(*GroupError)
}
