package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// GetXAttr reads an extended attribute.
func (f *FileSystem) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dst []byte) (n uint32, st fuse.Status) {
	defer f.stats.done(OpGetXattr, f.stats.begin(OpGetXattr), &st)
	if f.noXattr {
		return 0, fuse.ENOSYS
	}
	size, err := f.fs.GetXattr(inode(h.NodeId), name, dst)
	if status(err) == enotsup && isACL(name) {
		// The kernel refuses access where it cannot learn the ACL.
		return 0, fuse.ENODATA
	}
	return xattrSize(size, err)
}

// isACL tells the names that the kernel itself asks for when it checks
// permissions.
func isACL(name string) bool {
	return name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// xattrSize answers with a size; ERANGE needs it too.
func xattrSize(n int, err error) (uint32, fuse.Status) {
	if err != nil && !errors.Is(err, syscall.ERANGE) {
		return 0, status(err)
	}
	return uint32(n), status(err)
}

// ListXAttr lists the names of the extended attributes, each ended by a zero
// byte.
func (f *FileSystem) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dst []byte) (n uint32, st fuse.Status) {
	defer f.stats.done(OpListXattr, f.stats.begin(OpListXattr), &st)
	if f.noXattr {
		return 0, fuse.ENOSYS
	}
	size, err := f.fs.ListXattr(f.caller(h, 0), inode(h.NodeId), dst)
	return xattrSize(size, err)
}

// SetXAttr sets an extended attribute; the flags are those of setxattr(2).
func (f *FileSystem) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) (st fuse.Status) {
	defer f.stats.done(OpSetXattr, f.stats.begin(OpSetXattr), &st)
	if f.noXattr {
		return fuse.ENOSYS
	}
	ino := inode(in.NodeId)
	if uint32(len(value)) > in.Size {
		value = value[:in.Size]
	}
	err := f.fs.SetXattr(f.caller(&in.InHeader, 0), ino, name, value, in.Flags)
	if err == nil && in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
		err = f.dropSetGroupID(&in.InHeader)
	}
	return status(err)
}

// dropSetGroupID clears set-group-id when an ACL is set by someone who may not
// keep it.
func (f *FileSystem) dropSetGroupID(h *fuse.InHeader) error {
	a, err := f.fs.GetAttr(inode(h.NodeId))
	if err != nil || a.Mode&syscall.S_ISGID == 0 {
		return err
	}
	_, err = f.fs.SetAttr(f.caller(h, 0), a.Ino, &ext4.SetAttr{
		Valid: ext4.SetMode, Mode: a.Mode & 0o7777 &^ syscall.S_ISGID,
	})
	return err
}

// RemoveXAttr removes an extended attribute.
func (f *FileSystem) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) (st fuse.Status) {
	defer f.stats.done(OpRemoveXattr, f.stats.begin(OpRemoveXattr), &st)
	if f.noXattr {
		return fuse.ENOSYS
	}
	return status(f.fs.RemoveXattr(f.caller(h, 0), inode(h.NodeId), name))
}
