package ext4

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"extfused/fs/ondisk"
)

// atimeBox is a file and a directory whose clock the test moves.
type atimeBox struct {
	*testFS
	now  time.Time
	file *File
	dir  ondisk.InodeNumber
}

func newAtimeBox(t *testing.T, path string, o Options) *atimeBox {
	b := &atimeBox{now: time.Unix(1e9, 0)}
	o.Now = func() time.Time { return b.now }
	b.testFS = mountImage(t, path, o)
	b.file = b.mkfile("file")
	_, err := b.file.WriteAt([]byte("content"), 0)
	mustOK(t, err)
	d, err := b.Mkdir(nil, RootIno, "dir", 0o755)
	mustOK(t, err)
	b.dir = d.Ino
	return b
}

// readBoth reads the file and lists the directory after a while, and tells
// which of them has noted it.
func (b *atimeBox) readBoth(after time.Duration) string {
	b.t.Helper()
	b.now = b.now.Add(after)
	if _, err := b.file.ReadAt(make([]byte, 7), 0); err != nil {
		b.t.Fatal(err)
	}
	d, err := b.OpenDir(b.dir)
	if err == nil {
		err = d.ReadDir(0, func(DirEnt) bool { return true })
		d.Release()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprintf("file %v dir %v", b.noted(b.file.Ino()), b.noted(b.dir))
}

func (b *atimeBox) noted(ino ondisk.InodeNumber) bool {
	b.t.Helper()
	a, err := b.GetAttr(ino)
	if err != nil {
		b.t.Fatal(err)
	}
	return a.Atime.Sec == b.now.Unix()
}

// TestAtime walks through the options: read once, again, and a day later.
func TestAtime(t *testing.T) {
	both, none := "file true dir true", "file false dir false"
	for _, c := range []struct {
		name                string
		o                   Options
		first, again, later string
	}{
		{"relatime", Options{}, both, none, both},
		{"noatime", Options{Atime: AtimeNever}, none, none, none},
		{"strictatime", Options{Atime: AtimeStrict}, both, both, both},
		{"nodiratime", Options{NoDirAtime: true}, "file true dir false", none, "file true dir false"},
		{"strictatime,nodiratime", Options{Atime: AtimeStrict, NoDirAtime: true}, "file true dir false", "file true dir false", "file true dir false"},
		{"lazytime", Options{LazyTime: true}, both, none, both},
		{"lazytime,noatime", Options{LazyTime: true, Atime: AtimeNever}, none, none, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newAtimeBox(t, mkfsImage(t), c.o)
			for k, want := range []string{c.first, c.again, c.later} {
				if got := b.readBoth([]time.Duration{time.Minute, time.Minute, 25 * time.Hour}[k]); got != want {
					t.Errorf("reading %d: %s, want %s", k, got, want)
				}
			}
		})
	}
}

// TestLazytime: a read costs no transaction, and its time is durable after
// fsync, after Sync, and after the inode has left memory.
func TestLazytime(t *testing.T) {
	b := newAtimeBox(t, mkfsImage(t), Options{LazyTime: true})
	mustOK(t, b.Sync())
	onDevice := func(what string, want bool) {
		t.Helper()
		img, err := os.ReadFile(b.path)
		mustOK(t, err)
		path := filepath.Join(t.TempDir(), "copy")
		mustOK(t, os.WriteFile(path, img, 0o600))
		c := mountImage(t, path, Options{})
		a, err := c.GetAttr(b.file.Ino())
		mustOK(t, err)
		if got := a.Atime.Sec == b.now.Unix(); got != want {
			t.Errorf("%s: the image has atime %v at %v", what, a.Atime, b.now.Unix())
		}
		c.unmount()
	}
	b.readBoth(time.Minute)
	if _, running := b.jnl.RunningTID(); running {
		t.Error("a read has begun a transaction")
	}
	onDevice("read", false)
	mustOK(t, b.file.Fsync(false))
	onDevice("fsync", true)
	b.readBoth(25 * time.Hour)
	mustOK(t, b.Sync())
	onDevice("sync", true)
	b.readBoth(25 * time.Hour)
	want := b.now.Unix()
	b.file.Release()
	mustOK(t, b.FS.Unmount(context.Background()))
	mustOK(t, b.dev.Close())
	b.mount()
	a, err := b.GetAttr(b.file.Ino())
	mustOK(t, err)
	if a.Atime.Sec != want {
		t.Errorf("after unmount atime is %d, want %d", a.Atime.Sec, want)
	}
}

// TestSynchronousInodes: chattr +S on a file and +D on a directory make each
// change durable.
func TestSynchronousInodes(t *testing.T) {
	m := mountNew(t, 64<<20)
	d, err := m.Mkdir(nil, RootIno, "dir", 0o755)
	mustOK(t, err)
	_, err = m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetFlags, Flags: d.Flags | ondisk.InodeDirsync})
	mustOK(t, err)
	mustOK(t, m.Sync())
	quiet := func(what string) {
		t.Helper()
		if _, running := m.jnl.RunningTID(); running {
			t.Errorf("%s: a transaction is still running", what)
		}
	}
	a, f, err := m.Create(nil, d.Ino, "file", 0o644, syscall.O_RDWR)
	mustOK(t, err)
	quiet("create")
	_, err = m.Link(a.Ino, d.Ino, "link")
	mustOK(t, err)
	quiet("link")
	mustOK(t, m.Rename(nil, d.Ino, "link", d.Ino, "renamed", 0))
	quiet("rename")
	mustOK(t, m.Unlink(d.Ino, "renamed"))
	quiet("unlink")
	f.Release()
	_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetFlags, Flags: a.Flags | ondisk.InodeSync})
	mustOK(t, err)
	if f, err = m.Open(a.Ino, syscall.O_RDWR); err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("x"), 0)
	mustOK(t, err)
	quiet("write")
	f.Release()
	m.Forget(a.Ino, 2)
	m.Forget(d.Ino, 1)
}

func mkfsImage(t *testing.T) string {
	t.Helper()
	m := mountNew(t, 32<<20)
	m.unmount()
	return m.path
}
