package devfuse

import (
	"encoding/binary"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// reader reads requests and serves them. It holds a large buffer only while it
// waits for a request, or serves one with much data.
type reader struct {
	c    *conn
	wake chan bool // true: read on; false: the connection is gone

	small     [smallSize]byte // a request that fits
	smallOut  [smallSize]byte // an answer that fits
	inv, outv [1][]byte
}

// smallSize is room for all requests and answers without much data, in bytes: a
// symbolic link has up to 4,095.
const smallSize = 8192

// pageSize is what the data of a WRITE and of a READ is aligned to in the large
// buffers, for the copy from and to the image.
const pageSize = 4096

const (
	headerIn  = int(unsafe.Sizeof(fuse.InHeader{}))
	headerOut = int(unsafe.Sizeof(fuse.OutHeader{}))
	inOffset  = pageSize - int(unsafe.Sizeof(fuse.WriteIn{}))
	outOffset = pageSize - headerOut
)

func newReader(c *conn) *reader { return &reader{c: c, wake: make(chan bool, 1)} }

// run serves until the connection is gone, or there are readers enough.
func (r *reader) run() {
	defer r.c.all.Done()
	for r.one() && r.c.next(r) {
	}
}

// one reads and serves one request. It returns false when it was the last one,
// or the connection is gone.
func (r *reader) one() bool {
	buf := r.c.bufs.get()
	req := buf[inOffset:]
	n, ok := r.c.read(req)
	if !ok {
		r.c.bufs.put(buf)
		r.c.close()
		return false
	}
	req = req[:n]
	if n <= len(r.small) {
		req = r.small[:copy(r.small[:], req)]
		r.c.bufs.put(buf)
		buf = nil
	}
	r.c.took(hold(req), callerOf(req))
	ok = r.handle(req)
	r.c.bufs.put(buf)
	if !ok {
		r.c.close()
	}
	return ok
}

// Opcodes of FUSE, enum fuse_opcode in linux/fuse.h, that are special here.
const (
	opRead          = 15
	opWrite         = 16
	opFsync         = 20
	opGetXattr      = 22
	opListXattr     = 23
	opInit          = 26
	opReadDir       = 28
	opFsyncDir      = 30
	opSetLkW        = 33
	opDestroy       = 38
	opIoctl         = 39
	opReadDirPlus   = 44
	opLseek         = 46
	opCopyFileRange = 47
	opSyncFS        = 50
)

func opcode(req []byte) uint32 {
	if len(req) < headerIn {
		return 0
	}
	return binary.NativeEndian.Uint32(req[4:])
}

// answerData is how many bytes of data the kernel wants in the answer.
func answerData(req []byte) int {
	at := -1
	switch opcode(req) {
	case opRead, opReadDir, opReadDirPlus:
		at = int(unsafe.Offsetof(fuse.ReadIn{}.Size))
	case opGetXattr, opListXattr:
		at = int(unsafe.Offsetof(fuse.GetXAttrIn{}.Size))
	case opIoctl:
		at = int(unsafe.Offsetof(fuse.IoctlIn{}.OutSize))
	}
	if at < 0 || len(req) < at+4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(req[at:]))
}

// longTransfer is how much data makes a READ or WRITE long, in bytes: its copy
// takes longer than waking another thread.
const longTransfer = 256 << 10

// holding is what a request means for those behind it.
type holding int

const (
	short  holding = iota // they wait
	long                  // it keeps its reader for long; its caller waits for it
	needed                // as long; they may be what it waits for, or of the same caller
)

// hold tells whether a request will keep its reader for long, or needs other
// requests to be served meanwhile.
func hold(req []byte) holding {
	switch opcode(req) {
	case opWrite:
		if len(req) >= longTransfer {
			return needed
		}
	case opRead:
		if answerData(req) >= longTransfer {
			return needed
		}
	case opFsync, opFsyncDir:
		return long
	case opSyncFS, opSetLkW, opIoctl, opLseek, opCopyFileRange:
		return needed
	}
	return short
}

// callerOf is the process a request is of, 0 for the kernel's own.
func callerOf(req []byte) uint32 {
	if len(req) < headerIn {
		return 0
	}
	return (*fuse.InHeader)(unsafe.Pointer(&req[0])).Pid
}

// handle serves one request. It returns false after the last one.
func (r *reader) handle(req []byte) bool {
	switch opcode(req) {
	case opSyncFS:
		r.reply(req, fuse.ToStatus(r.c.handler.SyncFS()))
		return true
	case opDestroy:
		r.c.handler.Destroy()
		r.reply(req, fuse.OK)
		return false
	}
	if answerData(req) <= smallSize/2 {
		r.pass(req, r.smallOut[:])
		return true
	}
	buf := r.c.bufs.get()
	r.pass(req, buf[outOffset:])
	r.c.bufs.put(buf)
	return true
}

// pass lets the file system answer into out.
func (r *reader) pass(req, out []byte) {
	r.inv[0], r.outv[0] = req, out
	n, st := r.c.server.HandleRequest(r.inv[:], r.outv[:])
	switch {
	case !st.Ok():
		r.reply(req, st)
	case n > 0:
		r.c.answer(opcode(req), out[:n])
	}
}

// reply answers a request with a status alone.
func (r *reader) reply(req []byte, st fuse.Status) {
	if len(req) < headerIn {
		return // cannot be: the kernel writes whole headers
	}
	h := (*fuse.OutHeader)(unsafe.Pointer(&r.smallOut[0]))
	*h = fuse.OutHeader{Length: uint32(headerOut), Status: -int32(st), Unique: (*fuse.InHeader)(unsafe.Pointer(&req[0])).Unique}
	r.c.answer(opcode(req), r.smallOut[:headerOut])
}
