package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// allocated is what a sparse file takes on its device, in bytes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// trim runs the command and returns how many bytes it says it trimmed.
func (b *box) trim(args ...string) int64 {
	b.t.Helper()
	r := extfused(b.t, append([]string{"trim", b.mnt}, args...)...)
	m := regexp.MustCompile(`\((\d+) bytes\) trimmed\n$`).FindStringSubmatch(r.stdout)
	if r.code != 0 || m == nil {
		b.t.Fatalf("trim: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// fillPerDir is how many files fill puts into each directory, as many as a
// source tree has.
const fillPerDir = 20

// fill makes a tree of n files of size bytes, a directory after the other.
func (b *box) fill(name string, n, size int) {
	b.t.Helper()
	data := make([]byte, size)
	for k := range data {
		data[k] = byte(k) | 1
	}
	for k := range n {
		dir := b.path(name, fmt.Sprint(k/fillPerDir))
		if k%fillPerDir == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), data, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestTrim: a trim shrinks the image file to what it holds, a second one finds
// nothing, and what is there stays there.
func TestTrim(t *testing.T) {
	b := newBox(t, "256M")
	b.mount()
	b.write("kept", "still here")
	b.fill("tree", 1000, 100<<10)
	if r := extfused(t, "sync", b.mnt); r.code != 0 {
		t.Fatal(r.stderr)
	}
	full := allocated(t, b.img)
	if full < 100<<20 {
		t.Skipf("files are not sparse here: the image takes %d bytes with 100 MB in it", full)
	}
	if err := os.RemoveAll(b.path("tree")); err != nil {
		t.Fatal(err)
	}
	if n := b.trim("--minlen", "4M"); n < 64<<20 {
		t.Errorf("%d bytes in runs of 4 MiB", n)
	}
	n := b.trim()
	after := allocated(t, b.img)
	t.Logf("%d bytes trimmed; the image takes %d bytes, %d before", n, after, full)
	if n < 100<<20 || after > full-90<<20 {
		t.Errorf("%d bytes trimmed; the image takes %d bytes, %d before", n, after, full)
	}
	if n := b.trim(); n != 0 {
		t.Errorf("a second trim: %d bytes", n)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.mnt, &st); err != nil {
		t.Fatal(err)
	}
	if s := b.stats().FS; s.DiscardCalls == 0 || s.DiscardedBytes < n || int64(s.Device.DiscardBytes) != s.DiscardedBytes {
		t.Errorf("%d discards of %d bytes; the device says %d", s.DiscardCalls, s.DiscardedBytes, s.Device.DiscardBytes)
	}
	b.fill("tree", 100, 100<<10)
	b.remount()
	b.expect("kept", "still here")
	for _, c := range []struct {
		code int
		args []string
	}{{2, []string{"--minlen", "x"}}, {2, []string{"--minlen", "10G"}}, {2, []string{"more"}}} {
		if r := extfused(t, append([]string{"trim", b.mnt}, c.args...)...); r.code != c.code {
			t.Errorf("trim %v: exit %d: %s", c.args, r.code, r.stderr)
		}
	}
	b.umount()
	b.mount("-o", "ro")
	if r := extfused(t, "trim", b.mnt); r.code != 1 || regexp.MustCompile("read-only").FindString(r.stderr) == "" {
		t.Errorf("read-only: exit %d: %s", r.code, r.stderr)
	}
}

// TestFstrim: FITRIM does the same for root, and nobody else.
func TestFstrim(t *testing.T) {
	need(t, "fstrim")
	b := newBox(t, "128M")
	b.mount()
	out := must(t, "fstrim", "-v", b.mnt)
	if n := figure(t, out, `\((\d+) bytes\) trimmed`); n < 90<<20 {
		t.Error(out)
	}
	if n := figure(t, must(t, "fstrim", "-v", b.mnt), `\((\d+) bytes\) trimmed`); n != 0 {
		t.Errorf("a second trim: %d bytes", n)
	}
	cmd := exec.Command("fstrim", b.mnt)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := finish(t, cmd); r.code == 0 {
		t.Error("nobody may trim")
	}
}

// TestDiscardOfATree: rm -rf with -o discard costs at most a tenth as many
// discards as extents were freed, with a journal and without one.
func TestDiscardOfATree(t *testing.T) {
	for name, mkfs := range map[string][]string{"journal": {"-b", "4096"}, "no journal": {"-b", "4096", "-O", "^has_journal"}} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "256M", mkfs...)
			b.mount("-o", "discard,data=writeback,commit=30")
			b.fill("tree", 3000, 30<<10)
			if r := extfused(t, "sync", b.mnt); r.code != 0 {
				t.Fatal(r.stderr)
			}
			full := allocated(t, b.img)
			before := b.stats().FS
			if err := os.RemoveAll(b.path("tree")); err != nil {
				t.Fatal(err)
			}
			var calls, bytes int64
			var extents uint64
			if r := extfused(t, "sync", b.mnt); r.code != 0 {
				t.Fatal(r.stderr)
			}
			eventually(t, "all that was freed is discarded", func() bool {
				s := b.stats().FS
				calls, bytes = s.DiscardCalls-before.DiscardCalls, s.DiscardedBytes-before.DiscardedBytes
				extents = s.Allocator.FreedExtents - before.Allocator.FreedExtents
				return s.Allocator.Pending == 0 && bytes >= 3000*30<<10
			})
			t.Logf("%d discards of %d bytes for %d extents: %.0f per GB", calls, bytes, extents, float64(calls)/float64(bytes)*1e9)
			if extents < 3000 || calls == 0 || uint64(calls)*10 > extents {
				t.Errorf("%d discards for %d extents", calls, extents)
			}
			if now := allocated(t, b.img); full > 80<<20 && now > full-80<<20 {
				t.Errorf("the image takes %d bytes, %d before", now, full)
			}
		})
	}
}
