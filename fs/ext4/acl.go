package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

// POSIX ACLs. The kernel checks permissions against them; here they are kept,
// in step with the permission bits, and handed on to new inodes.

// setACL sets an ACL given in the format of system calls; one without entries
// is removed. EOPNOTSUPP on symlinks, EACCES for a default ACL of anything but
// a directory.
func (i *Inode) setACL(h *handle, n xattr.Name, wire []byte) error {
	if i.isLink() {
		return syscall.EOPNOTSUPP
	}
	if n == xattr.ACLDefault && !i.isDir() {
		return syscall.EACCES
	}
	var acl xattr.ACL
	if len(wire) > 0 {
		var err error
		if acl, err = xattr.ParseWire(wire); err != nil {
			return err
		}
	}
	if acl == nil {
		return i.removeACL(h, n)
	}
	if err := acl.Valid(); err != nil {
		return err
	}
	if n == xattr.ACLAccess {
		perm, all := acl.Mode()
		i.raw.Mode = i.raw.Mode&^ondisk.ModePerm | uint16(perm)
		if all {
			return i.removeACL(h, n)
		}
	}
	return i.setXattr(h, n, acl.Disk(), 0)
}

func (i *Inode) removeACL(h *handle, n xattr.Name) error {
	err := i.setXattrIfAny(h, n)
	if xattr.IsNotFound(err) {
		return nil
	}
	return err
}

// acl reads a stored ACL; nil if there is none.
func (i *Inode) acl(n xattr.Name) (xattr.ACL, error) {
	if i.noXattrs.Load() {
		return nil, nil
	}
	value, err := i.xattrValue(n)
	if xattr.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, i.fs.report(err)
	}
	acl, err := xattr.ParseDisk(value)
	if err == nil {
		err = acl.Valid()
	}
	if err != nil {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: err.Error(), Inode: i.ino})
	}
	return acl, nil
}

// chmodACL brings the access ACL in line with new permission bits.
func (i *Inode) chmodACL(h *handle) error {
	if i.isLink() {
		return nil
	}
	acl, err := i.acl(xattr.ACLAccess)
	if err != nil || acl == nil {
		return err
	}
	acl.Chmod(uint32(i.raw.Mode & ondisk.ModePerm))
	return i.fs.report(i.setXattr(h, xattr.ACLAccess, acl.Disk(), 0))
}

// newACL is what a new inode inherits from its directory's default ACL.
type newACL struct {
	access xattr.ACL // nil: the permission bits say it all
	deflt  xattr.ACL // of a new directory
}

// inheritACL settles the mode of a new inode in directory dir: by the default
// ACL if there is one, which is then returned with what it makes, or else by
// the caller's umask.
func (dir *Inode) inheritACL(n *newNode, c *Caller) (*newACL, error) {
	if n.mode&ondisk.ModeFmt == ondisk.ModeLnk {
		return nil, nil
	}
	acl, err := dir.acl(xattr.ACLDefault)
	if err != nil {
		return nil, err
	}
	if acl == nil {
		if c != nil {
			n.mode &^= c.Umask & ondisk.ModePerm
		}
		return nil, nil
	}
	made := &newACL{}
	var perm uint32
	made.access, perm = acl.Inherit(n.mode & ondisk.ModePerm)
	n.mode = n.mode&^ondisk.ModePerm | perm
	if n.isDir() {
		made.deflt = acl
	}
	return made, nil
}

// credits is what setNewACL takes.
func (a *newACL) credits() int {
	if a == nil {
		return 0
	}
	return 2 * creditsXattr
}

// setNewACL gives a new inode its ACLs.
func (i *Inode) setNewACL(h *handle, a *newACL) error {
	if a == nil {
		return nil
	}
	if a.access != nil {
		if err := i.setXattr(h, xattr.ACLAccess, a.access.Disk(), 0); err != nil {
			return i.fs.report(err)
		}
	}
	if a.deflt != nil {
		return i.fs.report(i.setXattr(h, xattr.ACLDefault, a.deflt.Disk(), 0))
	}
	return nil
}
