package devfuse

import (
	"encoding/binary"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// reader reads requests and serves them.
type reader struct {
	c    *conn
	in   []byte // as long as the longest request
	out  []byte // as long as the longest answer
	wake chan bool

	inv, outv [1][]byte
}

// pageSize is what the data of a WRITE is aligned to, for the copy to the
// image.
const pageSize = 4096

const (
	headerIn  = int(unsafe.Sizeof(fuse.InHeader{}))
	headerOut = int(unsafe.Sizeof(fuse.OutHeader{}))
)

// newReader makes a reader. Its buffers take address space; memory only as far
// as they are used.
func newReader(c *conn) *reader {
	in := aligned(c.bufSize+pageSize, pageSize-int(unsafe.Sizeof(fuse.WriteIn{})))
	return &reader{c: c, in: in, out: aligned(c.bufSize+pageSize, pageSize-headerOut), wake: make(chan bool, 1)}
}

// aligned makes a slice of n bytes that begins off bytes into a page.
func aligned(n, off int) []byte {
	b := make([]byte, n+2*pageSize)
	skip := (pageSize - int(uintptr(unsafe.Pointer(&b[0]))%pageSize) + off) % pageSize
	return b[skip : skip+n]
}

// run serves until the connection is gone, or there are readers enough.
func (r *reader) run() {
	defer r.c.all.Done()
	for {
		n, ok := r.c.read(r.in)
		if !ok {
			r.c.close()
			return
		}
		req := r.in[:n]
		r.c.took(hold(req))
		if !r.handle(req) {
			r.c.close()
			return
		}
		if !r.c.next(r) {
			return
		}
	}
}

// Opcodes of FUSE, enum fuse_opcode in linux/fuse.h, that are special here.
const (
	opRead          = 15
	opWrite         = 16
	opFsync         = 20
	opFsyncDir      = 30
	opSetLkW        = 33
	opDestroy       = 38
	opIoctl         = 39
	opFallocate     = 43
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

// longTransfer is how much data makes a READ or WRITE long, in bytes: its copy
// takes longer than waking another thread.
const longTransfer = 256 << 10

// hold tells whether a request will keep its reader for long, or needs other
// requests to be served meanwhile.
func hold(req []byte) bool {
	switch opcode(req) {
	case opWrite:
		return len(req) >= longTransfer
	case opRead:
		return len(req) >= int(unsafe.Sizeof(fuse.ReadIn{})) && (*fuse.ReadIn)(unsafe.Pointer(&req[0])).Size >= longTransfer
	case opFsync, opFsyncDir, opSyncFS, opSetLkW, opIoctl, opLseek, opCopyFileRange:
		return true
	}
	return false
}

// handle serves one request. It returns false after the last one.
func (r *reader) handle(req []byte) bool {
	op := opcode(req)
	switch op {
	case opSyncFS:
		r.reply(req, fuse.ToStatus(r.c.handler.SyncFS()))
		return true
	case opDestroy:
		r.c.handler.Destroy()
		r.reply(req, fuse.OK)
		return false
	}
	r.inv[0], r.outv[0] = req, r.out
	n, st := r.c.server.HandleRequest(r.inv[:], r.outv[:])
	switch {
	case !st.Ok():
		r.reply(req, st)
	case n > 0:
		r.c.answer(op, r.out[:n])
	}
	return true
}

// reply answers a request with a status alone.
func (r *reader) reply(req []byte, st fuse.Status) {
	if len(req) < headerIn {
		return // cannot be: the kernel writes whole headers
	}
	h := (*fuse.OutHeader)(unsafe.Pointer(&r.out[0]))
	*h = fuse.OutHeader{Length: uint32(headerOut), Status: -int32(st), Unique: (*fuse.InHeader)(unsafe.Pointer(&req[0])).Unique}
	r.c.answer(opcode(req), r.out[:headerOut])
}
