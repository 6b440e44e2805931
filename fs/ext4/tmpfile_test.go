package ext4

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

func (m *testFS) tmpfile(flags uint32) (Attr, *File) {
	m.t.Helper()
	a, f, err := m.Tmpfile(nil, RootIno, 0o640, syscall.O_RDWR|flags)
	if err != nil {
		m.t.Fatal(err)
	}
	return a, f
}

// TestTmpfile: a file without a name can get one, until it is closed.
func TestTmpfile(t *testing.T) {
	m := mountNew(t, 64<<20)
	free := m.Statfs()
	a, f := m.tmpfile(0)
	if a.Nlink != 0 || a.Mode != ondisk.ModeReg|0o640 {
		t.Errorf("links %d, mode %o; want 0, a file of 640", a.Nlink, a.Mode)
	}
	_, err := f.WriteAt([]byte("temporary"), 0)
	mustOK(t, err)
	_, err = m.Link(a.Ino, RootIno, "linked")
	mustOK(t, err)
	_, err = m.Link(a.Ino, RootIno, "twice")
	mustOK(t, err)
	mustOK(t, m.Unlink(RootIno, "twice"))
	f.Release()
	m.Forget(a.Ino, 3)

	gone, f := m.tmpfile(0)
	_, err = f.WriteAt(make([]byte, 1<<20), 0)
	mustOK(t, err)
	excl, g := m.tmpfile(syscall.O_EXCL)
	_, err = m.Link(excl.Ino, RootIno, "forbidden")
	mustErr(t, "link of O_EXCL", err, syscall.ENOENT)
	f.Release()
	g.Release()
	m.Forget(gone.Ino, 1)
	m.Forget(excl.Ino, 1)

	// What had a name and lost it does not come back.
	f = m.mkfile("named")
	mustOK(t, m.Unlink(RootIno, "named"))
	_, err = m.Link(f.Ino(), RootIno, "again")
	mustErr(t, "link of an unlinked file", err, syscall.ENOENT)
	f.Release()

	m.remount()
	got := m.readFile(t, "linked")
	if got != "temporary" {
		t.Errorf("the linked file holds %q", got)
	}
	if now := m.Statfs(); now.FilesFree != free.FilesFree-1 {
		t.Errorf("%d free inodes, want %d", now.FilesFree, free.FilesFree-1)
	}
}

func (m *testFS) readFile(t *testing.T, name string) string {
	t.Helper()
	a, err := m.Lookup(RootIno, name)
	mustOK(t, err)
	defer m.Forget(a.Ino, 1)
	f, err := m.Open(a.Ino, syscall.O_RDONLY)
	mustOK(t, err)
	defer f.Release()
	b := make([]byte, a.Size)
	n, err := f.ReadAt(b, 0)
	mustOK(t, err)
	return string(b[:n])
}

// TestTmpfileCrash: a nameless file ends with the crash, one that was linked
// and synced does not.
func TestTmpfileCrash(t *testing.T) {
	m := mountNew(t, 64<<20)
	free := m.Statfs()
	a, f := m.tmpfile(0)
	_, err := f.WriteAt(make([]byte, 1<<20), 0)
	mustOK(t, err)
	b, g := m.tmpfile(0)
	_, err = m.Link(b.Ino, RootIno, "kept")
	mustOK(t, err)
	mustOK(t, m.Sync())
	img, err := os.ReadFile(m.path)
	mustOK(t, err)
	f.Release()
	g.Release()
	m.Forget(a.Ino, 1)
	m.Forget(b.Ino, 2)

	path := filepath.Join(t.TempDir(), "crashed")
	mustOK(t, os.WriteFile(path, img, 0o600))
	crashed := mountImage(t, path, Options{})
	if now := crashed.Statfs(); now.FilesFree != free.FilesFree-1 || now.BlocksFree != free.BlocksFree {
		t.Errorf("free after the crash: %d inodes, %d blocks; want %d, %d", now.FilesFree, now.BlocksFree, free.FilesFree-1, free.BlocksFree)
	}
	if got := crashed.readFile(t, "kept"); got != "" {
		t.Errorf("the linked file holds %q", got)
	}
	crashed.unmount()
	ext4test.Fsck(t, path)
}

// TestCopyTo copies over holes and up to the end, and stops when told to.
func TestCopyTo(t *testing.T) {
	m := mountNew(t, 64<<20)
	src, dst := m.mkfile("src"), m.mkfile("dst")
	const size = 3<<20 + 5
	want := make([]byte, size)
	copy(want[2<<20:], block(4096, 7))
	copy(want[size-5:], "tail.")
	_, err := src.WriteAt(want[2<<20:2<<20+4096], 2<<20)
	mustOK(t, err)
	_, err = src.WriteAt(want[size-5:], size-5)
	mustOK(t, err)
	n, err := src.CopyTo(dst, 0, 100, 1<<40, nil)
	if n != size || err != nil {
		t.Fatalf("copied %d, %v; want %d", n, err, size)
	}
	got := make([]byte, size+200)
	k, err := dst.ReadAt(got, 0)
	mustOK(t, err)
	if k != size+100 || string(got[100:k]) != string(want) {
		t.Errorf("the copy differs, or its length: %d", k)
	}
	n, err = src.CopyTo(dst, 0, 0, size, func() bool { return true })
	if n != copyChunk || err != nil {
		t.Errorf("stopped at %d, %v; want %d", n, err, copyChunk)
	}
	n, err = src.CopyTo(dst, size, 0, 10, nil)
	if n != 0 || err != nil {
		t.Errorf("copied %d, %v from the end", n, err)
	}
}
