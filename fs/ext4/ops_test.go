package ext4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/extent"
	"extfused/fs/ondisk"
)

func (m *testFS) mkfile(name string) *File {
	m.t.Helper()
	a, f, err := m.Create(nil, RootIno, name, 0o644, syscall.O_RDWR)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Forget(a.Ino, 1)
	m.t.Cleanup(func() {
		if m.FS == f.fs { // else the mount has ended already
			f.Release()
		}
	})
	return f
}

func mustErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func mustOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// block is a block of data that tells its place.
func block(size int, tag uint64) []byte {
	b := make([]byte, size)
	for k := 0; k+8 <= size; k += 8 {
		binary.LittleEndian.PutUint64(b[k:], tag+uint64(k))
	}
	return b
}

func TestManyNames(t *testing.T) {
	const names = 20000
	for _, args := range [][]string{nil, {"-b", "1024"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 256<<20, append(args, "-N", "30000")...)
			d, err := m.Mkdir(nil, RootIno, "many", 0o755)
			mustOK(t, err)
			start := time.Now()
			for k := 0; k < names; k++ {
				a, err := m.Mknod(nil, d.Ino, fmt.Sprintf("a longer name, so that blocks fill: %d", k), ondisk.ModeReg|0o600, 0)
				mustOK(t, err)
				m.Forget(a.Ino, 1)
			}
			t.Logf("%d names made in %v", names, time.Since(start))
			if got := len(readAll(t, m.FS, d.Ino)); got != names+2 {
				t.Fatalf("%d entries listed, want %d", got, names+2)
			}
			m.remount()
			if got := len(readAll(t, m.FS, d.Ino)); got != names+2 {
				t.Fatalf("%d entries listed after a remount, want %d", got, names+2)
			}
			for k := 0; k < names; k++ {
				mustOK(t, m.Unlink(d.Ino, fmt.Sprintf("a longer name, so that blocks fill: %d", k)))
			}
			mustOK(t, m.Rmdir(RootIno, "many"))
		})
	}
}

// TestReadDirWhileChanging checks that a listing in pieces neither loses nor
// repeats a name that stays, while others come and go and blocks split.
func TestReadDirWhileChanging(t *testing.T) {
	m := mountNew(t, 64<<20, "-b", "1024")
	stay := map[string]bool{}
	for k := 0; k < 300; k++ {
		name := fmt.Sprintf("stays %d", k)
		m.mkfile(name)
		stay[name] = true
	}
	d, err := m.OpenDir(RootIno)
	mustOK(t, err)
	defer d.Release()
	seen := map[string]int{}
	cookie, made := uint64(0), 0
	for more := true; more; {
		more = false
		n := 0
		mustOK(t, d.ReadDir(cookie, func(e DirEnt) bool {
			if n++; n > 7 {
				more = true
				return false
			}
			seen[string(e.Name)]++
			cookie = e.Next
			return true
		}))
		for k := 0; k < 10 && made < 600; k++ {
			m.mkfile(fmt.Sprintf("comes %d", made))
			if made++; made > 30 {
				mustOK(t, m.Unlink(RootIno, fmt.Sprintf("comes %d", made-30)))
			}
		}
	}
	for name := range stay {
		if seen[name] != 1 {
			t.Errorf("%q listed %d times", name, seen[name])
		}
	}
}

