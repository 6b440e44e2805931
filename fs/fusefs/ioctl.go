package fusefs

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// The ioctls of chattr(1) and lsattr(1). Their numbers say that they carry a
// long; the kernel passes an int.
const (
	fsIocGetFlags   = 0x80086601
	fsIocSetFlags   = 0x40086602
	fsIocGetVersion = 0x80087601
)

// userModifiable are the flags that chattr(1) may change: EXT4_FL_USER_MODIFIABLE
// without those of features that we do not write.
const userModifiable = 0x000000ff&^0x0000000c | 0x00014000 | 0x00030000

// Ioctl reads and sets inode flags.
func (f *FileSystem) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, inBuf []byte, _ *fuse.IoctlOut, outBuf []byte) (st fuse.Status) {
	defer f.stats.done(OpIoctl, f.stats.begin(OpIoctl), &st)
	a, err := f.fs.GetAttr(inode(in.NodeId))
	if err != nil {
		return status(err)
	}
	switch {
	case in.Cmd == fsIocGetFlags && len(outBuf) >= 4:
		binary.NativeEndian.PutUint32(outBuf, a.Flags)
		return fuse.OK
	case in.Cmd == fsIocGetVersion && len(outBuf) >= 4:
		binary.NativeEndian.PutUint32(outBuf, a.Generation)
		return fuse.OK
	case in.Cmd == fsIocSetFlags && len(inBuf) >= 4:
		return f.setFlags(in, &a, binary.NativeEndian.Uint32(inBuf))
	}
	return enotty
}

func (f *FileSystem) setFlags(in *fuse.IoctlIn, a *ext4.Attr, flags uint32) fuse.Status {
	if (flags^a.Flags)&^userModifiable != 0 {
		return enotsup
	}
	_, err := f.fs.SetAttr(caller(&in.InHeader, 0), a.Ino, &ext4.SetAttr{Valid: ext4.SetFlags, Flags: flags})
	return status(err)
}
