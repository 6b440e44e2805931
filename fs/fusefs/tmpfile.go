package fusefs

import "github.com/hanwen/go-fuse/v2/fuse"

// Tmpfile says that there are no files without a name; open(2) with O_TMPFILE
// then fails with EOPNOTSUPP, and programs fall back to a name.
func (f *FileSystem) Tmpfile(_ <-chan struct{}, _ *fuse.CreateIn, _ *fuse.CreateOut) (st fuse.Status) {
	defer f.stats.done(OpTmpfile, f.stats.begin(OpTmpfile), &st)
	return fuse.ENOSYS
}
