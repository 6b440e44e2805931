// Command bench measures extfused side by side with the kernel's ext4 on a loop
// device, the distribution's fuse2fs and the floor (an in-memory file system
// on go-fuse): every workload runs on every target in turn, several times, in
// one process, and medians and ratios are printed.
//
// It is started by `make bench`; see -h for its flags. It needs root, because
// the kernel's ext4 needs a loop device; a target that the machine lacks is
// left out with the reason printed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

type config struct {
	dir      string
	bin      string
	floor    string
	tar      string
	size     string
	runs     int
	slowRuns int
	small    int
	fioSize  string
	only     string
	targets  string
	row      string
	doc      string
	jsonOut  string
	mountOpt string
	mkfsOpt  []string // of a journal mode
	modeOpt  string   // mount options of a journal mode
	memDir   string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(workerMain(os.Args[2:]))
	}
	c := &config{}
	flag.StringVar(&c.dir, "dir", filepath.Join(os.TempDir(), "extfused-bench"), "working directory for images and mounts (made, and removed at the end)")
	flag.StringVar(&c.bin, "bin", "bin/extfused", "the extfused binary")
	flag.StringVar(&c.floor, "floor", "bin/floor", "the floor binary")
	flag.StringVar(&c.tar, "tar", "", "uncompressed tar of a source tree for untar and rm")
	flag.StringVar(&c.size, "size", "6G", "image size")
	flag.IntVar(&c.runs, "runs", 3, "runs of each workload on each target; the median counts")
	flag.IntVar(&c.slowRuns, "fuse2fs-runs", 1, "runs on fuse2fs, which is slow")
	flag.IntVar(&c.small, "files", 20000, "files of the small-file workloads")
	flag.StringVar(&c.fioSize, "fio-size", "1g", "file size of the fio workloads")
	flag.StringVar(&c.only, "only", "", "comma-separated suites: untar,small,fio,fsync,fallocate2,mount,journal (default all)")
	flag.StringVar(&c.targets, "targets", "extfused,ext4,floor,fuse2fs", "comma-separated targets")
	flag.StringVar(&c.row, "row", "", "append the result under this version to -doc")
	flag.StringVar(&c.doc, "doc", "docs/PERFORMANCE.md", "the document for -row")
	flag.StringVar(&c.jsonOut, "json", "", "write all figures as JSON to this file")
	flag.StringVar(&c.mountOpt, "o", "", "mount options for extfused")
	flag.StringVar(&c.memDir, "mem-dir", "/dev/shm/extfused-bench", "as -dir, on a tmpfs: for the fsync rows that are not to measure the disk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c *config) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	targets, err := chooseTargets(c)
	if err != nil {
		return err
	}
	res := newResults(targets)
	for _, s := range chooseSuites(c) {
		if why := s.missing(c); why != "" {
			fmt.Printf("skipped %s: %s\n", s.name, why)
			continue
		}
		for r := 0; r < c.runs; r++ {
			for _, t := range targets {
				if t.slow && r >= c.slowRuns {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err := runSuite(ctx, c, s, t, res); err != nil {
					return fmt.Errorf("%s on %s: %w", s.name, t.name, err)
				}
			}
		}
	}
	res.print(os.Stdout)
	if c.jsonOut != "" {
		if err := res.writeJSON(c.jsonOut); err != nil {
			return err
		}
	}
	if c.row != "" {
		return res.appendRow(c.doc, c.row, "make bench BENCH_ARGS='"+strings.Join(os.Args[1:], " ")+"'")
	}
	return nil
}

// runSuite runs one suite on a fresh file system of one target.
func runSuite(ctx context.Context, c *config, s *suite, t *target, res *results) error {
	m, err := t.mount(ctx, c)
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	env := &suiteEnv{ctx: ctx, cfg: c, target: t, m: m, add: func(row string, v float64, unit unit) {
		res.add(row, t.name, v, unit)
		fmt.Printf("%-28s %-9s %12.3f %s\n", row, t.name, v, unit.name)
	}}
	err = s.run(env)
	if peak := m.peakMemory(); peak > 0 && err == nil {
		env.add(s.name+": peak memory", float64(peak)/(1<<20), mebibytes)
	}
	if e := m.unmount(); err == nil && e != nil {
		err = fmt.Errorf("unmount: %w", e)
	}
	return err
}
