package allocbench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"extfused/mballoc"
)

// oneGoal is S3's "before": the streaming goal is one spot behind a lock, and freeing takes the
// same lock for its lists.
type oneGoal struct {
	mu     sync.Mutex
	goal   mballoc.Cluster
	waited atomic.Uint64
}

func (o *oneGoal) lock() {
	if !o.mu.TryLock() {
		o.waited.Add(1)
		o.mu.Lock()
	}
}

func (o *oneGoal) hooks() hooks {
	return hooks{
		allocate: func(w *worker, r *mballoc.Request) {
			o.lock()
			o.goal = r.Goal
			o.mu.Unlock()
		},
		free: func(w *worker, n uint32) {
			o.lock()
			o.goal += mballoc.Cluster(n)
			o.mu.Unlock()
		},
	}
}

// manyGoals gives every inode a slot of its own, which undoes the packing.
const manyGoals = 1 << 16

// seed3 measures what the goal costs, and what it is for.
func seed3(cfg SeedsConfig) ([]Row, error) {
	var rows []Row
	for i, workers := range cfg.Workers {
		fall := func(d time.Duration, h hooks, goals int) (*Report, error) {
			return run(Config{Workload: "fallocate2", Groups: 256, BlockSize: 4096, Procs: workers, Duration: d, StreamGoals: goals}, h)
		}
		var waits, waitsAfter float64
		rates, err := medians(2*cfg.Duration,
			func(d time.Duration) (float64, error) {
				one := &oneGoal{}
				r, err := fall(d, one.hooks(), 1)
				if err != nil {
					return 0, err
				}
				waits += 1e6 * ratio(one.waited.Load(), r.Ops) / turns
				return r.OpsPerSec, nil
			},
			func(d time.Duration) (float64, error) {
				r, err := fall(d, hooks{}, 0)
				if err != nil {
					return 0, err
				}
				waitsAfter += 1e6 * ratio(r.Stats.Contended["freed_list"], r.Ops) / turns
				return r.OpsPerSec, nil
			})
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{Seed: "S3", What: fmt.Sprintf("fallocate2, %d workers", workers), Unit: "1/s", Before: rates[0], After: rates[1], Higher: true})
		if i == len(cfg.Workers)-1 {
			rows = append(rows, Row{Seed: "S3", What: fmt.Sprintf("waits for the freed lists' lock, %d workers", workers),
				Unit: "1/million ops", Before: waits, After: waitsAfter, Note: "before: it guards the goal, too"})
		}
	}
	row, err := packing()
	return append(rows, row), err
}

// packing compares a goal per inode with the slots.
func packing() (Row, error) {
	cfg := Config{Workload: "32x20m", Groups: 256, BlockSize: 4096, Procs: 1, StreamGoals: manyGoals}
	inode, err := run(cfg, hooks{})
	if err != nil {
		return Row{}, err
	}
	cfg.StreamGoals = 0
	slots, err := run(cfg, hooks{})
	if err != nil {
		return Row{}, err
	}
	return Row{Seed: "S3", What: "groups touched, 32 files of 20 MiB in directories all over", Unit: "groups", Before: float64(inode.GroupsTouched),
		After: float64(slots.GroupsTouched), Note: fmt.Sprintf("before: a goal per inode; least possible %d", slots.LeastGroups)}, nil
}

// files20m writes 32 files of 20 MiB one after the other, in directories of all flex groups.
func files20m(w *worker) error {
	f := &w.scratch
	for i := range 32 {
		w.open(f, w.b.goal(i*flexSize%w.b.cfg.Groups), 0)
		for f.len < w.b.clusters(20<<20) {
			if err := w.grow(f, w.b.clusters(maxWrite)); err != nil {
				return err
			}
		}
		w.close(f)
		w.note(f)
		w.ops++
	}
	return errStopped
}
