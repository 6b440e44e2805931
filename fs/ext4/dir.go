package ext4

import (
	"errors"
	"sync"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/htree"
	"extfused/fs/ondisk"
)

// dirOp is one look at, or one change of, a directory: the htree.Dir over the
// blocks of the buffer cache, and the pins on those it touched. With a handle
// blocks can be changed and added; without one they are only read.
//
// The caller holds the directory's Inode.mu (shared without a handle), and
// calls close when done. Blocks of directories are metadata: every change goes
// through the journal, and the checksum is set just before.
type dirOp struct {
	htree.Dir
	i    *Inode
	h    *handle
	bufs []dirBuf
	few  [6]dirBuf

	inline []byte // an inline directory as the block it is not
}

// dirBuf is a pinned block of the directory.
type dirBuf struct {
	l        ondisk.LBlock
	b        *bcache.Buffer
	writable bool // journal write access has been taken
}

var dirOps = sync.Pool{New: func() any { return new(dirOp) }}

// openDirOp prepares an operation on directory i; h is nil for reading.
func openDirOp(i *Inode, h *handle) *dirOp {
	d := dirOps.Get().(*dirOp)
	d.i, d.h = i, h
	d.bufs = d.few[:0]
	d.Dir = htree.Dir{
		Params:  &i.fs.ops.dir,
		Store:   d,
		Ino:     i.ino,
		NBlocks: ondisk.LBlock(i.raw.Size() >> i.fs.blockBits),
		Indexed: i.raw.Flags&ondisk.InodeIndex != 0,
	}
	if h == nil && i.inline() {
		d.NBlocks, d.Indexed = 1, false
	}
	return d
}

// inlineBlock makes an inline directory a block to look at.
func (d *dirOp) inlineBlock() ([]byte, error) {
	if d.inline != nil {
		return d.inline, nil
	}
	in, err := d.i.inlineDir()
	if err != nil {
		return nil, err
	}
	b := make([]byte, d.BlockSize)
	if err := in.Block(b); err != nil {
		return nil, err
	}
	d.inline = b
	return b, nil
}

// close lets go of the blocks. With a handle it also brings i_size and the
// INDEX flag in line; the caller then calls markDirty.
func (d *dirOp) close() {
	if d.h != nil {
		d.i.raw.SetSize(uint64(d.NBlocks) << d.i.fs.blockBits)
		d.i.raw.Flags &^= ondisk.InodeIndex
		if d.Indexed {
			d.i.raw.Flags |= ondisk.InodeIndex
		}
	}
	for k := range d.bufs {
		d.bufs[k].b.Put()
	}
	clear(d.bufs)
	d.i, d.h, d.bufs, d.Dir, d.inline = nil, nil, nil, htree.Dir{}, nil
	dirOps.Put(d)
}

// Get is htree.Store's.
func (d *dirOp) Get(l ondisk.LBlock, write bool) ([]byte, error) {
	if d.i.inline() && !write {
		return d.inlineBlock()
	}
	p, err := d.pinned(l)
	if err != nil {
		return nil, err
	}
	if write && !p.writable {
		if err := d.h.getWrite(p.b); err != nil {
			return nil, err
		}
		p.writable = true
	}
	return p.b.Data(), nil
}

// pinned finds block l among the pins of this operation, or adds it.
func (d *dirOp) pinned(l ondisk.LBlock) (*dirBuf, error) {
	for k := range d.bufs {
		if d.bufs[k].l == l {
			return &d.bufs[k], nil
		}
	}
	b, err := d.i.readDirBlock(l)
	if err != nil {
		return nil, err
	}
	d.bufs = append(d.bufs, dirBuf{l: l, b: b})
	return &d.bufs[len(d.bufs)-1], nil
}

// readDirBlock returns directory block l pinned. Its checksum is verified when
// it comes from the device.
func (i *Inode) readDirBlock(l ondisk.LBlock) (*bcache.Buffer, error) {
	r, err := i.mapRun(l)
	if err != nil {
		return nil, err
	}
	if r.st != esWritten {
		return nil, &ondisk.CorruptError{What: "hole in a directory", Inode: i.ino}
	}
	if b := i.fs.cache.Lookup(uint64(r.p)); b != nil && b.Uptodate() {
		return b, nil
	} else if b != nil {
		b.Put()
	}
	return i.fs.cache.Read(uint64(r.p), func(data []byte) error {
		if i.fs.csum.VerifyDir(i.seed, data) {
			return nil
		}
		return &ondisk.CorruptError{What: "directory block with a wrong checksum", Inode: i.ino, Block: r.p}
	})
}

// New is htree.Store's: one more block at the end of the directory.
func (d *dirOp) New() (ondisk.LBlock, []byte, error) {
	l := d.NBlocks
	if uint64(l) >= 1<<32-2 {
		return 0, nil, syscall.EFBIG
	}
	b, err := d.i.allocDirBlock(d.h, l)
	if err != nil {
		return 0, nil, err
	}
	d.bufs = append(d.bufs, dirBuf{l: l, b: b, writable: true})
	d.NBlocks = max(d.NBlocks, l+1)
	return l, b.Data(), nil
}

