package bcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"extfused/blockdev"
)

const bs = 4096

// numbered makes a device whose block i starts with the number i.
func numbered(t testing.TB, blocks int) blockdev.Device {
	t.Helper()
	dev := blockdev.NewMem(int64(blocks) * bs)
	for i := range blocks {
		var p [8]byte
		binary.LittleEndian.PutUint64(p[:], uint64(i))
		if _, err := dev.WriteAt(p[:], int64(i)*bs); err != nil {
			t.Fatal(err)
		}
	}
	return dev
}

func counted(t testing.TB, blocks int, o Options) (*Cache, *blockdev.Counting) {
	n := blockdev.NewCounting(numbered(t, blocks))
	var dev blockdev.Device = n
	return New(dev, bs, o), n
}

func number(b *Buffer) uint64 { return binary.LittleEndian.Uint64(b.Data()) }

func mustRead(t testing.TB, c *Cache, blk uint64) *Buffer {
	t.Helper()
	b, err := c.Read(blk, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadOnceAndVerifyOnMissOnly(t *testing.T) {
	c, n := counted(t, 16, Options{})
	verified := 0
	for range 3 {
		b, err := c.Read(7, func(data []byte) error { verified++; return nil })
		if err != nil || number(b) != 7 || !b.Uptodate() || b.Block() != 7 {
			t.Fatalf("block %v: %v", b, err)
		}
		b.Put()
	}
	if r := n.Stats().Reads; r != 1 || verified != 1 {
		t.Fatalf("%d reads, %d verifications of one block", r, verified)
	}
	if st := c.Stats(); st.Hits != 2 || st.Misses != 1 || st.Buffers != 1 || st.Bytes != bs {
		t.Fatalf("stats %+v", st)
	}
}

func TestFailedVerifyIsNotCached(t *testing.T) {
	c, n := counted(t, 16, Options{})
	bad := errors.New("bad")
	if _, err := c.Read(3, func([]byte) error { return bad }); err != bad {
		t.Fatalf("error %v", err)
	}
	if b := c.Lookup(3); b != nil {
		t.Fatal("a refused block is cached")
	}
	mustRead(t, c, 3).Put()
	if r := n.Stats().Reads; r != 2 {
		t.Fatalf("%d reads", r)
	}
}

func TestReadBeyondTheDevice(t *testing.T) {
	c, _ := counted(t, 4, Options{})
	for _, blk := range []uint64{4, 1 << 40, 1<<64 - 1} {
		if _, err := c.Read(blk, nil); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("Read(%d): %v", blk, err)
		}
		if _, err := c.Get(blk); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("Get(%d): %v", blk, err)
		}
		c.Prefetch(blk, 10)
		c.Forget(blk, 10)
	}
	if st := c.Stats(); st.Buffers != 0 {
		t.Fatalf("stats %+v", st)
	}
}

// slow delays reads, so that concurrent readers meet.
type slow struct {
	blockdev.Device
	reads atomic.Int64
}

func (s *slow) ReadAt(p []byte, off int64) (int, error) {
	s.reads.Add(1)
	time.Sleep(20 * time.Millisecond)
	return s.Device.ReadAt(p, off)
}

func TestConcurrentReadersShareOneRead(t *testing.T) {
	dev := &slow{Device: numbered(t, 8)}
	c := New(dev, bs, Options{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			b, err := c.Read(5, nil)
			if err != nil || number(b) != 5 {
				t.Errorf("read: %v", err)
				return
			}
			b.Put()
		})
	}
	wg.Wait()
	if r := dev.reads.Load(); r != 1 {
		t.Fatalf("%d device reads", r)
	}
}

func TestGetIsZeroedAndReadsNothing(t *testing.T) {
	c, n := counted(t, 8, Options{})
	b, err := c.Get(6)
	if err != nil || b.Uptodate() || number(b) != 0 {
		t.Fatalf("%v %v", b, err)
	}
	binary.LittleEndian.PutUint64(b.Data(), 66)
	b.SetUptodate()
	if again := mustRead(t, c, 6); again != b || number(again) != 66 {
		t.Fatal("Read does not see what Get's caller filled in")
	}
	if r := n.Stats().Reads; r != 0 {
		t.Fatalf("%d reads", r)
	}
}

