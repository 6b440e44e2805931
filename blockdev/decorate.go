package blockdev

import "fmt"

// section is a window into another device.
type section struct {
	dev       Device
	off, size int64
}

// NewSection shows bytes [off, off+size) of dev as a device of their own
// (mount option offset=). size < 0 means up to the end. Closing the section
// closes dev.
func NewSection(dev Device, off, size int64) (Device, error) {
	if size < 0 {
		size = dev.Size() - off
	}
	if off < 0 || size < 0 || off > dev.Size()-size {
		return nil, fmt.Errorf("a section of %d bytes at offset %d does not fit a device of %d bytes",
			size, off, dev.Size())
	}
	return &section{dev: dev, off: off, size: size}, nil
}

func (s *section) Size() int64    { return s.size }
func (s *section) ReadOnly() bool { return s.dev.ReadOnly() }
func (s *section) Flush() error   { return s.dev.Flush() }
func (s *section) Close() error   { return s.dev.Close() }

func (s *section) ReadAt(p []byte, off int64) (int, error) {
	q, end := clipRead(p, off, s.size)
	if len(q) == 0 {
		return 0, end
	}
	n, err := s.dev.ReadAt(q, s.off+off)
	if n == len(q) {
		err = end
	}
	return n, err
}

func (s *section) WriteAt(p []byte, off int64) (int, error) {
	if err := checkRange("write", off, int64(len(p)), s.size); err != nil {
		return 0, err
	}
	return s.dev.WriteAt(p, s.off+off)
}

func (s *section) Discard(off, n int64) error {
	if err := checkRange("discard", off, n, s.size); err != nil {
		return err
	}
	return s.dev.Discard(s.off+off, n)
}

func (s *section) Zero(off, n int64) error {
	if err := checkRange("zero", off, n, s.size); err != nil {
		return err
	}
	return s.dev.Zero(s.off+off, n)
}

// readOnly refuses everything that would change the device it wraps.
type readOnly struct{ dev Device }

// NewReadOnly shows dev, and lets nobody change it. Closing closes dev.
func NewReadOnly(dev Device) Device { return &readOnly{dev} }

func (r *readOnly) ReadAt(p []byte, off int64) (int, error) { return r.dev.ReadAt(p, off) }
func (r *readOnly) Size() int64                             { return r.dev.Size() }
func (r *readOnly) ReadOnly() bool                          { return true }
func (r *readOnly) Close() error                            { return r.dev.Close() }

// Flush has nothing to make durable: nothing was written.
func (r *readOnly) Flush() error { return nil }

func (r *readOnly) WriteAt(p []byte, off int64) (int, error) {
	return 0, opError("write", off, int64(len(p)), ErrReadOnly)
}

func (r *readOnly) Discard(off, n int64) error { return opError("discard", off, n, ErrReadOnly) }
func (r *readOnly) Zero(off, n int64) error    { return opError("zero", off, n, ErrReadOnly) }
