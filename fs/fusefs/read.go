package fusefs

import (
	"errors"
	"io"
	"sync"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Read reads into the transport's memory.
func (f *FileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (res fuse.ReadResult, st fuse.Status) {
	defer f.stats.done(OpRead, f.stats.begin(OpRead), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return nil, ebadf
	}
	size := min(int(in.Size), len(buf))
	n, err := o.ReadAt(buf[:size], int64(in.Offset))
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		return nil, status(err)
	}
	f.stats.bytes(OpRead, n)
	return newDataResult(buf[:n]), fuse.OK
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
