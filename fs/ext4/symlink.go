package ext4

import (
	"bytes"
	"syscall"

	"extfused/fs/ondisk"
)

// writeTarget stores the target of a new symlink: up to 59 bytes in i_block, a
// longer one in a block of its own, which is metadata and ends with a NUL.
func (i *Inode) writeTarget(h *handle, target []byte) error {
	i.raw.SetSize(uint64(len(target)))
	if len(target) <= ondisk.FastSymlinkMax {
		i.raw.Flags &^= ondisk.InodeExtents
		i.raw.Block = [60]byte{}
		copy(i.raw.Block[:], target)
		return nil
	}
	b, err := i.allocDirBlock(h, 0)
	if err != nil {
		return err
	}
	defer b.Put()
	copy(b.Data(), target)
	return h.dirty(b)
}

// Readlink returns the target of a symlink; EINVAL for anything else.
func (fs *FS) Readlink(ino ondisk.InodeNumber) ([]byte, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return nil, err
	}
	defer fs.iput(i)
	i.accessed()
	i.mu.RLock()
	defer i.mu.RUnlock()
	if !i.isLink() {
		return nil, syscall.EINVAL
	}
	size := i.raw.Size()
	switch {
	case i.raw.Flags&ondisk.InodeEncrypt != 0:
		return nil, syscall.EOPNOTSUPP
	case i.inline():
		return i.inlineLink()
	case i.fastLink():
		return bytes.Clone(i.raw.Block[:size]), nil
	case size > uint64(fs.blockSize):
		return nil, fs.corrupt(&ondisk.CorruptError{What: "symlink longer than a block", Inode: i.ino})
	}
	return i.readTarget(size)
}

// fastLink tells whether the target is in i_block. Old kernels leave the
// EXTENTS flag off there; with it the block is an extent root.
func (i *Inode) fastLink() bool {
	return i.raw.Flags&ondisk.InodeExtents == 0 && i.raw.Size() <= ondisk.FastSymlinkMax
}

func (i *Inode) readTarget(size uint64) ([]byte, error) {
	r, err := i.mapRun(0)
	if err != nil {
		return nil, err
	}
	if r.st != esWritten {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "symlink without a block", Inode: i.ino})
	}
	b, err := i.fs.cache.Read(uint64(r.p), nil)
	if err != nil {
		return nil, i.fs.ioError(err)
	}
	defer b.Put()
	return bytes.Clone(b.Data()[:size]), nil
}
