package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
)

// The operations on names, except rename. Each locks the directory and the
// inode that the name means, does its work in one handle, and so is atomic on
// disk. An inode whose last name goes is put on the orphan list in the same
// handle; the last iput frees it.
//
// Pins are given back when neither a lock nor a handle is held: it may be the
// last one of an inode without links, and then frees it.

// Lookup finds name in directory parent, and takes one lookup reference to what
// it names. ENOENT, ENAMETOOLONG, ENOTDIR.
func (fs *FS) Lookup(parent ondisk.InodeNumber, name string) (Attr, error) {
	dir, err := fs.iget(parent)
	if err != nil {
		return Attr{}, err
	}
	defer fs.iput(dir)
	child, err := fs.lookupIn(dir, name)
	if err != nil {
		return Attr{}, err
	}
	return child.named(), nil
}

// named turns the caller's pin on an inode into a lookup reference, and returns
// the attributes that go with it.
func (i *Inode) named() Attr {
	i.lookups.Add(1)
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.attrLocked()
}

// lookupIn finds name in dir and returns its inode pinned.
func (fs *FS) lookupIn(dir *Inode, name string) (*Inode, error) {
	dir.mu.RLock()
	defer dir.mu.RUnlock()
	ino, err := dir.dirLookup(name)
	if err != nil {
		return nil, err
	}
	return fs.iget(ino)
}

// Create makes an empty regular file and opens it; flags are open(2)'s.
// EEXIST if the name exists, whatever it is.
func (fs *FS) Create(c *Caller, parent ondisk.InodeNumber, name string, mode uint32, flags uint32) (Attr, *File, error) {
	i, err := fs.makeInode(c, parent, name, &newNode{mode: ondisk.ModeReg | mode&^ondisk.ModeFmt})
	if err != nil {
		return Attr{}, nil, err
	}
	fs.ihold(i)
	return i.named(), openFile(c, i, flags), nil
}

// Mknod makes a file, a device, a FIFO or a socket, as the type bits of mode
// say (none means a regular file); rdev counts for devices.
func (fs *FS) Mknod(c *Caller, parent ondisk.InodeNumber, name string, mode, rdev uint32) (Attr, error) {
	switch mode & ondisk.ModeFmt {
	case 0:
		mode |= ondisk.ModeReg
	case ondisk.ModeReg, ondisk.ModeChr, ondisk.ModeBlk, ondisk.ModeFIFO, ondisk.ModeSock:
	case ondisk.ModeDir:
		return Attr{}, syscall.EPERM
	default:
		return Attr{}, syscall.EINVAL
	}
	return fs.makeAttr(c, parent, name, &newNode{mode: mode, rdev: rdev})
}

// Mkdir makes a directory.
func (fs *FS) Mkdir(c *Caller, parent ondisk.InodeNumber, name string, mode uint32) (Attr, error) {
	return fs.makeAttr(c, parent, name, &newNode{mode: ondisk.ModeDir | mode&0o1777})
}

// Symlink makes a symbolic link. The target has 1 byte at least and less than
// a block, else ENOENT or ENAMETOOLONG.
func (fs *FS) Symlink(c *Caller, parent ondisk.InodeNumber, name string, target []byte) (Attr, error) {
	if len(target) == 0 {
		return Attr{}, syscall.ENOENT
	}
	if len(target) >= min(fs.blockSize, 4096) {
		return Attr{}, syscall.ENAMETOOLONG
	}
	return fs.makeAttr(c, parent, name, &newNode{mode: ondisk.ModeLnk | 0o777, target: target})
}

// newNode is what makeInode is to make.
type newNode struct {
	mode   uint32 // i_mode
	rdev   uint32 // of devices
	target []byte // of symlinks
}

func (n *newNode) isDir() bool { return n.mode&ondisk.ModeFmt == ondisk.ModeDir }

