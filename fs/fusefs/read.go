package fusefs

import (
	"errors"
	"io"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Read answers from the image's descriptor when one written extent holds the
// range and it is worth a splice, else by copying.
func (f *FileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (res fuse.ReadResult, st fuse.Status) {
	defer f.stats.done(OpRead, f.stats.begin(OpRead), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return nil, ebadf
	}
	size := min(int(in.Size), len(buf))
	if f.splice && size >= f.spliceMin {
		if seg, release, ok := o.MapRead(int64(in.Offset), size); ok {
			f.stats.spliced(seg.Len)
			return &spliceResult{fd: f.imageFd, off: seg.FdOff, size: seg.Len, release: release}, fuse.OK
		}
	}
	n, err := o.ReadAt(buf[:size], int64(in.Offset))
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		return nil, status(err)
	}
	f.stats.bytes(OpRead, n)
	return newDataResult(buf[:n]), fuse.OK
}

// spliceResult is a read answered by a run of the image. The inode's mapping
// stays locked until the transport is done with it, so that the run cannot be
// freed and given to another file meanwhile.
type spliceResult struct {
	fd      uintptr
	off     int64
	size    int
	release func()
}

// Size is the number of bytes of the answer.
func (r *spliceResult) Size() int { return r.size }

// Seekable offers the descriptor to a transport that can splice.
func (r *spliceResult) Seekable() (fd uintptr, off int64, sz int) { return r.fd, r.off, r.size }

// Bytes reads into buf, for a transport that cannot splice.
func (r *spliceResult) Bytes(buf []byte) ([]byte, fuse.Status) {
	n, st := r.Readv([][]byte{buf[:min(len(buf), r.size)]})
	return buf[:n], st
}

// Readv reads into the transport's own memory.
func (r *spliceResult) Readv(dst [][]byte) (int, fuse.Status) {
	n, err := unix.Preadv(int(r.fd), dst, r.off)
	if err != nil {
		return 0, fuse.ToStatus(err)
	}
	return n, fuse.OK
}

// Done unlocks the mapping.
func (r *spliceResult) Done() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
}

// dataResult is a read answered by bytes, which most often lie in the
// transport's own memory already.
type dataResult struct {
	vec [1][]byte
}

var dataResults = sync.Pool{New: func() any { return new(dataResult) }}

func newDataResult(b []byte) *dataResult {
	r := dataResults.Get().(*dataResult)
	r.vec[0] = b
	return r
}

// Size is the number of bytes of the answer.
func (r *dataResult) Size() int { return len(r.vec[0]) }

// Readv copies to where the transport wants the bytes, if they are not there.
func (r *dataResult) Readv(dst [][]byte) (int, fuse.Status) {
	src, n := r.vec[0], 0
	if len(dst) > 0 && len(src) > 0 && len(dst[0]) >= len(src) && unsafe.SliceData(dst[0]) == unsafe.SliceData(src) {
		return len(src), fuse.OK
	}
	for _, d := range dst {
		n += copy(d, src[n:])
	}
	return n, fuse.OK
}

// Bytes gives the bytes.
func (r *dataResult) Bytes([]byte) ([]byte, fuse.Status) { return r.vec[0], fuse.OK }

// Done gives the result back.
func (r *dataResult) Done() {
	r.vec[0] = nil
	dataResults.Put(r)
}