func TestPrefetchReadsRunsAndLeavesVerification(t *testing.T) {
	c, n := counted(t, 64, Options{})
	mustRead(t, c, 10).Put()
	c.Prefetch(4, 16) // 4..9 and 11..19
	if r := n.Stats().Reads; r != 3 {
		t.Fatalf("%d reads, want 1 + 2 runs", r)
	}
	if c.Lookup(12) != nil {
		t.Fatal("an unverified block is found by Lookup")
	}
	verified := 0
	for range 2 {
		b, err := c.Read(12, func(p []byte) error { verified++; return nil })
		if err != nil || number(b) != 12 {
			t.Fatal(err)
		}
		b.Put()
	}
	if verified != 1 || n.Stats().Reads != 3 {
		t.Fatalf("verified %d times, %d reads", verified, n.Stats().Reads)
	}
	b, err := c.Get(13)
	if err != nil || number(b) != 0 || b.Uptodate() {
		t.Fatal("Get of a prefetched block is not fresh")
	}
	c.Prefetch(60, 100) // past the end
	mustRead(t, c, 63).Put()
}

func TestWritesAreSortedAndCoalesced(t *testing.T) {
	c, n := counted(t, 1024, Options{})
	order := rand.Perm(600)
	for _, i := range order {
		if i%100 == 99 {
			continue // six runs of 99 blocks
		}
		b, _ := c.Get(uint64(i))
		binary.LittleEndian.PutUint64(b.Data(), uint64(i)+1000)
		b.SetUptodate()
		b.MarkDirty()
		b.Put()
	}
	if d := c.Stats().Dirty; d != 594 {
		t.Fatalf("%d dirty", d)
	}
	if err := c.WriteDirty(); err != nil {
		t.Fatal(err)
	}
	st := n.Stats()
	if st.Writes != 6 || st.WriteBytes != 594*bs || st.Flushes != 0 {
		t.Fatalf("device saw %+v", st)
	}
	if d := c.Stats(); d.Dirty != 0 || d.Held != 0 {
		t.Fatalf("after writing %+v", d)
	}
	if err := c.WriteDirty(); err != nil || n.Stats().Writes != 6 {
		t.Fatal("clean buffers are written again")
	}
	var p [8]byte
	if _, err := c.Device().ReadAt(p[:], 123*bs); err != nil || binary.LittleEndian.Uint64(p[:]) != 1123 {
		t.Fatalf("block 123 on the device: %v %v", p, err)
	}
}

func TestWriteBuffersIfLeavesOutTheRefused(t *testing.T) {
	c, n := counted(t, 16, Options{})
	var bufs []*Buffer
	for _, blk := range []uint64{5, 3, 4, 4, 9} {
		b := mustRead(t, c, blk)
		b.Data()[8] = 1
		bufs = append(bufs, b)
	}
	err := c.WriteBuffersIf(bufs, func(b *Buffer) bool { return b.Block() != 4 })
	if err != nil || n.Stats().Writes != 3 {
		t.Fatalf("%v, %d writes", err, n.Stats().Writes)
	}
	p := make([]byte, 16*bs)
	if _, err := c.Device().ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	for blk, want := range map[int]byte{3: 1, 4: 0, 5: 1, 9: 1} {
		if p[blk*bs+8] != want {
			t.Errorf("block %d written: %d", blk, p[blk*bs+8])
		}
	}
	if err := c.WriteBuffers(bufs); err != nil || n.Stats().Writes != 5 {
		t.Fatalf("%v, %d writes", err, n.Stats().Writes)
	}
}

// failing refuses writes that touch a block.
type failing struct {
	blockdev.Device
	blk int64
	err error
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if off <= f.blk*bs && f.blk*bs < off+int64(len(p)) {
		return 0, f.err
	}
	return f.Device.WriteAt(p, off)
}

