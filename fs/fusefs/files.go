package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// Open opens a regular file. The kernel sends O_TRUNC along (ATOMIC_O_TRUNC)
// and has cut its page cache itself.
func (f *FileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (st fuse.Status) {
	defer f.stats.done(OpOpen, f.stats.begin(OpOpen), &st)
	ino := inode(in.NodeId)
	file, err := f.fs.OpenFor(f.caller(&in.InHeader, 0), ino, in.Flags&^syscall.O_TRUNC)
	if err != nil {
		return status(err)
	}
	if in.Flags&syscall.O_TRUNC != 0 {
		if err := f.truncateOpen(&in.InHeader, in.Mode); err != nil {
			file.Release()
			return status(err)
		}
	}
	return f.opened(out, file, ino)
}

// truncateOpen empties a file that is opened with O_TRUNC; flags are the
// OPEN_... flags of the request.
func (f *FileSystem) truncateOpen(h *fuse.InHeader, flags uint32) error {
	_, err := f.fs.SetAttr(f.caller(h, 0), inode(h.NodeId), &ext4.SetAttr{
		Valid: ext4.SetSize | ext4.SetMtimeNow, KillPriv: flags&fuse.OPEN_KILL_SUIDGID != 0,
	})
	return err
}

// opened makes a handle of an open file. Its pages stay in the kernel's cache
// from one open to the next, since nobody else changes it; with strictatime
// they do not, so that we learn of reads.
func (f *FileSystem) opened(out *fuse.OpenOut, file *ext4.File, ino ondisk.InodeNumber) fuse.Status {
	out.Fh = f.handles.add(&openFile{file, ino})
	if out.Fh == 0 {
		file.Release()
		return fuse.Status(syscall.ENFILE)
	}
	out.OpenFlags = fuse.FOPEN_NOFLUSH | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	if !f.strictAtime {
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
	if file.Synchronous() { // chattr +S: nothing waits in the cache
		out.OpenFlags |= fuse.FOPEN_DIRECT_IO
	}
	return fuse.OK
}

// Create makes and opens a regular file.
//
// The kernel has looked the name up and found none, so a file that exists is
// the exception, not the rule: then it is opened, unless O_EXCL forbids it.
func (f *FileSystem) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (st fuse.Status) {
	defer f.stats.done(OpCreate, f.stats.begin(OpCreate), &st)
	if st := checkName(name); !st.Ok() {
		return st
	}
	a, file, err := f.fs.Create(f.maker(&in.InHeader, in.Umask), inode(in.NodeId), name, in.Mode, in.Flags|syscall.O_EXCL)
	if errors.Is(err, syscall.EEXIST) && in.Flags&syscall.O_EXCL == 0 {
		return f.openExisting(in, name, out)
	}
	if err != nil {
		return status(err)
	}
	return f.created(out, &a, file)
}

func (f *FileSystem) created(out *fuse.CreateOut, a *ext4.Attr, file *ext4.File) fuse.Status {
	f.setEntry(&out.EntryOut, a)
	st := f.opened(&out.OpenOut, file, a.Ino)
	if !st.Ok() {
		f.fs.Forget(a.Ino, 1)
	}
	return st
}

// openExisting is open(2) without O_EXCL of a name that came into being
// between the kernel's lookup and its CREATE.
func (f *FileSystem) openExisting(in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	a, err := f.fs.Lookup(inode(in.NodeId), name)
	if err != nil {
		return status(err)
	}
	if a.Mode&syscall.S_IFMT != syscall.S_IFREG {
		f.fs.Forget(a.Ino, 1)
		return eexist
	}
	file, err := f.fs.OpenFor(f.caller(&in.InHeader, 0), a.Ino, in.Flags&^(syscall.O_TRUNC|syscall.O_CREAT))
	if err == nil && in.Flags&syscall.O_TRUNC != 0 {
		h := in.InHeader
		h.NodeId = nodeID(a.Ino)
		if err = f.truncateOpen(&h, in.OpenFlags); err == nil {
			a, err = f.fs.GetAttr(a.Ino)
		}
		if err != nil {
			file.Release()
		}
	}
	if err != nil {
		f.fs.Forget(a.Ino, 1)
		return status(err)
	}
	return f.created(out, &a, file)
}

// Release closes an open file.
func (f *FileSystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	st := fuse.OK
	defer f.stats.done(OpRelease, f.stats.begin(OpRelease), &st)
	if o := f.handles.remove(in.Fh); o != nil {
		o.File.Release()
	}
}

// Flush says once that close(2) needs no request.
func (f *FileSystem) Flush(_ <-chan struct{}, _ *fuse.FlushIn) (st fuse.Status) {
	defer f.stats.done(OpFlush, f.stats.begin(OpFlush), &st)
	return fuse.ENOSYS
}

// Write stores data.
func (f *FileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (n uint32, st fuse.Status) {
	defer f.stats.done(OpWrite, f.stats.begin(OpWrite), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return 0, ebadf
	}
	return f.write(o, in, data)
}

// write passes on what the kernel says about a write: that it comes from its
// page cache, so that the times are its own, and, under HANDLE_KILLPRIV_V2,
// that set-user-id must go.
func (f *FileSystem) write(o *openFile, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	var flags ext4.WriteFlags
	if fromCache(in) {
		flags |= ext4.WriteCached
	}
	var c *ext4.Caller
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		flags |= ext4.WriteKillPriv
		c = f.caller(&in.InHeader, 0)
	}
	n, err := o.WriteAtFlags(c, data, int64(in.Offset), flags)
	f.stats.bytes(OpWrite, n)
	if flags&ext4.WriteCached != 0 && f.notify != nil && o.BlocksChanged() {
		// The kernel keeps the attributes it has when it writes back; st_blocks
		// would be wrong for as long as they are valid.
		f.notify.InodeNotify(in.NodeId, -1, 0)
	}
	if err != nil && (n == 0 || fromCache(in)) {
		return 0, status(err)
	}
	return uint32(n), fuse.OK
}

// fromCache tells whether the kernel writes back its page cache. It does not
// look at how much of that was written and takes the pages for clean: what did
// not find room has to be an error, or fsync(2) would promise lost data.
func fromCache(in *fuse.WriteIn) bool { return in.WriteFlags&fuse.WRITE_CACHE != 0 }

// Writev is Write for transports whose data come in pieces; for one piece it
// leaves the work to Write.
func (f *FileSystem) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (written uint32, st fuse.Status) {
	if len(data) == 1 {
		return f.Write(cancel, in, data[0])
	}
	defer f.stats.done(OpWrite, f.stats.begin(OpWrite), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return 0, ebadf
	}
	part := *in
	for _, piece := range data {
		part.Offset = in.Offset + uint64(written)
		n, st := f.write(o, &part, piece)
		written += n
		if !st.Ok() && (written == 0 || fromCache(in)) {
			return 0, st
		}
		if !st.Ok() || int(n) < len(piece) {
			break
		}
	}
	return written, fuse.OK
}

// Fsync makes a file durable.
func (f *FileSystem) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) (st fuse.Status) {
	defer f.stats.done(OpFsync, f.stats.begin(OpFsync), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return ebadf
	}
	return status(o.Fsync(in.FsyncFlags&fsyncDataSync != 0))
}

// Fallocate passes the modes of fallocate(2) on; the kernel has written back
// the range if it is punched or zeroed.
func (f *FileSystem) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) (st fuse.Status) {
	defer f.stats.done(OpFallocate, f.stats.begin(OpFallocate), &st)
	o := f.handles.get(in.Fh)
	if o == nil {
		return ebadf
	}
	err := o.Allocate(int64(in.Offset), int64(in.Length), in.Mode)
	if err == nil {
		err = f.killPriv(o, &in.InHeader)
	}
	return status(err)
}

