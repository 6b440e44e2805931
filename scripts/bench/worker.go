package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// workerMain runs one workload in this process and prints its rate per second.
//
//	small create|stat|readdir|rename|unlink DIR FILES
//	fsync DIR PROCS SECONDS
//	fallocate2 DIR PROCS SECONDS
func workerMain(args []string) int {
	rate, err := workerRun(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(rate)
	return 0
}

func workerRun(args []string) (float64, error) {
	if len(args) != 4 {
		return 0, errors.New("bench worker: wrong arguments")
	}
	if args[0] == "small" {
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return 0, err
		}
		return small(args[1], args[2], n)
	}
	procs, err := strconv.Atoi(args[2])
	if err != nil {
		return 0, err
	}
	sec, err := strconv.Atoi(args[3])
	if err != nil {
		return 0, err
	}
	loop := map[string]func(string, time.Time) (int, error){"fsync": fsyncLoop, "fallocate2": fallocateLoop}[args[0]]
	if loop == nil {
		return 0, fmt.Errorf("bench worker: no workload %q", args[0])
	}
	if procs > 1 {
		return many(args, procs)
	}
	start := time.Now()
	n, err := loop(args[1], start.Add(time.Duration(sec)*time.Second))
	return float64(n) / time.Since(start).Seconds(), err
}

// many runs a workload in several processes at once and adds their rates.
func many(args []string, procs int) (float64, error) {
	cmds := make([]*exec.Cmd, procs)
	outs := make([]*strings.Builder, procs)
	for i := range cmds {
		cmds[i] = exec.Command(os.Args[0], "worker", args[0], args[1], "1", args[3])
		outs[i] = &strings.Builder{}
		cmds[i].Stdout, cmds[i].Stderr = outs[i], os.Stderr
		if err := cmds[i].Start(); err != nil {
			return 0, err
		}
	}
	sum := 0.0
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			return 0, err
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(outs[i].String()), 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// small works on n files of 1 KiB spread over 20 directories.
func small(step, dir string, n int) (float64, error) {
	const dirs = 20
	path := func(i int, suffix string) string {
		return filepath.Join(dir, fmt.Sprintf("small%02d", i%dirs), fmt.Sprintf("f%06d%s", i, suffix))
	}
	body := make([]byte, 1024)
	each := map[string]func(i int) error{
		"create": func(i int) error { return os.WriteFile(path(i, ""), body, 0o644) },
		"stat":   func(i int) error { _, err := os.Lstat(path(i, "")); return err },
		"rename": func(i int) error { return os.Rename(path(i, ""), path(i+1, "r")) },
		"unlink": func(i int) error { return os.Remove(path(i+1, "r")) },
	}[step]
	if step == "create" {
		for i := range dirs {
			if err := os.Mkdir(filepath.Dir(path(i, "")), 0o755); err != nil {
				return 0, err
			}
		}
	}
	start := time.Now()
	if step == "readdir" {
		err := readAll(dir, dirs, n)
		return float64(n) / time.Since(start).Seconds(), err
	}
	for i := range n {
		if err := each(i); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

func readAll(dir string, dirs, want int) error {
	got := 0
	for i := range dirs {
		names, err := os.ReadDir(filepath.Join(dir, fmt.Sprintf("small%02d", i)))
		if err != nil {
			return err
		}
		got += len(names)
	}
	if got != want {
		return fmt.Errorf("readdir found %d names, want %d", got, want)
	}
	return nil
}

// fsyncLoop overwrites 4 KiB pieces of a file of its own, an fsync after each.
func fsyncLoop(dir string, end time.Time) (int, error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	buf := make([]byte, 4096)
	n := 0
	for ; time.Now().Before(end); n++ {
		if _, err := f.WriteAt(buf, int64(n)*4096); err != nil {
			return n, err
		}
		if err := f.Sync(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// fallocateLoop is will-it-scale's fallocate2: an unlinked file grows by 8 KiB
// to 1 MiB, is truncated to 0, and again; one fallocate is one operation.
func fallocateLoop(dir string, end time.Time) (int, error) {
	f, err := os.CreateTemp(dir, "fallocate2")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return 0, err
	}
	n, fd := 0, f.Fd()
	for time.Now().Before(end) {
		for off := int64(0); off < 1<<20; off += 8 << 10 {
			if err := rawFallocate(fd, off, 8<<10); err != nil {
				return n, err
			}
			n++
		}
		if err := f.Truncate(0); err != nil {
			return n, err
		}
	}
	return n, nil
}

// rawFallocate is fallocate(2) as a C program calls it: the Go scheduler does
// not hear of it. What it does about calls that block, in a process that has
// nothing else to do, would be measured with the file system.
func rawFallocate(fd uintptr, off, n int64) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_FALLOCATE, fd, 0, uintptr(off), uintptr(n), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
