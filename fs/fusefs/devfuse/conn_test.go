package devfuse

import (
	"encoding/binary"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// kernel plays the kernel's part at the other end of a packet socket: one
// packet is one request, as with /dev/fuse.
type kernel struct {
	t    *testing.T
	fd   int
	conn *conn
	end  sync.WaitGroup
}

func newKernel(t *testing.T, s server, h Handler) *kernel {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{t: t, fd: pair[0], conn: newConn(pair[1], s, h, 64<<10, log.New(io.Discard, "", 0))}
	k.end.Add(1)
	go func() { defer k.end.Done(); k.conn.serve() }()
	t.Cleanup(func() {
		unix.Shutdown(k.fd, unix.SHUT_RDWR)
		k.end.Wait() // before the numbers of the descriptors are used again
		unix.Close(k.fd)
		unix.Close(pair[1])
	})
	return k
}

func (k *kernel) send(op uint32, unique uint64) {
	h := fuse.InHeader{Length: uint32(headerIn), Opcode: op, Unique: unique}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&h)), headerIn)
	if _, err := unix.Write(k.fd, b); err != nil {
		k.t.Error(err)
	}
}

func (k *kernel) answer() (unique uint64, status int32) {
	b := make([]byte, 4096)
	n, err := unix.Read(k.fd, b)
	if err != nil || n < headerOut {
		k.t.Fatalf("an answer of %d bytes: %v", n, err)
	}
	return binary.NativeEndian.Uint64(b[8:]), int32(binary.NativeEndian.Uint32(b[4:]))
}

// server function: what the file system does with a request.
type serverFunc func(op uint32, unique uint64)

func (f serverFunc) HandleRequest(in, out [][]byte) (int, fuse.Status) {
	h := (*fuse.InHeader)(unsafe.Pointer(&in[0][0]))
	f(h.Opcode, h.Unique)
	*(*fuse.OutHeader)(unsafe.Pointer(&out[0][0])) = fuse.OutHeader{Length: uint32(headerOut), Unique: h.Unique}
	return headerOut, fuse.OK
}

type noHandler struct{ synced, destroyed atomic.Int32 }

func (h *noHandler) SyncFS() error { h.synced.Add(1); return nil }
func (h *noHandler) Destroy()      { h.destroyed.Add(1) }

// state of a connection, for looking at.
func (k *kernel) state() (waiting, parked, readers int) {
	k.conn.mu.Lock()
	defer k.conn.mu.Unlock()
	return k.conn.waiting, len(k.conn.parked), k.conn.readers
}

// await waits until ok holds; the deadline is only for the failure.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

const opGetattr = 3

func TestOneReaderServesOneCaller(t *testing.T) {
	k := newKernel(t, serverFunc(func(uint32, uint64) {}), &noHandler{})
	for i := uint64(1); i < 5000; i++ {
		k.send(opGetattr, i)
		if got, _ := k.answer(); got != i {
			t.Fatalf("answer to %d, want %d", got, i)
		}
	}
	// By chance the monitor sees the reader busy twice now and then.
	k.conn.mu.Lock()
	defer k.conn.mu.Unlock()
	if k.conn.woken > 250 {
		t.Errorf("%d readers were woken for %d requests of one caller", k.conn.woken, k.conn.seq)
	}
}

func TestBlockedReaderIsReplaced(t *testing.T) {
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	k := newKernel(t, serverFunc(func(op uint32, unique uint64) {
		if unique <= 10 {
			<-release
		}
	}), &noHandler{})
	t.Cleanup(free) // runs before the kernel's, which waits for the readers
	for i := uint64(1); i <= 10; i++ {
		k.send(opGetattr, i) // each blocks its reader
	}
	k.send(opGetattr, 11)
	if got, _ := k.answer(); got != 11 {
		t.Fatalf("answer to %d, want 11", got)
	}
	free()
	seen := map[uint64]bool{}
	for range 10 {
		got, _ := k.answer()
		seen[got] = true
	}
	if len(seen) != 10 {
		t.Errorf("answers to %v", seen)
	}
	await(t, "one reader waits, at most maxParked are kept", func() bool {
		waiting, parked, readers := k.state()
		return waiting == 1 && parked <= maxParked && readers == waiting+parked
	})
}

func TestLongRequestHasASuccessorAtOnce(t *testing.T) {
	var waiting atomic.Int32
	waiting.Store(-1)
	var k *kernel
	ready := make(chan struct{})
	k = newKernel(t, serverFunc(func(op uint32, _ uint64) {
		<-ready
		if op == opLseek {
			n, _, _ := k.state()
			waiting.Store(int32(n))
		}
	}), &noHandler{})
	close(ready)
	k.send(opLseek, 1)
	k.answer()
	if waiting.Load() != 1 {
		t.Errorf("%d readers waited while a long request was served, want 1", waiting.Load())
	}
}

