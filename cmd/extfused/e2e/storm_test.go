package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stormThreads work on the same few directories at once.
const stormThreads = 32

// stuckAfter is the age at which a request is called stuck.
const stuckAfter = 30 * time.Second

// TestNamespaceStorm makes, links, renames and removes names from 32 threads in
// one directory and across directories, back and forth. Nothing may get stuck,
// and nothing may fail but for what the others did meanwhile. With
// EXTFUSED_FULL it takes 10 minutes, of a daemon with the race detector.
func TestNamespaceStorm(t *testing.T) {
	needMount(t)
	length := 10 * time.Second
	if longRun() {
		length = 10 * time.Minute
		useRaceDaemon(t)
	}
	m := mountImage(t, mkfsImage(t, "1G", "-O", "dir_index"))
	s := storm{t: t, m: m, seed: number(t, "EXTFUSED_SEED", uint64(time.Now().UnixNano()))}
	t.Logf("EXTFUSED_SEED=%d", s.seed)
	for k := range 4 {
		if err := os.Mkdir(filepath.Join(m.dir, fmt.Sprint("dir", k)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.run(length)
	var st unix.Statfs_t
	if err := unix.Statfs(m.dir, &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations in %v, %d inodes in use", s.done.Load(), length, st.Files-st.Ffree)
	if strings.Contains(m.log.String(), "DATA RACE") {
		t.Errorf("the race detector says:\n%s", m.log)
	}
}

// useRaceDaemon builds extfused with the race detector for this test.
func useRaceDaemon(t *testing.T) {
	t.Helper()
	if os.Getenv("EXTFUSED_BIN") != "" {
		return
	}
	needProgram(t, "gcc")
	path := filepath.Join(t.TempDir(), "extfused-race")
	cmd := exec.Command("go", "build", "-race", "-o", path, "extfused/cmd/extfused")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build -race: %v\n%s", err, out)
	}
	old := bin
	bin = path
	t.Cleanup(func() { bin = old })
}

type storm struct {
	t    *testing.T
	m    *mount
	seed uint64

	done  atomic.Int64
	since [stormThreads]atomic.Int64 // when the thread's call began, Unix ns; 0 between calls
	what  [stormThreads]atomic.Pointer[string]
	bad   atomic.Pointer[string] // the first failure
}

func (s *storm) run(length time.Duration) {
	s.t.Helper()
	stop := time.Now().Add(length)
	var wg sync.WaitGroup
	for k := range stormThreads {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(s.seed, uint64(k)))
			for time.Now().Before(stop) && s.bad.Load() == nil {
				s.call(k, rng)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	s.watch(over)
	if bad := s.bad.Load(); bad != nil {
		s.t.Error(*bad)
	}
}

// watch is the watchdog: a call that is stuck ends the test with the
// goroutines of the daemon, which SIGQUIT makes it print.
func (s *storm) watch(over <-chan struct{}) {
	s.t.Helper()
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Second):
		}
		for k := range s.since {
			began := s.since[k].Load()
			if began == 0 || time.Since(time.Unix(0, began)) < stuckAfter {
				continue
			}
			s.m.cmd.Process.Signal(syscall.SIGQUIT)
			<-s.m.done
			s.m.over = true
			syscall.Unmount(s.m.dir, syscall.MNT_DETACH)
			s.t.Fatalf("%s takes longer than %v; the daemon:\n%s", *s.what[k].Load(), stuckAfter, s.m.log)
		}
	}
}

// harmless are the errors that others' work explains.
var harmless = []error{nil, unix.ENOENT, unix.EEXIST, unix.ENOTEMPTY, unix.ENOTDIR, unix.EISDIR, unix.EINVAL, unix.EPERM, unix.ELOOP}

func (s *storm) call(k int, rng *rand.Rand) {
	path := func() string {
		p := filepath.Join(s.m.dir, fmt.Sprint("dir", rng.IntN(4)))
		if rng.IntN(3) == 0 {
			p = filepath.Join(p, fmt.Sprint("sub", rng.IntN(6)))
		}
		return filepath.Join(p, fmt.Sprint([]string{"name", "sub"}[rng.IntN(2)], rng.IntN(6)))
	}
	a, b := path(), path()
	op := stormOps[rng.IntN(len(stormOps))]
	what := fmt.Sprintf("%s %s %s", op.name, a, b)
	s.what[k].Store(&what)
	s.since[k].Store(time.Now().UnixNano())
	err := op.do(a, b)
	s.since[k].Store(0)
	s.done.Add(1)
	if !slices.Contains(harmless, err) {
		bad := fmt.Sprintf("%s: %v", what, err)
		s.bad.CompareAndSwap(nil, &bad)
	}
}

var stormOps = []struct {
	name string
	do   func(a, b string) error
}{
	{"create", func(a, _ string) error { return touch(a, unix.O_CREAT|unix.O_RDWR) }},
	{"create O_EXCL", func(a, _ string) error { return touch(a, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY) }},
	{"mkdir", func(a, _ string) error { return unix.Mkdir(a, 0o755) }},
	{"mkdir", func(a, _ string) error { return unix.Mkdir(a, 0o755) }},
	{"unlink", func(a, _ string) error { return unix.Unlink(a) }},
	{"rmdir", func(a, _ string) error { return unix.Rmdir(a) }},
	{"remove a tree", removeTree}, // else what renames push out of reach fills the image
	{"rename", unix.Rename},
	{"rename", unix.Rename},
	{"rename back", func(a, b string) error { return unix.Rename(b, a) }},
	{"exchange", func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	}},
	{"rename NOREPLACE", func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_NOREPLACE)
	}},
	{"rename WHITEOUT", func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_WHITEOUT)
	}},
	{"link", unix.Link},
	{"symlink", func(a, _ string) error { return unix.Symlink("name1", a) }},
	{"stat", func(a, _ string) error { var st unix.Stat_t; return unix.Lstat(a, &st) }},
	{"setxattr", func(a, _ string) error { return unix.Setxattr(a, "user.x", []byte("value"), 0) }},
	{"chmod", func(a, _ string) error { return unix.Chmod(a, 0o700) }},
	{"truncate", func(a, _ string) error { return unix.Truncate(a, 5000) }},
	{"tmpfile", func(a, b string) error {
		fd, err := unix.Open(filepath.Dir(a), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, b, unix.AT_SYMLINK_FOLLOW)
	}},
	{"readdir", func(a, _ string) error {
		fd, err := unix.Open(filepath.Dir(a), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Getdents(fd, make([]byte, 4096))
		return err
	}},
}

func removeTree(a, _ string) error {
	err := os.RemoveAll(a)
	errno := syscall.Errno(0)
	switch {
	case !errors.As(err, &errno):
		return err
	case errno == unix.ENXIO: // a whiteout, which it opened
		return nil
	}
	return errno
}

// touch opens a file, without waiting for what is none, writes and closes it.
func touch(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err == unix.ENXIO { // a whiteout: no device answers
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("written"))
	if err == unix.EBADF {
		return nil
	}
	return err
}
