package devfuse

import (
	"errors"
	"log"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Handler answers what go-fuse has no handler for.
type Handler interface {
	// SyncFS makes everything that has been answered so far durable. The kernel
	// asks on sync(2), syncfs(2) and remount of a fuseblk mount.
	SyncFS() error
	// Destroy is told that no further request comes, by the kernel's umount(2)
	// of a fuseblk mount, which waits for it.
	Destroy()
}

// server is what parses and serves requests: fuse.ProtocolServer.
type server interface {
	HandleRequest(in, out [][]byte) (int, fuse.Status)
}

// conn is one connection to the kernel.
type conn struct {
	fd      int
	server  server
	handler Handler
	logger  *log.Logger
	bufs    buffers
	spin    spinner

	mu sync.Mutex
	// The lock guards what follows. Readers in read(2), or on the way there:
	// +checklocks:mu
	waiting int
	// The last one parked is the first one woken.
	// +checklocks:mu
	parked []*reader
	// All of them.
	// +checklocks:mu
	readers int
	// Requests read.
	// +checklocks:mu
	seq uint64
	// Readers woken or started.
	// +checklocks:mu
	woken uint64
	// The process that the last request was of, and how many requests of it came
	// since one of another process.
	// +checklocks:mu
	pid uint32
	// +checklocks:mu
	alone uint64
	// The monitor waits for kick.
	// +checklocks:mu
	asleep bool
	// +checklocks:mu
	closed bool

	kick chan struct{} // wakes the monitor
	done chan struct{} // closed with the connection
	all  sync.WaitGroup
}

// maxReaders bounds the requests that are served at the same time. It is high,
// since some wait for others to be served.
const maxReaders = 4096

// maxParked bounds the readers kept for later.
const maxParked = 8

// newConn makes a connection whose requests and answers have at most maxData
// bytes of data. fd becomes nonblocking.
func newConn(fd int, s server, h Handler, maxData int, l *log.Logger) *conn {
	unix.SetNonblock(fd, true)
	size := (maxData + overhead + 2*pageSize - 1) &^ (pageSize - 1)
	return &conn{
		fd: fd, server: s, handler: h, bufs: buffers{size: size}, logger: l, spin: newSpinner(),
		kick: make(chan struct{}, 1), done: make(chan struct{}), asleep: true,
	}
}

// serve serves requests until the connection is gone.
func (c *conn) serve() {
	c.all.Add(1)
	go c.monitor()
	c.mu.Lock()
	c.successor()
	c.mu.Unlock()
	c.all.Wait()
	c.bufs.close()
}

// successor sees to it that a reader waits: a parked one, or a new one. When
// there are too many, the next one to finish reads.
//
// +checklocks:c.mu
func (c *conn) successor() {
	if c.waiting > 0 || c.closed {
		return
	}
	if n := len(c.parked); n > 0 {
		r := c.parked[n-1]
		c.parked = c.parked[:n-1]
		c.waiting++
		c.woken++
		r.wake <- true
		return
	}
	if c.readers < maxReaders {
		c.readers++
		c.waiting++
		c.woken++
		c.all.Add(1)
		go newReader(c).run()
	}
}

// close ends the parked readers and the monitor; those that serve find out.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	for _, r := range c.parked {
		r.wake <- false
	}
	c.parked = nil
}

// loneAfter is after how many requests of one process without one of another
// it counts as the only one.
const loneAfter = 64

// took notes that a reader has got a request, of the given process.
func (c *conn) took(h holding, pid uint32) {
	c.mu.Lock()
	c.waiting--
	c.seq++
	if pid == c.pid {
		c.alone++
	} else if pid != 0 {
		c.pid, c.alone = pid, 0
	}
	lone := c.alone >= loneAfter
	c.spin.several.Store(!lone)
	if h == needed || h == long && !lone {
		c.successor()
	}
	if c.asleep {
		c.asleep = false
		c.kick <- struct{}{}
	}
	c.mu.Unlock()
}

// next tells r, which has served a request, whether to read another one. It
// parks r while others wait for requests.
func (c *conn) next(r *reader) bool {
	c.mu.Lock()
	switch {
	case c.closed:
		c.mu.Unlock()
		return false
	case c.waiting == 0:
		c.waiting++
		c.mu.Unlock()
		return true
	case len(c.parked) >= maxParked:
		c.readers--
		c.mu.Unlock()
		return false
	}
	c.parked = append(c.parked, r)
	c.mu.Unlock()
	return <-r.wake
}

// read reads one request into buf. ok is false when the connection is gone.
func (c *conn) read(buf []byte) (n int, ok bool) {
	var idle time.Time // since when there has been nothing to read
	slept := false
	for {
		n, err := unix.Read(c.fd, buf)
		switch {
		case err == nil:
			if !idle.IsZero() {
				c.spin.found(idle, slept)
			}
			return n, n > 0
		case errors.Is(err, syscall.EAGAIN):
			if idle.IsZero() {
				idle = time.Now()
			}
			if !c.spin.look(idle) {
				slept = true
				c.sleep(unix.POLLIN)
			}
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ENOENT): // the request was interrupted before it was read
		case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ECONNABORTED):
			return 0, false // unmounted, or aborted
		default:
			c.logger.Printf("read from /dev/fuse: %v", err)
			return 0, false
		}
	}
}

// sleep returns when it may be possible to read (POLLIN), or to write.
func (c *conn) sleep(events int16) {
	fds := [1]unix.PollFd{{Fd: int32(c.fd), Events: events}}
	unix.Poll(fds[:], -1)
}

// write writes an answer or a notification.
func (c *conn) write(b []byte) error {
	for {
		_, err := unix.Write(c.fd, b)
		switch {
		case errors.Is(err, syscall.EAGAIN): // a socket; /dev/fuse always takes it
			c.sleep(unix.POLLOUT)
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
}

// send writes an answer. Unlike a notification it waits for nothing: the kernel
// copies it and wakes the caller. So a short one can do without telling the Go
// scheduler, which would hand the processor to others meanwhile.
func (c *conn) send(b []byte) error {
	if len(b) > smallSize {
		return c.write(b)
	}
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return c.write(b)
		}
		return errno
	}
}

// answer writes b, the answer to a request with the given opcode. ENOENT means
// that nobody waits for it any more: the request was interrupted, or the mount
// went away.
func (c *conn) answer(opcode uint32, b []byte) {
	err := c.send(b)
	if err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV) {
		return
	}
	c.logger.Printf("answer to FUSE request %d: %v", opcode, err)
}

// The codes of notifications, FUSE_NOTIFY_* in linux/fuse.h.
const notifyInvalInode = 2

// InodeNotify makes the kernel write back and drop what it has cached of bytes
// [off, off+length) of a node; length 0 means to the end of the file, and a
// negative off only its attributes. ENOENT means that it has nothing.
func (c *conn) InodeNotify(node uint64, off, length int64) fuse.Status {
	var b [int(unsafe.Sizeof(fuse.OutHeader{})) + 24]byte
	*(*fuse.OutHeader)(unsafe.Pointer(&b)) = fuse.OutHeader{Length: uint32(len(b)), Status: notifyInvalInode}
	body := (*struct {
		node        uint64
		off, length int64
	})(unsafe.Pointer(&b[unsafe.Sizeof(fuse.OutHeader{})]))
	body.node, body.off, body.length = node, off, length
	return fuse.ToStatus(c.write(b[:]))
}