func TestSparseAndDeep(t *testing.T) {
	m := mountNew(t, 256<<20, "-b", "1024")
	f := m.mkfile("sparse")
	rng := rand.New(rand.NewSource(1))
	at := map[int64]uint64{}
	for k := 0; k < 3000; k++ { // every other block at most: no two extents join
		off := int64(rng.Intn(1<<30)) << 11
		at[off] = uint64(off)
		if _, err := f.WriteAt(block(1024, uint64(off)), off); err != nil {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if depth := f.i.treeDepth(); depth < 2 {
		t.Errorf("depth %d: the test wants a deep tree", depth)
	}
	check := func(f *File) {
		t.Helper()
		p := make([]byte, 3072)
		for off := range at {
			n, err := f.ReadAt(p[:1024], off)
			if err != nil || n != 1024 || !bytes.Equal(p[:1024], block(1024, uint64(off))) {
				t.Fatalf("reading at %d: %d, %v", off, n, err)
			}
		}
	}
	check(f)
	f.i.es.drop(f.fs.ops.es) // and from the tree alone
	check(f)
	f.Release()
	m.remount()
	a, err := m.Lookup(RootIno, "sparse")
	mustOK(t, err)
	f, err = m.Open(a.Ino, syscall.O_RDWR)
	mustOK(t, err)
	check(f)
	for off := range at { // holes in the middle, far apart
		if rng.Intn(2) == 0 {
			mustOK(t, f.Allocate(off, 1024, FallocPunchHole|FallocKeepSize))
			delete(at, off)
		}
	}
	check(f)
	half := uint64(1 << 40)
	_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize, Size: half})
	mustOK(t, err)
	for off := range at {
		if uint64(off) >= half {
			delete(at, off)
		}
	}
	check(f)
	before := m.Statfs().BlocksFree
	_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize})
	mustOK(t, err)
	mustOK(t, m.Sync())
	if got, want := m.Statfs().BlocksFree-before, uint64(len(at)); got < want {
		t.Errorf("%d blocks came free, %d held data", got, want)
	}
	if st, _ := m.GetAttr(a.Ino); st.Blocks != 0 {
		t.Errorf("%d sectors left in an empty file", st.Blocks)
	}
	f.Release()
}

func TestLargestFile(t *testing.T) {
	m := mountNew(t, 64<<20)
	f := m.mkfile("large")
	limit := int64(f.i.maxBytes())
	if n, err := f.WriteAt([]byte("the end"), limit-4); n != 4 || err != syscall.EFBIG {
		t.Errorf("write over the limit: %d, %v", n, err)
	}
	_, err := f.WriteAt([]byte("x"), limit)
	mustErr(t, "write behind the limit", err, syscall.EFBIG)
	mustErr(t, "fallocate over the limit", f.Allocate(limit-1, 2, 0), syscall.EFBIG)
	_, err = m.SetAttr(nil, f.i.ino, &SetAttr{Valid: SetSize, Size: uint64(limit) + 1})
	mustErr(t, "truncate over the limit", err, syscall.EFBIG)
	p := make([]byte, 100)
	n, err := f.ReadAt(p, limit-10)
	if n != 10 || err != nil || string(p[6:10]) != "the " {
		t.Errorf("read at the end: %d %q %v", n, p[:n], err)
	}
	if off, err := f.Seek(0, SeekData); err != nil || off != limit-int64(m.blockSize) {
		t.Errorf("SEEK_DATA: %d, %v", off, err)
	}
	mustOK(t, f.Allocate(limit-4096*3, 4096*3, FallocZeroRange))
	mustOK(t, f.Allocate(0, limit, FallocPunchHole|FallocKeepSize))
	if a, _ := m.GetAttr(f.i.ino); a.Size != uint64(limit) || a.Blocks != 0 {
		t.Errorf("after punching all: size %d, %d sectors", a.Size, a.Blocks)
	}
}

