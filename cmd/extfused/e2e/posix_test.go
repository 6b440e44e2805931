package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The conformance suite runs each check in a directory of its own, on the
// kernel's ext4 and on extfused, and compares what it saw: the errno, and
// every attribute of every file in the directory afterwards, which timestamps
// changed included. The kernel is the oracle.

// check is one call on one kind of object.
type check struct {
	name string
	prep func(dir string) error // before; nil means the standard objects
	do   func(dir string) string
	user bool // runs as an ordinary user
}

// differs lists where extfused differs on purpose, with the reason.
var differs = map[string]string{
	"mmap shared":                    "the FUSE client does not tell a daemon of accesses through a mapping, so atime stays",
	"fallocate on an immutable file": "the FUSE client notes a new mtime before it asks",
	"times to their ends":            "with the writeback cache mtime is the FUSE client's, which does not know ext4's range; what reaches the image is clamped",
}

// posixUser is the ordinary user of the suite.
const posixUser = 12345

// TestPosix compares extfused with the kernel, check by check.
func TestPosix(t *testing.T) {
	needMount(t)
	needLoop(t)
	kdir, _ := kernelMount(t, mkfsImage(t, "256M"), "")
	m := mountImage(t, mkfsImage(t, "256M"))
	want, got := posixRun(t, kdir), posixRun(t, m.dir)
	if len(want) < 400 {
		t.Errorf("the suite has %d checks, want at least 400", len(want))
	}
	for _, name := range sortedKeys(want) {
		t.Run(name, func(t *testing.T) {
			if got[name] == want[name] {
				return
			}
			if why := differs[name]; why != "" {
				t.Skipf("differs on purpose: %s", why)
			}
			t.Errorf("extfused:\n%s\nkernel:\n%s", got[name], want[name])
		})
	}
}

func sortedKeys(m map[string]string) []string {
	var k []string
	for n := range m {
		k = append(k, n)
	}
	slices.Sort(k)
	return k
}

// posixRun runs the suite on a mount, in processes of its own: as root and as
// an ordinary user.
func posixRun(t *testing.T, mnt string) map[string]string {
	t.Helper()
	dir := filepath.Join(mnt, "posix")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range posixChecks() {
		if err := posixPrep(dir, c); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	syscall.Sync()
	time.Sleep(50 * time.Millisecond) // past the clock tick of the kernel's timestamps
	bin := filepath.Join(work, "posix.test")
	run(t, "cp", os.Args[0], bin)
	run(t, "chmod", "755", work, bin)
	for _, uid := range []uint32{0, posixUser} {
		cmd := exec.Command(bin, "posix", dir, fmt.Sprint(uid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("the suite on %s as uid %d: %v", mnt, uid, err)
		}
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range posixChecks() {
		all[c.name] += posixState(filepath.Join(dir, fileName(c.name)))
	}
	return all
}

// fileName makes a directory name of a check's name.
func fileName(name string) string { return strings.NewReplacer("/", "_", " ", "_").Replace(name) }

// posixMain runs the checks of one user and prints their results as JSON.
func posixMain(dir, uid string) int {
	syscall.Umask(0o022)
	res := map[string]string{}
	for _, c := range posixChecks() {
		if c.user == (uid == "0") {
			continue
		}
		res[c.name] = c.do(filepath.Join(dir, fileName(c.name))) + "\n"
	}
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return 1
	}
	return 0
}

// fixed is the time that all files of a check have before it.
var fixed = time.Unix(1_000_000_000, 123456789)

// posixPrep makes the directory of a check.
func posixPrep(top string, c check) error {
	dir := filepath.Join(top, fileName(c.name))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	prep := c.prep
	if prep == nil {
		prep = standardObjects
	}
	if err := prep(dir); err != nil {
		return err
	}
	if c.user {
		fi, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := os.Chmod(dir, fi.Mode()|0o777); err != nil {
			return err
		}
	}
	return filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		ts := []syscall.Timespec{syscall.NsecToTimespec(fixed.UnixNano()), syscall.NsecToTimespec(fixed.UnixNano())}
		return lutimes(p, ts)
	})
}

// standardObjects are one of each kind.
func standardObjects(dir string) error {
	for _, f := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "file"), []byte("content of the file\n"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(dir, "other"), []byte("other"), 0o600) },
		func() error { return os.Mkdir(filepath.Join(dir, "dir"), 0o755) },
		func() error { return os.Mkdir(filepath.Join(dir, "emptydir"), 0o755) },
		func() error { return os.MkdirAll(filepath.Join(dir, "fulldir", "sub"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "fulldir", "f"), nil, 0o644) },
		func() error { return os.Symlink("file", filepath.Join(dir, "tofile")) },
		func() error { return os.Symlink("fulldir", filepath.Join(dir, "todir")) },
		func() error { return os.Symlink("nowhere", filepath.Join(dir, "dangling")) },
		func() error { return os.Symlink("loop", filepath.Join(dir, "loop")) },
		func() error { return syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644) },
		func() error { return os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "hardlink")) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// posixState is everything stat(2) shows of the files of a check.
func posixState(dir string) string {
	var b strings.Builder
	inodes := map[uint64]string{}
	var files []string
	filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
		rel, _ := filepath.Rel(dir, p)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", rel, err)
			return nil
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			fmt.Fprintf(&b, "%s: %v\n", rel, err)
			return nil
		}
		if inodes[st.Ino] == "" {
			inodes[st.Ino] = rel
		}
		fmt.Fprintf(&b, "%s mode %o uid %d gid %d nlink %d size %d blocks %d rdev %x same as %s changed%s%s", rel, st.Mode, st.Uid, st.Gid,
			st.Nlink, st.Size, st.Blocks, st.Rdev, inodes[st.Ino], timeOf(" atime", st.Atim), timeOf(" mtime", st.Mtim))
		if t, err := os.Readlink(p); err == nil {
			fmt.Fprintf(&b, " -> %.60s", t)
		}
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Size < 1<<20 {
			files = append(files, rel)
		}
		b.WriteByte('\n')
		return nil
	})
	for _, rel := range files { // after all stats: reading changes atime
		c, err := os.ReadFile(filepath.Join(dir, rel))
		fmt.Fprintf(&b, "%s content %.60q %v\n", rel, c, err)
	}
	return b.String()
}

// timeOf says how a timestamp changed from what it was before the check.
func timeOf(name string, ts syscall.Timespec) string {
	t := time.Unix(ts.Sec, ts.Nsec)
	switch {
	case t.Equal(fixed):
		return ""
	case time.Since(t) < time.Hour && time.Until(t) < time.Minute:
		return name
	}
	return fmt.Sprintf("%s=%d.%09d", name, ts.Sec, ts.Nsec)
}

// errno is the result of a call by the errno's name.
func errno(err error) string {
	if err == nil {
		return "OK"
	}
	for {
		switch e := err.(type) {
		case *os.PathError:
			err = e.Err
			continue
		case *os.LinkError:
			err = e.Err
			continue
		case *os.SyscallError:
			err = e.Err
			continue
		case syscall.Errno:
			return errnoName(e)
		}
		return err.Error()
	}
}
