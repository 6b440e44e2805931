package mballoc_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

var (
	modelEvents = flag.Int("events", 100_000, "random events of the model test, over all geometries")
	modelSeed   = flag.Uint64("seed", 0, "seed of the model test, 0 for a new one")
)

// modelGeometries are small file systems, so that they are full most of the time; the last groups
// are short.
var modelGeometries = map[string]mballoc.Geometry{
	"1k":       {Groups: 5, ClustersPerGroup: 8192, Clusters: 5*8192 - 1000, BlockSizeBits: 10, FlexSize: 16, CPUs: 2},
	"4k":       {Groups: 3, ClustersPerGroup: 32768, Clusters: 2*32768 + 8, BlockSizeBits: 12, FlexSize: 0, CPUs: 3},
	"64k":      {Groups: 3, ClustersPerGroup: 16384, Clusters: 3*16384 - 77, BlockSizeBits: 16, FlexSize: 4, CPUs: 1},
	"bigalloc": {Groups: 6, ClustersPerGroup: 8 * 1000, Clusters: 6*8000 - 1, BlockSizeBits: 12, ClusterBits: 4, FlexSize: 2, CPUs: 2},
	"stripe":   {Groups: 6, ClustersPerGroup: 4096, Clusters: 6*4096 - 100, BlockSizeBits: 12, Stripe: 48, CPUs: 2},
}

// modelExtent maps [logical, logical+n) to phys.
type modelExtent struct{ logical, n, phys uint64 }

type modelFile struct {
	ino    uint32
	state  mballoc.InodeState
	ext    []modelExtent // sorted
	size   uint64        // clusters
	closed bool
	small  bool // never more than 16 blocks
}

// model is the plain truth: which cluster is used on disk, and which wait for a commit.
type model struct {
	*rig
	rng     *rand.Rand
	geo     mballoc.Geometry
	used    [][]byte          // per group, in the on-disk format
	pending map[uint64]uint32 // cluster -> transaction
	nused   uint64
	files   []*modelFile
	meta    []uint64
	nextIno uint32
	full    int // allocations that found nothing
	waits   int // of these, with clusters waiting for a commit
	turn    int // full + waits at which to shrink
	shrink  bool
	failing bool
}

func TestModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	for name, geo := range modelGeometries {
		t.Run(name, func(t *testing.T) {
			runModel(t, geo, seed, *modelEvents/len(modelGeometries)/slow)
		})
	}
}

func runModel(t *testing.T, geo mballoc.Geometry, seed uint64, events int) {
	m := &model{rng: rand.New(rand.NewPCG(seed, uint64(geo.Clusters))), geo: geo, pending: map[uint64]uint32{}, nextIno: 11, turn: 100}
	m.rig = newRig(t, geo, mballoc.Options{BuddyBytes: 1}, func(d *simdisk.Disk) { // the least number of buddies: evictions all the time
		for g := range geo.Groups {
			d.SetUsed(g, 0, 5)
		}
		d.MarkErr = func(mballoc.GroupNumber) error {
			if m.failing {
				return errInjected
			}
			return nil
		}
	})
	for g := range geo.Groups {
		m.used = append(m.used, m.d.Bitmap(g))
		m.nused += 5
	}
	for i := range events {
		what := m.event()
		if err := m.compare(); err != nil {
			t.Fatalf("seed %d, event %d (%s): %v", seed, i, what, err)
		}
	}
	s := m.a.Stats()
	t.Logf("%d of %d clusters used, %d files, %d x full, %d x full but for a commit, %+v", m.nused, geo.Clusters, len(m.files), m.full, m.waits, s)
	if events >= 15000 && (m.full == 0 || m.waits == 0 || s.FreedJoined == 0 || geo.Groups > 4 && s.BuddiesEvicted == 0) {
		t.Errorf("seed %d: the events missed what they should reach", seed)
	}
}

var errInjected = errors.New("injected")

