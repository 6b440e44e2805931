package allocbench

import (
	"fmt"

	"extfused/mballoc"
)

// rotating is S2's "before": mb_optimize_scan=1 as it first was. The group is chosen before the
// goal's group is tried; a group goes to the tail of its list at every change, so that allocations
// cycle through all groups; and small files that are closed when their data is written have no
// preallocation at all. It is expressed through the goal and the flags of the requests, so that the
// product has no such path.
func rotating(b *Config) hooks {
	next := 0
	return hooks{allocate: func(w *worker, r *mballoc.Request) {
		if r.Left.Valid { // only the choice for a new extent is shown
			return
		}
		next = (next + 1) % b.Groups
		r.Goal = mballoc.Cluster(next) * mballoc.Cluster(w.b.geo.ClustersPerGroup)
		r.Flags |= mballoc.NoPrealloc | mballoc.NoWriter
	}}
}

// seed2 counts the groups that small files touch, and the groups that are considered for an
// allocation as the file system grows.
func seed2(SeedsConfig) ([]Row, error) {
	var rows []Row
	for _, workload := range []string{"2000x100k", "untar"} {
		cfg := Config{Workload: workload, Groups: 48, BlockSize: 4096, Procs: 1}
		before, err := run(cfg, rotating(&cfg))
		if err != nil {
			return nil, err
		}
		after, err := run(cfg, hooks{})
		if err != nil {
			return nil, err
		}
		cfg.Set = []string{"mb_optimize_scan=0"}
		linear, err := run(cfg, hooks{})
		if err != nil {
			return nil, err
		}
		what := "groups touched, 2,000 files of 100 KB"
		if workload == "untar" {
			what = "groups touched, untar of a source tree"
		}
		rows = append(rows, Row{Seed: "S2", What: what, Unit: "groups", Before: float64(before.GroupsTouched), After: float64(after.GroupsTouched),
			Note: fmt.Sprintf("least possible %d, with mb_optimize_scan=0 %d", after.LeastGroups, linear.GroupsTouched)})
	}
	for _, groups := range []int{64, 131072} {
		r := Row{Seed: "S2", What: fmt.Sprintf("groups considered per allocation, %d groups, all full but the last", groups), Unit: "groups",
			Note: "before: mb_optimize_scan=0"}
		var err error
		if r.Before, err = considered(groups, "mb_optimize_scan=0"); err != nil {
			return nil, err
		}
		if r.After, err = considered(groups, "mb_optimize_scan=1"); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// files100k writes 2,000 files of 100 KB once.
func files100k(w *worker) error {
	f := &w.scratch
	for range 2000 {
		w.open(f, w.b.goal(0), 0)
		if err := w.grow(f, w.b.clusters(100<<10)); err != nil {
			return err
		}
		w.close(f)
		w.note(f)
		w.ops++
	}
	return errStopped
}

func fillAllButLast(b *bench) error {
	for g := range b.geo.Groups - 1 {
		b.disk.Fill(g)
	}
	return nil
}

// lastGroup allocates for files that no stream goal helps, with goals all over.
func lastGroup(w *worker) error {
	f := &w.scratch
	for i := range 50 {
		w.open(f, mballoc.Cluster(i*w.b.cfg.Groups/50)*mballoc.Cluster(w.b.geo.ClustersPerGroup), mballoc.NoWriter)
		if err := w.grow(f, 33+uint32(i%5)); err != nil {
			return err
		}
		w.ops++
	}
	return errStopped
}

func considered(groups int, set string) (float64, error) {
	r, err := run(Config{Workload: "lastgroup", Groups: groups, BlockSize: 4096, Procs: 1, Set: []string{set}}, hooks{})
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, c := range r.Stats.Criteria {
		sum += c.GroupsConsidered
	}
	return ratio(sum, r.Ops), nil
}
