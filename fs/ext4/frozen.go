package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
)

// What chattr +i and +a forbid. The FUSE client does not know the flags, so
// all of it is checked here, in the words of the kernel's VFS.

func (i *Inode) immutable() bool { return i.raw.Flags&ondisk.InodeImmutable != 0 }

// frozen: it may not lose a name, get another, or other attributes. As a
// directory it may lose none of its entries.
func (i *Inode) frozen() bool {
	return i.raw.Flags&(ondisk.InodeImmutable|ondisk.InodeAppend) != 0
}

// mayLose tells whether the entry may go: EPERM.
func (e *entry) mayLose() error {
	if e.dir.frozen() || e.child.frozen() {
		return syscall.EPERM
	}
	return nil
}

// mayAllocate is for fallocate(2) with the given mode.
func (i *Inode) mayAllocate(mode uint32) error {
	if i.immutable() || i.frozen() && mode&^FallocKeepSize != 0 {
		return syscall.EPERM
	}
	return nil
}

// maySet is for a change of attributes. Flags may change: who may do that the
// kernel has checked. What looks like the kernel's own notes of earlier writes
// is let through: mtime that is ctime.
func (i *Inode) maySet(s *SetAttr) error {
	what := s.Valid &^ (SetFlags | SetProjectID)
	if !i.frozen() || what == 0 {
		return nil
	}
	written := SetMtime | SetCtime
	if what&written == written && s.Mtime == s.Ctime {
		if what &^= written; what == 0 {
			return nil
		}
	}
	if what&^(SetAtimeNow|SetMtimeNow|SetCtime) != 0 || i.immutable() {
		return syscall.EPERM
	}
	return nil
}
