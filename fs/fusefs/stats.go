package fusefs

import (
	"math/bits"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Op is a kind of FUSE request.
type Op uint8

// The requests that are counted.
const (
	OpLookup Op = iota
	OpForget
	OpGetAttr
	OpSetAttr
	OpStatx
	OpAccess
	OpReadlink
	OpSymlink
	OpMknod
	OpMkdir
	OpUnlink
	OpRmdir
	OpRename
	OpLink
	OpOpen
	OpCreate
	OpTmpfile
	OpRead
	OpWrite
	OpFlush
	OpFsync
	OpRelease
	OpFallocate
	OpLseek
	OpCopyFileRange
	OpIoctl
	OpOpenDir
	OpReadDir
	OpReadDirPlus
	OpFsyncDir
	OpReleaseDir
	OpStatFs
	OpGetXattr
	OpSetXattr
	OpListXattr
	OpRemoveXattr
	OpLock
	opCount
)

var opNames = [opCount]string{
	"lookup", "forget", "getattr", "setattr", "statx", "access", "readlink", "symlink", "mknod", "mkdir",
	"unlink", "rmdir", "rename", "link", "open", "create", "tmpfile", "read", "write", "flush", "fsync",
	"release", "fallocate", "lseek", "copy_file_range", "ioctl", "opendir", "readdir", "readdirplus",
	"fsyncdir", "releasedir", "statfs", "getxattr", "setxattr", "listxattr", "removexattr", "lock",
}

func (o Op) String() string { return opNames[o] }

// LatencyBuckets are the upper bounds of the latency histogram: powers of two
// from 1 µs; one more bucket takes what is above the last.
var LatencyBuckets = func() (b [latencyBuckets]time.Duration) {
	for i := range b {
		b[i] = time.Microsecond << i
	}
	return b
}()

const latencyBuckets = 22 // up to 2.1 s

// OpStats are the figures of one kind of request. Time and Latency of the
// cheap and frequent ones (see cheap) are estimates: one request in
// sampleEvery is timed, and counts for all of them.
type OpStats struct {
	Requests uint64
	Errors   uint64        // answered with an errno, Negative ones apart
	Negative uint64        // answered "no such name" or "no such attribute"
	Time     time.Duration // in all requests together
	Bytes    uint64        // READ: bytes of data answered; WRITE: bytes of data taken
	Latency  [latencyBuckets + 1]uint64
}

// Stats are the figures of a FileSystem since it was made.
type Stats struct {
	Ops         [opCount]OpStats
	OpenHandles int64
	Panics      uint64 // bugs of ours that were caught
}

// Requests sums the requests of all kinds.
func (s *Stats) Requests() (n uint64) {
	for i := range s.Ops {
		n += s.Ops[i].Requests
	}
	return n
}

// counters are striped so that goroutines on different CPUs rarely meet in a
// cache line; Stats sums the stripes.
type counters struct {
	stripes [stripeCount]stripe
	panics  atomic.Uint64
	onPanic func(op Op, value any, stack []byte)
}

const stripeCount = 16 // a power of two

type stripe [opCount]opCounters

type opCounters struct {
	requests atomic.Uint64
	errors   atomic.Uint64
	negative atomic.Uint64
	nanos    atomic.Uint64
	bytes    atomic.Uint64
	latency  [latencyBuckets + 1]atomic.Uint64
	_        [4]uint64 // fills the last cache line
}

var _ [0]byte = [unsafe.Sizeof(opCounters{}) % 64]byte{}

var epoch = time.Now()

// now is a monotonic clock in nanoseconds: one read of the clock, where
// time.Now takes two.
func now() int64 { return int64(time.Since(epoch)) }

// of returns this goroutine's stripe of op. Goroutines are told apart by where
// their stacks are: cheap, and good enough to spread them.
func (c *counters) of(op Op) *opCounters {
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	return &c.stripes[(at>>13^at>>17)&(stripeCount-1)][op]
}

// cheap are the requests that take little more than reading a clock does.
var cheap = [opCount]bool{OpLookup: true, OpForget: true, OpGetAttr: true, OpSetAttr: true, OpOpen: true, OpRelease: true, OpGetXattr: true}

// sampleEvery is how many cheap requests one timed request stands for.
const sampleEvery = 8

// untimed is the start of a request that is not timed.
const untimed = -1

// begin counts a request, and returns when it began, for done.
func (c *counters) begin(op Op) int64 {
	n := c.of(op).requests.Add(1)
	if cheap[op] && n%sampleEvery != 0 {
		return untimed
	}
	return now()
}

// done counts how a request ended: *st is the answer. It is deferred by every
// handler, and also turns a panic into EIO.
func (c *counters) done(op Op, start int64, st *fuse.Status) {
	if r := recover(); r != nil {
		c.caught(op, r)
		*st = fuse.EIO
	}
	o := c.of(op)
	if start != untimed {
		o.took(uint64(now()-start), op)
	}
	switch *st {
	case fuse.OK:
	case fuse.ENOENT, fuse.ENODATA:
		o.negative.Add(1)
	default:
		o.errors.Add(1)
	}
}

// took counts the time of one request, or of those that it stands for.
func (o *opCounters) took(nanos uint64, op Op) {
	weight := uint64(1)
	if cheap[op] {
		weight = sampleEvery
	}
	o.nanos.Add(nanos * weight)
	o.latency[bucket(nanos)].Add(weight)
}

func (c *counters) caught(op Op, value any) {
	c.panics.Add(1)
	if c.onPanic != nil {
		c.onPanic(op, value, debug.Stack())
	}
}

// negative counts an answer "no such name" that is no error on the wire.
func (c *counters) negative(op Op) { c.of(op).negative.Add(1) }

// bytes counts bytes read or written.
func (c *counters) bytes(op Op, n int) { c.of(op).bytes.Add(uint64(n)) }

// bucket is the histogram bucket of a latency: the first whose bound it does
// not exceed.
func bucket(nanos uint64) int {
	if nanos <= 1000 {
		return 0
	}
	return min(bits.Len64((nanos-1)/1000), latencyBuckets)
}

// sum adds the stripes up.
func (c *counters) sum() (s Stats) {
	for i := range c.stripes {
		for op := range opCount {
			o, out := &c.stripes[i][op], &s.Ops[op]
			out.Requests += o.requests.Load()
			out.Errors += o.errors.Load()
			out.Negative += o.negative.Load()
			out.Time += time.Duration(o.nanos.Load())
			out.Bytes += o.bytes.Load()
			for b := range o.latency {
				out.Latency[b] += o.latency[b].Load()
			}
		}
	}
	s.Panics = c.panics.Load()
	return s
}

// Mean is the average time of a request, 0 if there was none.
func (o *OpStats) Mean() time.Duration {
	if o.Requests == 0 {
		return 0
	}
	return o.Time / time.Duration(o.Requests)
}
