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
	if err := i.maySet(s); err != nil {
		return err
	}
	switch {
	case s.Valid&SetProjectID != 0 && (!i.fs.projects || !i.raw.Fits(ondisk.EndProjid)) && s.ProjectID != 0:
		return syscall.EOPNOTSUPP
	case s.Valid&SetSize == 0:
		return nil
	case i.isDir():
		return syscall.EISDIR
	case i.encrypted():
		return syscall.ENOKEY
	case i.raw.Flags&ondisk.InodeVerity != 0:
		return syscall.EPERM
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
	if err := i.moveCharge(c, i.ownersWith(s)); err != nil {
		return err
	}
	if (s.KillPriv || s.Valid&(SetUID|SetGID) != 0) && !i.isDir() {
		if err := i.killPriv(h, c); err != nil {
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

// ownersWith are the owners that i has when s is applied, by kind of quota.
func (i *Inode) ownersWith(s *SetAttr) [quotaKinds]uint32 {
	ids := i.wants().ids
	if s.Valid&SetUID != 0 {
		ids[0] = s.UID
	}
	if s.Valid&SetGID != 0 {
		ids[1] = s.GID
	}
	if s.Valid&SetProjectID != 0 && i.raw.Fits(ondisk.EndProjid) {
		ids[2] = s.ProjectID
	}
	return ids
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
// execute, or where the caller is none of the group.
func (i *Inode) killPriv(h *handle, c *Caller) error {
	i.raw.Mode &^= i.privBits(c)
	return i.dropCapability(h)
}

// privBits are the mode bits that killPriv clears.
func (i *Inode) privBits(c *Caller) uint16 {
	bits := i.raw.Mode & ondisk.ModeSetUID
	if i.raw.Mode&ondisk.ModeSetGID != 0 && (i.raw.Mode&0o010 != 0 || !c.inGroup(i.raw.GID())) {
		bits |= ondisk.ModeSetGID
	}
	return bits
}

// KillPriv clears set-user-id and set-group-id as a write by c does, for
// changes of the content that are no writes. Capabilities stay.
func (f *File) KillPriv(c *Caller) error {
	i := f.i
	i.mu.RLock()
	bits := i.privBits(c)
	i.mu.RUnlock()
	if bits == 0 {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fs.step(creditsInode, func(h *handle) error {
		i.raw.Mode &^= i.privBits(c)
		i.raw.SetCtime(i.fs.timestamp())
		return i.markDirty(h)
	})
}

// inGroup tells whether the caller is the superuser (nil too) or in the group.
func (c *Caller) inGroup(gid uint32) bool {
	if c == nil || c.UID == 0 || c.GID == gid {
		return true
	}
	return c.Groups != nil && slices.Contains(c.Groups(), gid)
}
