package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
)

// Tmpfile makes a regular file without a name, in the neighbourhood and with
// the inheritance of directory parent, and opens it; flags are open(2)'s. It is
// on the orphan list from its first moment: it is gone when it is closed, or by
// the next mount after a crash, unless Link gives it a name, which O_EXCL
// forbids. It takes one lookup reference.
func (fs *FS) Tmpfile(c *Caller, parent ondisk.InodeNumber, mode uint32, flags uint32) (Attr, *File, error) {
	dir, err := fs.iget(parent)
	if err != nil {
		return Attr{}, nil, err
	}
	defer fs.iput(dir)
	for try := 0; ; {
		n := &newNode{mode: ondisk.ModeReg | mode&^ondisk.ModeFmt}
		i, err := fs.makeNameless(c, dir, n, flags&syscall.O_EXCL == 0)
		if err == nil {
			fs.ihold(i)
			return i.named(), openFile(c, i, flags), nil
		}
		if i != nil {
			fs.iput(i)
		}
		if !fs.shouldRetry(err, &try) {
			return Attr{}, nil, err
		}
	}
}

// makeNameless does Tmpfile's work once, under the lock of dir. An inode that
// comes back with an error is freed by its last iput.
func (fs *FS) makeNameless(c *Caller, dir *Inode, n *newNode, linkable bool) (*Inode, error) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	switch {
	case !dir.isDir():
		return nil, syscall.ENOTDIR
	case dir.immutable() || dir.raw.LinksCount == 0:
		return nil, syscall.EPERM // as ext4 says, not ENOENT
	}
	acl, err := dir.inheritACL(n, c)
	if err != nil {
		return nil, err
	}
	h, err := fs.begin(creditsNewInode + creditsOrphan + acl.credits())
	if err != nil {
		return nil, err
	}
	h.root = fs.mayUseRoot(c)
	i, err := fs.newInode(h, dir, c, n.mode)
	if err != nil {
		return nil, first(err, h.stop())
	}
	i.noXattrs.Store(true)
	i.linkable = linkable
	err = first(i.setNewACL(h, acl), i.abandon(h))
	return i, first(err, h.stop())
}
