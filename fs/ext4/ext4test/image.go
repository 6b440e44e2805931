// Package ext4test makes ext4 images for tests, and looks at what became of
// them with the tools of e2fsprogs: every test that writes ends with e2fsck.
package ext4test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"extfused/blockdev"
)

// TB is what the helpers need of *testing.T and *testing.B.
type TB interface {
	testing.TB
}

// Mke2fs makes an image of size bytes in a temporary directory with the given
// further arguments of mke2fs (-t ext4 unless they say otherwise), and returns
// its path. The test is skipped where e2fsprogs is missing.
func Mke2fs(t TB, size int64, args ...string) string {
	t.Helper()
	mke2fs := Tool(t, "mke2fs")
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"-q", "-F", "-E", "nodiscard"}, args...)
	if !slices.Contains(args, "-t") {
		all = append(all, "-t", "ext4")
	}
	if out, err := exec.Command(mke2fs, append(all, path)...).CombinedOutput(); err != nil {
		t.Fatalf("mke2fs %v: %v\n%s", all, err, out)
	}
	return path
}

// Tool is the path of a program of e2fsprogs; the test is skipped without it.
func Tool(t TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/sbin/", "/usr/sbin/"} {
		if p, err := exec.LookPath(dir + name); err == nil {
			return p
		}
	}
	t.Skipf("%s of e2fsprogs is not installed", name)
	return ""
}

// Fsck fails the test unless e2fsck -fn finds nothing to say about the image:
// exit status 0. args are further arguments of e2fsck.
func Fsck(t TB, path string, args ...string) {
	t.Helper()
	out, err := exec.Command(Tool(t, "e2fsck"), append(append([]string{"-fn"}, args...), path)...).CombinedOutput()
	if err != nil {
		t.Errorf("e2fsck -fn: %v\n%s", err, out)
	}
}

// Load reads a whole image into memory.
func Load(t TB, path string) *blockdev.Overlay {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem := blockdev.NewMem(st.Size())
	buf := make([]byte, 1<<20)
	zero := make([]byte, 1<<20)
	for off := int64(0); off < st.Size(); off += int64(len(buf)) {
		n, _ := f.ReadAt(buf, off)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := mem.WriteAt(buf[:n], off); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mem
}

// Save writes a device's content to a sparse file in a temporary directory.
func Save(t TB, dev blockdev.Device) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(dev.Size()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	zero := make([]byte, 1<<20)
	for off := int64(0); off < dev.Size(); off += int64(len(buf)) {
		n, _ := dev.ReadAt(buf, off)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := f.WriteAt(buf[:n], off); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}

// Debugfs runs one debugfs request and returns its output.
func Debugfs(t TB, path, request string) string {
	t.Helper()
	out, err := exec.Command(Tool(t, "debugfs"), "-R", request, path).Output()
	if err != nil {
		t.Fatalf("debugfs %q: %v", request, err)
	}
	return string(out)
}

// DebugfsW is Debugfs for a request that changes the image.
func DebugfsW(t TB, path, request string) string {
	t.Helper()
	out, err := exec.Command(Tool(t, "debugfs"), "-w", "-R", request, path).CombinedOutput()
	if err != nil {
		t.Fatalf("debugfs -w %q: %v\n%s", request, err, out)
	}
	return string(out)
}

// Dumpe2fs returns the value of one line of dumpe2fs -h, by its label.
func Dumpe2fs(t TB, path, label string) string {
	t.Helper()
	out, err := exec.Command(Tool(t, "dumpe2fs"), "-h", path).Output()
	if err != nil {
		t.Fatalf("dumpe2fs: %v", err)
	}
	for _, line := range bytes.Split(out, []byte("\n")) {
		if rest, ok := bytes.CutPrefix(line, []byte(label+":")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	t.Fatalf("dumpe2fs prints no %q", label)
	return ""
}

// Dumpe2fsInt is Dumpe2fs for a number.
func Dumpe2fsInt(t TB, path, label string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(Dumpe2fs(t, path, label), 10, 64)
	if err != nil {
		t.Fatalf("dumpe2fs %s: %v", label, err)
	}
	return n
}
