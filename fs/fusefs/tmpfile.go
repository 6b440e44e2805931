package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Tmpfile makes and opens a file without a name: open(2) with O_TMPFILE.
// linkat(2) of its descriptor arrives as LINK.
func (f *FileSystem) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) (st fuse.Status) {
	defer f.stats.done(OpTmpfile, f.stats.begin(OpTmpfile), &st)
	a, file, err := f.fs.Tmpfile(f.maker(&in.InHeader, in.Umask), inode(in.NodeId), in.Mode, in.Flags)
	if err != nil {
		return status(err)
	}
	return f.created(out, &a, file)
}
