package fusefs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

func TestNodeIDsAreABijection(t *testing.T) {
	if nodeID(ext4.RootIno) != fuse.FUSE_ROOT_ID {
		t.Error("the root is not FUSE's root")
	}
	for ino := ondisk.InodeNumber(1); ino < 100; ino++ {
		if got := inode(nodeID(ino)); got != ino {
			t.Errorf("inode %d comes back as %d", ino, got)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fuse.Status
	}{
		{nil, fuse.OK},
		{syscall.ENOENT, fuse.ENOENT},
		{fmt.Errorf("more: %w", syscall.ENOSPC), fuse.Status(syscall.ENOSPC)},
		{ondisk.Corrupt("x"), fuse.Status(syscall.EUCLEAN)},
		{fmt.Errorf("more: %w", ondisk.Corrupt("x")), fuse.Status(syscall.EUCLEAN)},
		{errors.New("x"), fuse.EIO},
		{io.ErrUnexpectedEOF, fuse.EIO},
		{syscall.ENOSYS, fuse.Status(syscall.EOPNOTSUPP)}, // would turn the request off for good
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestHandles(t *testing.T) {
	var h handles
	model := map[uint64]*openFile{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		if rnd.IntN(3) > 0 {
			o := &openFile{}
			fh := h.add(o)
			if fh == 0 || model[fh] != nil {
				t.Fatalf("handle %d handed out twice, or none", fh)
			}
			model[fh] = o
			continue
		}
		for fh, o := range model { // any
			if h.get(fh) != o || h.remove(fh) != o || h.get(fh) != nil || h.remove(fh) != nil {
				t.Fatalf("handle %d is not what it was", fh)
			}
			delete(model, fh)
			break
		}
	}
	if got := h.open.Load(); got != int64(len(model)) {
		t.Errorf("%d open, want %d", got, len(model))
	}
	for _, fh := range []uint64{0, 1 << 40, ^uint64(0)} {
		if h.get(fh) != nil || h.remove(fh) != nil {
			t.Errorf("handle %d exists", fh)
		}
	}
	h.removeAll(func(*openFile) {})
	if got := h.open.Load(); got != 0 {
		t.Errorf("%d open after removeAll", got)
	}
}

func TestHandlesConcurrently(t *testing.T) {
	var h handles
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				o := &openFile{}
				fh := h.add(o)
				if h.get(fh) != o || h.remove(fh) != o {
					t.Error("somebody else's file")
				}
			}
		})
	}
	wg.Wait()
}

func TestBuckets(t *testing.T) {
	for _, nanos := range []uint64{0, 1, 999, 1000, 1001, 2000, 2001, 1e6, 1e9, 1e18} {
		want := latencyBuckets
		for i, bound := range LatencyBuckets {
			if nanos <= uint64(bound) {
				want = i
				break
			}
		}
		if got := bucket(nanos); got != want {
			t.Errorf("%d ns: bucket %d, want %d", nanos, got, want)
		}
	}
}

func TestCounters(t *testing.T) {
	var c counters
	var wg sync.WaitGroup
	const each, goroutines = 1000, 8
	for range goroutines {
		wg.Go(func() {
			for range each {
				st := fuse.OK
				c.done(OpLookup, c.begin(OpLookup), &st)
				st = fuse.ENOENT
				c.done(OpGetAttr, c.begin(OpGetAttr), &st)
				st = fuse.EIO
				c.done(OpWrite, c.begin(OpWrite), &st)
			}
		})
	}
	wg.Wait()
	s := c.sum()
	if got := s.Requests(); got != 3*each*goroutines {
		t.Errorf("%d requests", got)
	}
	timed := uint64(0)
	for _, n := range s.Ops[OpWrite].Latency {
		timed += n
	}
	if timed != each*goroutines {
		t.Errorf("%d writes timed", timed)
	}
	if s.Ops[OpLookup].Errors != 0 || s.Ops[OpGetAttr].Negative != each*goroutines || s.Ops[OpWrite].Errors != each*goroutines {
		t.Errorf("%+v", s.Ops[:])
	}
}

func TestPanicsBecomeEIO(t *testing.T) {
	var c counters
	var told any
	c.onPanic = func(_ Op, v any, _ []byte) { told = v }
	st := func() (st fuse.Status) {
		defer c.done(OpLookup, c.begin(OpLookup), &st)
		panic("bug")
	}()
	if st != fuse.EIO || told != "bug" || c.sum().Panics != 1 {
		t.Errorf("%v, %v, %d", st, told, c.sum().Panics)
	}
	f := &FileSystem{}
	func() {
		defer f.catch("test")
		panic("bug")
	}()
	if f.stats.sum().Panics != 1 {
		t.Error("a panic outside of a request was not counted")
	}
}

func TestOpsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for op := range opCount {
		if op.String() == "" || seen[op.String()] {
			t.Errorf("op %d: name %q", op, op)
		}
		seen[op.String()] = true
	}
}

