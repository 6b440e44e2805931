package fusefs

import (
	"encoding/binary"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// fiTrim is FITRIM of fstrim(8): struct fstrim_range both ways, three 64-bit
// numbers: start, length, shortest run, in bytes. The answer has in the second
// what was trimmed.
const (
	fiTrim      = 0xc0185879
	fiTrimBytes = 24
)

// trim is FITRIM, which is root's. It ends when the caller is interrupted.
func (f *FileSystem) trim(cancel <-chan struct{}, in *fuse.IoctlIn, inBuf, outBuf []byte) fuse.Status {
	if !root(&in.InHeader) {
		return fuse.EPERM
	}
	n := binary.NativeEndian
	r := ext4.TrimRange{Start: n.Uint64(inBuf), Len: n.Uint64(inBuf[8:]), MinLen: n.Uint64(inBuf[16:])}
	trimmed, err := f.fs.Trim(r, func() error {
		select {
		case <-cancel:
			return syscall.EINTR
		default:
			return nil
		}
	})
	if err != nil {
		return status(err)
	}
	copy(outBuf, inBuf[:fiTrimBytes])
	n.PutUint64(outBuf[8:], trimmed)
	return fuse.OK
}
