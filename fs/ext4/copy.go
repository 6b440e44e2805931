package ext4

import (
	"sync"
	"syscall"
)

// copyChunk is how much CopyTo reads and writes at a time.
const copyChunk = 1 << 20

var copyBufs = sync.Pool{New: func() any { b := make([]byte, copyChunk); return &b }}

// CopyTo copies up to n bytes from off on to dst at to, and returns how many it
// copied: fewer at the end of the file, when stop (may be nil) says so, or after
// an error behind the first byte. What is a hole is copied as zeroes, as the
// kernel's copy_file_range(2) on ext4 does. Ranges of the same file must not
// overlap.
//
// Neither file is locked from one chunk to the next.
func (f *File) CopyTo(dst *File, off, to, n int64, stop func() bool) (int64, error) {
	if off < 0 || to < 0 || n < 0 {
		return 0, syscall.EINVAL
	}
	buf := copyBufs.Get().(*[]byte)
	defer copyBufs.Put(buf)
	done := int64(0)
	for done < n && (done == 0 || stop == nil || !stop()) {
		got, err := f.ReadAt((*buf)[:min(copyChunk, n-done)], off+done)
		if got > 0 {
			got, err = dst.WriteAt((*buf)[:got], to+done)
		}
		done += int64(got)
		switch {
		case err != nil && done == 0:
			return 0, err
		case err != nil || got == 0:
			return done, nil
		}
	}
	return done, nil
}