func TestNegotiation(t *testing.T) {
	var k fuse.InitIn
	k.Major, k.Minor = 7, 45
	if _, err := negotiated(&k, true); err == nil {
		t.Error("a kernel without the writeback cache was accepted")
	}
	for _, c := range wanted(true) {
		k.Flags |= uint32(c.flag)
		k.Flags2 |= uint32(c.flag >> 32)
	}
	n, err := negotiated(&k, true)
	if err != nil || len(n.Missing) != 0 || len(n.Agreed) != len(wanted(true)) {
		t.Errorf("%v, %v", n, err)
	}
	k.Flags &^= fuse.CAP_HANDLE_KILLPRIV_V2
	if n, err := negotiated(&k, true); err != nil || len(n.Missing) != 1 {
		t.Errorf("%v, %v; want one missing", n, err)
	}
}

func TestChanges(t *testing.T) {
	in := &fuse.SetAttrIn{}
	in.Valid = fuse.FATTR_MODE | fuse.FATTR_ATIME | fuse.FATTR_ATIME_NOW | fuse.FATTR_MTIME
	in.Mode, in.Mtime, in.Mtimensec = 0o104755, 5, 6
	s := changes(in)
	if s.Valid != ext4.SetMode|ext4.SetAtimeNow|ext4.SetMtime || s.Mode != 0o4755 || s.Mtime != (ext4.Time{Sec: 5, Nsec: 6}) || s.KillPriv {
		t.Errorf("%+v", s)
	}
	in.Valid = fuse.FATTR_UID
	if s := changes(in); !s.KillPriv || s.Valid != ext4.SetUID {
		t.Errorf("chown: %+v", s)
	}
	in.Valid = fuse.FATTR_SIZE | fuse.FATTR_KILL_SUIDGID
	if s := changes(in); !s.KillPriv || s.Valid != ext4.SetSize {
		t.Errorf("truncate: %+v", s)
	}
	before1970 := uint64(1<<64 - 10)
	in.Valid, in.Mtime = fuse.FATTR_MTIME, before1970
	if s := changes(in); s.Mtime.Sec != -10 {
		t.Errorf("before 1970: %+v", s.Mtime)
	}
}

func TestRdevParts(t *testing.T) {
	for _, c := range [][3]uint32{{0x0103, 1, 3}, {0xfd12, 253, 18}, {0x12300845, 8, 0x12345&0xfff45&^0x300 | 0x300}} {
		major, minor := rdevParts(c[0])
		want := uint64(c[0]&0xff | c[0]>>12&0xfff00)
		if major != c[0]>>8&0xfff || uint64(minor) != want {
			t.Errorf("%#x: %d:%d", c[0], major, minor)
		}
	}
	dev := unix.Mkdev(253, 70000) // user space's 64-bit encoding of a large minor
	kernel := uint32(unix.Minor(dev)&0xff | unix.Major(dev)<<8 | unix.Minor(dev)&^0xff<<12)
	if major, minor := rdevParts(kernel); major != 253 || minor != 70000 {
		t.Errorf("%d:%d, want 253:70000", major, minor)
	}
}

// holes is a seeker with data in [a, b) of a file of size n.
type holes struct{ a, b, n int64 }

func (h holes) Seek(off int64, whence int) (int64, error) {
	switch {
	case off >= h.n:
		return 0, syscall.ENXIO
	case whence == unix.SEEK_DATA && off < h.b:
		return max(off, h.a), nil
	case whence == unix.SEEK_DATA:
		return 0, syscall.ENXIO
	case off >= h.a && off < h.b:
		return h.b, nil
	}
	return off, nil
}

func TestSeekNamesTheHole(t *testing.T) {
	s := holes{100, 200, 300}
	for _, c := range []struct {
		off    int64
		whence int
		want   seekAnswer
	}{
		{0, unix.SEEK_DATA, seekAnswer{off: 100, hole: 0, holeEnd: 100}},
		{150, unix.SEEK_DATA, seekAnswer{off: 150, hole: -1, holeEnd: -1}},
		{250, unix.SEEK_DATA, seekAnswer{enxio: true, hole: 250, holeEnd: -1}},
		{400, unix.SEEK_DATA, seekAnswer{enxio: true, hole: 400, holeEnd: -1}},
		{0, unix.SEEK_HOLE, seekAnswer{off: 0, hole: 0, holeEnd: 100}},
		{150, unix.SEEK_HOLE, seekAnswer{off: 200, hole: 200, holeEnd: -1}},
	} {
		if got, err := seek(s, c.off, c.whence); err != nil || got != c.want {
			t.Errorf("seek(%d, %d): %+v, %v; want %+v", c.off, c.whence, got, err, c.want)
		}
	}
}

func TestParseGroups(t *testing.T) {
	if got := parseNumbers("\t4 24 1000 "); fmt.Sprint(got) != "[4 24 1000]" {
		t.Errorf("%v", got)
	}
	if processGroups(0) != nil {
		t.Error("the kernel has groups")
	}
}

func TestCountersFillCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(opCounters{}); size%64 != 0 {
		t.Errorf("opCounters is %d bytes", size)
	}
}

// BenchmarkDone is the cost of counting one request.
func BenchmarkDone(b *testing.B) {
	var c counters
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			func() (st fuse.Status) {
				defer c.done(OpLookup, c.begin(OpLookup), &st)
				return fuse.OK
			}()
		}
	})
}
