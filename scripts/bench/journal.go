package main

import (
	"os"
	"path/filepath"
	"strconv"
)

// The journal suite: what the journal costs, by mode, and how fast fsync is where
// the disk's flushes do not hide everything else.

// journalMode is one way to run the journal.
type journalMode struct {
	name  string
	mkfs  []string
	mount string
}

var journalModes = []journalMode{
	{name: "ordered"},
	{name: "^has_journal", mkfs: []string{"-O", "^has_journal"}},
	{name: "writeback", mount: "data=writeback"},
	{name: "data=journal", mount: "data=journal"},
	{name: "async commit", mount: "data=writeback,journal_async_commit"},
}

// kernelOpt are the mount options of a suite for the kernel's mount: -o is for
// extfused only, what a journal mode asks for is for both.
func (c *config) kernelOpt() string { return c.modeOpt }

// in is the configuration for a file system of this mode below dir.
func (m journalMode) in(c *config, dir string) *config {
	v := *c
	v.dir, v.mkfsOpt, v.modeOpt = dir, m.mkfs, m.mount
	if m.mount != "" && c.mountOpt != "" {
		v.mountOpt = c.mountOpt + "," + m.mount
	} else if m.mount != "" {
		v.mountOpt = m.mount
	}
	return &v
}

// fsyncSeconds is how long each fsync row runs.
const fsyncSeconds = 5

func journalSuite(e *suiteEnv) error {
	if err := e.inMemory(); err != nil {
		return err
	}
	if e.target.name != "extfused" && e.target.name != "ext4" {
		return nil
	}
	untar := map[string]float64{}
	for _, m := range journalModes {
		if err := e.journalMode(m, untar); err != nil {
			return err
		}
	}
	if with, without := untar["ordered"], untar["^has_journal"]; with > 0 && without > 0 {
		e.add("journal: overhead on untar", 100*(with/without-1), percent)
	}
	return nil
}

// inMemory measures fsync on an image on a tmpfs, where a flush costs next to
// nothing: what is left is FUSE's part and ours.
func (e *suiteEnv) inMemory() error {
	if _, err := os.Stat(filepath.Dir(e.cfg.memDir)); err != nil {
		return nil
	}
	return e.on(journalMode{}.in(e.cfg, e.cfg.memDir), func(s *suiteEnv) error {
		for _, procs := range []string{"1", "16"} {
			rate, err := s.worker("fsync", s.m.dir, procs, strconv.Itoa(fsyncSeconds))
			if err != nil {
				return err
			}
			e.add("write+fsync in memory, "+procs+" procs", rate, perSecond)
		}
		return nil
	})
}

// on runs fn on a file system of its own.
func (e *suiteEnv) on(c *config, fn func(s *suiteEnv) error) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	m, err := e.target.mount(e.ctx, c)
	if err != nil {
		return err
	}
	s := *e
	s.cfg, s.m = c, m
	err = fn(&s)
	if e := m.unmount(); err == nil {
		err = e
	}
	return err
}

// journalMode measures one mode; the seconds of its untar go into untar.
func (e *suiteEnv) journalMode(m journalMode, untar map[string]float64) error {
	return e.on(m.in(e.cfg, filepath.Join(e.cfg.dir, "journal")), func(s *suiteEnv) error {
		if e.cfg.tar != "" {
			t, err := s.timed("tar", "-xf", e.cfg.tar, "-C", s.m.dir)
			if err != nil {
				return err
			}
			untar[m.name] = t
			e.add("untar, "+m.name, t, seconds)
			if _, err := s.timed("sync", "-f", s.m.dir); err != nil {
				return err
			}
		}
		for _, procs := range []string{"1", "16"} {
			if err := s.fsyncs(m.name, procs); err != nil {
				return err
			}
		}
		return nil
	})
}

// fsyncs measures the rate of fsyncs, and of extfused how many share a commit.
func (e *suiteEnv) fsyncs(mode, procs string) error {
	commits := func() float64 {
		if e.m.metrics == "" {
			return 0
		}
		n, err := e.m.metric("extfused_journal_commits_total")
		if err != nil {
			return 0 // no journal
		}
		return n
	}
	before := commits()
	rate, err := e.worker("fsync", e.m.dir, procs, strconv.Itoa(fsyncSeconds))
	if err != nil {
		return err
	}
	e.add("write+fsync, "+procs+" procs, "+mode, rate, perSecond)
	if n := commits() - before; n > 0 {
		e.add("fsyncs per commit, "+procs+" procs, "+mode, rate*fsyncSeconds/n, ratio)
	}
	return nil
}
