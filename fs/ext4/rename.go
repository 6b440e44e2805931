package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
)

// Rename gives an inode another name, in one handle. Flags are renameat2(2)'s:
// RenameNoReplace (EEXIST if the new name exists), RenameExchange (both exist
// and are swapped), RenameWhiteout (a whiteout device takes the old name). That
// a directory does not move below itself is checked by the kernel, which holds
// the whole tree still for it.
func (fs *FS) Rename(c *Caller, oldParent ondisk.InodeNumber, oldName string, newParent ondisk.InodeNumber, newName string, flags uint32) error {
	if err := checkRename(oldName, newName, flags); err != nil {
		return err
	}
	oldDir, err := fs.iget(oldParent)
	if err != nil {
		return err
	}
	defer fs.iput(oldDir)
	newDir, err := fs.iget(newParent)
	if err != nil {
		return err
	}
	defer fs.iput(newDir)
	for try := 0; ; {
		r := renaming{fs: fs, caller: c, flags: flags,
			from: entry{dir: oldDir, name: oldName}, to: entry{dir: newDir, name: newName}}
		err := r.run()
		if err == nil {
			return first(newDir.syncNames(), oldDir.syncNames())
		}
		if !fs.shouldRetry(err, &try) {
			return err
		}
	}
}

func checkRename(oldName, newName string, flags uint32) error {
	if flags&^(RenameNoReplace|RenameExchange|RenameWhiteout) != 0 ||
		flags&RenameExchange != 0 && flags&(RenameNoReplace|RenameWhiteout) != 0 {
		return syscall.EINVAL
	}
	for _, name := range [...]string{oldName, newName} {
		if name == "." || name == ".." {
			return syscall.EBUSY
		}
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// renaming is one rename under way.
type renaming struct {
	fs       *FS
	caller   *Caller
	flags    uint32
	from, to entry
	whiteout *Inode   // made for RenameWhiteout
	blank    *newNode // what it is to be, and the ACLs it inherits as any device
	blankACL *newACL
}

// run locks all four inodes, does the work, and lets go of everything in the
// one order that is allowed.
func (r *renaming) run() error {
	var locks lockSet
	if err := r.fs.lockEntries(&locks, &r.from, &r.to); err != nil {
		return err
	}
	err := r.locked()
	locks.unlock()
	r.from.put(r.fs)
	r.to.put(r.fs)
	if r.whiteout != nil {
		r.fs.iput(r.whiteout)
	}
	return err
}

func (r *renaming) locked() error {
	if err := r.check(); err != nil || r.from.child == r.to.child {
		return err // two names of one inode: POSIX wants nothing done
	}
	if err := r.planWhiteout(); err != nil {
		return err
	}
	h, err := r.fs.begin(creditsRename + r.blankACL.credits())
	if err != nil {
		return err
	}
	h.root = r.fs.mayUseRoot(r.caller)
	if r.flags&RenameExchange != 0 {
		err = r.exchange(h)
	} else {
		err = r.move(h)
	}
	return first(err, h.stop())
}

// check finds out whether the rename is allowed.
func (r *renaming) check() error {
	src, dst := r.from.child, r.to.child
	switch {
	case src == nil:
		return errNoEntry
	case r.from.dir.encrypted() || r.to.dir.encrypted():
		return syscall.ENOKEY
	case r.to.dir.checkDir() != nil:
		return r.to.dir.checkDir()
	case dst == nil && r.flags&RenameExchange != 0:
		return errNoEntry
	case dst != nil && r.flags&RenameNoReplace != 0:
		return syscall.EEXIST
	case src == r.to.dir || src == r.from.dir:
		return syscall.EINVAL
	case src != dst && r.from.mayLose() != nil:
		return syscall.EPERM
	case src != dst && (r.to.dir.immutable() || dst != nil && r.to.mayLose() != nil):
		return syscall.EPERM
	case r.to.dir.otherProject(src), r.flags&RenameExchange != 0 && r.from.dir.otherProject(dst):
		return syscall.EXDEV
	case dst == r.from.dir:
		return syscall.ENOTEMPTY
	case r.flags&RenameExchange != 0:
		return r.checkExchangeLinks()
	case dst != nil && dst != src:
		return r.checkReplace()
	case src.isDir() && r.from.dir != r.to.dir && r.to.dir.linksFull():
		return syscall.EMLINK
	}
	return nil
}

// checkReplace is for a new name that exists: kinds must match, and a directory
// must be empty.
func (r *renaming) checkReplace() error {
	if r.from.child.isDir() && !r.to.child.isDir() {
		return syscall.ENOTDIR
	}
	return r.to.mayRemove(r.from.child.isDir())
}

func (r *renaming) checkExchangeLinks() error {
	a, b := r.from.child.isDir(), r.to.child.isDir()
	if r.from.dir == r.to.dir || a == b {
		return nil
	}
	if a && r.to.dir.linksFull() || b && r.from.dir.linksFull() {
		return syscall.EMLINK
	}
	return nil
}

// move is the rename proper: the new name first, since only that can fail for
// lack of space.
func (r *renaming) move(h *handle) error {
	if err := r.makeWhiteout(h); err != nil {
		return err
	}
	if err := r.setNewName(h); err != nil {
		if r.whiteout != nil {
			r.whiteout.abandon(h)
		}
		return first(err, r.to.dir.markDirty(h))
	}
	if err := r.clearOldName(h); err != nil {
		return err
	}
	now := r.fs.timestamp()
	if err := r.dropReplaced(h, now); err != nil {
		return err
	}
	if err := r.moveParent(h, r.from.child, r.from.dir, r.to.dir); err != nil {
		return err
	}
	return r.finish(h, now, r.from.child)
}

func (r *renaming) setNewName(h *handle) error {
	if r.to.child != nil {
		return r.to.dir.dirSet(h, r.to.name, r.from.child)
	}
	return r.to.dir.dirInsert(h, r.to.name, r.from.child)
}

func (r *renaming) clearOldName(h *handle) error {
	if r.whiteout != nil {
		return r.from.dir.dirSet(h, r.from.name, r.whiteout)
	}
	return r.from.dir.dirDelete(h, r.from.name)
}

// dropReplaced takes the link away from what had the new name.
func (r *renaming) dropReplaced(h *handle, now ondisk.Timestamp) error {
	if r.to.child == nil {
		return nil
	}
	if r.to.child.isDir() {
		r.to.dir.decLinks()
	}
	return r.to.child.dropLink(h, now)
}

// moveParent makes ".." of a directory that moved name its new parent, and
// counts it there.
func (r *renaming) moveParent(h *handle, i, from, to *Inode) error {
	if !i.isDir() || from == to {
		return nil
	}
	from.decLinks()
	to.incLinks()
	return i.dirSet(h, "..", to)
}

// exchange swaps the inodes of two names.
func (r *renaming) exchange(h *handle) error {
	if err := r.to.dir.dirSet(h, r.to.name, r.from.child); err != nil {
		return err
	}
	if err := r.from.dir.dirSet(h, r.from.name, r.to.child); err != nil {
		return err
	}
	if err := r.moveParent(h, r.from.child, r.from.dir, r.to.dir); err != nil {
		return err
	}
	if err := r.moveParent(h, r.to.child, r.to.dir, r.from.dir); err != nil {
		return err
	}
	return r.finish(h, r.fs.timestamp(), r.from.child, r.to.child)
}

// finish stamps and writes the directories and the inodes that moved.
func (r *renaming) finish(h *handle, now ondisk.Timestamp, moved ...*Inode) error {
	r.from.dir.touchDir(now)
	r.to.dir.touchDir(now)
	err := first(r.from.dir.markDirty(h), nil)
	if r.to.dir != r.from.dir {
		err = first(err, r.to.dir.markDirty(h))
	}
	for _, i := range moved {
		i.raw.SetCtime(now)
		err = first(err, i.markDirty(h))
	}
	return err
}

// planWhiteout finds out what the whiteout inherits, before the handle.
func (r *renaming) planWhiteout() (err error) {
	if r.flags&RenameWhiteout != 0 {
		r.blank = &newNode{mode: ondisk.ModeChr}
		r.blankACL, err = r.from.dir.inheritACL(r.blank, nil)
	}
	return err
}

// makeWhiteout makes the character device 0:0 that overlayfs reads as "nothing
// here".
func (r *renaming) makeWhiteout(h *handle) error {
	if r.flags&RenameWhiteout == 0 {
		return nil
	}
	w, err := r.fs.newInode(h, r.from.dir, r.caller, r.blank.mode)
	if err != nil {
		return err
	}
	r.whiteout = w
	if err := first(w.fill(h, r.from.dir, r.blank), w.setNewACL(h, r.blankACL)); err != nil {
		return first(err, w.abandon(h))
	}
	return w.markDirty(h)
}