// allocDirBlock allocates and maps block l of a directory.
func (i *Inode) allocDirBlock(h *handle, l ondisk.LBlock) (*bcache.Buffer, error) {
	hole, err := i.mapRun(l)
	if err != nil {
		return nil, err
	}
	if hole.st != esHole {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "block behind the end of a directory", Inode: i.ino, Block: hole.p})
	}
	var b *bcache.Buffer
	_, err = i.allocInsert(h, hole, 1, uint64(l+1)<<i.fs.blockBits, allocDirectory, esWritten, func(r esRun) (err error) {
		b, err = i.fs.cache.Get(uint64(r.p))
		if err != nil {
			return i.fs.ioError(err)
		}
		if err := h.getCreate(b); err != nil {
			return err
		}
		clear(b.Data())
		b.SetUptodate()
		return nil
	})
	if err != nil && b != nil {
		b.Put()
	}
	return b, err
}

// Dirty is htree.Store's.
func (d *dirOp) Dirty(l ondisk.LBlock) error {
	for k := range d.bufs {
		if p := &d.bufs[k]; p.l == l {
			d.i.fs.csum.SetDir(d.i.seed, p.b.Data())
			return d.h.dirty(p.b)
		}
	}
	return syscall.EINVAL // a block that was never asked for: a bug of the caller
}

// dirLookup finds name in directory i, whose mu the caller holds.
func (i *Inode) dirLookup(name string) (ondisk.InodeNumber, error) {
	if err := i.checkDir(); err != nil {
		return 0, err
	}
	if len(name) > MaxNameLen {
		return 0, syscall.ENAMETOOLONG
	}
	if i.inline() {
		d, err := i.inlineDir()
		if err != nil {
			return 0, err
		}
		ino, _, err := d.Lookup(name)
		return ino, i.fs.dirError(err)
	}
	d := openDirOp(i, nil)
	defer d.close()
	ino, _, err := d.Lookup(name)
	if err != nil {
		return 0, i.fs.dirError(err)
	}
	return ino, nil
}

// checkDir is ENOTDIR for all that has no entries, ENOENT for a directory that
// has been removed and is only kept by those who have it open.
func (i *Inode) checkDir() error {
	switch {
	case i.raw.Mode&ondisk.ModeFmt != ondisk.ModeDir:
		return syscall.ENOTDIR
	case i.raw.LinksCount == 0:
		return syscall.ENOENT
	}
	return nil
}

// dirInsert adds an entry to directory dir, in h. The caller marks dir dirty.
func (dir *Inode) dirInsert(h *handle, name string, child *Inode) error {
	ftype := ondisk.FileType(child.raw.Mode)
	if dir.inline() {
		err := dir.insertInline(h, name, child.ino, ftype)
		if err != htree.ErrDirFull {
			return dir.fs.dirError(err)
		}
		if err := dir.inlineDirToBlock(h); err != nil {
			return dir.fs.dirError(err)
		}
	}
	d := openDirOp(dir, h)
	defer d.close()
	return dir.fs.dirError(d.Insert(name, child.ino, ftype))
}

// dirDelete removes an entry. The caller marks dir dirty.
func (dir *Inode) dirDelete(h *handle, name string) error {
	if dir.inline() {
		return dir.fs.dirError(dir.changeInlineDir(h, func(d *htree.Inline) error { return d.Delete(name) }))
	}
	d := openDirOp(dir, h)
	defer d.close()
	return dir.fs.dirError(d.Delete(name))
}

// dirSet makes an existing entry (or "..") point to child. The caller marks
// dir dirty.
func (dir *Inode) dirSet(h *handle, name string, child *Inode) error {
	ftype := ondisk.FileType(child.raw.Mode)
	if dir.inline() {
		return dir.fs.dirError(dir.changeInlineDir(h, func(d *htree.Inline) error { return d.Set(name, child.ino, ftype) }))
	}
	d := openDirOp(dir, h)
	defer d.close()
	return dir.fs.dirError(d.Set(name, child.ino, ftype))
}

// dirEmpty tells whether a directory holds nothing but "." and "..".
func (i *Inode) dirEmpty() (bool, error) {
	d := openDirOp(i, nil)
	defer d.close()
	ok, err := d.Empty()
	return ok, i.fs.dirError(err)
}

// dirInit makes the first block of a new directory.
func (i *Inode) dirInit(h *handle, parent ondisk.InodeNumber) error {
	if in, err := i.initInlineDir(h, parent); in || err != nil {
		return err
	}
	d := openDirOp(i, h)
	defer d.close()
	return i.fs.dirError(d.InitEmpty(i.ino, parent))
}

// dirError turns the errors of htree into errno values; corruption is reported.
func (fs *FS) dirError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, htree.ErrNotFound):
		return syscall.ENOENT
	case errors.Is(err, htree.ErrExist):
		return syscall.EEXIST
	case errors.Is(err, htree.ErrDirFull):
		return syscall.ENOSPC
	case errors.Is(err, htree.ErrNameTooLong):
		return syscall.ENAMETOOLONG
	case errors.Is(err, htree.ErrInvalidName):
		return syscall.EINVAL
	}
	return fs.report(err)
}