func (fs *FS) makeAttr(c *Caller, parent ondisk.InodeNumber, name string, n *newNode) (Attr, error) {
	i, err := fs.makeInode(c, parent, name, n)
	if err != nil {
		return Attr{}, err
	}
	return i.named(), nil
}

// makeInode makes an inode and its name; it is returned pinned.
func (fs *FS) makeInode(c *Caller, parent ondisk.InodeNumber, name string, n *newNode) (*Inode, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	dir, err := fs.iget(parent)
	if err != nil {
		return nil, err
	}
	defer fs.iput(dir)
	for try := 0; ; {
		i, err := fs.makeInDir(c, dir, name, n)
		if err == nil {
			if err = dir.syncNames(); err == nil {
				return i, nil
			}
		}
		if i != nil { // made, but its name could not be
			fs.iput(i)
		}
		if !fs.shouldRetry(err, &try) {
			return nil, err
		}
	}
}

// checkName is for names that are to be made or removed.
func checkName(name string) error {
	switch {
	case len(name) > MaxNameLen:
		return syscall.ENAMETOOLONG
	case name == "":
		return syscall.ENOENT
	}
	return nil
}

// makeInDir does makeInode's work once, under the lock of dir. The inode comes
// back with the error when it exists but has no links: its last iput frees it.
func (fs *FS) makeInDir(c *Caller, dir *Inode, name string, n *newNode) (*Inode, error) {
	dir.mu.Lock()
	defer dir.mu.Unlock()
	if err := dir.mayMake(name, n); err != nil {
		return nil, err
	}
	acl, err := dir.inheritACL(n, c)
	if err != nil {
		return nil, err
	}
	h, err := fs.begin(creditsCreate + acl.credits())
	if err != nil {
		return nil, err
	}
	h.root = fs.mayUseRoot(c)
	i, err := fs.newInode(h, dir, c, n.mode)
	if err != nil {
		return nil, first(dir.unlessExists(name, err), h.stop())
	}
	i.noXattrs.Store(true)
	if err = fs.link(h, dir, name, i, n, acl); err != nil {
		err = first(err, i.abandon(h))
	}
	return i, first(err, h.stop())
}

// mayMake checks that dir can take another name. That it has not got it yet is
// found when the name is inserted: the kernel has looked, so it is the rule.
func (dir *Inode) mayMake(name string, n *newNode) error {
	if err := dir.checkDir(); err != nil {
		return err
	}
	switch {
	case dir.encrypted():
		return dir.mayName()
	case dir.immutable():
		return dir.unlessExists(name, syscall.EPERM)
	case n.isDir() && dir.linksFull():
		return dir.unlessExists(name, syscall.EMLINK)
	}
	return nil
}

// unlessExists is err, or EEXIST, which goes before, if dir has got the name.
func (dir *Inode) unlessExists(name string, err error) error {
	if _, lerr := dir.dirLookup(name); lerr == nil {
		return syscall.EEXIST
	}
	return err
}

// creditsCreate: the inode, its name, its first block (directory, long
// symlink), and the orphan list if that fails half-way.
const creditsCreate = creditsNewInode + creditsDirInsert + creditsWrite + creditsOrphan

// creditsUnlink: the name, the inode, and the orphan list.
const creditsUnlink = creditsDirDelete + creditsInode + creditsOrphan

// creditsRename: a new name, an old one deleted or set, ".." and inode of two
// that move, one that loses its link, and a whiteout.
const creditsRename = creditsDirInsert + creditsDirDelete + 2*(1+creditsInode) + creditsInode + creditsOrphan + creditsNewInode

// link fills the new inode i and gives it its name.
func (fs *FS) link(h *handle, dir *Inode, name string, i *Inode, n *newNode, acl *newACL) error {
	if err := i.fill(h, dir, n); err != nil {
		return err
	}
	if err := i.setNewACL(h, acl); err != nil {
		return err
	}
	if err := dir.dirInsert(h, name, i); err != nil {
		return first(err, dir.markDirty(h)) // it may be a block longer
	}
	if n.isDir() {
		dir.incLinks()
	}
	dir.touchDir(fs.timestamp())
	return first(i.markDirty(h), dir.markDirty(h))
}

