package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bin is the binary under test; work is a directory for the whole run.
var bin, work string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if len(os.Args) == 4 {
		switch os.Args[1] {
		case "writer":
			return writerMain(os.Args[2], os.Args[3])
		case "posix":
			return posixMain(os.Args[2], os.Args[3])
		}
	}
	var err error
	if work, err = os.MkdirTemp("", "extfused-e2e"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(work)
	if bin = os.Getenv("EXTFUSED_BIN"); bin != "" {
		return m.Run()
	}
	bin = filepath.Join(work, "extfused")
	cmd := exec.Command("go", "build", "-o", bin, "extfused/cmd/extfused")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func needMount(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE mounts here: %v", err)
	}
	f.Close()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the tests compare owners and use loop devices")
	}
	needProgram(t, "e2fsck")
}

func needLoop(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
	b, _ := os.ReadFile("/proc/filesystems")
	if !bytes.Contains(b, []byte("\text4\n")) {
		t.Skip("this kernel has no ext4")
	}
}

func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

// run runs a program and fails the test unless it exits with 0.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// image formats an image of a size with extfused mkfs.
func image(t *testing.T, size string) string {
	t.Helper()
	img := filepath.Join(t.TempDir(), "image")
	run(t, bin, "mkfs", "-b", "4096", "-s", size, img)
	return img
}

// mkfsImage formats an image with mkfs.ext4.
func mkfsImage(t *testing.T, size string, args ...string) string {
	t.Helper()
	img := filepath.Join(t.TempDir(), "image")
	run(t, "mkfs.ext4", append(append([]string{"-q", "-F", "-b", "4096"}, args...), img, size)...)
	return img
}

// fsck fails the test unless e2fsck finds nothing.
func fsck(t *testing.T, img string) {
	t.Helper()
	out, err := exec.Command("e2fsck", "-fn", img).CombinedOutput()
	if err != nil {
		t.Fatalf("e2fsck -fn %s: %v\n%s", img, err, out)
	}
}

// mount is a running daemon with its mountpoint.
type mount struct {
	t    *testing.T
	dir  string
	img  string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan error
	over bool
}

// mountImage mounts an image; the mount is gone, the daemon ended and the
// image checked by e2fsck when the test is over, however it ends.
func mountImage(t *testing.T, img string, opts ...string) *mount {
	t.Helper()
	m := startMount(t, img, t.TempDir(), opts...)
	t.Cleanup(m.cleanup)
	return m
}

func startMount(t *testing.T, img, dir string, opts ...string) *mount {
	t.Helper()
	m := &mount{t: t, dir: dir, img: img, log: &bytes.Buffer{}, done: make(chan error, 1)}
	args := []string{"mount", "-f"}
	if len(opts) > 0 {
		args = append(args, "-o", strings.Join(opts, ","))
	}
	m.cmd = exec.Command(bin, append(args, img, dir)...)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { m.done <- m.cmd.Wait() }()
	for i := 0; ; i++ {
		if mounted(dir) {
			break
		}
		select {
		case err := <-m.done:
			t.Fatalf("extfused mount ended: %v\n%s", err, m.log)
		case <-time.After(10 * time.Millisecond):
		}
		if i > 3000 {
			m.cmd.Process.Kill()
			t.Fatalf("not mounted after 30 s\n%s", m.log)
		}
	}
	return m
}

// mounted tells whether dir is a mountpoint that answers.
func mounted(dir string) bool {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil || !bytes.Contains(b, []byte(" "+dir+" fuse")) {
		return false
	}
	// The type is asked too: a dead mount that is in the list may be gone, and
	// the new one not yet there, when statfs answers for the directory below.
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Type == fuseSuperMagic
}

const fuseSuperMagic = 0x65735546 // FUSE_SUPER_MAGIC of statfs(2)

// umount unmounts through extfused umount, waits for the daemon's end and
// checks the image.
func (m *mount) umount() {
	m.t.Helper()
	run(m.t, bin, "umount", m.dir)
	m.wait()
	fsck(m.t, m.img)
}

// wait waits for the daemon's end; its exit code must be 0.
func (m *mount) wait() {
	m.t.Helper()
	m.over = true
	select {
	case err := <-m.done:
		if err != nil {
			m.t.Fatalf("the daemon ended with %v\n%s", err, m.log)
		}
	case <-time.After(60 * time.Second):
		m.cmd.Process.Kill()
		m.t.Fatalf("the daemon runs on 60 s after the unmount\n%s", m.log)
	}
}

// kill ends the daemon with SIGKILL and leaves the dead mountpoint.
func (m *mount) kill() {
	m.t.Helper()
	m.over = true
	m.cmd.Process.Kill()
	<-m.done
}

// cleanup is the net below every test.
func (m *mount) cleanup() {
	if m.over {
		syscall.Unmount(m.dir, syscall.MNT_DETACH)
		return
	}
	if m.t.Failed() {
		m.t.Logf("the daemon's log:\n%s", m.log)
		syscall.Unmount(m.dir, syscall.MNT_DETACH)
		m.cmd.Process.Kill()
		<-m.done
		return
	}
	m.umount()
}

// kernelMount mounts an image with the kernel's ext4 and returns the mountpoint
// and a function that unmounts it.
func kernelMount(t *testing.T, img string, opts string) (string, func()) {
	t.Helper()
	dir := t.TempDir()
	if opts != "" {
		opts = "," + opts
	}
	run(t, "mount", "-t", "ext4", "-o", "loop"+opts, img, dir)
	gone := false
	umount := func() {
		if gone {
			return
		}
		gone = true
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			syscall.Unmount(dir, syscall.MNT_DETACH)
			t.Errorf("umount: %v\n%s", err, out)
		}
	}
	t.Cleanup(umount)
	return dir, umount
}

// loopDevice attaches an image to a loop device until the test is over.
func loopDevice(t *testing.T, img string) string {
	t.Helper()
	dev := strings.TrimSpace(run(t, "losetup", "-f", "--show", img))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup -d: %v\n%s", err, out)
		}
	})
	return dev
}