// TestNoSpace fills the image by several kinds of operations; each must fail
// with ENOSPC in the end and leave nothing half done, and the space must be
// there again after a removal.
func TestNoSpace(t *testing.T) {
	for _, args := range [][]string{nil, {"-b", "1024"}, {"-O", "^has_journal"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 32<<20, append(args, "-N", "4000")...)
			empty := m.Statfs()
			fill := func() (written int) {
				f := m.mkfile("fill")
				defer f.Release()
				p := block(100_000, 1)
				for {
					n, err := f.WriteAt(p, int64(written))
					written += n
					if err == syscall.ENOSPC {
						return written
					}
					mustOK(t, err)
				}
			}
			first := fill()
			if st := m.Statfs(); st.BlocksFree > st.Blocks/20 {
				t.Errorf("ENOSPC with %d of %d blocks free", st.BlocksFree, st.Blocks)
			}
			_, err := m.Symlink(nil, RootIno, "long", bytes.Repeat([]byte("l"), 200))
			mustErr(t, "long symlink", err, syscall.ENOSPC)
			_, err = m.Mkdir(nil, RootIno, "dir", 0o755)
			mustErr(t, "mkdir", err, syscall.ENOSPC)
			f := m.mkfile("small")
			mustErr(t, "fallocate", f.Allocate(0, 1<<20, 0), syscall.ENOSPC)
			n, err := f.WriteAt(block(1<<20, 2), 0)
			if n != 0 || err != syscall.ENOSPC {
				t.Errorf("write on a full file system: %d, %v", n, err)
			}
			f.Release()
			mustOK(t, m.Unlink(RootIno, "small"))
			mustOK(t, m.Unlink(RootIno, "fill"))
			if second := fill(); second < first-1<<18 {
				t.Errorf("after removal only %d bytes fit, %d before", second, first)
			}
			mustOK(t, m.Unlink(RootIno, "fill"))
			mustOK(t, m.Sync())
			if st := m.Statfs(); st.BlocksFree != empty.BlocksFree || st.FilesFree != empty.FilesFree {
				t.Errorf("empty again: %+v, was %+v", st, empty)
			}
		})
	}
}

func TestNoInodesForNames(t *testing.T) {
	m := mountNew(t, 32<<20, "-N", "64")
	var err error
	k := 0
	for ; err == nil; k++ {
		var a Attr
		if a, err = m.Mkdir(nil, RootIno, fmt.Sprint("d", k), 0o755); err == nil {
			m.Forget(a.Ino, 1)
		}
	}
	mustErr(t, "mkdir without inodes", err, syscall.ENOSPC)
	mustOK(t, m.Rmdir(RootIno, "d0"))
	mustErr(t, "mkdir after a removal", ignore(m.Mkdir(nil, RootIno, "again", 0o755)), nil)
}

func ignore[T any](_ T, err error) error { return err }

func TestReserveIsForRoot(t *testing.T) {
	m := mountNew(t, 64<<20, "-m", "20")
	user := &Caller{UID: 1000, GID: 1000}
	a, f, err := m.Create(user, RootIno, "user", 0o644, syscall.O_RDWR)
	mustOK(t, err)
	p := make([]byte, 1<<20)
	off := int64(0)
	for err == nil {
		var n int
		n, err = f.WriteAt(p, off)
		off += int64(n)
	}
	mustErr(t, "an ordinary user", err, syscall.ENOSPC)
	if st := m.Statfs(); st.BlocksAvail > 64 || st.BlocksFree < st.Blocks/6 {
		t.Errorf("statfs when the user stopped: %+v", st)
	}
	f.Release()
	m.Forget(a.Ino, 1)
	g := m.mkfile("root")
	if n, err := g.WriteAt(p, 0); n != len(p) || err != nil {
		t.Errorf("root: %d, %v", n, err)
	}
}

