package blockdev

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawDevice is a block device: a disk, a partition, a loop device.
type rawDevice struct {
	osDevice
	sector int64 // logical sector size in bytes, the unit of discards
}

func newBlock(f *os.File, readOnly bool) (Device, error) {
	fd := int(f.Fd())
	// The kernel lets root open a write-protected device for writing, and
	// fails the writes.
	if ro, err := unix.IoctlGetInt(fd, unix.BLKROGET); err == nil && ro != 0 && !readOnly {
		return nil, &NotWritableError{Path: f.Name(), Err: unix.EROFS}
	}
	var size uint64
	if err := ioctlPtr(fd, unix.BLKGETSIZE64, unsafe.Pointer(&size)); err != nil {
		return nil, &os.PathError{Op: "size of", Path: f.Name(), Err: err}
	}
	sector, err := unix.IoctlGetInt(fd, unix.BLKSSZGET)
	if err != nil || sector < 512 {
		sector = 512
	}
	return &rawDevice{
		osDevice: osDevice{f: f, fd: fd, size: int64(size), readOnly: readOnly},
		sector:   int64(sector),
	}, nil
}

func ioctlPtr(fd int, req uint, arg unsafe.Pointer) error {
	return retry(func() error {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
		if e != 0 {
			return e
		}
		return nil
	})
}

// Flush is fsync, which on a block device ends with a cache flush command.
func (d *rawDevice) Flush() error { return d.flushWith(unix.Fsync) }

// rangeIoctl passes (start, length) in bytes, which is how BLKDISCARD and
// BLKZEROOUT want them; both need whole sectors.
func (d *rawDevice) rangeIoctl(req uint, off, n int64) error {
	arg := [2]uint64{uint64(off), uint64(n)}
	return ioctlPtr(d.fd, req, unsafe.Pointer(&arg))
}

// Discard passes on the whole sectors inside the range.
func (d *rawDevice) Discard(off, n int64) error {
	if err := d.checkWrite("discard", off, n); err != nil {
		return err
	}
	if d.noDiscard.Load() {
		return opError("discard", off, n, ErrNotSupported)
	}
	from, to := d.wholeSectors(off, n)
	if from >= to {
		return nil
	}
	err := d.rangeIoctl(unix.BLKDISCARD, from, to-from)
	if unsupported(err) {
		d.noDiscard.Store(true)
		err = ErrNotSupported
	}
	if err != nil {
		return opError("discard", off, n, err)
	}
	return nil
}

// Zero zeroes the whole sectors by command, and writes the edges.
func (d *rawDevice) Zero(off, n int64) error {
	if err := d.checkWrite("zero", off, n); err != nil {
		return err
	}
	from, to := d.wholeSectors(off, n)
	if from >= to {
		return zeroByWriting(d, off, n)
	}
	if err := zeroByWriting(d, off, from-off); err != nil {
		return err
	}
	err := d.rangeIoctl(unix.BLKZEROOUT, from, to-from)
	if unsupported(err) {
		err = zeroByWriting(d, from, to-from)
	}
	if err != nil {
		return opError("zero", off, n, cause(err))
	}
	return zeroByWriting(d, to, off+n-to)
}

// wholeSectors rounds a range inwards; from >= to means there is none.
func (d *rawDevice) wholeSectors(off, n int64) (from, to int64) {
	return (off + d.sector - 1) / d.sector * d.sector, (off + n) / d.sector * d.sector
}

// setExclusive opens the device anew, with O_EXCL or without, in the place of
// the descriptor there is, which stays valid all the time.
func (d *rawDevice) setExclusive(on bool) error {
	flags := unix.O_RDWR | unix.O_CLOEXEC
	if d.readOnly {
		flags = unix.O_RDONLY | unix.O_CLOEXEC
	}
	if on {
		flags |= unix.O_EXCL
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", d.fd), flags, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: d.f.Name(), Err: err}
	}
	defer unix.Close(fd)
	return os.NewSyscallError("dup3", unix.Dup3(fd, d.fd, unix.O_CLOEXEC))
}

// IsBlock tells whether dev is a block device, or a section of one.
func IsBlock(dev Device) bool { return rawOf(dev) != nil }

// SetExclusive gives up the exclusive hold on a block device, or takes it
// again, for a mount by the kernel that takes it itself. Taking fails with
// EBUSY when somebody else was faster.
func SetExclusive(dev Device, on bool) error {
	d := rawOf(dev)
	if d == nil {
		return ErrNotSupported
	}
	return d.setExclusive(on)
}

func rawOf(dev Device) *rawDevice {
	switch d := dev.(type) {
	case *rawDevice:
		return d
	case *section:
		return rawOf(d.dev)
	}
	return nil
}
