// Package blockdev is the only place that touches the bytes of an image: a
// small Device interface, the devices that the operating system has (regular
// file, raw block device), and decorators (section, read-only, overlay,
// counting) that compose.
//
// Every method of every Device may be called from many goroutines at once,
// Close excepted. Two concurrent writes to the same bytes leave either of
// them, or a mixture. A write is durable only when a Flush that began after
// the write returned has itself returned nil.
//
// Data never passes through a memory map: an I/O error on a map is a signal,
// not an error that can be returned.
//
// Lock order: each device has at most one level of locks of its own (the
// shards of Mem and Overlay), and an outer device is always locked before the
// device it wraps.
//
//	Overlay shard
//	  Mem shard
package blockdev

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Device is a random-access store of Size() bytes.
type Device interface {
	// ReadAt is io.ReaderAt: a read that reaches past the end returns the
	// bytes there are, and io.EOF.
	ReadAt(p []byte, off int64) (int, error)

	// WriteAt is io.WriterAt. A write that reaches past the end is refused
	// whole (ErrRange): a device does not grow.
	WriteAt(p []byte, off int64) (int, error)

	// Flush makes every write that returned before it was called durable.
	// Once it has failed it keeps failing: the operating system reports a
	// lost write once, and forgets.
	Flush() error

	// Discard tells that bytes [off, off+n) are of no use to anyone. What they
	// read as afterwards is undefined. ErrNotSupported when the device can't.
	Discard(off, n int64) error

	// Zero makes bytes [off, off+n) read as zeroes, the cheapest way the
	// device has: a hole, a command, or a write.
	Zero(off, n int64) error

	Size() int64 // bytes
	ReadOnly() bool
	Close() error
}

// Errors that carry no position; they arrive wrapped in an *OpError.
var (
	ErrNotSupported = errors.New("not supported by the device")
	ErrReadOnly     = fmt.Errorf("device is read-only: %w", syscall.EROFS)
	ErrRange        = fmt.Errorf("beyond the end of the device: %w", syscall.EINVAL)
)

// OpError says which operation failed, and where. Unwrap gives the cause,
// which is a syscall.Errno (ENOSPC, EIO, ...) if it came from the system.
type OpError struct {
	Op  string // "read", "write", "flush", "discard", "zero"
	Off int64  // bytes from the start of the device the error came from
	Len int64  // bytes asked for
	Err error
}

func (e *OpError) Error() string {
	if e.Op == "flush" {
		return "flush: " + e.Err.Error()
	}
	return fmt.Sprintf("%s of %d bytes at offset %d: %v", e.Op, e.Len, e.Off, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

func opError(op string, off, n int64, err error) error {
	return &OpError{Op: op, Off: off, Len: n, Err: err}
}

// checkRange refuses ranges that are not inside [0, size).
func checkRange(op string, off, n, size int64) error {
	if off < 0 || n < 0 || n > size || off > size-n {
		return opError(op, off, n, ErrRange)
	}
	return nil
}

// clipRead cuts p to what the device holds from off on; err is what to return
// with a successful read of the cut slice.
func clipRead(p []byte, off, size int64) ([]byte, error) {
	if off < 0 {
		return nil, opError("read", off, int64(len(p)), ErrRange)
	}
	if off >= size {
		if len(p) == 0 {
			return nil, nil
		}
		return nil, io.EOF
	}
	if left := size - off; int64(len(p)) > left {
		return p[:left], io.EOF
	}
	return p, nil
}

// zeroes is what Zero writes when the device has no better way.
var zeroes [256 << 10]byte

// zeroByWriting is the last resort of Zero.
func zeroByWriting(w io.WriterAt, off, n int64) error {
	for n > 0 {
		c := min(n, int64(len(zeroes)))
		if _, err := w.WriteAt(zeroes[:c], off); err != nil {
			return err
		}
		off, n = off+c, n-c
	}
	return nil
}