func TestTimes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	image := ext4test.Mke2fs(t, 32<<20)
	m := mountImage(t, image, Options{Now: func() time.Time { return now }})
	tick := func() { now = now.Add(time.Second) }
	dirTimes := func() (Time, Time) { a, _ := m.GetAttr(RootIno); return a.Mtime, a.Ctime }
	tick()
	f := m.mkfile("f")
	ino := f.i.ino
	stamp := func() Time { return Time{Sec: now.Unix(), Nsec: uint32(now.Nanosecond())} }
	changed := func(what string, want string) {
		t.Helper()
		a, err := m.GetAttr(ino)
		mustOK(t, err)
		dm, dc := dirTimes()
		got := ""
		for _, x := range []struct {
			letter string
			at     Time
		}{{"a", a.Atime}, {"m", a.Mtime}, {"c", a.Ctime}, {"b", a.Crtime}, {"M", dm}, {"C", dc}} {
			if x.at == stamp() {
				got += x.letter
			}
		}
		if got != want {
			t.Errorf("%s sets %q, want %q", what, got, want)
		}
		tick()
	}
	changed("create", "amcbMC")
	f.WriteAt([]byte("hello"), 0)
	changed("write", "mc")
	f.WriteAt([]byte("HELLO"), 0)
	changed("overwrite", "mc")
	f.WriteAtFlags(nil, []byte("hellO"), 0, WriteCached)
	changed("write from the cache", "")
	f.ReadAt(make([]byte, 5), 0)
	changed("first read", "a")
	f.ReadAt(make([]byte, 5), 0)
	changed("second read", "")
	m.SetAttr(nil, ino, &SetAttr{Valid: SetMode, Mode: 0o600})
	changed("chmod", "c")
	m.SetAttr(nil, ino, &SetAttr{Valid: SetSize, Size: 2})
	changed("truncate", "mc")
	m.SetAttr(nil, ino, &SetAttr{Valid: SetAtimeNow})
	changed("utimes", "ac")
	m.Link(ino, RootIno, "g")
	m.Forget(ino, 1)
	changed("link", "cMC")
	m.Rename(nil, RootIno, "g", RootIno, "h", 0)
	changed("rename", "cMC")
	m.Unlink(RootIno, "h")
	changed("unlink", "cMC")
	f.Allocate(0, 100000, 0)
	changed("fallocate", "mc")
	f.Allocate(0, 5000, FallocPunchHole|FallocKeepSize)
	changed("punch", "mc")
	now = now.Add(25 * time.Hour)
	f.ReadAt(make([]byte, 5), 0)
	changed("read a day later", "a")
	far := Time{Sec: 9_000_000_000, Nsec: 123_456_789}
	m.SetAttr(nil, ino, &SetAttr{Valid: SetMtime | SetCtime | SetAtime, Mtime: far, Ctime: far, Atime: Time{Sec: -5, Nsec: 7}})
	f.Release()
	m.remount()
	if a, _ := m.GetAttr(ino); a.Mtime != far || a.Ctime != far || a.Atime != (Time{Sec: -5, Nsec: 7}) {
		t.Errorf("times after a remount: %+v", a)
	}
}

func TestModesAndOwners(t *testing.T) {
	m := mountNew(t, 32<<20)
	user := &Caller{UID: 1000, GID: 100, Umask: 0o027}
	d, err := m.Mkdir(&Caller{UID: 5, GID: 50}, RootIno, "setgid", 0o777)
	mustOK(t, err)
	_, err = m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetMode, Mode: 0o2777})
	mustOK(t, err)
	sub, err := m.Mkdir(user, d.Ino, "sub", 0o777)
	mustOK(t, err)
	if sub.Mode != ondisk.ModeDir|0o2750 || sub.UID != 1000 || sub.GID != 50 {
		t.Errorf("directory in a set-group-id directory: mode %o uid %d gid %d", sub.Mode, sub.UID, sub.GID)
	}
	a, f, err := m.Create(user, RootIno, "f", 0o666, syscall.O_RDWR)
	mustOK(t, err)
	defer f.Release()
	if a.Mode != ondisk.ModeReg|0o640 || a.UID != 1000 || a.GID != 100 {
		t.Errorf("file: mode %o uid %d gid %d", a.Mode, a.UID, a.GID)
	}
	mode := func(c *Caller, mode uint32) uint32 {
		t.Helper()
		a, err := m.SetAttr(c, a.Ino, &SetAttr{Valid: SetMode, Mode: mode})
		mustOK(t, err)
		return a.Mode & 0o7777
	}
	if got := mode(&Caller{UID: 1000, GID: 7}, 0o2755); got != 0o755 {
		t.Errorf("chmod g+s by one who is not in the group: %o", got)
	}
	inGroup := &Caller{UID: 1000, GID: 7, Groups: func() []uint32 { return []uint32{9, 100} }}
	if got := mode(inGroup, 0o6755); got != 0o6755 {
		t.Errorf("chmod ug+s by one who is: %o", got)
	}
	f.WriteAtFlags(nil, []byte("x"), 0, WriteKillPriv)
	if a, _ := m.GetAttr(a.Ino); a.Mode&0o7777 != 0o755 {
		t.Errorf("after a write: %o", a.Mode)
	}
	mode(nil, 0o6745)
	if a, _ := m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetUID, UID: 70000}); a.Mode&0o7777 != 0o2745 || a.UID != 70000 {
		t.Errorf("after chown: mode %o uid %d", a.Mode, a.UID)
	}
}

