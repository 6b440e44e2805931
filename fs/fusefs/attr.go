package fusefs

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// nodeID is the FUSE node id of an inode: its number, with 1 and 2 swapped.
func nodeID(ino ondisk.InodeNumber) uint64 {
	switch ino {
	case ext4.RootIno:
		return fuse.FUSE_ROOT_ID
	case fuse.FUSE_ROOT_ID:
		return uint64(ext4.RootIno)
	}
	return uint64(ino)
}

// inode is the inverse of nodeID.
func inode(node uint64) ondisk.InodeNumber {
	switch node {
	case fuse.FUSE_ROOT_ID:
		return ext4.RootIno
	case uint64(ext4.RootIno):
		return fuse.FUSE_ROOT_ID
	}
	return ondisk.InodeNumber(node)
}

// setAttr fills what stat(2) shows.
func (f *FileSystem) setAttr(out *fuse.Attr, a *ext4.Attr) {
	out.Ino = uint64(a.Ino)
	out.Size = a.Size
	out.Blocks = a.Blocks
	out.Atime, out.Atimensec = uint64(a.Atime.Sec), a.Atime.Nsec
	out.Mtime, out.Mtimensec = uint64(a.Mtime.Sec), a.Mtime.Nsec
	out.Ctime, out.Ctimensec = uint64(a.Ctime.Sec), a.Ctime.Nsec
	out.Mode = a.Mode
	out.Nlink = a.Nlink
	out.Uid, out.Gid = f.owner.shown(a)
	out.Rdev = a.Rdev
	out.Blksize = f.blockSize
}

// setEntry fills the answer to a lookup or a creation.
func (f *FileSystem) setEntry(out *fuse.EntryOut, a *ext4.Attr) {
	out.NodeId = nodeID(a.Ino)
	out.Generation = uint64(a.Life)
	out.EntryValid = f.entryValid
	out.AttrValid = f.attrValid
	f.setAttr(&out.Attr, a)
}

// entry answers a request that gives a name to an inode.
func (f *FileSystem) entry(out *fuse.EntryOut, a ext4.Attr, err error) fuse.Status {
	if err != nil {
		return status(err)
	}
	f.setEntry(out, &a)
	return fuse.OK
}

// GetAttr implements stat(2).
func (f *FileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) (st fuse.Status) {
	defer f.stats.done(OpGetAttr, f.stats.begin(OpGetAttr), &st)
	a, err := f.fs.GetAttr(inode(in.NodeId))
	return f.attrOut(out, a, err)
}

func (f *FileSystem) attrOut(out *fuse.AttrOut, a ext4.Attr, err error) fuse.Status {
	if err != nil {
		return status(err)
	}
	out.AttrValid = f.attrValid
	f.setAttr(&out.Attr, &a)
	return fuse.OK
}

// SetAttr implements chmod, chown, truncate, utimes, and carries the times
// that the writeback cache has kept.
func (f *FileSystem) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) (st fuse.Status) {
	defer f.stats.done(OpSetAttr, f.stats.begin(OpSetAttr), &st)
	s := changes(in)
	if !f.owner.permits(s) {
		return fuse.EPERM
	}
	c := f.caller(&in.InHeader, 0)
	if in.Uid == noID && !s.KillPriv {
		c = nil // the kernel has dropped set-group-id where it must go
	}
	a, err := f.fs.SetAttr(c, inode(in.NodeId), s)
	return f.attrOut(out, a, err)
}

// changes translates a SETATTR request.
//
// Under HANDLE_KILLPRIV_V2 the kernel leaves dropping set-user-id to us: it
// says so for truncate, and implies it for chown.
func changes(in *fuse.SetAttrIn) *ext4.SetAttr {
	s := &ext4.SetAttr{
		Mode: in.Mode & 0o7777, UID: in.Uid, GID: in.Gid, Size: in.Size,
		Atime: ext4.Time{Sec: int64(in.Atime), Nsec: in.Atimensec},
		Mtime: ext4.Time{Sec: int64(in.Mtime), Nsec: in.Mtimensec},
		Ctime: ext4.Time{Sec: int64(in.Ctime), Nsec: in.Ctimensec},
	}
	for _, m := range setAttrBits {
		if in.Valid&m.fuse != 0 {
			s.Valid |= m.ext4
		}
	}
	if in.Valid&fuse.FATTR_ATIME_NOW != 0 {
		s.Valid = s.Valid&^ext4.SetAtime | ext4.SetAtimeNow
	}
	if in.Valid&fuse.FATTR_MTIME_NOW != 0 {
		s.Valid = s.Valid&^ext4.SetMtime | ext4.SetMtimeNow
	}
	chown := in.Valid&(fuse.FATTR_UID|fuse.FATTR_GID) != 0 && in.Valid&fuse.FATTR_MODE == 0
	s.KillPriv = chown || in.Valid&fuse.FATTR_KILL_SUIDGID != 0
	return s
}

