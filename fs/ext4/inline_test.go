package ext4

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// The twin on images with inline data, mostly with files that are so.
func TestInlineTwin(t *testing.T) {
	steps := 4000
	if testing.Short() {
		steps = 1500
	}
	for k, args := range [][]string{
		{"-O", "inline_data"},
		{"-b", "1024", "-I", "512", "-O", "inline_data,^metadata_csum,^has_journal"},
		{"-b", "1024", "-I", "1024", "-O", "inline_data,ea_inode"},
		{"-O", "inline_data,^dir_index,^filetype", "-b", "2048"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			t.Parallel()
			m := mountNew(t, 48<<20, args...)
			w := newTwin(t, m, *twinSeed+int64(300+k))
			w.small = true
			for range 3 {
				w.run(steps / 3)
				w.quiet()
				w.compareTree(w.root, RootIno)
				m.remount()
				w.compareTree(w.root, RootIno)
			}
			m.unmount()
			compareKernel(t, m.path, w.root)
		})
	}
}

// isInline tells what a name's inode is.
func (m *testFS) isInline(name string) bool {
	m.t.Helper()
	a, err := m.Lookup(RootIno, name)
	mustOK(m.t, err)
	m.Forget(a.Ino, 1)
	return a.Flags&ondisk.InodeInlineData != 0
}

// Every way in and out, for files.
func TestInlineFiles(t *testing.T) {
	m := mountNew(t, 32<<20, "-O", "inline_data")
	data := block(200, 1)
	check := func(f *File, name string, want []byte, inline bool) {
		t.Helper()
		got := make([]byte, 1<<16)
		n, err := f.ReadAt(got, 0)
		if err != nil || !bytes.Equal(got[:n], want) {
			t.Errorf("%s reads %d bytes, %v, want %d", name, n, err, len(want))
		}
		if m.isInline(name) != inline {
			t.Errorf("%s: inline is %v", name, !inline)
		}
	}
	write := func(f *File, p []byte, off int64) {
		t.Helper()
		if n, err := f.WriteAt(p, off); err != nil || n != len(p) {
			t.Errorf("write: %d, %v", n, err)
		}
	}
	f := m.mkfile("grows")
	write(f, data[:1], 0)
	check(f, "grows", data[:1], true)
	write(f, data[1:60], 1)
	check(f, "grows", data[:60], true)
	write(f, data[60:100], 60)
	check(f, "grows", data[:100], true)
	mustOK(t, f.Fsync(true))
	if off, err := f.Seek(5, SeekData); off != 5 || err != nil {
		t.Errorf("seek: %d, %v", off, err)
	}
	if off, err := f.Seek(5, SeekHole); off != 100 || err != nil {
		t.Errorf("seek: %d, %v", off, err)
	}
	write(f, data[100:], 100)
	check(f, "grows", data, false)
	f = m.mkfile("attributes take the room")
	write(f, data[:64], 0)
	for k := range 4 {
		mustOK(t, m.SetXattr(nil, f.Ino(), fmt.Sprint("user.a", k), data[:30], 0))
	}
	check(f, "attributes take the room", data[:64], true)
	write(f, data[64:120], 64)
	check(f, "attributes take the room", data[:120], false)
	for _, name := range []string{"user.a0", "user.a3"} {
		if v, err := m.xattr(f.Ino(), name); err != nil || !bytes.Equal(v, data[:30]) {
			t.Errorf("%s: %q, %v", name, v, err)
		}
	}
	mustErr(t, "system.data by name", ignore(m.GetXattr(f.Ino(), "system.data", nil)), syscall.EOPNOTSUPP)
	for _, c := range []struct {
		name   string
		size   uint64
		inline bool
	}{{"cut", 10, true}, {"cut to nothing", 0, true}, {"longer", 120, true}, {"much longer", 100_000, false}} {
		f := m.mkfile(c.name)
		write(f, data[:90], 0)
		_, err := m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetSize, Size: c.size})
		mustOK(t, err)
		want := make([]byte, c.size)
		copy(want, data[:90])
		check(f, c.name, want[:min(len(want), 1<<16)], c.inline)
	}
	for _, mode := range []uint32{0, FallocPunchHole | FallocKeepSize, FallocZeroRange} {
		name := fmt.Sprint("allocated ", mode)
		f := m.mkfile(name)
		write(f, data[:90], 0)
		mustOK(t, f.Allocate(20, 30, mode))
		want := bytes.Clone(data[:90])
		if mode != 0 {
			clear(want[20:50])
		}
		check(f, name, want, false)
	}
	m.remount()
	f2, err := m.Open(m.must(m.Lookup(RootIno, "longer")).Ino, syscall.O_RDONLY)
	mustOK(t, err)
	want := make([]byte, 120)
	copy(want, data[:90])
	check(f2, "longer", want, true)
	f2.Release()
}

func (m *testFS) must(a Attr, err error) Attr {
	m.t.Helper()
	mustOK(m.t, err)
	return a
}

