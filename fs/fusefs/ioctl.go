package fusefs

import (
	"bytes"
	"encoding/binary"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// The ioctls that are answered, by their numbers on 64-bit machines. Those of
// flags and versions say that the argument is a long; the kernel passes an int.
// To change flags the kernel first asks for the other form, too.
const (
	fsIocGetFlags    = 0x80086601
	fsIocSetFlags    = 0x40086602
	fsIocGetVersion  = 0x80087601
	fsIocSetVersion  = 0x40087602
	ext4GetVersion   = 0x80086603 // EXT4_IOC_GETVERSION, as FS_IOC_GETVERSION
	ext4SetVersion   = 0x40086604
	fsIocFSGetXattr  = 0x801c581f
	fsIocFSSetXattr  = 0x401c5820
	fsIocGetLabel    = 0x81009431
	fsIocSetLabel    = 0x41009432
	ext4Shutdown     = 0x8004587d // EXT4_IOC_SHUTDOWN
	fsIocLabelMax    = 256        // FSLABEL_MAX: the size of the argument
	ext4LabelMax     = 16         // EXT4_LABEL_MAX
	ext4ShutdownLast = 2          // the largest of its modes, EXT4_GOING_FLAGS_NOLOGFLUSH
)

// xflags pairs inode flags with those of struct fsxattr (FS_XFLAG_...).
var xflags = []struct{ ext4, x uint32 }{
	{ondisk.InodeSync, 0x20}, {ondisk.InodeImmutable, 0x8}, {ondisk.InodeAppend, 0x10}, {ondisk.InodeNodump, 0x80},
	{ondisk.InodeNoatime, 0x40}, {ondisk.InodeDAX, 0x8000}, {ondisk.InodeProjInherit, 0x200},
}

// fsxattrSize is the size of struct fsxattr: fsx_xflags at 0, fsx_extsize at 4,
// fsx_nextents at 8, fsx_projid at 12, fsx_cowextsize at 16.
const fsxattrSize = 28

// Ioctl answers what is about one inode itself, and passes on what is about
// the file system. The kernel has checked who may change flags, and which.
func (f *FileSystem) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inBuf []byte, _ *fuse.IoctlOut, outBuf []byte) (st fuse.Status) {
	defer f.stats.done(OpIoctl, f.stats.begin(OpIoctl), &st)
	n := binary.NativeEndian
	switch {
	case in.Cmd == fiTrim && len(inBuf) >= fiTrimBytes && len(outBuf) >= fiTrimBytes:
		return f.trim(cancel, in, inBuf, outBuf)
	case in.Cmd == fsIocGetLabel && len(outBuf) >= fsIocLabelMax:
		clear(outBuf)
		copy(outBuf, f.fs.Label())
		return fuse.OK
	case in.Cmd == fsIocSetLabel && len(inBuf) >= fsIocLabelMax:
		return f.setLabel(in, inBuf)
	case in.Cmd == ext4Shutdown:
		return f.shutdown(in)
	case (in.Cmd == fsIocSetVersion || in.Cmd == ext4SetVersion) && len(inBuf) >= 4:
		return status(f.fs.SetGeneration(f.caller(&in.InHeader, 0), inode(in.NodeId), n.Uint32(inBuf)))
	}
	a, err := f.fs.GetAttr(inode(in.NodeId))
	if err != nil {
		return status(err)
	}
	switch {
	case in.Cmd == fsIocGetFlags && len(outBuf) >= 4:
		n.PutUint32(outBuf, visibleFlags(&a))
	case (in.Cmd == fsIocGetVersion || in.Cmd == ext4GetVersion) && len(outBuf) >= 4:
		n.PutUint32(outBuf, a.Generation)
	case in.Cmd == fsIocFSGetXattr && len(outBuf) >= fsxattrSize:
		putFSXattr(outBuf, &a)
	case in.Cmd == fsIocSetFlags && len(inBuf) >= 4:
		return f.setFlags(in, &a, n.Uint32(inBuf), a.ProjectID)
	case in.Cmd == fsIocFSSetXattr && len(inBuf) >= fsxattrSize:
		return f.setFlags(in, &a, flagsOfX(visibleFlags(&a), n.Uint32(inBuf)), n.Uint32(inBuf[12:]))
	default:
		return enotty
	}
	return fuse.OK
}