// event does one random thing and says what.
func (m *model) event() string {
	if hits := m.full + m.waits; !m.shrink && hits >= m.turn { // full for long enough
		m.shrink = true
	} else if m.shrink && m.nused < m.geo.Clusters/3 {
		m.shrink, m.turn = false, hits+100
	}
	switch n := m.rng.IntN(100); {
	case n < 65 && !m.shrink || n < 20:
		return m.write()
	case n < 73:
		return m.punch()
	case n < 75 && (m.shrink || m.rng.IntN(20) == 0):
		return m.remove()
	case n < 82:
		return m.metadata()
	case n < 86:
		f := m.pick()
		m.a.DiscardInode(&f.state)
		return "close"
	case n < 87:
		m.a.DiscardAll()
		return "discard all"
	case n < 93:
		return m.commit()
	case n < 95:
		return m.tune()
	case n < 96:
		return m.trim()
	case n < 97:
		m.failing = true
		what := m.write()
		m.failing = false
		return "failing " + what
	default:
		return m.write()
	}
}

func (m *model) pick() *modelFile {
	if len(m.files) == 0 || len(m.files) < 40 && m.rng.IntN(20) == 0 {
		m.nextIno++
		m.files = append(m.files, &modelFile{ino: m.nextIno, closed: m.rng.IntN(3) == 0, small: m.rng.IntN(3) == 0})
	}
	return m.files[m.rng.IntN(len(m.files))]
}

// write appends to a file or fills a hole in it.
func (m *model) write() string {
	f := m.pick()
	at := f.size
	if m.rng.IntN(4) == 0 {
		at = m.rng.Uint64N(f.size + 2000)
	}
	n := 1 + m.rng.Uint64N(1<<m.rng.IntN(13))
	if f.small {
		at, n = min(at, 14>>m.geo.ClusterBits), 1
	}
	i, mapped := slices.BinarySearchFunc(f.ext, at, func(e modelExtent, at uint64) int {
		switch {
		case e.logical+e.n <= at:
			return -1
		case e.logical > at:
			return 1
		}
		return 0
	})
	if mapped {
		return "write over data"
	}
	req := mballoc.Request{Ino: f.ino, State: &f.state, Logical: mballoc.LCluster(at), Flags: m.flags(f), Writer: m.rng.Uint32N(4)}
	if i > 0 {
		e := f.ext[i-1]
		req.Left = mballoc.Neighbour{Logical: mballoc.LCluster(e.logical + e.n - 1), Physical: mballoc.Cluster(e.phys + e.n - 1), Valid: true}
	}
	if i < len(f.ext) {
		e := f.ext[i]
		n = min(n, e.logical-at)
		req.Right = mballoc.Neighbour{Logical: mballoc.LCluster(e.logical), Physical: mballoc.Cluster(e.phys), Valid: true}
	}
	req.Len = uint32(n)
	req.Size = max(f.size, at+n) << (m.geo.BlockSizeBits + m.geo.ClusterBits)
	if m.rng.IntN(2) == 0 {
		req.Goal, req.HasGoal = mballoc.Cluster(m.rng.Uint64N(m.geo.Clusters+10)), true
	}
	res, err := m.a.Allocate(m.d.Begin(), &req)
	what := fmt.Sprintf("write %+v = %v, %v", req.Flags, res, err)
	if !m.took(&req, res, err) {
		return what
	}
	f.ext = slices.Insert(f.ext, i, modelExtent{at, uint64(res.Len), uint64(res.Start)})
	f.size = max(f.size, at+uint64(res.Len))
	m.checkPreallocation(f)
	return what
}

// checkPreallocation fails the test when the logical ranges of a file's preallocations overlap each
// other or what is mapped.
func (m *model) checkPreallocation(f *modelFile) {
	ranges := f.state.Ranges()
	for i, r := range ranges {
		if r[0] >= r[1] || i > 0 && ranges[i-1][1] > r[0] {
			m.t.Fatalf("preallocations %v", ranges)
		}
		for _, e := range f.ext {
			if e.logical < r[1] && r[0] < e.logical+e.n {
				m.t.Fatalf("preallocation %v of what is mapped: %v", r, e)
			}
		}
	}
}

