// Package allocbench measures the allocator in this process, without a mount, on a simulated
// geometry. The workloads are those of the founding documents and of ordinary use; the "before"
// variants of `extfused bench seeds` live here and nowhere else.
package allocbench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// Config says what to run.
type Config struct {
	Workload       string        // a key of Workloads
	Groups         int           // block groups of 8 * block size blocks
	BlockSize      int           // bytes, a power of two from 1 KiB to 64 KiB
	Procs          int           // workers
	Duration       time.Duration // how long to run; workloads that end earlier start again
	CommitInterval time.Duration // time between commits, 0 takes DefaultCommitInterval
	Set            []string      // tunables, NAME=VALUE
	Tar            io.Reader     // sizes for untar, nil for the built-in distribution
	Seed           uint64
	StreamGoals    int // mballoc.Options.StreamGoals
}

// ErrConfig is what errors.Is finds in an error about the configuration.
var ErrConfig = errors.New("bad configuration")

// configError is such an error; its text says what is wrong.
type configError struct{ error }

func (configError) Is(target error) bool { return target == ErrConfig }

func configErrorf(format string, args ...any) error { return configError{fmt.Errorf(format, args...)} }

// DefaultCommitInterval is far below a real journal's: in this process gigabytes are freed in
// milliseconds.
const DefaultCommitInterval = 10 * time.Millisecond

// flexSize is the groups per flex group that mke2fs chooses.
const flexSize = 16

// maxWorkers bounds the goroutines of a run.
const maxWorkers = 4096

// maxGroups is 16 TiB of 4 KiB blocks, four times over.
const maxGroups = 1 << 19

// Report is what a run gave.
type Report struct {
	Workload      string        `json:"workload"`
	Groups        int           `json:"groups"`
	BlockSize     int           `json:"block_size"`
	Procs         int           `json:"procs"`
	Seconds       float64       `json:"seconds"`
	Unit          string        `json:"unit"` // what an operation is
	Ops           uint64        `json:"ops"`
	OpsPerSec     float64       `json:"ops_per_sec"`
	WorkerOps     []uint64      `json:"worker_ops"`
	Commits       uint64        `json:"commits"`
	Files         uint64        `json:"files"`          // files whose layout was looked at
	Extents       uint64        `json:"extents"`        // their extents
	MaxExtents    int           `json:"max_extents"`    // of one file
	Fragmented    uint64        `json:"fragmented"`     // files of more than one extent
	GroupsTouched int           `json:"groups_touched"` // groups in which they have clusters
	LeastGroups   int           `json:"least_groups"`   // groups their clusters would fill
	Stats         mballoc.Stats `json:"stats"`
}

// bench is one run.
type bench struct {
	cfg     Config
	geo     mballoc.Geometry
	disk    *simdisk.Disk
	a       *mballoc.Allocator
	journal *simdisk.Epochs
	stop    atomic.Bool
	nextIno atomic.Uint32
	entries []entry // untar
	hooks   hooks

	layout struct {
		sync.Mutex
		report  Report
		blocks  uint64
		touched map[uint64]bool
	}
}

// hooks let the before-variants add what the product does not do.
type hooks struct {
	allocate func(w *worker, r *mballoc.Request) // before an allocation
	free     func(w *worker, n uint32)           // before a free
}

// workload is a function that a worker runs again and again, and what it counts.
type workload struct {
	unit    string
	prepare func(b *bench) error // before the allocator sees the disk
	round   func(w *worker) error
}

var workloads = map[string]workload{
	"fallocate2": {unit: "8 KiB allocations", round: fallocate2},
	"untar":      {unit: "files", prepare: prepareUntar, round: untar},
	"stream":     {unit: "64 KiB writes", round: stream},
	"fragmented": {unit: "2 MiB allocations", prepare: prepareFragmented, round: fragmented},
	"mixed":      {unit: "operations", prepare: prepareMixed, round: mixed},
}

// seedWorkloads are those that only Seeds runs.
var seedWorkloads = map[string]workload{
	"2000x100k": {unit: "files", round: files100k},
	"lastgroup": {unit: "allocations", prepare: fillAllButLast, round: lastGroup},
	"32x20m":    {unit: "files", round: files20m},
}

// Workloads lists the names.
func Workloads() []string { return slices.Sorted(maps.Keys(workloads)) }

func (c *Config) geometry() (mballoc.Geometry, error) {
	bits := uint(0)
	for 1<<bits < c.BlockSize {
		bits++
	}
	if 1<<bits != c.BlockSize || bits < 10 || bits > 16 {
		return mballoc.Geometry{}, configErrorf("block size %d: must be a power of two from 1024 to 65536", c.BlockSize)
	}
	if c.Groups < 1 || c.Groups > maxGroups {
		return mballoc.Geometry{}, configErrorf("%d groups: must be 1 to %d", c.Groups, maxGroups)
	}
	per := uint32(8 * c.BlockSize)
	return mballoc.Geometry{Groups: mballoc.GroupNumber(c.Groups), ClustersPerGroup: per, Clusters: uint64(c.Groups) * uint64(per), BlockSizeBits: bits,
		FlexSize: flexSize, CPUs: max(c.Procs, 1)}, nil
}

// Run runs one workload.
func Run(cfg Config) (*Report, error) {
	if _, ok := workloads[cfg.Workload]; !ok {
		return nil, configErrorf("workload %q: must be one of %s", cfg.Workload, strings.Join(Workloads(), ", "))
	}
	return run(cfg, hooks{})
}

