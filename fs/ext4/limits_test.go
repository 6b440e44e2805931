package ext4

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// 65,000 names of a file and no more; names enough to fill an index of two
// levels, and the directory is sound afterwards.
func TestNamesToTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 65,000 names")
	}
	m := mountNew(t, 96<<20, "-b", "1024")
	f := m.mkfile("file")
	d := m.must(m.Mkdir(nil, RootIno, "d", 0o755))
	made := uint32(1)
	full := error(nil)
	for k := 0; full == nil; k++ {
		name := fmt.Sprintf("%06d%s", k, strings.Repeat("x", 240))
		if _, full = m.Link(f.Ino(), d.Ino, name); full == nil {
			made++
			m.Forget(f.Ino(), 1)
		}
	}
	mustErr(t, "a name too many in the directory", full, syscall.ENOSPC)
	if made < 15_000 {
		t.Errorf("only %d names found room", made)
	}
	e := m.must(m.Mkdir(nil, RootIno, "e", 0o755))
	for ; made < ondisk.LinkMax; made++ {
		if _, err := m.Link(f.Ino(), e.Ino, fmt.Sprint(made)); err != nil {
			t.Fatalf("link %d: %v", made, err)
		}
		m.Forget(f.Ino(), 1)
	}
	mustErr(t, "link 65,001", ignore(m.Link(f.Ino(), e.Ino, "more")), syscall.EMLINK)
	if a, err := m.GetAttr(f.Ino()); err != nil || a.Nlink != 65_000 {
		t.Errorf("%d links, %v", a.Nlink, err)
	}
	mustOK(t, m.Unlink(e.Ino, "64000"))
	m.must(m.Link(f.Ino(), e.Ino, "more"))
}

// Past 65,000 subdirectories the count is 1, with dir_nlink; without, there are
// no more.
func TestManySubdirectories(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 70,000 directories")
	}
	for _, feature := range []string{"inline_data", "inline_data,^dir_nlink"} {
		m := mountNew(t, 128<<20, "-b", "1024", "-N", "72000", "-O", feature)
		d := m.must(m.Mkdir(nil, RootIno, "d", 0o755))
		last := error(nil)
		made := 0
		for ; made < 70_000 && last == nil; made++ {
			var a Attr
			a, last = m.Mkdir(nil, d.Ino, fmt.Sprint(made), 0o755)
			if last == nil {
				m.Forget(a.Ino, 1)
			}
		}
		a, err := m.GetAttr(d.Ino)
		mustOK(t, err)
		switch {
		case m.dirNlink && (last != nil || a.Nlink != 1):
			t.Errorf("%d directories, %d links, %v", made, a.Nlink, last)
		case !m.dirNlink && (last != syscall.EMLINK || a.Nlink != 65_000):
			t.Errorf("without dir_nlink: %d links, %v", a.Nlink, last)
		}
		m.unmount()
	}
}

// A file of 100,000 extents, read back, cut in the middle, and removed.
func TestManyExtents(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100,000 blocks")
	}
	m := mountNew(t, 256<<20, "-b", "1024")
	f := m.mkfile("f")
	const extents = 100_000
	for k := range int64(extents) {
		if _, err := f.WriteAt(block(1024, uint64(k)<<20), k<<11); err != nil {
			t.Fatalf("block %d: %v", k, err)
		}
	}
	layout, err := m.FileLayout(f.Ino())
	mustOK(t, err)
	if len(layout.Extents) < extents {
		t.Errorf("%d extents", len(layout.Extents))
	}
	p := make([]byte, 1024)
	for k := int64(0); k < extents; k += 997 {
		if _, err := f.ReadAt(p, k<<11); err != nil || string(p) != string(block(1024, uint64(k)<<20)) {
			t.Fatalf("block %d: %v", k, err)
		}
	}
	mustOK(t, f.Allocate(20_000<<11, 50_000<<11, FallocPunchHole|FallocKeepSize))
	m.unmount()
	m.mount()
	mustOK(t, m.Unlink(RootIno, "f"))
}

// Owners of 32 bits, and device numbers of the old encoding and the new.
func TestWideNumbers(t *testing.T) {
	m := mountNew(t, 16<<20)
	ids := []uint32{0, 1, 65_535, 65_536, 1<<31 + 7, 1<<32 - 2}
	devs := []uint32{0x0000, 0x0103, 0xffff, 0x0010_0000 | 5<<8, 0xfff<<8 | 0xff, 0xfff0_0000 | 0xfff<<8 | 0xff}
	for k, id := range ids {
		c := &Caller{UID: id, GID: ids[len(ids)-1-k]}
		m.must(m.Mknod(c, RootIno, fmt.Sprint("b", k), ondisk.ModeBlk|0o600, devs[k]))
	}
	check := func(see func(name string) (uid, gid, rdev uint32)) {
		t.Helper()
		for k, id := range ids {
			uid, gid, rdev := see(fmt.Sprint("b", k))
			if uid != id || gid != ids[len(ids)-1-k] || rdev != devs[k] {
				t.Errorf("b%d: %d %d %#x, want %d %d %#x", k, uid, gid, rdev, id, ids[len(ids)-1-k], devs[k])
			}
		}
	}
	m.remount()
	check(func(name string) (uint32, uint32, uint32) {
		a := m.must(m.Lookup(RootIno, name))
		return a.UID, a.GID, a.Rdev
	})
	m.unmount()
	ext4test.KernelMount(t, m.path, "ro", func(dir string) {
		check(func(name string) (uint32, uint32, uint32) {
			st, err := os.Lstat(filepath.Join(dir, name))
			mustOK(t, err)
			s := st.Sys().(*syscall.Stat_t)
			major, minor := uint32(s.Rdev>>8&0xfff), uint32(s.Rdev&0xff|s.Rdev>>12&0xfff00)
			return s.Uid, s.Gid, minor&0xff | major<<8 | minor&^0xff<<12
		})
	})
}
