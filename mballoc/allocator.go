package mballoc

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// Allocator is the allocator of one file system. All methods may be called concurrently.
type Allocator struct {
	geo       Geometry
	reader    GroupReader
	onCorrupt func(*GroupError)
	orders    int  // number of buddy orders
	shift     uint // log2 of ClustersPerGroup when pow2
	pow2      bool
	knobs     knobs
	space     space
	stripes   []stripe // a power of two
	contended contention

	groups       []GroupInfo
	largestLists []groupSet // by largest free order
	avgLists     []groupSet // by order of the average fragment
	cache        buddyCache
	bitmaps      sync.Pool // *[]byte, raw bitmaps

	localities  []LocalityGroup
	goals       []streamGoal
	freed       []freedShard // a power of two
	trims       trimState
	trimmedWith atomic.Uint64 // shortest run the last trim looked for
}

// New makes an allocator. It reads every group's descriptor (GroupReader.FreeClusters) but no
// bitmap, and starts no goroutine.
func New(geo Geometry, r GroupReader, o Options) (*Allocator, error) {
	if err := geo.validate(); err != nil {
		return nil, err
	}
	if geo.CPUs <= 0 {
		geo.CPUs = runtime.GOMAXPROCS(0)
	}
	a := &Allocator{geo: geo, reader: r, onCorrupt: o.OnCorrupt, orders: geo.numOrders()}
	if geo.ClustersPerGroup&(geo.ClustersPerGroup-1) == 0 {
		a.pow2, a.shift = true, uint(floorLog2(geo.ClustersPerGroup))
	}
	if err := a.initKnobs(o.Tunables); err != nil {
		return nil, err
	}
	stripes := 1 << bits.Len(uint(min(stripesPerCPU*geo.CPUs, maxStripes)-1))
	a.stripes = make([]stripe, stripes)
	a.localities = make([]LocalityGroup, geo.CPUs)
	for i := range a.localities {
		a.localities[i].self = &a.localities[i]
	}
	a.freed = make([]freedShard, stripes)
	a.goals = make([]streamGoal, streamGoals(geo, o.StreamGoals))
	a.trims.cond.L = &a.trims.mu
	a.space.init(geo.Clusters, stripes)
	a.SetReserved(o.RootClusters, o.ReservedClusters)
	a.bitmaps.New = func() any { b := make([]byte, geo.ClustersPerGroup/8); return &b }
	a.cache.init(buddyBound(o.BuddyBytes), func() *Buddy { return newBuddy(geo.ClustersPerGroup, a.orders) })
	a.initGroups()
	return a, nil
}

// There are more stripes than CPUs, so that few writers share one; maxStripes bounds them, as near
// the reserves an allocation sums them up. defaultBuddyBytes bounds the loaded buddies
// where Options do not.
const (
	stripesPerCPU     = 2
	maxStripes        = 128
	defaultBuddyBytes = 64 << 20
)

func buddyBound(n int64) int64 {
	if n <= 0 {
		return defaultBuddyBytes
	}
	return n
}

func (a *Allocator) initKnobs(t *Tunables) error {
	if t == nil {
		d := DefaultTunables(a.geo)
		t = &d
	}
	for i, f := range t.fields() {
		if err := a.knobs.set(&a.geo, tunable(i), int64(*f)); err != nil {
			return err
		}
	}
	return nil
}

func (a *Allocator) initGroups() {
	a.groups = make([]GroupInfo, a.geo.Groups)
	a.largestLists = make([]groupSet, a.orders)
	a.avgLists = make([]groupSet, a.orders)
	for i := range a.orders {
		a.largestLists[i].init(a.geo.Groups)
		a.avgLists[i].init(a.geo.Groups)
	}
	var free int64
	for g := range a.groups {
		free += int64(a.initGroup(GroupNumber(g)))
	}
	a.space.folded.Store(free)
	for i := range a.stripes {
		a.stripes[i].n[cListMoves].Store(0) // the first entry is no move
	}
}

// Geometry returns what New was given, with CPUs filled in.
func (a *Allocator) Geometry() Geometry { return a.geo }

// split tells the group of a cluster and its place in there.
func (a *Allocator) split(c Cluster) (GroupNumber, GrpCluster) {
	if a.pow2 {
		return GroupNumber(c >> a.shift), GrpCluster(c & (1<<a.shift - 1))
	}
	per := Cluster(a.geo.ClustersPerGroup)
	return GroupNumber(c / per), GrpCluster(c % per)
}

// cluster is the inverse of split.
func (a *Allocator) cluster(g GroupNumber, c GrpCluster) Cluster {
	return Cluster(g)*Cluster(a.geo.ClustersPerGroup) + Cluster(c)
}
