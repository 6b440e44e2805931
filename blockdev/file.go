package blockdev

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// osDevice is what a regular file and a block device have in common.
type osDevice struct {
	f        *os.File
	fd       int
	size     int64
	readOnly bool

	noDiscard atomic.Bool           // the system said so once
	flushErr  atomic.Pointer[error] // first failure; never cleared
}

func (d *osDevice) Size() int64    { return d.size }
func (d *osDevice) ReadOnly() bool { return d.readOnly }

// Close releases the device and its lock.
func (d *osDevice) Close() error {
	unlockFile(d.f)
	return d.f.Close()
}

func (d *osDevice) ReadAt(p []byte, off int64) (int, error) {
	q, end := clipRead(p, off, d.size)
	if len(q) == 0 {
		return 0, end
	}
	n, err := d.f.ReadAt(q, off)
	if n == len(q) {
		return n, end
	}
	if err == io.EOF { // somebody cut the file: not our end
		err = io.ErrUnexpectedEOF
	}
	return n, opError("read", off, int64(len(p)), cause(err))
}

func (d *osDevice) WriteAt(p []byte, off int64) (int, error) {
	if err := d.checkWrite("write", off, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := d.f.WriteAt(p, off)
	if err != nil {
		return n, opError("write", off, int64(len(p)), cause(err))
	}
	return n, nil
}

func (d *osDevice) checkWrite(op string, off, n int64) error {
	if d.readOnly {
		return opError(op, off, n, ErrReadOnly)
	}
	return checkRange(op, off, n, d.size)
}

// flushWith runs sync, and remembers a failure for ever.
func (d *osDevice) flushWith(sync func(fd int) error) error {
	if e := d.flushErr.Load(); e != nil {
		return *e
	}
	if d.readOnly {
		return nil
	}
	if err := retry(func() error { return sync(d.fd) }); err != nil {
		err = opError("flush", 0, d.size, err)
		d.flushErr.CompareAndSwap(nil, &err)
		return err
	}
	return nil
}

// retry repeats a system call that a signal broke off.
func retry(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// cause takes the errno out of an *os.PathError: the path is known to whoever
// opened the device, the offset is not.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func unsupported(err error) bool {
	return err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.ENOTTY || err == unix.ENODEV
}

// fileDevice is an image in a regular file. Discarded and zeroed ranges become
// holes, so that the image costs its host what it holds.
type fileDevice struct {
	osDevice
	keepBlocks bool // Zero makes no holes
}

func newFile(f *os.File, o OpenOptions) (Device, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d := &fileDevice{osDevice: osDevice{f: f, fd: int(f.Fd()), size: st.Size(), readOnly: o.ReadOnly}, keepBlocks: o.KeepBlocks}
	return d, nil
}

// Flush uses fdatasync: the image's length never changes, and its times are of
// no interest after a crash.
func (d *fileDevice) Flush() error { return d.flushWith(unix.Fdatasync) }

func (d *fileDevice) Discard(off, n int64) error {
	if err := d.checkWrite("discard", off, n); err != nil || n == 0 {
		return err
	}
	if d.noDiscard.Load() {
		return opError("discard", off, n, ErrNotSupported)
	}
	err := d.punch(off, n)
	if unsupported(err) {
		d.noDiscard.Store(true)
		err = ErrNotSupported
	}
	if err != nil {
		return opError("discard", off, n, err)
	}
	return nil
}

func (d *fileDevice) punch(off, n int64) error {
	return retry(func() error {
		return unix.Fallocate(d.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

func (d *fileDevice) Zero(off, n int64) error {
	if err := d.checkWrite("zero", off, n); err != nil || n == 0 {
		return err
	}
	err := error(unix.EOPNOTSUPP)
	if !d.keepBlocks {
		err = d.punch(off, n)
	}
	if unsupported(err) {
		err = retry(func() error { return unix.Fallocate(d.fd, unix.FALLOC_FL_ZERO_RANGE, off, n) })
	}
	if unsupported(err) {
		return zeroByWriting(d, off, n)
	}
	if err != nil {
		return opError("zero", off, n, err)
	}
	return nil
}
