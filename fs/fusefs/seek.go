package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Lseek answers SEEK_DATA and SEEK_HOLE.
//
// The kernel does not write back dirty pages before it asks, so what the image
// says is a hole may have data in the page cache. An answer is given only
// after the kernel has been made to write back the claimed hole and the image
// still says the same. The kernel holds the inode's lock over LSEEK: nobody
// but a memory map can dirty further pages meanwhile, and that is a race of
// the caller's own. Pages of a hole that are thrown away in passing hold
// zeroes; data pages are left alone.
//
// Without a way to the kernel (no notifications) everything is called data, by
// ENOSYS, which makes the kernel use its generic lseek for good.
func (f *FileSystem) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) (st fuse.Status) {
	defer f.stats.done(OpLseek, f.stats.begin(OpLseek), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return ebadf
	}
	if f.notify == nil {
		return fuse.ENOSYS
	}
	seen := seekAnswer{hole: -1}
	for {
		a, err := seek(o, int64(in.Offset), int(in.Whence))
		if err != nil {
			return status(err)
		}
		if a == seen || a.hole < 0 {
			return a.reply(out)
		}
		f.writeBack(in.NodeId, a)
		seen = a
	}
}

// seekAnswer is what the image answers, and the hole that it relies on: bytes
// [hole, holeEnd), with holeEnd -1 for the end of the file and everything
// behind it. hole -1 means that no hole is involved.
type seekAnswer struct {
	off           int64
	enxio         bool
	hole, holeEnd int64
}

func (a *seekAnswer) reply(out *fuse.LseekOut) fuse.Status {
	if a.enxio {
		return fuse.Status(syscall.ENXIO)
	}
	out.Offset = uint64(a.off)
	return fuse.OK
}

// seeker is the part of ext4.File that answers lseek(2).
type seeker interface {
	Seek(off int64, whence int) (int64, error)
}

// seek asks the image once.
func seek(s seeker, off int64, whence int) (a seekAnswer, err error) {
	a = seekAnswer{hole: -1, holeEnd: -1}
	a.off, err = s.Seek(off, whence)
	if a.enxio = errors.Is(err, syscall.ENXIO); a.enxio {
		a.hole = off
		return a, nil
	}
	switch {
	case err != nil:
		return a, err
	case whence == unix.SEEK_DATA && a.off > off:
		a.hole, a.holeEnd = off, a.off
	case whence == unix.SEEK_HOLE:
		a.hole = a.off
		end, err := s.Seek(a.off, unix.SEEK_DATA)
		if err == nil {
			a.holeEnd = end
		} else if !errors.Is(err, syscall.ENXIO) {
			return a, err
		}
	}
	return a, nil
}

// writeBack makes the kernel write back what it has for a hole.
func (f *FileSystem) writeBack(node uint64, a seekAnswer) {
	length := int64(0) // to the end of the file, in the protocol
	if a.holeEnd >= 0 {
		length = a.holeEnd - a.hole
	}
	f.notify.InodeNotify(node, a.hole, length)
}
