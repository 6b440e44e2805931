package devfuse

import (
	"sync"

	"golang.org/x/sys/unix"
)

// buffers are the large buffers of a connection: read(2) on /dev/fuse wants
// room for the largest request, whatever comes. They live outside of Go's heap,
// and take memory only as far as they have been used.
type buffers struct {
	size int // bytes each, whole pages

	mu   sync.Mutex
	free [][]byte // +checklocks:mu
}

// keepBuffers is how many unused buffers are kept.
const keepBuffers = 4

// get takes a buffer, whose first byte begins a page.
func (b *buffers) get() []byte {
	b.mu.Lock()
	if n := len(b.free); n > 0 {
		buf := b.free[n-1]
		b.free = b.free[:n-1]
		b.mu.Unlock()
		return buf
	}
	b.mu.Unlock()
	buf, err := unix.Mmap(-1, 0, b.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, b.size) // not aligned, which only costs time
	}
	return buf
}

// put gives a buffer back; nobody may use it any more.
func (b *buffers) put(buf []byte) {
	if buf == nil {
		return
	}
	b.mu.Lock()
	if len(b.free) < keepBuffers {
		b.free = append(b.free, buf)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	unix.Munmap(buf) // EINVAL for one from the heap: the collector takes that
}

// close gives up the unused buffers.
func (b *buffers) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, buf := range b.free {
		unix.Munmap(buf)
	}
	b.free = nil
}
