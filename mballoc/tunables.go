package mballoc

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Tunables are ext4's mb_* knobs under their own names. Units: mb_stream_req and mb_group_prealloc
// as in sysfs (blocks and clusters).
type Tunables struct {
	MbStats                 int // mb_stats: 1 makes the mb_stats view show its figures
	MbMaxToScan             int // mb_max_to_scan: extents looked at before the best so far is taken
	MbMinToScan             int // mb_min_to_scan: extents looked at before a good enough one is taken
	MbOrder2Req             int // mb_order2_req: smallest order that is served from the buddy
	MbStreamReq             int // mb_stream_req: largest size of a small file, blocks
	MbGroupPrealloc         int // mb_group_prealloc: size of a locality group's preallocation, clusters
	MbMaxLinearGroups       int // mb_max_linear_groups: groups tried in order after the goal's
	MbBestAvailMaxTrimOrder int // mb_best_avail_max_trim_order: orders a request may be trimmed by
	MbPrefetch              int // mb_prefetch: groups read ahead at a time
	MbPrefetchLimit         int // mb_prefetch_limit: groups read ahead by one allocation
	MbOptimizeScan          int // mb_optimize_scan: 1 finds groups through the order lists, 0 scans
}

// Sizes from which ext4 derives mb_prefetch: 8 reads in flight of one flex group each, a read of at
// most BLK_MAX_SEGMENT_SIZE (65536 sectors of 512 bytes), 32 groups without flex_bg; the limit is 4
// of those; neither is more than there are groups.
const (
	prefetchInFlight     = 8
	prefetchNoFlex       = 32
	prefetchLimitFactor  = 4
	maxSegmentSectors    = 65536
	defaultGroupPrealloc = 512
	minGroupPrealloc     = 32
)

// minOptimizeGroups is the number of groups from which the order lists are worth it (ext4's
// MB_DEFAULT_LINEAR_SCAN_THRESHOLD).
const minOptimizeGroups = 16

// DefaultTunables are the values ext4 starts with on such a file system.
func DefaultTunables(geo Geometry) Tunables {
	t := Tunables{
		MbMaxToScan: 200, MbMinToScan: 10, MbOrder2Req: 2, MbStreamReq: 16, MbMaxLinearGroups: 4,
		MbBestAvailMaxTrimOrder: 3,
		MbGroupPrealloc:         max(defaultGroupPrealloc>>geo.ClusterBits, minGroupPrealloc),
		MbPrefetch:              prefetchNoFlex,
	}
	if geo.Groups >= minOptimizeGroups {
		t.MbOptimizeScan = 1
	}
	if s := int(geo.Stripe); s > 1 {
		t.MbGroupPrealloc = (t.MbGroupPrealloc + s - 1) / s * s
	}
	t.MbGroupPrealloc = min(t.MbGroupPrealloc, int(geo.ClustersPerGroup))
	if geo.FlexSize > 1 {
		t.MbPrefetch = prefetchInFlight * int(min(geo.FlexSize, maxSegmentSectors>>(geo.BlockSizeBits-9)))
	}
	t.MbPrefetch = min(t.MbPrefetch, int(geo.Groups))
	t.MbPrefetchLimit = min(t.MbPrefetch*prefetchLimitFactor, int(geo.Groups))
	return t
}

type tunable int

const (
	mbStats tunable = iota
	mbMaxToScan
	mbMinToScan
	mbOrder2Req
	mbStreamReq
	mbGroupPrealloc
	mbMaxLinearGroups
	mbBestAvailMaxTrimOrder
	mbPrefetch
	mbPrefetchLimit
	mbOptimizeScan
	numTunables
)

var tunableNames = [numTunables]string{"mb_stats", "mb_max_to_scan", "mb_min_to_scan", "mb_order2_req", "mb_stream_req", "mb_group_prealloc",
	"mb_max_linear_groups", "mb_best_avail_max_trim_order", "mb_prefetch", "mb_prefetch_limit", "mb_optimize_scan"}