func TestManyCallers(t *testing.T) {
	var inside, most atomic.Int32
	k := newKernel(t, serverFunc(func(uint32, uint64) {
		n := inside.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(50 * time.Microsecond)
		inside.Add(-1)
	}), &noHandler{})
	const window, total = 16, 20000
	answered := make([]bool, total+1)
	for sent, got := 0, 0; got < total; {
		for ; sent < total && sent-got < window; sent++ {
			k.send(opGetattr, uint64(sent+1))
		}
		u, _ := k.answer()
		if answered[u] {
			t.Fatalf("request %d answered twice", u)
		}
		answered[u] = true
		got++
	}
	if most.Load() < 2 {
		t.Error("several callers were served one after the other")
	}
	if most.Load() > window {
		t.Errorf("%d at a time, with %d callers", most.Load(), window)
	}
}

func TestSyncFSAndDestroy(t *testing.T) {
	h := &noHandler{}
	k := newKernel(t, serverFunc(func(uint32, uint64) {}), h)
	k.send(opSyncFS, 7)
	if u, st := k.answer(); u != 7 || st != 0 || h.synced.Load() != 1 {
		t.Errorf("SYNCFS: answer to %d, status %d, %d syncs", u, st, h.synced.Load())
	}
	k.send(opDestroy, 8)
	if u, st := k.answer(); u != 8 || st != 0 || h.destroyed.Load() != 1 {
		t.Errorf("DESTROY: answer to %d, status %d, told %d times", u, st, h.destroyed.Load())
	}
}

func TestEndOfTheConnectionEndsAllReaders(t *testing.T) {
	k := newKernel(t, serverFunc(func(uint32, uint64) { time.Sleep(3 * time.Millisecond) }), &noHandler{})
	for i := uint64(1); i <= 8; i++ {
		k.send(opGetattr, i)
	}
	for range 8 {
		k.answer()
	}
	unix.Shutdown(k.fd, unix.SHUT_RDWR)
	done := make(chan struct{})
	go func() { k.end.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("readers are left")
	}
}

func TestShortRequestIsNoPanic(t *testing.T) {
	ps := fuse.NewProtocolServer(fuse.NewDefaultRawFileSystem(), &fuse.MountOptions{Logger: log.New(io.Discard, "", 0)})
	r := newReader(newConn(-1, ps, &noHandler{}, 4096, log.New(io.Discard, "", 0)))
	for n := range headerIn {
		r.handle(make([]byte, n))
	}
}

// TestManyWaitForOthers: LSEEK waits until the kernel has written back, by
// requests that must be served meanwhile.
func TestManyWaitForOthers(t *testing.T) {
	const seeks = 300
	var written atomic.Int32
	all := make(chan struct{})
	k := newKernel(t, serverFunc(func(op uint32, _ uint64) {
		if op == opLseek {
			<-all
		} else if written.Add(1) == seeks {
			close(all)
		}
	}), &noHandler{})
	go func() {
		for i := range seeks {
			k.send(opLseek, uint64(i+1))
		}
		for i := range seeks {
			k.send(opGetattr, uint64(seeks+i+1))
		}
	}()
	for range 2 * seeks {
		k.answer()
	}
}

func TestBuffersAreBounded(t *testing.T) {
	b := buffers{size: 8 * pageSize}
	var held [][]byte
	for range 20 {
		held = append(held, b.get())
	}
	for _, buf := range held {
		if len(buf) != b.size {
			t.Fatalf("a buffer of %d bytes, want %d", len(buf), b.size)
		}
		buf[0], buf[len(buf)-1] = 1, 1
		b.put(buf)
	}
	if len(b.free) != keepBuffers {
		t.Errorf("%d buffers are kept, want %d", len(b.free), keepBuffers)
	}
	b.close()
}

// TestSpinner: the leader looks for the next request only after several have
// come quickly, for a bounded time, and stops when they cease to.
func TestSpinner(t *testing.T) {
	var s spinner
	now := time.Now()
	late := now.Add(-time.Second)
	if s.look(now) {
		t.Error("looks before any request has come")
	}
	for range 2 * spinMost {
		s.found(time.Now(), true)
	}
	if !s.look(time.Now()) {
		t.Error("does not look though all requests came at once")
	}
	if s.look(late) {
		t.Error("looks for a second")
	}
	s.several.Store(true)
	if s.look(time.Now()) {
		t.Error("looks though there are several callers")
	}
	s.several.Store(false)
	for range spinMost / missCost {
		s.found(late, true)
	}
	if s.look(time.Now()) {
		t.Error("looks though requests have become rare")
	}
	one := spinner{off: true}
	for range 2 * spinMost {
		one.found(time.Now(), false)
	}
	if one.look(time.Now()) {
		t.Error("looks on the only processor")
	}
}
