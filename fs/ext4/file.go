package ext4

import (
	"io"
	"sync/atomic"
	"syscall"

	"extfused/fs/ondisk"
)

// File is an open regular file. It pins its inode until Release. All methods
// may be called from any goroutine.
type File struct {
	fs       *FS
	i        *Inode
	write    bool
	root     bool // the opener may use the blocks reserved for the superuser
	sync     bool // chattr +S: writes are durable when they return
	released atomic.Bool
}

// Open is OpenFor on behalf of the superuser.
func (fs *FS) Open(ino ondisk.InodeNumber, flags uint32) (*File, error) {
	return fs.OpenFor(nil, ino, flags)
}

// OpenFor opens a regular file; flags are open(2)'s, of which the access mode
// and O_TRUNC count. Whether what is written through it may use the blocks
// reserved for the superuser depends on c. EISDIR for a directory, ENXIO for
// what has no data.
func (fs *FS) OpenFor(c *Caller, ino ondisk.InodeNumber, flags uint32) (*File, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return nil, err
	}
	if err := i.mayOpen(flags); err != nil {
		fs.iput(i)
		return nil, err
	}
	if flags&syscall.O_TRUNC != 0 {
		if _, err := fs.SetAttr(c, ino, &SetAttr{Valid: SetSize | SetMtimeNow}); err != nil {
			fs.iput(i)
			return nil, err
		}
	}
	return openFile(c, i, flags), nil
}

func (i *Inode) mayOpen(flags uint32) error {
	i.mu.RLock()
	defer i.mu.RUnlock()
	writes := flags&syscall.O_ACCMODE != syscall.O_RDONLY
	switch {
	case i.isDir():
		return syscall.EISDIR
	case !i.isReg():
		return syscall.ENXIO
	case i.encrypted():
		return syscall.ENOKEY
	case writes && i.raw.Flags&ondisk.InodeVerity != 0: // its content is sealed
		return syscall.EPERM
	case writes && i.raw.Flags&ondisk.InodeImmutable != 0:
		return syscall.EPERM
	case writes && i.raw.Flags&ondisk.InodeAppend != 0 && flags&syscall.O_APPEND == 0:
		return syscall.EPERM
	case writes:
		return i.fs.writable()
	}
	return nil
}

// openFile takes over the caller's pin on i.
func openFile(c *Caller, i *Inode, flags uint32) *File {
	f := &File{fs: i.fs, i: i, write: flags&syscall.O_ACCMODE != syscall.O_RDONLY}
	if f.write {
		f.root = i.fs.mayUseRoot(c)
		i.writers.Add(1)
		i.mu.RLock()
		f.sync = i.raw.Flags&ondisk.InodeSync != 0
		i.mu.RUnlock()
	}
	return f
}

// Synchronous tells whether each write through the file is to be durable when
// it returns: those that the kernel keeps in its cache are not.
func (f *File) Synchronous() bool { return f.sync }

// blocksUnseen: nobody has an Attr whose Blocks could be wrong.
const blocksUnseen = 1<<64 - 1

// BlocksChanged tells whether the last Attr of the inode that was given out has
// other Blocks than it has now. It says so once: whoever keeps attributes then
// asks again.
func (f *File) BlocksChanged() bool {
	i := f.i
	shown := i.shown.Load()
	if shown == blocksUnseen {
		return false
	}
	i.mu.RLock()
	now := i.raw.Sectors(f.fs.hugeFile, f.fs.blockBits)
	i.mu.RUnlock()
	return now != shown && i.shown.CompareAndSwap(shown, blocksUnseen)
}

// Ino is the number of the file's inode.
func (f *File) Ino() ondisk.InodeNumber { return f.i.ino }

// Release closes the file. When the last one that could write goes, the
// blocks preallocated for more of it return to the others. A second call does
// nothing.
func (f *File) Release() {
	if f.released.Swap(true) {
		return
	}
	if f.write && f.i.writers.Add(-1) == 0 {
		f.fs.alloc.DiscardInode(&f.i.pa)
	}
	f.fs.iput(f.i)
}

// ReadAt reads up to len(p) bytes. At the end of the file it returns fewer, or
// 0, without an error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, syscall.EINVAL
	}
	f.i.accessed()
	f.i.mu.RLock()
	defer f.i.mu.RUnlock()
	size := f.i.raw.Size()
	if uint64(off) >= size {
		return 0, nil
	}
	p = p[:min(uint64(len(p)), size-uint64(off))]
	return f.i.readLocked(p, uint64(off))
}

// readLocked reads bytes that lie before the end of the file.
func (i *Inode) readLocked(p []byte, off uint64) (int, error) {
	if i.inline() {
		return i.readInline(p, off)
	}
	done := 0
	for done < len(p) {
		q := p[done:]
		r, n, err := i.mapBytes(off+uint64(done), len(q))
		if err != nil {
			return done, err
		}
		switch {
		case r.st != esWritten:
			clear(q[:n])
		case i.journalsData():
			err = i.readLogged(q[:n], r, off+uint64(done))
		default:
			err = i.fs.readData(q[:n], i.fs.byteOf(r, off+uint64(done)))
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// mapBytes maps the byte at off: the run that starts with its block, and how
// many of the n bytes from off on lie in it (at least 1).
func (i *Inode) mapBytes(off uint64, n int) (esRun, int, error) {
	l := off >> i.fs.blockBits
	if l >= maxLBlocks {
		return esRun{}, 0, syscall.EFBIG
	}
	r, err := i.mapRun(ondisk.LBlock(l))
	if err != nil {
		return r, 0, err
	}
	return r, int(min(uint64(n), r.end()<<i.fs.blockBits-off)), nil
}

// byteOf is the place on the device of byte off of a file, which lies in the
// first block of r or behind it.
func (fs *FS) byteOf(r esRun, off uint64) int64 {
	return int64(uint64(r.p)<<fs.blockBits + off - uint64(r.l)<<fs.blockBits)
}

func (fs *FS) readData(p []byte, at int64) error {
	n, err := fs.dev.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fs.ioError(err)
}

func (fs *FS) writeData(p []byte, at int64) error {
	if _, err := fs.dev.WriteAt(p, at); err != nil {
		return fs.ioError(err)
	}
	return nil
}