func TestLinkLimits(t *testing.T) {
	m := mountNew(t, 64<<20, "-N", "1000")
	f := m.mkfile("f")
	f.i.mu.Lock()
	f.i.raw.LinksCount = ondisk.LinkMax // a lie, taken back below
	f.i.mu.Unlock()
	mustErr(t, "link past the limit", ignore(m.Link(f.i.ino, RootIno, "g")), syscall.EMLINK)
	f.i.mu.Lock()
	f.i.raw.LinksCount = 1
	f.i.mu.Unlock()
	d, err := m.Mkdir(nil, RootIno, "d", 0o755)
	mustOK(t, err)
	i, err := m.iget(d.Ino)
	mustOK(t, err)
	defer m.iput(i)
	i.raw.LinksCount = ondisk.LinkMax
	mustErr(t, "subdirectory past the limit of a small directory", ignore(m.Mkdir(nil, d.Ino, "s", 0o755)), syscall.EMLINK)
	i.raw.Flags |= ondisk.InodeIndex
	if i.linksFull() {
		t.Error("an indexed directory has a limit")
	}
	i.incLinks()
	if i.raw.LinksCount != 1 {
		t.Errorf("past the limit the count is %d", i.raw.LinksCount)
	}
	i.incLinks()
	i.decLinks()
	if i.raw.LinksCount != 1 {
		t.Errorf("the unknown count became %d", i.raw.LinksCount)
	}
	i.raw.Flags &^= ondisk.InodeIndex
	i.raw.LinksCount = 2
	m.Forget(d.Ino, 1)
}