func TestFailedWriteStaysDirty(t *testing.T) {
	dev := &failing{Device: numbered(t, 32), blk: 2, err: errors.New("no")}
	c := New(dev, bs, Options{})
	for _, blk := range []uint64{1, 2, 20} {
		b := mustRead(t, c, blk)
		b.MarkDirty()
		b.Put()
	}
	if err := c.WriteDirty(); err != dev.err {
		t.Fatalf("error %v", err)
	}
	if d := c.Stats().Dirty; d != 2 {
		t.Fatalf("%d dirty after a failed run of two", d)
	}
	dev.blk = -1
	if err := c.WriteDirty(); err != nil || c.Stats().Dirty != 0 {
		t.Fatal(err)
	}
}

func TestForget(t *testing.T) {
	c, n := counted(t, 64, Options{})
	for blk := range uint64(8) {
		b := mustRead(t, c, blk)
		b.MarkDirty()
		switch blk {
		case 3: // stays pinned
		case 4:
			b.Lock()
			b.JH = "journal"
			b.Unlock()
		default:
			b.Put()
		}
	}
	c.Forget(2, 4)
	if err := c.WriteDirty(); err != nil {
		t.Fatal(err)
	}
	if got := n.Stats().WriteBytes; got != 5*bs { // 0, 1, 4, 6, 7
		t.Fatalf("%d blocks written", got/bs)
	}
	for blk, cached := range map[uint64]bool{1: true, 2: false, 3: true, 4: true, 5: false} {
		b := c.Lookup(blk)
		if (b != nil) != cached {
			t.Errorf("block %d cached: %v", blk, b != nil)
		}
		if b != nil {
			b.Put()
		}
	}
	c.Forget(0, 1<<40)
	if st := c.Stats(); st.Buffers != 2 {
		t.Fatalf("%d buffers left, want the pinned one and the journal's", st.Buffers)
	}
}

// Clean content is bounded; what is pinned, dirty or in a journal stays, and
// the room for clean content stays as large as it was.
func TestEvictionBound(t *testing.T) {
	const limit = 1024
	c, n := counted(t, 16384, Options{MaxBytes: limit * bs})
	var kept []*Buffer
	for blk := range uint64(900) {
		b := mustRead(t, c, blk)
		switch blk % 3 {
		case 0: // pinned
		case 1:
			b.MarkDirty()
			b.Put()
		case 2:
			b.Lock()
			b.JH = 1 // its pin is the journal's
			b.Unlock()
		}
		kept = append(kept, b)
	}
	for round := range 3 {
		for blk := uint64(900); blk < 16384; blk++ {
			mustRead(t, c, blk).Put()
		}
		if st := c.Stats(); st.Buffers > limit+900+limit/4 || st.Buffers < limit {
			t.Fatalf("round %d: %d buffers for a bound of %d and 900 held", round, st.Buffers, limit)
		}
	}
	reads := n.Stats().Reads
	for blk, b := range kept {
		if again := mustRead(t, c, uint64(blk)); again != b {
			t.Fatalf("held buffer %d was evicted", blk)
		} else {
			again.Put()
		}
	}
	if n.Stats().Reads != reads {
		t.Fatal("held buffers were read again")
	}
	for i, b := range kept {
		switch i % 3 {
		case 0:
			b.Put()
		case 2:
			b.Lock()
			b.JH = nil
			b.Unlock()
			b.Put()
		}
	}
	if err := c.WriteDirty(); err != nil {
		t.Fatal(err)
	}
	for blk := uint64(900); blk < 16384; blk++ {
		mustRead(t, c, blk).Put()
	}
	if st := c.Stats(); st.Buffers > limit+limit/4 {
		t.Fatalf("%d buffers for a bound of %d with none held", st.Buffers, limit)
	}
}

