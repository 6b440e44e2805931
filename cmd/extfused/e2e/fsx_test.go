package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fsxMax bounds the file of the torture, in bytes.
const fsxMax = 1 << 20

// TestDataTorture changes one file in all ways and compares it with a model in
// memory after each: 15 seconds, with EXTFUSED_FULL 10 minutes.
func TestDataTorture(t *testing.T) {
	needMount(t)
	length := 15 * time.Second
	if longRun() {
		length = 10 * time.Minute
	}
	seed := number(t, "EXTFUSED_SEED", uint64(time.Now().UnixNano()))
	t.Logf("EXTFUSED_SEED=%d", seed)
	m := mountImage(t, mkfsImage(t, "256M"))
	x := &fsx{t: t, rng: rand.New(rand.NewPCG(seed, 1)), path: filepath.Join(m.dir, "torture")}
	x.reopen()
	defer func() { unix.Close(x.fd) }()
	n := 0
	for stop := time.Now().Add(length); time.Now().Before(stop); n++ {
		op := fsxOps[x.rng.IntN(len(fsxOps))]
		off, size := x.rng.IntN(fsxMax), 1+x.rng.IntN(1<<16)
		if x.rng.IntN(3) == 0 {
			off &^= 4095
		}
		size = min(size, fsxMax-off)
		x.log = append(x.log, fmt.Sprintf("%s %d+%d of %d", op.name, off, size, len(x.model)))
		op.do(x, off, size)
		if n%64 == 0 {
			x.verify(0, len(x.model))
		}
	}
	x.verify(0, len(x.model))
	t.Logf("%d operations", n)
}

type fsx struct {
	t     *testing.T
	rng   *rand.Rand
	path  string
	fd    int
	model []byte
	log   []string
}

func (x *fsx) must(what string, err error) {
	x.t.Helper()
	if err != nil {
		x.fail("%s: %v", what, err)
	}
}

func (x *fsx) fail(format string, args ...any) {
	x.t.Helper()
	x.t.Fatalf("%s\nbefore: %q", fmt.Sprintf(format, args...), x.log[max(0, len(x.log)-20):])
}

func (x *fsx) reopen() {
	if x.model != nil {
		x.must("close", unix.Close(x.fd))
	}
	fd, err := unix.Open(x.path, unix.O_RDWR|unix.O_CREAT, 0o644)
	x.must("open", err)
	x.fd = fd
}

// grow makes the model at least n bytes long.
func (x *fsx) grow(n int) {
	if n > len(x.model) {
		x.model = append(x.model, make([]byte, n-len(x.model))...)
	}
}

func (x *fsx) fresh(n int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(1 + x.rng.IntN(255))
	}
	return b
}

// verify reads a range, and compares size and content.
func (x *fsx) verify(off, n int) {
	x.t.Helper()
	var st unix.Stat_t
	x.must("fstat", unix.Fstat(x.fd, &st))
	if st.Size != int64(len(x.model)) {
		x.fail("the size is %d, want %d", st.Size, len(x.model))
	}
	b := make([]byte, n)
	got, err := unix.Pread(x.fd, b, int64(off))
	x.must("pread", err)
	x.equal(off, b[:got], x.model[min(off, len(x.model)):min(off+n, len(x.model))])
}

func (x *fsx) equal(off int, got, want []byte) {
	x.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for k := range want {
		if k >= len(got) || got[k] != want[k] {
			x.fail("byte %d differs, of %d (%d came)", off+k, off+len(want), len(got))
		}
	}
	x.fail("%d bytes instead of %d at %d", len(got), len(want), off)
}

func (x *fsx) clear(off, n int) {
	if off < len(x.model) {
		clear(x.model[off:min(off+n, len(x.model))])
	}
}

var fsxOps = []struct {
	name string
	do   func(x *fsx, off, n int)
}{
	{"read", func(x *fsx, off, n int) { x.verify(off, n) }},
	{"write", func(x *fsx, off, n int) {
		b := x.fresh(n)
		k, err := unix.Pwrite(x.fd, b, int64(off))
		x.must("pwrite", err)
		x.grow(off + k)
		copy(x.model[off:], b[:k])
	}},
	{"truncate", func(x *fsx, off, _ int) {
		x.must("ftruncate", unix.Ftruncate(x.fd, int64(off)))
		x.model = x.model[:min(off, len(x.model))]
		x.grow(off)
	}},
	{"fallocate", func(x *fsx, off, n int) {
		x.must("fallocate", unix.Fallocate(x.fd, 0, int64(off), int64(n)))
		x.grow(off + n)
	}},
	{"fallocate KEEP_SIZE", func(x *fsx, off, n int) {
		x.must("fallocate", unix.Fallocate(x.fd, unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
	}},
	{"punch", func(x *fsx, off, n int) {
		x.must("fallocate", unix.Fallocate(x.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
		x.clear(off, n)
	}},
	{"zero", func(x *fsx, off, n int) {
		x.must("fallocate", unix.Fallocate(x.fd, unix.FALLOC_FL_ZERO_RANGE, int64(off), int64(n)))
		x.grow(off + n)
		x.clear(off, n)
	}},
	{"zero KEEP_SIZE", func(x *fsx, off, n int) {
		x.must("fallocate", unix.Fallocate(x.fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
		x.clear(off, n)
	}},
	{"mmap write", func(x *fsx, off, n int) { x.mapped(off, n, true) }},
	{"mmap read", func(x *fsx, off, n int) { x.mapped(off, n, false) }},
	{"copy", func(x *fsx, off, n int) {
		to := x.rng.IntN(fsxMax - n + 1)
		if off >= len(x.model) || to < off+n && off < to+n {
			return
		}
		from, into := int64(off), int64(to)
		k, err := unix.CopyFileRange(x.fd, &from, x.fd, &into, n, 0)
		x.must("copy_file_range", err)
		x.grow(to + k)
		copy(x.model[to:to+k], bytes.Clone(x.model[off:off+k]))
	}},
	{"fsync", func(x *fsx, _, _ int) { x.must("fsync", unix.Fsync(x.fd)) }},
	{"reopen", func(x *fsx, _, _ int) { x.reopen() }},
	{"drop pages", func(x *fsx, _, _ int) {
		x.must("fsync", unix.Fsync(x.fd))
		x.must("fadvise", unix.Fadvise(x.fd, 0, 0, unix.FADV_DONTNEED))
	}},
	{"seek data", func(x *fsx, off, _ int) {
		at, err := unix.Seek(x.fd, int64(off), unix.SEEK_DATA)
		end := int(at)
		if err == unix.ENXIO {
			end, err = len(x.model), nil
		}
		x.must("SEEK_DATA", err)
		if off < len(x.model) && len(bytes.Trim(x.model[off:end], "\x00")) > 0 {
			x.fail("SEEK_DATA from %d skips data: %d", off, end)
		}
	}},
}

// mapped writes or compares through a shared mapping what lies in the file.
func (x *fsx) mapped(off, n int, write bool) {
	page := off &^ 4095
	n = min(n, len(x.model)-off)
	if n <= 0 {
		return
	}
	b, err := unix.Mmap(x.fd, int64(page), off-page+n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	x.must("mmap", err)
	if write {
		copy(b[off-page:], x.fresh(n))
		copy(x.model[off:], b[off-page:])
	} else {
		x.equal(off, b[off-page:], x.model[off:off+n])
	}
	x.must("munmap", unix.Munmap(b))
}