func TestNamespaceErrors(t *testing.T) {
	m := mountNew(t, 32<<20)
	f := m.mkfile("file")
	d, err := m.Mkdir(nil, RootIno, "dir", 0o755)
	mustOK(t, err)
	m.Mkdir(nil, d.Ino, "sub", 0o755)
	long := strings.Repeat("x", 256)
	mustErr(t, "lookup in a file", ignore(m.Lookup(f.i.ino, "x")), syscall.ENOTDIR)
	mustErr(t, "lookup of a long name", ignore(m.Lookup(RootIno, long)), syscall.ENAMETOOLONG)
	mustErr(t, "mkdir in a file", ignore(m.Mkdir(nil, f.i.ino, "x", 0)), syscall.ENOTDIR)
	mustErr(t, "mkdir of a slash", ignore(m.Mkdir(nil, RootIno, "a/b", 0)), syscall.EINVAL)
	mustErr(t, "empty symlink", ignore(m.Symlink(nil, RootIno, "l", nil)), syscall.ENOENT)
	mustErr(t, "symlink of a block", ignore(m.Symlink(nil, RootIno, "l", make([]byte, 4096))), syscall.ENAMETOOLONG)
	mustErr(t, "rmdir of .", m.Rmdir(d.Ino, "."), syscall.EINVAL)
	mustErr(t, "rmdir of ..", m.Rmdir(d.Ino, ".."), syscall.ENOTEMPTY)
	mustErr(t, "unlink of .", m.Unlink(d.Ino, "."), syscall.EINVAL)
	mustErr(t, "unlink of ..", m.Unlink(d.Ino, ".."), syscall.EISDIR)
	mustErr(t, "rename of .", m.Rename(nil, d.Ino, ".", RootIno, "x", 0), syscall.EBUSY)
	mustErr(t, "rename onto ..", m.Rename(nil, RootIno, "file", d.Ino, "..", 0), syscall.EBUSY)
	mustErr(t, "rename into itself", m.Rename(nil, RootIno, "dir", d.Ino, "x", 0), syscall.EINVAL)
	mustErr(t, "rename over the parent", m.Rename(nil, d.Ino, "sub", RootIno, "dir", 0), syscall.ENOTEMPTY)
	mustErr(t, "unknown flag", m.Rename(nil, RootIno, "file", RootIno, "x", 8), syscall.EINVAL)
	mustErr(t, "exchange and noreplace", m.Rename(nil, RootIno, "file", RootIno, "x", 3), syscall.EINVAL)
	mustErr(t, "readlink of a file", ignore(m.Readlink(f.i.ino)), syscall.EINVAL)
	mustErr(t, "open of a directory", ignore(m.Open(d.Ino, 0)), syscall.EISDIR)
	mustErr(t, "opendir of a file", ignore(m.OpenDir(f.i.ino)), syscall.ENOTDIR)
	mustErr(t, "truncate of a directory", ignore(m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetSize})), syscall.EISDIR)
	_, err = f.Seek(0, SeekData)
	mustErr(t, "SEEK_DATA in an empty file", err, syscall.ENXIO)
	mustErr(t, "collapse", f.Allocate(0, 4096, 8), syscall.EOPNOTSUPP)
}

// TestRemovedButOpen keeps a directory and a file open while their names go.
func TestRemovedButOpen(t *testing.T) {
	m := mountNew(t, 32<<20)
	d, err := m.Mkdir(nil, RootIno, "d", 0o755)
	mustOK(t, err)
	od, err := m.OpenDir(d.Ino)
	mustOK(t, err)
	f := m.mkfile("f")
	f.WriteAt([]byte("kept"), 0)
	mustOK(t, m.Unlink(RootIno, "f"))
	mustOK(t, m.Rmdir(RootIno, "d"))
	mustErr(t, "create in a removed directory", ignore(m.Mkdir(nil, d.Ino, "x", 0)), syscall.ENOENT)
	mustErr(t, "rename into it", m.Rename(nil, RootIno, "lost+found", d.Ino, "x", 0), syscall.ENOENT)
	mustErr(t, "link of a removed file", ignore(m.Link(f.i.ino, RootIno, "back")), syscall.ENOENT)
	n := 0
	mustOK(t, od.ReadDir(0, func(DirEnt) bool { n++; return true }))
	if n != 0 {
		t.Errorf("a removed directory lists %d entries", n)
	}
	f.WriteAt(make([]byte, 100000), 4)
	p := make([]byte, 4)
	if _, err := f.ReadAt(p, 0); err != nil || string(p) != "kept" {
		t.Errorf("read of a removed file: %q, %v", p, err)
	}
	if n := m.Stats().Orphans; n != 2 {
		t.Errorf("%d orphans, want 2", n)
	}
	od.Release()
	f.Release()
	m.Forget(d.Ino, 1)
	if n := m.Stats().Orphans; n != 0 {
		t.Errorf("%d orphans left", n)
	}
}

func TestRenameWhiteout(t *testing.T) {
	m := mountNew(t, 32<<20)
	m.mkfile("old")
	mustOK(t, m.Rename(&Caller{UID: 3, GID: 4}, RootIno, "old", RootIno, "new", RenameWhiteout))
	a, err := m.Lookup(RootIno, "old")
	mustOK(t, err)
	if a.Mode != ondisk.ModeChr || a.Rdev != 0 || a.Nlink != 1 {
		t.Errorf("whiteout: %+v", a)
	}
	m.Forget(a.Ino, 1)
}

