package fusefs

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// The ioctls behind chattr(1) and lsattr(1). Their numbers say that the flags
// are a long; the kernel passes an int. To change flags the kernel first asks
// for the other form, too.
const (
	fsIocGetFlags   = 0x80086601
	fsIocSetFlags   = 0x40086602
	fsIocGetVersion = 0x80087601
	fsIocFSGetXattr = 0x801c581f
	fsIocFSSetXattr = 0x401c5820
)

// userModifiable are the flags that chattr(1) may change, EXT4_FL_USER_MODIFIABLE:
// s u c S i a d A j D T P, and the extents flag that is always set.
const userModifiable = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x4000 | 0x10000 | 0x20000 | 0x80000 | 0x20000000

// xflags pairs inode flags with those of struct fsxattr (FS_XFLAG_...).
var xflags = []struct{ ext4, x uint32 }{
	{0x8, 0x20}, {0x10, 0x8}, {0x20, 0x10}, {0x40, 0x80}, {0x80, 0x40}, {0x20000000, 0x200},
}

// fsxattrSize is the size of struct fsxattr: fsx_xflags at 0, fsx_extsize at 4,
// fsx_nextents at 8, fsx_projid at 12, fsx_cowextsize at 16.
const fsxattrSize = 28

// Ioctl reads and sets inode flags and the project, and trims.
func (f *FileSystem) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inBuf []byte, _ *fuse.IoctlOut, outBuf []byte) (st fuse.Status) {
	defer f.stats.done(OpIoctl, f.stats.begin(OpIoctl), &st)
	if in.Cmd == fiTrim && len(inBuf) >= fiTrimBytes && len(outBuf) >= fiTrimBytes {
		return f.trim(cancel, in, inBuf, outBuf)
	}
	a, err := f.fs.GetAttr(inode(in.NodeId))
	if err != nil {
		return status(err)
	}
	switch {
	case in.Cmd == fsIocGetFlags && len(outBuf) >= 4:
		binary.NativeEndian.PutUint32(outBuf, a.Flags)
	case in.Cmd == fsIocGetVersion && len(outBuf) >= 4:
		binary.NativeEndian.PutUint32(outBuf, a.Generation)
	case in.Cmd == fsIocFSGetXattr && len(outBuf) >= fsxattrSize:
		putFSXattr(outBuf, &a)
	case in.Cmd == fsIocSetFlags && len(inBuf) >= 4:
		return f.setFlags(in, &a, binary.NativeEndian.Uint32(inBuf), a.ProjectID)
	case in.Cmd == fsIocFSSetXattr && len(inBuf) >= fsxattrSize:
		return f.setFlags(in, &a, flagsOfX(a.Flags, binary.NativeEndian.Uint32(inBuf)), binary.NativeEndian.Uint32(inBuf[12:]))
	default:
		return enotty
	}
	return fuse.OK
}

func putFSXattr(out []byte, a *ext4.Attr) {
	clear(out[:fsxattrSize])
	x := uint32(0)
	for _, m := range xflags {
		if a.Flags&m.ext4 != 0 {
			x |= m.x
		}
	}
	binary.NativeEndian.PutUint32(out, x)
	binary.NativeEndian.PutUint32(out[12:], a.ProjectID)
}

// flagsOfX applies the flags of a struct fsxattr to inode flags.
func flagsOfX(flags, x uint32) uint32 {
	for _, m := range xflags {
		flags &^= m.ext4
		if x&m.x != 0 {
			flags |= m.ext4
		}
	}
	return flags
}

func (f *FileSystem) setFlags(in *fuse.IoctlIn, a *ext4.Attr, flags, project uint32) fuse.Status {
	if (flags^a.Flags)&^userModifiable != 0 || (flags^a.Flags)&0x80000 != 0 {
		return enotsup // extents cannot be had away
	}
	s := &ext4.SetAttr{Valid: ext4.SetFlags, Flags: flags}
	if project != a.ProjectID {
		s.Valid |= ext4.SetProjectID
		s.ProjectID = project
	}
	_, err := f.fs.SetAttr(f.caller(&in.InHeader, 0), a.Ino, s)
	return status(err)
}