var setAttrBits = []struct {
	fuse uint32
	ext4 ext4.SetAttrMask
}{
	{fuse.FATTR_MODE, ext4.SetMode},
	{fuse.FATTR_UID, ext4.SetUID},
	{fuse.FATTR_GID, ext4.SetGID},
	{fuse.FATTR_SIZE, ext4.SetSize},
	{fuse.FATTR_ATIME, ext4.SetAtime},
	{fuse.FATTR_MTIME, ext4.SetMtime},
	{fuse.FATTR_CTIME, ext4.SetCtime},
}

// Access is never asked under default_permissions; ENOSYS makes sure.
func (f *FileSystem) Access(_ <-chan struct{}, _ *fuse.AccessIn) (st fuse.Status) {
	defer f.stats.done(OpAccess, f.stats.begin(OpAccess), &st)
	return fuse.ENOSYS
}

// Statx answers for what GETATTR has no room: the time of creation, and the
// inode flags.
func (f *FileSystem) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) (st fuse.Status) {
	defer f.stats.done(OpStatx, f.stats.begin(OpStatx), &st)
	a, err := f.fs.GetAttr(inode(in.NodeId))
	if err != nil {
		return status(err)
	}
	out.AttrValid = f.attrValid
	f.setStatx(&out.Statx, &a)
	return fuse.OK
}

func (f *FileSystem) setStatx(out *fuse.Statx, a *ext4.Attr) {
	out.Mask = unix.STATX_BASIC_STATS
	out.Blksize = f.blockSize
	out.Nlink, out.Mode = a.Nlink, uint16(a.Mode)
	out.Uid, out.Gid = f.owner.shown(a)
	out.Ino, out.Size, out.Blocks = uint64(a.Ino), a.Size, a.Blocks
	out.Atime, out.Mtime, out.Ctime = sxTime(a.Atime), sxTime(a.Mtime), sxTime(a.Ctime)
	if a.Crtime != (ext4.Time{}) {
		out.Btime = sxTime(a.Crtime)
		out.Mask |= unix.STATX_BTIME
	}
	out.RdevMajor, out.RdevMinor = rdevParts(a.Rdev)
	for _, m := range statxBits {
		out.AttributesMask |= m.statx
		if a.Flags&m.ext4 != 0 {
			out.Attributes |= m.statx
		}
	}
}

func sxTime(t ext4.Time) fuse.SxTime { return fuse.SxTime{Sec: uint64(t.Sec), Nsec: t.Nsec} }

// rdevParts splits the kernel's 32-bit encoding: 12 bits of major in the
// middle, 20 bits of minor around it.
func rdevParts(rdev uint32) (major, minor uint32) {
	return rdev >> 8 & 0xfff, rdev&0xff | rdev>>12&0xfff00
}

// Inode flags as in ext4(5) and chattr(1), and their statx(2) twins.
var statxBits = []struct {
	ext4  uint32
	statx uint64
}{
	{0x00000004, unix.STATX_ATTR_COMPRESSED},
	{0x00000010, unix.STATX_ATTR_IMMUTABLE},
	{0x00000020, unix.STATX_ATTR_APPEND},
	{0x00000040, unix.STATX_ATTR_NODUMP},
	{0x00000800, unix.STATX_ATTR_ENCRYPTED},
	{0x00100000, unix.STATX_ATTR_VERITY},
}

// StatFs implements statfs(2). What has been forgotten is freed first, so that
// df after rm shows the space.
func (f *FileSystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) (st fuse.Status) {
	defer f.stats.done(OpStatFs, f.stats.begin(OpStatFs), &st)
	f.forgets.drain()
	s := f.fs.Statfs()
	*out = fuse.StatfsOut{
		Blocks: s.Blocks, Bfree: s.BlocksFree, Bavail: s.BlocksAvail,
		Files: s.Files, Ffree: s.FilesFree,
		Bsize: s.BlockSize, Frsize: s.BlockSize, NameLen: s.NameLen,
	}
	return fuse.OK
}

// eperm and friends that the fuse package does not name.
const (
	enotty  = fuse.Status(syscall.ENOTTY)
	eexist  = fuse.Status(syscall.EEXIST)
	ebadf   = fuse.Status(syscall.EBADF)
	enotsup = fuse.Status(syscall.EOPNOTSUPP)
)