// TestSequentialWriteIsOneExtent writes in pieces of 1 MiB as the page cache
// does, and wants the file in one piece, and as many allocations as pieces.
func TestSequentialWriteIsOneExtent(t *testing.T) {
	m := mountNew(t, 1<<30)
	f := m.mkfile("f")
	p := make([]byte, 1<<20)
	before := m.count.Stats().Writes
	for k := int64(0); k < 64; k++ {
		if n, err := f.WriteAtFlags(nil, p, k<<20, WriteCached); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := m.count.Stats().Writes - before; n > 70 {
		t.Errorf("%d device writes for 64 pieces", n)
	}
	extents := 0
	tree := openTree(f.i, nil)
	mustOK(t, tree.Iterate(0, func(extent.Extent) bool { extents++; return true }))
	tree.close()
	if extents > 2 {
		t.Errorf("%d extents", extents)
	}
	misses := m.Stats().Extents.Misses
	for k := int64(0); k < 64; k++ {
		if _, err := f.ReadAt(p, k<<20); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Stats().Extents.Misses - misses; n > 1 {
		t.Errorf("%d tree walks to read a file of one extent", n)
	}
}

// TestFsync counts the commits and flushes that fsync costs.
func TestFsync(t *testing.T) {
	m := mountNew(t, 64<<20)
	f := m.mkfile("f")
	p := make([]byte, 8192)
	cost := func(do func() error) (commits, flushes uint64) {
		t.Helper()
		j, d := m.Stats().Journal.Commits, m.count.Stats().Flushes
		mustOK(t, do())
		return uint64(m.Stats().Journal.Commits - j), uint64(m.count.Stats().Flushes - d)
	}
	expect := func(what string, commits uint64, flush bool, do func() error) {
		t.Helper()
		c, fl := cost(do)
		if c != commits || fl > 0 != flush {
			t.Errorf("%s: %d commits, %d flushes", what, c, fl)
		}
	}
	full := func() error { return f.Fsync(false) }
	data := func() error { return f.Fsync(true) }
	f.WriteAt(p, 0)
	expect("fdatasync after growing", 1, true, data)
	expect("fsync with nothing to do", 0, false, full)
	f.WriteAtFlags(nil, p, 0, WriteCached)
	expect("fdatasync after an overwrite", 0, true, data)
	expect("fdatasync again", 0, false, data)
	m.SetAttr(nil, f.i.ino, &SetAttr{Valid: SetMtimeNow})
	expect("fdatasync after utimes", 0, false, data)
	expect("fsync after utimes", 1, true, full)
	d, err := m.OpenDir(RootIno)
	mustOK(t, err)
	defer d.Release()
	m.mkfile("g")
	expect("fsync of the directory", 1, true, func() error { return d.Fsync(false) })
}

// TestBlockMapped reads files that the kernel wrote on an ext2 layout, and
// removes them.
func TestBlockMapped(t *testing.T) {
	image := ext4test.Mke2fs(t, 128<<20, "-t", "ext3", "-b", "1024")
	rng := rand.New(rand.NewSource(7))
	sizes := []int{0, 1, 1000, 12 << 10, 13<<10 + 5, 300 << 10, 9 << 20}
	content := map[string][]byte{}
	ext4test.KernelMount(t, image, "", func(dir string) {
		for _, n := range sizes {
			b := make([]byte, n)
			rng.Read(b)
			name := fmt.Sprint("f", n)
			content[name] = b
			mustOK(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
		}
		f, err := os.Create(filepath.Join(dir, "sparse"))
		mustOK(t, err)
		_, err = f.WriteAt([]byte("far"), 70<<20)
		mustOK(t, err)
		mustOK(t, f.Close())
		mustOK(t, os.Symlink(strings.Repeat("s", 200), filepath.Join(dir, "link")))
	})
	content["sparse"] = append(make([]byte, 70<<20), "far"...)
	m := mountImage(t, image, Options{})
	for name, want := range content {
		a, err := m.Lookup(RootIno, name)
		mustOK(t, err)
		f, err := m.Open(a.Ino, syscall.O_RDWR)
		mustOK(t, err)
		got := make([]byte, len(want)+10)
		n, err := f.ReadAt(got, 0)
		if err != nil || !bytes.Equal(got[:n], want) {
			t.Errorf("%s: %d bytes of %d, and they differ (%v)", name, n, len(want), err)
		}
		mustErr(t, "fallocate of a block-mapped file", f.Allocate(0, 4096, 0), syscall.EOPNOTSUPP)
		n, err = f.WriteAt([]byte("added"), int64(len(want))+5000)
		if n != 5 || err != nil {
			t.Errorf("%s: extending: %d, %v", name, n, err)
		}
		longer := append(append(bytes.Clone(want), make([]byte, 5000)...), "added"...)
		got = make([]byte, len(longer)+10)
		n, err = f.ReadAt(got, 0)
		if err != nil || !bytes.Equal(got[:n], longer) {
			t.Errorf("%s extended: %d bytes, and they differ (%v)", name, n, err)
		}
		half := uint64(len(want) / 2)
		_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize, Size: half})
		mustOK(t, err)
		n, err = f.ReadAt(got, 0)
		if err != nil || !bytes.Equal(got[:n], want[:half]) {
			t.Errorf("%s cut in half: %d bytes, and they differ (%v)", name, n, err)
		}
		f.Release()
		m.Forget(a.Ino, 1)
		if len(name)%2 == 0 {
			mustOK(t, m.Unlink(RootIno, name))
		}
	}
	a, err := m.Lookup(RootIno, "link")
	mustOK(t, err)
	if target, err := m.Readlink(a.Ino); err != nil || len(target) != 200 {
		t.Errorf("link: %q, %v", target, err)
	}
	m.Forget(a.Ino, 1)
	mustOK(t, m.Unlink(RootIno, "link"))
}

func TestReadOnlyRefuses(t *testing.T) {
	m := mountImage(t, ext4test.Mke2fs(t, 16<<20), Options{ReadOnly: true})
	_, err := m.Mkdir(nil, RootIno, "d", 0)
	mustErr(t, "mkdir", err, syscall.EROFS)
	mustErr(t, "rmdir", m.Rmdir(RootIno, "lost+found"), syscall.EROFS)
	_, err = m.SetAttr(nil, RootIno, &SetAttr{Valid: SetMode, Mode: 0o700})
	mustErr(t, "chmod", err, syscall.EROFS)
	if n := len(readAll(t, m.FS, RootIno)); n != 3 {
		t.Errorf("%d entries", n)
	}
}

// TestCorruptDirectory damages a directory block behind the cache's back.
func TestCorruptDirectory(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20)
	m := &testFS{t: t, path: image, opts: Options{Errors: ErrorsContinue}}
	m.mount()
	i, err := m.iget(RootIno)
	mustOK(t, err)
	r, err := i.mapRun(0)
	mustOK(t, err)
	_, err = m.dev.WriteAt([]byte("garbage"), int64(r.p)<<m.blockBits+20)
	mustOK(t, err)
	m.iput(i)
	_, err = m.Lookup(RootIno, "lost+found")
	var c *ondisk.CorruptError
	if !errors.As(err, &c) || c.Inode != RootIno || c.Block != r.p {
		t.Errorf("lookup in a damaged directory: %v", err)
	}
	if m.Stats().Corruptions == 0 {
		t.Error("the damage was not counted")
	}
	m.FS.Unmount(t.Context())
	m.dev.Close()
}