func (m *model) flags(f *modelFile) mballoc.Flags {
	flags := mballoc.Data
	if f.closed {
		flags |= mballoc.NoWriter
	}
	for _, fl := range []mballoc.Flags{mballoc.TryGoal, mballoc.NoPrealloc, mballoc.NoNormalize, mballoc.GoalOnly, mballoc.UseReserved} {
		if m.rng.IntN(8) == 0 {
			flags |= fl
		}
	}
	return flags
}

// took enters an allocation into the model; the model fails the test when the clusters were not
// free.
func (m *model) took(req *mballoc.Request, res mballoc.Result, err error) bool {
	asked, goalOnly := req.Len, req.Flags&mballoc.GoalOnly != 0
	if err != nil {
		if !errors.Is(err, mballoc.ErrNoSpace) && !(m.failing && errors.Is(err, errInjected)) {
			m.t.Fatalf("allocate: %v", err)
		}
		var full *mballoc.NoSpaceError
		if errors.As(err, &full) && goalOnly {
			return false
		} else if full != nil && full.Pending > 0 {
			m.waits++
		} else if full != nil {
			m.full++
		}
		return false
	}
	if res.Len == 0 || res.Len > asked || uint64(res.Start)+uint64(res.Len) > m.geo.Clusters {
		m.t.Fatalf("asked for %d, got %v", asked, res)
	}
	for c := uint64(res.Start); c < uint64(res.Start)+uint64(res.Len); c++ {
		if tid, waits := m.pending[c]; waits {
			m.t.Fatalf("cluster %d allocated, but it waits for transaction %d", c, tid)
		}
		m.flip(c, true)
	}
	return true
}

func (m *model) flip(c uint64, used bool) {
	per := uint64(m.geo.ClustersPerGroup)
	b, bit := &m.used[c/per][c%per/8], byte(1)<<(c%8)
	if (*b&bit != 0) == used {
		m.t.Fatalf("cluster %d is already %v", c, used)
	}
	*b ^= bit
	if used {
		m.nused++
	} else {
		m.nused--
	}
}

// release frees a range in allocator and model.
func (m *model) release(start, n uint64, flags mballoc.FreeFlags) {
	tx := m.d.Begin()
	if err := m.a.Free(tx, mballoc.Cluster(start), uint32(n), flags); err != nil {
		m.t.Fatalf("free %d+%d: %v", start, n, err)
	}
	for c := start; c < start+n; c++ {
		m.flip(c, false)
		if flags&mballoc.FreeNow == 0 {
			m.pending[c] = tx.ID
		}
	}
}

// punch frees a part of one extent.
func (m *model) punch() string {
	f := m.pick()
	if len(f.ext) == 0 {
		return "punch nothing"
	}
	m.a.DiscardInode(&f.state)
	i := m.rng.IntN(len(f.ext))
	e := f.ext[i]
	off := m.rng.Uint64N(e.n)
	n := 1 + m.rng.Uint64N(e.n-off)
	m.release(e.phys+off, n, 0)
	var rest []modelExtent
	if off > 0 {
		rest = append(rest, modelExtent{e.logical, off, e.phys})
	}
	if off+n < e.n {
		rest = append(rest, modelExtent{e.logical + off + n, e.n - off - n, e.phys + off + n})
	}
	f.ext = slices.Replace(f.ext, i, i+1, rest...)
	return "punch"
}

// remove frees a whole file.
func (m *model) remove() string {
	if len(m.files) == 0 {
		return "remove nothing"
	}
	i := m.rng.IntN(len(m.files))
	f := m.files[i]
	m.a.DiscardInode(&f.state)
	if got := f.state.PAs(); got != 0 {
		m.t.Fatalf("%d preallocations after DiscardInode", got)
	}
	var flags mballoc.FreeFlags
	if m.rng.IntN(5) == 0 {
		flags = mballoc.FreeNow
	}
	for _, e := range f.ext {
		m.release(e.phys, e.n, flags)
	}
	m.files = slices.Delete(m.files, i, i+1)
	return "remove"
}

