package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// OpenDir says once that directories need no opening: the kernel then neither
// asks nor releases, and caches listings.
func (f *FileSystem) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) (st fuse.Status) {
	defer f.stats.done(OpOpenDir, f.stats.begin(OpOpenDir), &st)
	return fuse.ENOSYS
}

// ReleaseDir has nothing to release.
func (f *FileSystem) ReleaseDir(_ *fuse.ReleaseIn) {
	st := fuse.OK
	defer f.stats.done(OpReleaseDir, f.stats.begin(OpReleaseDir), &st)
}

// withDir opens a directory for the length of fn. The kernel has it open, so
// its inode lives even if its last name is gone.
func (f *FileSystem) withDir(node uint64, fn func(*ext4.Dir) error) fuse.Status {
	d, err := f.fs.OpenDir(inode(node))
	if err != nil {
		return status(err)
	}
	defer d.Release()
	return status(fn(d))
}

// ReadDir lists names.
func (f *FileSystem) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) (st fuse.Status) {
	defer f.stats.done(OpReadDir, f.stats.begin(OpReadDir), &st)
	return f.withDir(in.NodeId, func(d *ext4.Dir) error {
		return d.ReadDir(in.Offset, func(e ext4.DirEnt) bool {
			return out.AddDirEntry(listEntry(&e))
		})
	})
}

// listEntry translates an entry of a listing.
func listEntry(e *ext4.DirEnt) fuse.DirEntry {
	return fuse.DirEntry{
		Name: string(e.Name), Ino: uint64(e.Ino), Off: e.Next, Mode: uint32(e.Type) << 12,
	}
}

// ReadDirPlus lists names with their attributes, each a lookup.
//
// Inodes are looked up by number after the directory has been read. That is
// safe because the kernel holds the directory's lock over the whole request:
// no name of it can change meanwhile.
func (f *FileSystem) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) (st fuse.Status) {
	defer f.stats.done(OpReadDirPlus, f.stats.begin(OpReadDirPlus), &st)
	var found []plusEntry
	st = f.withDir(in.NodeId, func(d *ext4.Dir) error {
		return d.ReadDir(in.Offset, func(e ext4.DirEnt) bool {
			slot := out.AddDirLookupEntry(listEntry(&e))
			if slot != nil && !isDot(e.Name) {
				found = append(found, plusEntry{slot, e.Ino})
			}
			return slot != nil
		})
	})
	if !st.Ok() {
		return st
	}
	for _, p := range found {
		// An entry without node id is a name without a lookup. It is what
		// a damaged inode gets; stat(2) on it will tell why.
		if a, err := f.fs.LookupInode(p.ino); err == nil {
			f.setEntry(p.out, &a)
		}
	}
	return fuse.OK
}

// plusEntry is an entry of a listing whose attributes are still to be filled.
type plusEntry struct {
	out *fuse.EntryOut
	ino ondisk.InodeNumber
}

func isDot(name []byte) bool {
	return string(name) == "." || string(name) == ".."
}

// FsyncDir makes a directory durable.
func (f *FileSystem) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) (st fuse.Status) {
	defer f.stats.done(OpFsyncDir, f.stats.begin(OpFsyncDir), &st)
	return f.withDir(in.NodeId, func(d *ext4.Dir) error {
		return d.Fsync(in.FsyncFlags&fsyncDataSync != 0)
	})
}

// fsyncDataSync is FUSE_FSYNC_FDATASYNC.
const fsyncDataSync = 1