// fill gives a new inode the content of its kind.
func (i *Inode) fill(h *handle, dir *Inode, n *newNode) error {
	switch n.mode & ondisk.ModeFmt {
	case ondisk.ModeDir:
		i.raw.LinksCount = 2
		return i.dirInit(h, dir.ino)
	case ondisk.ModeLnk:
		return i.writeTarget(h, n.target)
	case ondisk.ModeChr, ondisk.ModeBlk:
		i.raw.Flags &^= ondisk.InodeExtents
		ondisk.EncodeDev(&i.raw.Block, n.rdev>>8&0xfff, n.rdev&0xff|n.rdev>>12&0xfff00)
	}
	return nil
}

// abandon takes back a new inode that could not be completed: it has no links,
// is on the orphan list, and the last iput frees it and its blocks.
func (i *Inode) abandon(h *handle) error {
	i.raw.LinksCount = 0
	return first(i.fs.orphanAdd(h, i), i.markDirty(h))
}

// Link makes another name of an inode. EXDEV in a directory that is there for
// another project, EPERM for directories, EMLINK at 65000
// names, ENOENT for a file without names, unless Tmpfile made it so. It takes
// one lookup reference.
func (fs *FS) Link(ino, newParent ondisk.InodeNumber, newName string) (Attr, error) {
	if err := checkName(newName); err != nil {
		return Attr{}, err
	}
	i, err := fs.iget(ino)
	if err != nil {
		return Attr{}, err
	}
	dir, err := fs.iget(newParent)
	if err != nil {
		fs.iput(i)
		return Attr{}, err
	}
	defer fs.iput(dir)
	if err = fs.linkLocking(i, dir, newName); err == nil {
		err = dir.syncNames()
	}
	if err != nil {
		fs.iput(i)
		return Attr{}, err
	}
	return i.named(), nil
}

// otherProject tells whether i may not get a name in dir, which is there for
// another project (chattr +P).
func (dir *Inode) otherProject(i *Inode) bool {
	return dir.raw.Flags&ondisk.InodeProjInherit != 0 && dir.raw.Projid != i.raw.Projid
}

func (fs *FS) linkLocking(i, dir *Inode, name string) error {
	var locks lockSet
	locks.lock(i, dir)
	defer locks.unlock()
	if err := dir.checkDir(); err != nil {
		return err
	}
	switch {
	case i.isDir():
		return syscall.EPERM
	case i.frozen() || dir.immutable():
		return dir.unlessExists(name, syscall.EPERM)
	case i.raw.LinksCount == 0 && !i.linkable:
		return syscall.ENOENT
	case i.raw.LinksCount >= ondisk.LinkMax:
		return syscall.EMLINK
	case dir.otherProject(i):
		return syscall.EXDEV
	}
	return fs.step(creditsDirInsert+creditsInode+creditsOrphan, func(h *handle) error {
		h.root = true
		if err := dir.dirInsert(h, name, i); err != nil {
			return first(err, dir.markDirty(h)) // the directory may be a block longer
		}
		if i.raw.LinksCount == 0 { // of Tmpfile: from now on it lives by its name
			if err := fs.orphanDel(h, i); err != nil {
				return first(err, dir.markDirty(h))
			}
			i.linkable = false
		}
		now := fs.timestamp()
		i.raw.LinksCount++
		i.raw.SetCtime(now)
		dir.touchDir(now)
		return first(i.markDirty(h), dir.markDirty(h))
	})
}

// Unlink removes the name of anything but a directory.
func (fs *FS) Unlink(parent ondisk.InodeNumber, name string) error {
	return fs.remove(parent, name, false)
}