// setLabel is FS_IOC_SETFSLABEL.
func (f *FileSystem) setLabel(in *fuse.IoctlIn, inBuf []byte) fuse.Status {
	if !root(&in.InHeader) {
		return fuse.EPERM
	}
	label, _, ended := bytes.Cut(inBuf[:ext4LabelMax+1], []byte{0})
	if !ended {
		return fuse.EINVAL
	}
	return status(f.fs.SetLabel(string(label)))
}

// shutdown is EXT4_IOC_SHUTDOWN. Its number says that it reads, so the kernel
// does not send the mode along: it is fetched from the caller's memory.
func (f *FileSystem) shutdown(in *fuse.IoctlIn) fuse.Status {
	if !root(&in.InHeader) {
		return fuse.EPERM
	}
	var mode [4]byte
	local := []unix.Iovec{{Base: &mode[0], Len: uint64(len(mode))}}
	remote := []unix.RemoteIovec{{Base: uintptr(in.Arg), Len: len(mode)}}
	if n, err := unix.ProcessVMReadv(int(in.Pid), local, remote, 0); err != nil || n != len(mode) {
		return fuse.Status(syscall.EFAULT)
	}
	m := binary.NativeEndian.Uint32(mode[:])
	if m > ext4ShutdownLast {
		return fuse.EINVAL
	}
	return status(f.fs.Shutdown(ext4.ShutdownMode(m)))
}

// visibleFlags are the flags of an inode that programs may see.
func visibleFlags(a *ext4.Attr) uint32 {
	flags := a.Flags & ondisk.InodeUserVisible
	if a.Mode&syscall.S_IFMT == syscall.S_IFREG {
		flags &^= ondisk.InodeProjInherit
	}
	return flags
}

func putFSXattr(out []byte, a *ext4.Attr) {
	clear(out[:fsxattrSize])
	x := uint32(0)
	for _, m := range xflags {
		if visibleFlags(a)&m.ext4 != 0 {
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

// setFlags is FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR. Flags that exist but are
// not the user's to change stay as they are, without an error.
func (f *FileSystem) setFlags(in *fuse.IoctlIn, a *ext4.Attr, flags, project uint32) fuse.Status {
	changed := flags ^ visibleFlags(a)
	if flags&^(ondisk.InodeUserVisible&maskFor(a.Mode)) != 0 || changed&(ondisk.InodeExtents|ondisk.InodeCasefold) != 0 {
		return enotsup // an inode keeps its kind of mapping, for example
	}
	s := &ext4.SetAttr{}
	if changed&ondisk.InodeUserModifiable != 0 {
		s.Valid, s.Flags = ext4.SetFlags, a.Flags&^ondisk.InodeUserModifiable|flags&ondisk.InodeUserModifiable
	}
	if project != a.ProjectID {
		s.Valid |= ext4.SetProjectID
		s.ProjectID = project
	}
	if s.Valid == 0 {
		s.Valid, s.Flags = ext4.SetFlags, a.Flags // ctime changes all the same
	}
	_, err := f.fs.SetAttr(f.caller(&in.InHeader, 0), a.Ino, s)
	return status(err)
}

// maskFor are the flags that make sense on a kind of file.
func maskFor(mode uint32) uint32 {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return ^uint32(0)
	case syscall.S_IFREG:
		return ^uint32(ondisk.InodeDirsync | ondisk.InodeTopdir | ondisk.InodeCasefold | ondisk.InodeProjInherit)
	}
	return ondisk.InodeNodump | ondisk.InodeNoatime
}
