package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// unit says how a figure is read.
type unit struct {
	name   string
	higher bool // more is better
}

var (
	seconds   = unit{"s", false}
	perSecond = unit{"/s", true}
	mibps     = unit{"MiB/s", true}
	mebibytes = unit{"MiB", false}
	requests  = unit{"requests", false}
	percent   = unit{"%", false}
	ratio     = unit{"", true}
)

// suite is a set of workloads that share one mount.
type suite struct {
	name    string
	missing func(c *config) string
	run     func(e *suiteEnv) error
}

type suiteEnv struct {
	ctx    context.Context
	cfg    *config
	target *target
	m      *mounted
	add    func(row string, v float64, u unit)
}

func allSuites() []*suite {
	none := func(*config) string { return "" }
	return []*suite{
		{"untar", func(c *config) string {
			if c.tar == "" {
				return "no -tar given"
			}
			return needFile(func(c *config) string { return c.tar })(c)
		}, untarSuite},
		{"small", none, smallSuite},
		{"fio", needProgram("fio"), fioSuite},
		{"fsync", none, fsyncSuite},
		{"fallocate2", none, fallocateSuite},
		{"mount", none, mountSuite},
		{"journal", none, journalSuite},
	}
}

func chooseSuites(c *config) []*suite {
	if c.only == "" {
		return allSuites()
	}
	var out []*suite
	for _, s := range allSuites() {
		for _, name := range strings.Split(c.only, ",") {
			if s.name == name {
				out = append(out, s)
			}
		}
	}
	return out
}

// timed runs a program and returns its seconds.
func (e *suiteEnv) timed(name string, args ...string) (float64, error) {
	cmd := exec.CommandContext(e.ctx, name, args...)
	cmd.Dir = e.m.dir
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %.300s", name, err, out)
	}
	return time.Since(start).Seconds(), nil
}

func untarSuite(e *suiteEnv) error {
	tree := filepath.Join(e.m.dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	before, err := e.counts()
	if err != nil {
		return err
	}
	t, err := e.timed("tar", "-xf", e.cfg.tar, "-C", tree)
	if err != nil {
		return err
	}
	e.add("untar", t, seconds)
	if err := e.addRequests("untar: requests per file", before); err != nil {
		return err
	}
	if t, err = e.timed("find", tree, "-newermt", "2100-01-01"); err != nil {
		return err
	}
	e.add("find -newer (warm stat)", t, seconds)
	if t, err = e.timed("rm", "-rf", tree); err != nil {
		return err
	}
	e.add("rm -rf", t, seconds)
	return nil
}

func (e *suiteEnv) counts() (map[string]uint64, error) {
	if e.m.counts == nil {
		return nil, nil
	}
	return e.m.counts()
}

// addRequests adds the FUSE requests per created file since before.
func (e *suiteEnv) addRequests(row string, before map[string]uint64) error {
	after, err := e.counts()
	if err != nil || after == nil {
		return err
	}
	var all uint64
	for op, n := range after {
		all += n - before[op]
	}
	if files := after["CREATE"] - before["CREATE"]; files > 0 {
		e.add(row, float64(all)/float64(files), requests)
	}
	return nil
}

func smallSuite(e *suiteEnv) error {
	before, err := e.counts()
	if err != nil {
		return err
	}
	n := strconv.Itoa(e.cfg.small)
	for _, step := range []string{"create", "stat", "readdir", "rename", "unlink"} {
		rate, err := e.worker("small", step, e.m.dir, n)
		if err != nil {
			return err
		}
		e.add("small files: "+step, rate, perSecond)
		if step == "create" {
			if err := e.addRequests("small files: requests per file", before); err != nil {
				return err
			}
		}
	}
	return nil
}

// worker runs a workload of worker.go in a process of its own and returns the
// rate that it prints.
func (e *suiteEnv) worker(args ...string) (float64, error) {
	out, err := exec.CommandContext(e.ctx, os.Args[0], append([]string{"worker"}, args...)...).Output()
	if err != nil {
		if x, ok := err.(*exec.ExitError); ok {
			return 0, fmt.Errorf("worker %v: %w: %s", args, err, x.Stderr)
		}
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

func fsyncSuite(e *suiteEnv) error {
	for _, procs := range []string{"1", "16"} {
		rate, err := e.worker("fsync", e.m.dir, procs, "5")
		if err != nil {
			return err
		}
		e.add("write+fsync, "+procs+" procs", rate, perSecond)
	}
	return nil
}

func fallocateSuite(e *suiteEnv) error {
	for _, procs := range []string{"1", "2", "8"} {
		rate, err := e.worker("fallocate2", e.m.dir, procs, "4")
		if err != nil {
			return err
		}
		e.add("fallocate2, "+procs+" procs", rate, perSecond)
	}
	return nil
}

func fioSuite(e *suiteEnv) error {
	for _, job := range []struct {
		row string
		u   unit
		arg []string
	}{
		{"fio sequential write", mibps, []string{"--rw=write", "--bs=1m", "--end_fsync=1"}},
		{"fio sequential read", mibps, []string{"--rw=read", "--bs=1m"}},
		{"fio random read 4k", perSecond, []string{"--rw=randread", "--bs=4k", "--time_based", "--runtime=5", "--direct=1"}},
		{"fio random write 4k", perSecond, []string{"--rw=randwrite", "--bs=4k", "--time_based", "--runtime=5", "--direct=1"}},
	} {
		v, err := e.fio(job.u, job.arg)
		if err != nil {
			return err
		}
		e.add(job.row, v, job.u)
	}
	return nil
}

// fio runs one job and returns its bandwidth in MiB/s or its rate.
func (e *suiteEnv) fio(u unit, args []string) (float64, error) {
	args = append([]string{"--name=bench", "--filename=" + filepath.Join(e.m.dir, "fio.dat"), "--size=" + e.cfg.fioSize,
		"--ioengine=psync", "--invalidate=1", "--output-format=json"}, args...)
	out, err := exec.CommandContext(e.ctx, "fio", args...).Output()
	if err != nil {
		return 0, fmt.Errorf("fio %v: %w: %.300s", args, err, out)
	}
	type side struct {
		Bw   float64 `json:"bw"` // KiB/s
		Iops float64 `json:"iops"`
		Ms   float64 `json:"runtime"`
	}
	var doc struct {
		Jobs []struct{ Read, Write side }
	}
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Jobs) != 1 {
		return 0, fmt.Errorf("fio printed no result: %v", err)
	}
	s := doc.Jobs[0].Read
	if s.Ms == 0 {
		s = doc.Jobs[0].Write
	}
	if u == mibps {
		return s.Bw / 1024, nil
	}
	return s.Iops, nil
}

// mountSuite mounts a fresh, sparse image of 1 TiB, and reads one directory.
func mountSuite(e *suiteEnv) error {
	if e.target.name == "floor" {
		return nil // has no image
	}
	big := *e.cfg
	big.size = "1T"
	big.dir = filepath.Join(e.cfg.dir, "big")
	if err := os.MkdirAll(big.dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(big.dir)
	m, err := e.target.mount(e.ctx, &big)
	if err != nil {
		return err
	}
	if _, err := os.ReadDir(m.dir); err != nil {
		m.unmount()
		return err
	}
	e.add("mount 1 TiB", m.took.Seconds(), seconds)
	if peak := m.peakMemory(); peak > 0 {
		e.add("mount 1 TiB: peak memory", float64(peak)/(1<<20), mebibytes)
	}
	return m.unmount()
}
