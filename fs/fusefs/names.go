package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// Lookup finds a name. That there is none is an answer worth keeping: node id
// 0 with a timeout is a negative entry.
func (f *FileSystem) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) (st fuse.Status) {
	defer f.stats.done(OpLookup, f.stats.begin(OpLookup), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, err := f.fs.Lookup(inode(h.NodeId), name)
	if errors.Is(err, syscall.ENOENT) {
		f.stats.negative(OpLookup)
		out.EntryValid = f.entryValid
		return fuse.OK
	}
	return f.entry(out, a, err)
}

// Forget gives back lookups. It may be the last reference to a deleted inode,
// whose blocks are freed then; see forgets.
func (f *FileSystem) Forget(node, n uint64) {
	st := fuse.OK
	defer f.stats.done(OpForget, f.stats.begin(OpForget), &st)
	f.forgets.add(inode(node), n)
}

// Mknod makes a regular file, device, pipe or socket without opening it.
func (f *FileSystem) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (st fuse.Status) {
	defer f.stats.done(OpMknod, f.stats.begin(OpMknod), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, err := f.fs.Mknod(f.maker(&in.InHeader, in.Umask), inode(in.NodeId), name, in.Mode, in.Rdev)
	return f.entry(out, a, err)
}

// Mkdir makes a directory.
func (f *FileSystem) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (st fuse.Status) {
	defer f.stats.done(OpMkdir, f.stats.begin(OpMkdir), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, err := f.fs.Mkdir(f.maker(&in.InHeader, in.Umask), inode(in.NodeId), name, in.Mode)
	return f.entry(out, a, err)
}

// Symlink makes a symbolic link called name that says target.
func (f *FileSystem) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) (st fuse.Status) {
	defer f.stats.done(OpSymlink, f.stats.begin(OpSymlink), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, err := f.fs.Symlink(f.maker(h, 0), inode(h.NodeId), name, []byte(target))
	return f.entry(out, a, err)
}

// Readlink reads a symbolic link, once: the kernel caches it.
func (f *FileSystem) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, st fuse.Status) {
	defer f.stats.done(OpReadlink, f.stats.begin(OpReadlink), &st)
	target, err := f.fs.Readlink(inode(h.NodeId))
	return target, status(err)
}

// Link gives an inode a further name.
func (f *FileSystem) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) (st fuse.Status) {
	defer f.stats.done(OpLink, f.stats.begin(OpLink), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, err := f.fs.Link(inode(in.Oldnodeid), inode(in.NodeId), name)
	return f.entry(out, a, err)
}

// Unlink removes a name of something that is no directory.
func (f *FileSystem) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) (st fuse.Status) {
	defer f.stats.done(OpUnlink, f.stats.begin(OpUnlink), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	return status(f.fs.Unlink(inode(h.NodeId), name))
}

// Rmdir removes an empty directory.
func (f *FileSystem) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) (st fuse.Status) {
	defer f.stats.done(OpRmdir, f.stats.begin(OpRmdir), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	return status(f.fs.Rmdir(inode(h.NodeId), name))
}

// Rename moves a name; the flags are those of renameat2(2).
func (f *FileSystem) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) (st fuse.Status) {
	defer f.stats.done(OpRename, f.stats.begin(OpRename), &st)
	for _, name := range [...]string{oldName, newName} {
		if st := checkName(name); !st.Ok() {
			return st
		}
	}
	const known = ext4.RenameNoReplace | ext4.RenameExchange | ext4.RenameWhiteout
	if in.Flags&^known != 0 {
		return fuse.EINVAL
	}
	return status(f.fs.Rename(f.maker(&in.InHeader, 0), inode(in.NodeId), oldName, inode(in.Newdir), newName, in.Flags))
}
