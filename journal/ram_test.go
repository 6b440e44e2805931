package journal

import (
	"io"

	"extfused/blockdev"
)

// ram is a device that is a byte slice, for tests that make thousands of them.
type ram []byte

func (r ram) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(r)) {
		return 0, io.EOF
	}
	n := copy(p, r[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r ram) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(r)) {
		return 0, blockdev.ErrRange
	}
	return copy(r[off:], p), nil
}

func (r ram) Flush() error               { return nil }
func (r ram) Discard(off, n int64) error { return blockdev.ErrNotSupported }
func (r ram) Zero(off, n int64) error    { clear(r[off : off+n]); return nil }
func (r ram) Size() int64                { return int64(len(r)) }
func (r ram) ReadOnly() bool             { return false }
func (r ram) Close() error               { return nil }
