package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is one file system under measurement.
type target struct {
	name    string
	slow    bool // measured -fuse2fs-runs times only
	missing func(c *config) string
	mount   func(ctx context.Context, c *config) (*mounted, error)
}

// mounted is a fresh file system of a target.
type mounted struct {
	dir     string
	cmd     *exec.Cmd // the daemon, nil for the kernel
	log     *bytes.Buffer
	waitErr chan error
	stop    func() error                      // asks for the unmount
	counts  func() (map[string]uint64, error) // FUSE requests by operation, nil where unknown
	metrics string                            // URL of extfused's metrics, "" for the others
	image   string
	took    time.Duration // from the start of the mount until it answered
}

func allTargets() []*target {
	return []*target{
		{name: "extfused", missing: needFile(func(c *config) string { return c.bin }), mount: mountExtfused},
		{name: "ext4", missing: needExt4, mount: mountKernel},
		{name: "floor", missing: needFile(func(c *config) string { return c.floor }), mount: mountFloor},
		{name: "fuse2fs", slow: true, missing: needProgram("fuse2fs"), mount: mountFuse2fs},
	}
}

func chooseTargets(c *config) ([]*target, error) {
	var out []*target
	for _, name := range strings.Split(c.targets, ",") {
		found := false
		for _, t := range allTargets() {
			if t.name != name {
				continue
			}
			found = true
			if why := t.missing(c); why != "" {
				fmt.Printf("left out %s: %s\n", name, why)
				continue
			}
			out = append(out, t)
		}
		if !found {
			return nil, fmt.Errorf("no target %q", name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no target can run here")
	}
	return out, nil
}

func needFile(path func(*config) string) func(*config) string {
	return func(c *config) string {
		if _, err := os.Stat(path(c)); err != nil {
			return err.Error()
		}
		return ""
	}
}

func needProgram(name string) func(*config) string {
	return func(*config) string {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
		return ""
	}
}

func needExt4(c *config) string {
	if os.Geteuid() != 0 {
		return "needs root for a loop device"
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "no loop devices: " + err.Error()
	}
	return needProgram("mkfs.ext4")(c)
}

// fresh makes an empty image and mountpoint of a target.
func fresh(c *config, name string, mkfs ...string) (image, dir string, err error) {
	image, dir = filepath.Join(c.dir, name+".img"), filepath.Join(c.dir, name)
	if err := os.Remove(image); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%s: %w: %s", mkfs[0], err, out)
	}
	return image, dir, nil
}

func freshMke2fs(c *config, name string) (image, dir string, err error) {
	image, dir = filepath.Join(c.dir, name+".img"), filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	os.Remove(image)
	args := append(append([]string{"-q", "-F", "-b", "4096"}, c.mkfsOpt...), image, c.size)
	if out, err := exec.Command("mkfs.ext4", args...).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return image, dir, nil
}

func mountKernel(_ context.Context, c *config) (*mounted, error) {
	image, dir, err := freshMke2fs(c, "ext4")
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if out, err := exec.Command("mount", "-o", strings.Trim("loop,"+c.kernelOpt(), ","), image, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount: %w: %s", err, out)
	}
	return &mounted{dir: dir, image: image, took: time.Since(start)}, nil
}

func mountFuse2fs(ctx context.Context, c *config) (*mounted, error) {
	image, dir, err := freshMke2fs(c, "fuse2fs")
	if err != nil {
		return nil, err
	}
	return startDaemon(ctx, &mounted{dir: dir, image: image}, "fuse2fs", "-f", image, dir)
}

func mountFloor(ctx context.Context, c *config) (*mounted, error) {
	dir, stats := filepath.Join(c.dir, "floor"), filepath.Join(c.dir, "floor.json")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	m := &mounted{dir: dir}
	m.counts = func() (map[string]uint64, error) {
		os.Remove(stats)
		if err := m.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			return nil, err
		}
		return readCounts(stats)
	}
	return startDaemon(ctx, m, c.floor, "-stats", stats, dir)
}

func readCounts(path string) (map[string]uint64, error) {
	for i := 0; i < 100; i++ {
		if b, err := os.ReadFile(path); err == nil {
			m := map[string]uint64{}
			return m, json.Unmarshal(b, &m)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s did not appear", path)
}

func mountExtfused(ctx context.Context, c *config) (*mounted, error) {
	image, dir, err := fresh(c, "extfused", append([]string{c.bin, "mkfs", "-F", "-b", "4096", "-s", c.size}, c.mkfsOpt...)...)
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	m := &mounted{dir: dir, image: image, metrics: "http://" + addr + "/metrics"}
	m.stop = func() error { return runQuiet(c.bin, "umount", dir) }
	m.counts = func() (map[string]uint64, error) { return scrapeCounts(m.metrics) }
	args := []string{"mount", "-f", "--metrics", addr}
	if c.mountOpt != "" {
		args = append(args, "-o", c.mountOpt)
	}
	return startDaemon(ctx, m, c.bin, append(args, image, dir)...)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// metric reads one figure of extfused's metrics, which has no labels.
func (m *mounted) metric(name string) (float64, error) {
	resp, err := http.Get(m.metrics)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("there is no %s among the metrics", name)
}

// scrapeCounts reads extfused_fusefs_requests_total by operation.
func scrapeCounts(url string) (map[string]uint64, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := map[string]uint64{}
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		rest, ok := strings.CutPrefix(sc.Text(), `extfused_fusefs_requests_total{op="`)
		if !ok {
			continue
		}
		op, val, ok := strings.Cut(rest, `"} `)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(val, 64)
		if err != nil {
			return nil, err
		}
		m[strings.ToUpper(op)] = uint64(v)
	}
	return m, sc.Err()
}

func runQuiet(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// startDaemon starts a FUSE daemon in the foreground and waits for its mount.
func startDaemon(ctx context.Context, m *mounted, name string, args ...string) (*mounted, error) {
	m.log, m.waitErr = &bytes.Buffer{}, make(chan error, 1)
	m.cmd = exec.CommandContext(ctx, name, args...)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	start := time.Now()
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { m.waitErr <- m.cmd.Wait() }()
	for i := 0; i < 5000; i++ {
		if isMountpoint(m.dir) {
			m.took = time.Since(start)
			return m, nil
		}
		select {
		case err := <-m.waitErr:
			return nil, fmt.Errorf("%s ended: %v: %s", name, err, m.log)
		case <-time.After(2 * time.Millisecond):
		}
	}
	m.cmd.Process.Kill()
	return nil, fmt.Errorf("%s did not mount within 10 s: %s", name, m.log)
}

func isMountpoint(dir string) bool {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return err == nil && bytes.Contains(b, []byte(" "+dir+" "))
}

// unmount unmounts and waits for the daemon's end.
func (m *mounted) unmount() error {
	stop := m.stop
	if stop == nil {
		stop = func() error { return runQuiet("umount", m.dir) }
	}
	if err := stop(); err != nil {
		runQuiet("umount", "-l", m.dir)
		if m.cmd != nil {
			m.cmd.Process.Kill()
			<-m.waitErr
		}
		return err
	}
	defer os.Remove(m.image)
	if m.cmd == nil {
		return nil
	}
	select {
	case err := <-m.waitErr:
		return err
	case <-time.After(60 * time.Second):
		m.cmd.Process.Kill()
		return errors.New("the daemon did not end within 60 s of the unmount")
	}
}

// peakMemory is the daemon's peak resident set in bytes, 0 for the kernel.
func (m *mounted) peakMemory() int64 {
	if m.cmd == nil {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
