package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/command"
	"extfused/cmd/extfused/control"
	"extfused/cmd/extfused/daemon"
	"extfused/cmd/extfused/mounts"
)

// asMain makes the test binary behave as extfused, so that the daemon under
// test is this code, race detector and all, in a process of its own.
const asMain = "EXTFUSED_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Exit(command.Main(os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// result is what a finished command left.
type result struct {
	code           int
	stdout, stderr string
}

// extfused runs the command line and waits.
func extfused(t *testing.T, args ...string) result {
	t.Helper()
	return runAs(t, os.Args[0], nil, args...)
}

// runAs runs the test binary under the name argv0, which is what tells a mount
// helper from extfused.
func runAs(t *testing.T, path string, cred *syscall.Credential, args ...string) result {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	if cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	return finish(t, cmd)
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// must runs a tool that has to succeed.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	r := finish(t, exec.Command(name, args...))
	if r.code != 0 {
		t.Fatalf("%s %v: exit %d\n%s%s", name, args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// need skips the test where a tool is missing.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// needFUSE skips the test where nothing can be mounted.
func needFUSE(t *testing.T) {
	t.Helper()
	need(t, "mke2fs", "e2fsck")
	if os.Geteuid() != 0 {
		t.Skip("only root may mount without fusermount3")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	f.Close()
}

// box is an image, a mountpoint, and a daemon between them now and then. When
// the test ends the mount is removed, whatever happened, and the image must
// please e2fsck.
type box struct {
	t        *testing.T
	img, mnt string
	log      string
}

// newBox makes a box with a fresh image of mke2fs.
func newBox(t *testing.T, size string, mkfs ...string) *box {
	t.Helper()
	needFUSE(t)
	dir := t.TempDir()
	b := &box{t: t, img: filepath.Join(dir, "img"), mnt: filepath.Join(dir, "mnt"), log: filepath.Join(dir, "log")}
	if err := os.Mkdir(b.mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "truncate", "-s", size, b.img)
	must(t, "mke2fs", append(append([]string{"-q", "-F", "-t", "ext4"}, mkfs...), b.img)...)
	t.Cleanup(b.close)
	return b
}

// close removes the mount and checks the image.
func (b *box) close() {
	b.remove()
	b.t.Helper()
	if b.t.Failed() {
		if log, err := os.ReadFile(b.log); err == nil {
			b.t.Logf("log of the daemon:\n%s", log)
		}
	}
	b.check()
}

// remove unmounts if need be: kindly, then by force.
func (b *box) remove() {
	pid := b.pid()
	if pid == 0 {
		if m := b.mounted(); m != nil {
			unix.Unmount(b.mnt, unix.MNT_DETACH)
		}
		return
	}
	r := extfused(b.t, "umount", b.mnt)
	if r.code == 0 {
		b.await(pid)
		return
	}
	b.t.Errorf("cleaning up: umount: exit %d: %s", r.code, r.stderr)
	unix.Unmount(b.mnt, unix.MNT_DETACH)
	unix.Kill(pid, unix.SIGKILL)
	b.await(pid)
}

// check runs e2fsck, which must find nothing.
func (b *box) check() {
	b.t.Helper()
	r := finish(b.t, exec.Command("e2fsck", "-fn", b.img))
	if r.code != 0 {
		b.t.Errorf("e2fsck -fn: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// mount mounts, which must succeed.
func (b *box) mount(args ...string) {
	b.t.Helper()
	r := b.tryMount(args...)
	if r.code != 0 || r.stderr != "" {
		b.t.Fatalf("mount: exit %d: %s", r.code, r.stderr)
	}
}

// tryMount mounts with further arguments before IMAGE MOUNTPOINT.
func (b *box) tryMount(args ...string) result {
	b.t.Helper()
	args = append([]string{"mount", "--log-file", b.log}, args...)
	return extfused(b.t, append(args, b.img, b.mnt)...)
}

// umount unmounts, which must succeed, and checks the image.
func (b *box) umount() {
	b.t.Helper()
	if r := extfused(b.t, "umount", b.mnt); r.code != 0 {
		b.t.Fatalf("umount: exit %d: %s", r.code, r.stderr)
	}
	b.check()
}

// remount unmounts and mounts.
func (b *box) remount(args ...string) {
	b.t.Helper()
	b.umount()
	b.mount(args...)
}

// mounted is our entry in mountinfo, nil if there is none.
func (b *box) mounted() *mounts.Mount {
	b.t.Helper()
	m, err := mounts.At(b.mnt)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// pid is the daemon's process id, 0 if no daemon answers.
func (b *box) pid() int {
	m := b.mounted()
	if m == nil {
		return 0
	}
	c, err := control.Dial(m.Dev, m.UserID())
	if err != nil {
		return 0
	}
	defer c.Close()
	var info daemon.Info
	if err := c.Do("ping", nil, &info); err != nil {
		b.t.Fatalf("ping: %v", err)
	}
	return info.PID
}

// await waits until a daemon has ended.
func (b *box) await(pid int) {
	b.t.Helper()
	eventually(b.t, "the daemon ends", func() bool { return !alive(pid) })
}

// alive tells whether a process runs; one that nobody waits for (a zombie of
// a container without init) does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// eventually waits for cond.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 600 {
		if cond() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("30 s passed, and still not: %s", what)
}

// stats asks the daemon for its figures.
func (b *box) stats() daemon.Stats {
	b.t.Helper()
	r := extfused(b.t, "stats", "--json", b.mnt)
	if r.code != 0 {
		b.t.Fatalf("stats: exit %d: %s", r.code, r.stderr)
	}
	var s daemon.Stats
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// path is a path below the mountpoint.
func (b *box) path(elem ...string) string {
	return filepath.Join(append([]string{b.mnt}, elem...)...)
}

// write makes a file.
func (b *box) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// expect compares a file.
func (b *box) expect(name, content string) {
	b.t.Helper()
	got, err := os.ReadFile(b.path(name))
	if err != nil || string(got) != content {
		b.t.Errorf("%s is %.60q, %v; want %.60q", name, got, err, content)
	}
}

// sum is what must not change of an image that is only read.
func sum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x %v %d", h.Sum(nil), st.ModTime(), st.Size())
}