// A block that is looked at all the time survives a scan over everything.
func TestClockKeepsWhatIsUsed(t *testing.T) {
	c, n := counted(t, 16384, Options{MaxBytes: 1024 * bs})
	hot := uint64(0)
	misses := uint64(0)
	for blk := uint64(1); blk < 16384; blk++ {
		before := n.Stats().Reads
		mustRead(t, c, hot).Put()
		misses += n.Stats().Reads - before
		mustRead(t, c, blk).Put()
	}
	if misses != 1 {
		t.Fatalf("the hot block was read %d times", misses)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	c, _ := counted(t, 16, Options{})
	mustRead(t, c, 1).Put()
	want := uint64(1)
	if a := testing.AllocsPerRun(100, func() {
		b, err := c.Read(1, func(p []byte) error {
			if binary.LittleEndian.Uint64(p) != want {
				return errors.New("wrong block")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Put()
		c.Lookup(1).Put()
	}); a != 0 {
		t.Fatalf("%v allocations on a hit", a)
	}
}

func TestPutTooOftenPanics(t *testing.T) {
	c, _ := counted(t, 4, Options{})
	b := mustRead(t, c, 1)
	b.Put()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	b.Put()
}

// TestHammer has goroutines read, change, forget, prefetch and write a range
// that is far larger than the cache. Each block carries its number, and a
// counter that is only ever incremented, under the block's own lock; no
// increment may get lost through eviction and re-reading.
func TestHammer(t *testing.T) {
	const blocks, workers, rounds = 512, 8, 4000
	c, _ := counted(t, blocks, Options{MaxBytes: 64 * bs})
	var owner [blocks]sync.Mutex
	var want [blocks]uint64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for range rounds {
				hammerOnce(t, c, rnd, owner[:], want[:])
			}
		})
	}
	wg.Wait()
	if err := c.WriteDirty(); err != nil {
		t.Fatal(err)
	}
	for blk := range uint64(blocks) {
		var p [16]byte
		if _, err := c.Device().ReadAt(p[:], int64(blk)*bs); err != nil {
			t.Fatal(err)
		}
		if n := binary.LittleEndian.Uint64(p[8:]); n != want[blk] || binary.LittleEndian.Uint64(p[:]) != blk {
			t.Fatalf("block %d has count %d, want %d", blk, n, want[blk])
		}
	}
	if st := c.Stats(); st.Buffers > 64*4 || st.Held != 0 || st.Evictions == 0 {
		t.Fatalf("afterwards %+v", st)
	}
}

func hammerOnce(t *testing.T, c *Cache, rnd *rand.Rand, owner []sync.Mutex, want []uint64) {
	blk := rnd.Uint64N(uint64(len(owner)))
	switch rnd.IntN(16) {
	case 0:
		c.Prefetch(blk, 8)
	case 1:
		c.Stats()
	case 2, 3:
		runtime.Gosched()
		if b := c.Lookup(blk); b != nil {
			b.Put()
		}
	default:
		owner[blk].Lock()
		defer owner[blk].Unlock()
		b, err := c.Read(blk, func(p []byte) error {
			if binary.LittleEndian.Uint64(p) != blk {
				return errors.New("another block's content")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer b.Put()
		n := binary.LittleEndian.Uint64(b.Data()[8:])
		if number(b) != blk || n != want[blk] {
			t.Errorf("block %d: number %d, count %d, want %d", blk, number(b), n, want[blk])
		}
		if rnd.IntN(2) == 0 {
			want[blk]++
			binary.LittleEndian.PutUint64(b.Data()[8:], n+1)
			b.MarkDirty()
			if err := c.WriteBuffers([]*Buffer{b}); err != nil {
				t.Error(err)
			}
			b.setDirty(rnd.IntN(8) == 0)
		}
	}
}

func TestLargeBlocks(t *testing.T) {
	dev := blockdev.NewMem(1 << 20)
	pattern := bytes.Repeat([]byte{0xA5}, 65536)
	if _, err := dev.WriteAt(pattern, 3*65536); err != nil {
		t.Fatal(err)
	}
	c := New(dev, 65536, Options{MaxBytes: 1})
	b := mustRead(t, c, 3)
	if !bytes.Equal(b.Data(), pattern) {
		t.Fatal("content")
	}
	b.MarkDirty()
	b.Put()
	if err := c.WriteDirty(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkHit(b *testing.B) {
	c, _ := counted(b, 16384, Options{})
	for blk := range uint64(16384) {
		mustRead(b, c, blk).Put()
	}
	b.Run("one", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			buf, _ := c.Read(uint64(i)*7919%16384, nil)
			buf.Put()
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			buf, _ := c.Read(77, nil)
			buf.Put()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		var seed atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			i := seed.Add(1000)
			for pb.Next() {
				i++
				buf, _ := c.Read(i*7919%16384, nil)
				buf.Put()
			}
		})
	})
}