// killPriv drops set-user-id where an ordinary user changes content by other
// means than a write: the kernel leaves it to us, without saying so.
// Capabilities it removes itself.
func (f *FileSystem) killPriv(o *openFile, h *fuse.InHeader) error {
	if h.Uid == 0 {
		return nil
	}
	return o.KillPriv(f.caller(h, 0))
}

// maxCopy bounds what one COPY_FILE_RANGE copies, in bytes, so that nobody
// waits long for an unmount or a signal.
const maxCopy = 64 << 20

// CopyFileRange copies within the daemon. The kernel has written back both
// ranges, and drops the pages of the second one afterwards.
func (f *FileSystem) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (n uint32, st fuse.Status) {
	defer f.stats.done(OpCopyFileRange, f.stats.begin(OpCopyFileRange), &st)
	src, dst := f.handles.get(in.FhIn), f.handles.get(in.FhOut)
	switch {
	case src == nil || dst == nil:
		return 0, ebadf
	case in.Flags != 0:
		return 0, fuse.EINVAL
	}
	done, err := src.CopyTo(dst.File, int64(in.OffIn), int64(in.OffOut), int64(min(in.Len, maxCopy)), func() bool {
		select {
		case <-cancel:
			return true
		default:
			return false
		}
	})
	if err == nil {
		err = f.killPriv(dst, &in.InHeader)
	}
	return uint32(done), status(err)
}

// Locks are the kernel's: without EnableLocks it never asks.

// GetLk is never asked.
func (f *FileSystem) GetLk(_ <-chan struct{}, _ *fuse.LkIn, _ *fuse.LkOut) (st fuse.Status) {
	defer f.stats.done(OpLock, f.stats.begin(OpLock), &st)
	return fuse.ENOSYS
}

// SetLk is never asked.
func (f *FileSystem) SetLk(_ <-chan struct{}, _ *fuse.LkIn) (st fuse.Status) {
	defer f.stats.done(OpLock, f.stats.begin(OpLock), &st)
	return fuse.ENOSYS
}

// SetLkw is never asked.
func (f *FileSystem) SetLkw(_ <-chan struct{}, _ *fuse.LkIn) (st fuse.Status) {
	defer f.stats.done(OpLock, f.stats.begin(OpLock), &st)
	return fuse.ENOSYS
}
