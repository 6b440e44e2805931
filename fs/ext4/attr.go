package ext4

import (
	"slices"
	"syscall"

	"extfused/fs/ondisk"
)

// GetAttr is stat(2).
func (fs *FS) GetAttr(ino ondisk.InodeNumber) (Attr, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return Attr{}, err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.attrLocked(), nil
}

// SetAttr changes attributes, all in one step, and returns them as they are
// then. c (may be nil for the superuser) decides whether chmod keeps the
// set-group-id bit. EFBIG for a size past the largest file, EISDIR and EINVAL
// for the size of what is no regular file, EPERM on immutable and append-only
// files.
func (fs *FS) SetAttr(c *Caller, ino ondisk.InodeNumber, s *SetAttr) (Attr, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return Attr{}, err
	}
	defer fs.iput(i)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.maySetAttr(s); err != nil {
		return Attr{}, err
	}
	if s.Valid&SetFlags != 0 && i.raw.Flags&^s.Flags&ondisk.InodeJournalData != 0 && i.journalsData() {
		if err := i.unlogData(); err != nil {
			return Attr{}, err
		}
	}
	change := func(h *handle) error { return i.applyAttr(h, c, s) }
	if s.Valid&SetSize != 0 {
		err = i.resize(s.Size, change)
	} else {
		err = fs.step(creditsInode+i.xattrCredits(), func(h *handle) error { return first(change(h), i.markDirty(h)) })
	}
	if err != nil {
		return Attr{}, err
	}
	return i.attrLocked(), nil
}

func (i *Inode) maySetAttr(s *SetAttr) error {
	frozen := i.raw.Flags & (ondisk.InodeImmutable | ondisk.InodeAppend)
	timesNow := s.Valid&^(SetAtimeNow|SetMtimeNow) == 0
	switch {
	case frozen&ondisk.InodeImmutable != 0 && s.Valid&^SetFlags != 0:
		return syscall.EPERM
	case frozen != 0 && s.Valid&^(SetFlags) != 0 && !timesNow:
		return syscall.EPERM
	case s.Valid&SetSize == 0:
		return nil
	case i.isDir():
		return syscall.EISDIR
	case !i.isReg():
		return syscall.EINVAL
	case s.Size > i.maxBytes():
		return syscall.EFBIG
	}
	return nil
}

// applyAttr makes the changes in the inode, but for the size.
func (i *Inode) applyAttr(h *handle, c *Caller, s *SetAttr) error {
	now := i.fs.timestamp()
	r := &i.raw
	if s.KillPriv || s.Valid&(SetUID|SetGID) != 0 && !i.isDir() {
		if err := i.killPriv(h); err != nil {
			return err
		}
	}
	if s.Valid&SetUID != 0 {
		r.SetUID(s.UID)
	}
	if s.Valid&SetGID != 0 {
		r.SetGID(s.GID)
	}
	if s.Valid&SetFlags != 0 {
		r.Flags = r.Flags&^ondisk.InodeUserModifiable | s.Flags&ondisk.InodeUserModifiable
	}
	if s.Valid&SetProjectID != 0 && r.Fits(ondisk.EndProjid) {
		r.Projid = s.ProjectID
	}
	i.applyTimes(s, now)
	if s.Valid&SetMode == 0 {
		return nil
	}
	mode := uint16(s.Mode) &^ ondisk.ModeFmt
	if mode&ondisk.ModeSetGID != 0 && !c.inGroup(r.GID()) {
		mode &^= ondisk.ModeSetGID
	}
	r.Mode = r.Mode&ondisk.ModeFmt | mode
	return i.chmodACL(h)
}

// applyTimes sets the times asked for. ctime follows every change, unless the
// kernel, which keeps it while it caches writes, sends its own; mtime follows a
// change of the size.
func (i *Inode) applyTimes(s *SetAttr, now ondisk.Timestamp) {
	r := &i.raw
	switch {
	case s.Valid&SetAtimeNow != 0:
		r.SetAtime(now)
	case s.Valid&SetAtime != 0:
		r.SetAtime(ondisk.Timestamp(s.Atime))
	}
	switch {
	case s.Valid&SetMtimeNow != 0:
		r.SetMtime(now)
	case s.Valid&SetMtime != 0:
		r.SetMtime(ondisk.Timestamp(s.Mtime))
	case s.Valid&SetSize != 0:
		r.SetMtime(now)
	}
	if s.Valid&SetCrtime != 0 {
		r.SetCrtime(ondisk.Timestamp(s.Crtime))
	}
	if s.Valid&SetCtime != 0 {
		r.SetCtime(ondisk.Timestamp(s.Ctime))
	} else {
		r.SetCtime(now)
	}
}

// killPriv drops capabilities, set-user-id, and set-group-id where the group may
// execute (it is a lock mark otherwise).
func (i *Inode) killPriv(h *handle) error {
	i.raw.Mode &^= ondisk.ModeSetUID
	if i.raw.Mode&0o010 != 0 {
		i.raw.Mode &^= ondisk.ModeSetGID
	}
	return i.dropCapability(h)
}

// inGroup tells whether the caller is the superuser (nil too) or in the group.
func (c *Caller) inGroup(gid uint32) bool {
	if c == nil || c.UID == 0 || c.GID == gid {
		return true
	}
	return c.Groups != nil && slices.Contains(c.Groups(), gid)
}

// relatimeAge is the age at which a read renews atime in any case, in seconds.
const relatimeAge = 24 * 60 * 60

// accessed brings atime up to date before a read, as relatime does: only if it
// is not behind mtime and ctime it stays, for a day. Errors do not matter to
// the reader.
func (i *Inode) accessed() {
	if i.fs.writable() != nil || i.fs.opts.Atime == AtimeNever {
		return
	}
	now := i.fs.timestamp()
	i.mu.RLock()
	due := i.atimeDue(now)
	i.mu.RUnlock()
	if !due {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fs.step(creditsInode, func(h *handle) error {
		i.raw.SetAtime(now)
		return i.markDirty(h)
	})
}

func (i *Inode) atimeDue(now ondisk.Timestamp) bool {
	if i.raw.Flags&ondisk.InodeNoatime != 0 || i.raw.LinksCount == 0 {
		return false
	}
	a := i.raw.Atime()
	if i.fs.opts.Atime == AtimeStrict {
		return a.Sec != now.Sec || now.Nsec-a.Nsec >= uint32(timeGrain)
	}
	return !before(i.raw.Mtime(), a) || !before(i.raw.Ctime(), a) || now.Sec-a.Sec >= relatimeAge
}

func before(a, b ondisk.Timestamp) bool {
	return a.Sec < b.Sec || a.Sec == b.Sec && a.Nsec < b.Nsec
}