func run(cfg Config, h hooks) (*Report, error) {
	wl, ok := workloads[cfg.Workload]
	if !ok {
		wl = seedWorkloads[cfg.Workload]
	}
	b, err := newBench(cfg, wl)
	if err != nil {
		return nil, err
	}
	b.hooks = h
	return b.run(wl)
}

func newBench(cfg Config, wl workload) (*bench, error) {
	if cfg.Procs < 1 || cfg.Procs > maxWorkers {
		return nil, configErrorf("%d workers: must be 1 to %d", cfg.Procs, maxWorkers)
	}
	if cfg.CommitInterval <= 0 {
		cfg.CommitInterval = DefaultCommitInterval
	}
	geo, err := cfg.geometry()
	if err != nil {
		return nil, err
	}
	b := &bench{cfg: cfg, geo: geo, disk: simdisk.New(geo)}
	b.nextIno.Store(11)
	b.layout.touched = map[uint64]bool{}
	if wl.prepare != nil {
		if err := wl.prepare(b); err != nil {
			return nil, err
		}
	}
	if b.a, err = mballoc.New(geo, b.disk, mballoc.Options{StreamGoals: cfg.StreamGoals}); err != nil {
		return nil, err
	}
	for _, kv := range cfg.Set {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, configErrorf("%q: must be NAME=VALUE", kv)
		}
		if err := b.a.Set(name, value); err != nil {
			return nil, configError{err}
		}
	}
	b.journal = simdisk.NewEpochs(b.disk, b.a, cfg.Procs)
	return b, nil
}

// run starts the workers and a committer and waits for them.
func (b *bench) run(wl workload) (*Report, error) {
	workers := make([]*worker, b.cfg.Procs)
	errs := make([]error, b.cfg.Procs)
	var wg, committer sync.WaitGroup
	start := time.Now()
	committer.Go(b.commitAll)
	timer := time.AfterFunc(b.cfg.Duration, func() { b.stop.Store(true) })
	for i := range workers {
		w := newWorker(b, i)
		workers[i] = w
		wg.Go(func() { errs[i] = w.run(wl) })
	}
	wg.Wait()
	elapsed := time.Since(start).Seconds()
	timer.Stop()
	b.stop.Store(true)
	committer.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := b.a.Check(); err != nil {
		return nil, err
	}
	return b.report(wl, workers, elapsed), nil
}

func (b *bench) commitAll() {
	for !b.stop.Load() {
		time.Sleep(b.cfg.CommitInterval)
		b.journal.Commit(nil)
	}
}

func (b *bench) report(wl workload, workers []*worker, seconds float64) *Report {
	r := &b.layout.report
	r.Workload, r.Groups, r.BlockSize, r.Procs = b.cfg.Workload, b.cfg.Groups, b.cfg.BlockSize, b.cfg.Procs
	r.Seconds, r.Unit, r.Commits, r.Stats = seconds, wl.unit, b.journal.Commits.Load(), b.a.Stats()
	for _, w := range workers {
		r.Ops += w.ops
		r.WorkerOps = append(r.WorkerOps, w.ops)
	}
	r.OpsPerSec = float64(r.Ops) / seconds
	r.GroupsTouched = len(b.layout.touched)
	per := uint64(b.geo.ClustersPerGroup)
	r.LeastGroups = int((b.layout.blocks + per - 1) / per)
	return r
}

// WriteText prints a report for people.
func (r *Report) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%s: %d groups, %d byte blocks, %d workers, %.2f s
  %.0f %s a second (%d)
  %d commits
`, r.Workload, r.Groups, r.BlockSize, r.Procs, r.Seconds, r.OpsPerSec, r.Unit, r.Ops, r.Commits)
	if err == nil && r.Files > 0 {
		_, err = fmt.Fprintf(w, "  %d files: %d extents, at most %d in one, %.2f %% fragmented, %d groups touched (least possible %d)\n",
			r.Files, r.Extents, r.MaxExtents, 100*float64(r.Fragmented)/float64(r.Files), r.GroupsTouched, r.LeastGroups)
	}
	if err != nil {
		return err
	}
	return r.writeStats(w)
}

func (r *Report) writeStats(w io.Writer) error {
	s := &r.Stats
	fmt.Fprintf(w, "  %d requests: %d from inode preallocation, %d from locality groups, %d at the goal\n", s.Reqs, s.PreallocHits, s.GroupPAHits, s.GoalHits)
	for cr, c := range s.Criteria {
		fmt.Fprintf(w, "  %-16s %9d hits %10d groups considered %9d extents compared %7d useless loops\n", mballoc.Criterion(cr), c.Hits, c.GroupsConsidered,
			c.ExtentsScanned, c.UselessLoops)
	}
	fmt.Fprintf(w, "  freed: %d extents, %d folded, %d inserted, %.4f list-lock acquisitions each\n", s.FreedExtents, s.FreedFolded, s.FreedInserted,
		ratio(s.FreedListLocks, s.FreedExtents))
	fmt.Fprintf(w, "  buddies: %d built, %d in memory; list moves: %d\n", s.Buddies, s.BuddiesLoaded, s.ListMoves)
	_, err := fmt.Fprintf(w, "  locks waited for: %s\n", contended(s.Contended))
	return err
}

func contended(m map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, m[name]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