// fields lists the struct's fields in the order of the constants.
func (t *Tunables) fields() [numTunables]*int {
	return [numTunables]*int{&t.MbStats, &t.MbMaxToScan, &t.MbMinToScan, &t.MbOrder2Req, &t.MbStreamReq, &t.MbGroupPrealloc,
		&t.MbMaxLinearGroups, &t.MbBestAvailMaxTrimOrder, &t.MbPrefetch, &t.MbPrefetchLimit, &t.MbOptimizeScan}
}

// Map gives the values by name, as sysfs prints them.
func (t *Tunables) Map() map[string]string {
	m := make(map[string]string, numTunables)
	for i, f := range t.fields() {
		m[tunableNames[i]] = strconv.Itoa(*f)
	}
	return m
}

// knobs are the tunables while the allocator runs: each is read and written atomically, and a new
// value holds from the next allocation on.
type knobs [numTunables]atomic.Int64

func (k *knobs) get(t tunable) int { return int(k[t].Load()) }

// tunableMax is the largest value Set takes; the smallest is always 0.
func (g *Geometry) tunableMax(t tunable) int64 {
	switch t {
	case mbStats, mbOptimizeScan:
		return 1
	case mbOrder2Req, mbBestAvailMaxTrimOrder:
		return int64(g.numOrders())
	case mbGroupPrealloc:
		return int64(g.ClustersPerGroup)
	default:
		return math.MaxInt32
	}
}

func (g *Geometry) checkTunable(t tunable, v int64) error {
	if limit := g.tunableMax(t); v < 0 || v > limit {
		return fmt.Errorf("%s=%d: must be 0 to %d", tunableNames[t], v, limit)
	}
	return nil
}

func (k *knobs) set(geo *Geometry, t tunable, v int64) error {
	if err := geo.checkTunable(t, v); err != nil {
		return err
	}
	k[t].Store(v)
	return nil
}

func findTunable(name string) (tunable, error) {
	i := slices.Index(tunableNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("no tunable %q: there are %s", name, strings.Join(tunableNames[:], ", "))
	}
	return tunable(i), nil
}

// Names lists the tunables that Get and Set know.
func (a *Allocator) Names() []string { return slices.Clone(tunableNames[:]) }

// Get returns a tunable in the form sysfs prints it.
func (a *Allocator) Get(name string) (string, error) {
	t, err := findTunable(name)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(a.knobs[t].Load(), 10), nil
}

// Limit is the largest value that a tunable takes; the smallest is 0.
func (a *Allocator) Limit(name string) (int64, error) {
	t, err := findTunable(name)
	if err != nil {
		return 0, err
	}
	return a.geo.tunableMax(t), nil
}

// parse reads a value and checks its range.
func (a *Allocator) parse(name, value string) (tunable, int64, error) {
	t, err := findTunable(name)
	if err != nil {
		return 0, 0, err
	}
	v, err := strconv.ParseInt(value, 0, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("%s=%q: not a number from 0 to %d", name, value, a.geo.tunableMax(t))
	}
	return t, v, a.geo.checkTunable(t, v)
}

// Set changes a tunable while the allocator runs. A value out of range changes nothing.
func (a *Allocator) Set(name, value string) error {
	return a.SetAll(map[string]string{name: value})
}

// SetAll changes several tunables by name, or none of them if one is unknown or out of range.
func (a *Allocator) SetAll(values map[string]string) error {
	var v [numTunables]int64
	var given [numTunables]bool
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t, n, err := a.parse(name, values[name])
		if err != nil {
			return err
		}
		v[t], given[t] = n, true
	}
	for t := range v {
		if given[t] {
			a.knobs[t].Store(v[t])
		}
	}
	return nil
}

// Tunables returns all tunables as they are now.
func (a *Allocator) Tunables() Tunables {
	var t Tunables
	for i, f := range t.fields() {
		*f = a.knobs.get(tunable(i))
	}
	return t
}

// floorLog2 is the position of the highest set bit; x > 0.
func floorLog2(x uint32) int { return bits.Len32(x) - 1 }
