package ext4

// Placeholders of the extended attributes while xattr.go is being written.

import (
	"syscall"

	"extfused/fs/ondisk"
)

func (fs *FS) GetXattr(ino ondisk.InodeNumber, name string, dst []byte) (int, error) {
	return 0, syscall.ENOSYS
}
func (fs *FS) SetXattr(c *Caller, ino ondisk.InodeNumber, name string, value []byte, flags uint32) error {
	return syscall.ENOSYS
}
func (fs *FS) ListXattr(ino ondisk.InodeNumber, dst []byte) (int, error) { return 0, syscall.ENOSYS }
func (fs *FS) RemoveXattr(c *Caller, ino ondisk.InodeNumber, name string) error {
	return syscall.ENOSYS
}

// dropXattrs frees the attribute block of an inode that is being deleted
// (creditsXattr).
func (i *Inode) dropXattrs(h *handle) error { return nil }

type newACL struct{}

func (a *newACL) credits() int { return 0 }
func (dir *Inode) inheritACL(n *newNode, c *Caller) (*newACL, error) {
	if c != nil && n.mode&ondisk.ModeFmt != ondisk.ModeLnk {
		n.mode &^= c.Umask & 0o777
	}
	return nil, nil
}
func (i *Inode) setNewACL(h *handle, a *newACL) error { return nil }
func (i *Inode) chmodCredits(s *SetAttr) int          { return 0 }
func (i *Inode) chmodACL(h *handle) error             { return nil }