// Rmdir removes an empty directory. ENOTEMPTY, ENOTDIR.
func (fs *FS) Rmdir(parent ondisk.InodeNumber, name string) error {
	switch name {
	case ".":
		return syscall.EINVAL
	case "..":
		return syscall.ENOTEMPTY
	}
	return fs.remove(parent, name, true)
}

func (fs *FS) remove(parent ondisk.InodeNumber, name string, wantDir bool) error {
	dir, err := fs.iget(parent)
	if err != nil {
		return err
	}
	defer fs.iput(dir)
	e := entry{dir: dir, name: name}
	var locks lockSet
	if err := fs.lockEntries(&locks, &e); err != nil {
		return err
	}
	if e.child == nil {
		locks.unlock()
		return errNoEntry
	}
	err = fs.removeLocked(&e, wantDir)
	locks.unlock()
	fs.iput(e.child)
	if err == nil {
		err = dir.syncNames()
	}
	return err
}

// removeLocked removes an entry; directory and child are locked.
func (fs *FS) removeLocked(e *entry, wantDir bool) error {
	if err := e.mayRemove(wantDir); err != nil {
		return err
	}
	return fs.step(creditsUnlink, func(h *handle) error {
		if err := e.dir.dirDelete(h, e.name); err != nil {
			return err
		}
		now := fs.timestamp()
		e.dir.touchDir(now)
		if wantDir {
			e.dir.decLinks()
		}
		return first(e.child.dropLink(h, now), e.dir.markDirty(h))
	})
}

// mayRemove checks the kind of the entry's inode, and that a directory is empty.
func (e *entry) mayRemove(wantDir bool) error {
	if e.child == e.dir { // "." in a damaged image too
		return syscall.EINVAL
	}
	if err := e.mayLose(); err != nil {
		return err
	}
	switch {
	case wantDir && !e.child.isDir():
		return syscall.ENOTDIR
	case !wantDir && e.child.isDir():
		return syscall.EISDIR
	case !wantDir:
		return nil
	}
	empty, err := e.child.dirEmpty()
	if err == nil && !empty {
		err = syscall.ENOTEMPTY
	}
	return err
}

// dropLink takes one name away from i (a directory loses both, being empty);
// with the last it goes on the orphan list.
func (i *Inode) dropLink(h *handle, now ondisk.Timestamp) error {
	i.raw.SetCtime(now)
	switch {
	case i.isDir():
		i.raw.LinksCount = 0
		i.raw.SetSize(0) // as the kernel leaves it: nobody reads it any more
	case i.raw.LinksCount > 0: // 0 only in a damaged image
		i.raw.LinksCount--
	}
	if i.raw.LinksCount == 0 {
		if err := i.fs.orphanAdd(h, i); err != nil {
			return err
		}
	}
	return i.markDirty(h)
}

// touchDir is for a directory whose entries changed.
func (dir *Inode) touchDir(now ondisk.Timestamp) {
	dir.raw.SetMtime(now)
	dir.raw.SetCtime(now)
}

// linksFull tells whether dir can take no more subdirectories. With dir_nlink
// an indexed directory can always: past the limit its count is 1, "unknown".
func (dir *Inode) linksFull() bool {
	return dir.raw.LinksCount >= ondisk.LinkMax && !(dir.fs.dirNlink && dir.raw.Flags&ondisk.InodeIndex != 0)
}

// incLinks counts one more subdirectory.
func (dir *Inode) incLinks() {
	if dir.raw.LinksCount == 1 { // unknown stays unknown
		return
	}
	dir.raw.LinksCount++
	if dir.raw.LinksCount > ondisk.LinkMax {
		dir.raw.LinksCount = 1
	}
}

// decLinks counts one subdirectory less; "unknown" and the count of a directory
// without any stay as they are.
func (dir *Inode) decLinks() {
	if dir.raw.LinksCount > 2 {
		dir.raw.LinksCount--
	}
}