// metadata allocates or frees a single cluster.
func (m *model) metadata() string {
	if len(m.meta) > 50 || m.shrink && len(m.meta) > 0 {
		i := m.rng.IntN(len(m.meta))
		m.release(m.meta[i], 1, 0)
		m.meta = slices.Delete(m.meta, i, i+1)
		return "free metadata"
	}
	req := mballoc.Request{Ino: 2, Len: 1 + m.rng.Uint32N(2), Goal: mballoc.Cluster(m.rng.Uint64N(m.geo.Clusters)), HasGoal: true}
	res, err := m.a.Allocate(m.d.Begin(), &req)
	if m.took(&req, res, err) {
		for i := range res.Len {
			m.meta = append(m.meta, uint64(res.Start)+uint64(i))
		}
	}
	return "metadata"
}

// commit commits with or without discards; what is discarded must be what the transaction freed.
func (m *model) commit() string {
	tid := m.d.NextTID()
	var discard func(mballoc.Cluster, uint32)
	discarded := map[uint64]bool{}
	if m.rng.IntN(2) == 0 {
		discard = func(start mballoc.Cluster, n uint32) {
			for c := uint64(start); c < uint64(start)+uint64(n); c++ {
				discarded[c] = true
			}
		}
	}
	m.a.Committed(tid, discard)
	n := 0
	for c, id := range m.pending {
		if id > tid {
			continue
		}
		delete(m.pending, c)
		if n++; discard != nil && !discarded[c] {
			m.t.Fatalf("cluster %d committed but not discarded", c)
		}
	}
	if discard != nil && len(discarded) != n {
		m.t.Fatalf("%d clusters discarded of %d committed", len(discarded), n)
	}
	return "commit"
}

func (m *model) tune() string {
	names := m.a.Names()
	name, v := names[m.rng.IntN(len(names))], []string{"0", "1", "2", "9", "64"}[m.rng.IntN(5)]
	err := m.a.Set(name, v)
	return fmt.Sprintf("%s=%s: %v", name, v, err)
}

func (m *model) trim() string {
	_, err := m.a.Trim(mballoc.Cluster(m.rng.Uint64N(m.geo.Clusters)), m.rng.Uint64N(m.geo.Clusters), m.rng.Uint64N(40), func(start mballoc.Cluster, n uint32) error {
		per := uint64(m.geo.ClustersPerGroup)
		for c := uint64(start); c < uint64(start)+uint64(n); c++ {
			if m.used[c/per][c%per/8]>>(c%8)&1 != 0 {
				m.t.Fatalf("trim of cluster %d, which is used", c)
			}
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return "trim"
}

// compare compares everything there is: the on-disk bitmaps, the counts, and the equation for every
// loaded group.
func (m *model) compare() error {
	for g := range m.geo.Groups {
		if !m.d.Equal(g, m.used[g]) {
			return fmt.Errorf("group %d: on-disk bitmap differs from the model", g)
		}
	}
	if got, want := m.a.FreeClusters(), m.geo.Clusters-m.nused; got != want {
		return fmt.Errorf("free clusters %d, should be %d", got, want)
	}
	if got, want := m.a.PendingClusters(), uint64(len(m.pending)); got != want {
		return fmt.Errorf("pending %d, should be %d", got, want)
	}
	g := mballoc.GroupNumber(m.rng.IntN(int(m.geo.Groups)))
	if err := m.a.CheckGroup(g); err != nil {
		return err
	}
	if m.rng.IntN(50) != 0 {
		return nil
	}
	for c := range m.pending {
		if used, ok := m.a.InUse(mballoc.Cluster(c)); ok && !used {
			return fmt.Errorf("cluster %d waits for a commit, but the buddy has it free", c)
		}
	}
	if got, want := m.a.FreeInCore(), m.geo.Clusters-m.nused-uint64(len(m.pending))-m.a.PreallocLen(); got != want {
		return fmt.Errorf("free in core %d, should be %d", got, want)
	}
	return m.a.Check()
}