// Directories grow from i_block into the attribute's room and out into a block;
// nothing is lost or listed twice on the way.
func TestInlineDirs(t *testing.T) {
	m := mountNew(t, 32<<20, "-O", "inline_data")
	d := m.must(m.Mkdir(nil, RootIno, "d", 0o755))
	sub := m.must(m.Mkdir(nil, d.Ino, "s", 0o755))
	dir, err := m.OpenDir(d.Ino)
	mustOK(t, err)
	defer dir.Release()
	var cookie uint64
	seen := map[string]int{}
	next := func(n int) {
		t.Helper()
		mustOK(t, dir.ReadDir(cookie, func(e DirEnt) bool {
			if n == 0 {
				return false
			}
			n, cookie = n-1, e.Next
			seen[string(e.Name)]++
			return true
		}))
	}
	next(3) // . .. s
	inline, names := 0, []string{"s"}
	for k := range 40 {
		name := fmt.Sprint("name", k)
		m.must(m.Mknod(nil, d.Ino, name, ondisk.ModeReg|0o644, 0))
		names = append(names, name)
		if m.isInline("d") {
			inline++
		}
		for _, n := range names {
			m.must(m.Lookup(d.Ino, n))
		}
		if k == 3 {
			mustOK(t, m.Unlink(d.Ino, "name1"))
			names = append(names[:2], names[3:]...)
		}
		if k == 5 || k == 12 {
			next(2)
		}
	}
	next(100)
	if inline < 6 || inline > 10 {
		t.Errorf("%d names fitted inline", inline)
	}
	for _, name := range names {
		if seen[name] > 1 {
			t.Errorf("%q was listed %d times", name, seen[name])
		}
	}
	mustErr(t, "a name that exists", ignore(m.Mkdir(nil, d.Ino, "name7", 0o755)), syscall.EEXIST)
	// An inline directory moves: its parent's number is in i_block.
	other := m.must(m.Mkdir(nil, RootIno, "other", 0o755))
	mustOK(t, m.Rename(nil, d.Ino, "s", other.Ino, "moved", 0))
	if a := m.must(m.Lookup(sub.Ino, "..")); a.Ino != other.Ino {
		t.Errorf(".. is %d, want %d", a.Ino, other.Ino)
	}
	mustErr(t, "rmdir of a full one", m.Rmdir(RootIno, "other"), syscall.ENOTEMPTY)
	mustOK(t, m.Rmdir(other.Ino, "moved"))
	mustOK(t, m.Rmdir(RootIno, "other"))
	m.must(m.Mkdir(nil, RootIno, strings.Repeat("long", 60), 0o755))
}

// What the kernel made, read, changed, and read by the kernel again.
func TestInlineOfTheKernel(t *testing.T) {
	image := ext4test.Mke2fs(t, 32<<20, "-O", "inline_data")
	want := map[string]string{}
	ext4test.KernelMount(t, image, "", func(dir string) {
		for k := range 200 {
			name := filepath.Join(fmt.Sprint("d", k%7), fmt.Sprint("f", k))
			want[name] = strings.Repeat("x", k)
			os.Mkdir(filepath.Join(dir, filepath.Dir(name)), 0o755)
			mustOK(t, os.WriteFile(filepath.Join(dir, name), []byte(want[name]), 0o644))
			if k%5 == 0 {
				unix.Setxattr(filepath.Join(dir, name), "user.a", []byte(want[name][:k/4]), 0)
			}
		}
		mustOK(t, os.Symlink(strings.Repeat("t", 100), filepath.Join(dir, "link")))
	})
	m := mountImage(t, image, Options{})
	inline := 0
	for name := range want {
		d := m.must(m.Lookup(RootIno, filepath.Dir(name)))
		a := m.must(m.Lookup(d.Ino, filepath.Base(name)))
		if a.Flags&ondisk.InodeInlineData != 0 {
			inline++
		}
		f, err := m.Open(a.Ino, syscall.O_RDWR)
		mustOK(t, err)
		b := make([]byte, 300)
		if n, err := f.ReadAt(b, 0); err != nil || string(b[:n]) != want[name] {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if _, err := f.WriteAt([]byte("yyyy"), int64(a.Size)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want[name] += "yyyy"
		f.Release()
		m.Forget(a.Ino, 1)
		m.Forget(d.Ino, 1)
	}
	if target, err := m.Readlink(m.must(m.Lookup(RootIno, "link")).Ino); err != nil || string(target) != strings.Repeat("t", 100) {
		t.Errorf("link: %q, %v", target, err)
	}
	if inline == 0 {
		t.Error("the kernel made nothing inline")
	}
	m.unmount()
	ext4test.KernelMount(t, image, "", func(dir string) {
		for name, content := range want {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != content {
				t.Errorf("%s: the kernel reads %d bytes, %v, want %d", name, len(b), err, len(content))
			}
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
			mustOK(t, err)
			f.Write([]byte("z"))
			f.Close()
		}
	})
	ext4test.Fsck(t, image)
	m.mount()
}
