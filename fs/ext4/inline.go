package ext4

import (
	"slices"
	"syscall"

	"extfused/fs/htree"
	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

// Small files and directories without a block (feature inline_data): the first
// 60 bytes are in i_block, the rest is the value of the attribute system.data
// in the inode, which exists as long as the inode is inline, if only with
// nothing in it. A file that is empty and maps no block becomes inline with its
// first write, if that fits; one that grows out of the inode gets a block, and
// stays with blocks. The same goes for directories, which begin inline.

// inlineHead is the part in i_block, in bytes.
const inlineHead = htree.InlineBytes

// inline tells whether the inode's content is in the inode.
func (i *Inode) inline() bool { return i.raw.Flags&ondisk.InodeInlineData != 0 }

// inlineData returns a copy of the inline content: at least i_block, and all
// the room that it has. The caller holds i.mu.
func (i *Inode) inlineData() ([]byte, error) {
	b, slot, err := i.tableBuffer()
	if err != nil {
		return nil, err
	}
	defer b.Put()
	a := xattr.Inode(i.xattrTail(slot))
	if err := a.Check(); err != nil {
		return nil, i.fs.corrupt(ondisk.InInode(err, i.ino))
	}
	e, ok := a.Find(xattr.Data)
	if !ok || e.Inum != 0 {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "inline inode without system.data", Inode: i.ino})
	}
	return slices.Concat(i.raw.Block[:inlineHead], a.Value(e)), nil
}

// inlineRoom is how many bytes could be inline, beside the attributes that the
// inode has; -1 if it has no room to be inline at all.
func (i *Inode) inlineRoom() (int, error) {
	b, slot, err := i.tableBuffer()
	if err != nil {
		return 0, err
	}
	defer b.Put()
	a := xattr.Inode(i.xattrTail(slot))
	if err := a.Check(); err != nil {
		return 0, i.fs.corrupt(ondisk.InInode(err, i.ino))
	}
	room := a.Room()
	if e, ok := a.Find(xattr.Data); ok {
		room += ondisk.XattrValueLen(int(e.Size))
	} else if room -= ondisk.XattrEntryLen(len(xattr.Data.Suffix)); room < 0 {
		return -1, nil
	}
	return inlineHead + room&^3, nil
}

// setInline makes data the inline content of i, which becomes inline if it was
// not; it fits. The inode is written.
func (i *Inode) setInline(h *handle, data []byte) error {
	i.raw.Block = [60]byte{}
	n := copy(i.raw.Block[:], data)
	i.raw.Flags = i.raw.Flags&^ondisk.InodeExtents | ondisk.InodeInlineData
	i.noteDatasync(h)
	return i.editSlot(h, func(slot []byte) error {
		return i.fs.report(xattr.Inode(i.xattrTail(slot)).Store(xattr.Data, xattr.Stored{Bytes: data[n:]}))
	})
}

// canBeInline tells whether i, a regular file, is as good as new.
func (i *Inode) canBeInline() bool {
	const never = ondisk.InodeEAInode | ondisk.InodeEncrypt | ondisk.InodeVerity | ondisk.InodeJournalData | ondisk.InodeDAX
	if !i.isReg() || i.raw.Size() != 0 || i.raw.Flags&never != 0 {
		return false
	}
	if i.raw.Flags&ondisk.InodeExtents != 0 {
		return i.raw.Block[2]|i.raw.Block[3]|i.raw.Block[6]|i.raw.Block[7] == 0 // eh_entries, eh_depth
	}
	return isZero(i.raw.Block[:])
}

// writeInline writes p to the inode if it is inline, or can be, and is still so
// afterwards; it reports whether it did. An inode that is inline and cannot
// stay so has blocks when it returns false. The caller holds i.mu exclusively.
func (i *Inode) writeInline(p []byte, off uint64, flags WriteFlags) (bool, error) {
	if !i.fs.hasInline || !i.inline() && !i.canBeInline() {
		return false, nil
	}
	room, err := i.inlineRoom()
	if err != nil {
		return false, err
	}
	end := off + uint64(len(p))
	if room < 0 || end > uint64(room) {
		return false, i.leaveInline(flags&writeRoot != 0)
	}
	return true, i.fs.step(creditsInode+i.xattrCredits(), func(h *handle) error {
		if err := i.patchInline(h, p, off, max(i.raw.Size(), end)); err != nil {
			return err
		}
		if now := i.fs.timestamp(); flags&WriteCached == 0 {
			i.raw.SetMtime(now)
			i.raw.SetCtime(now)
		}
		return i.markDirty(h)
	})
}

// patchInline writes p at off and makes size the size, all of which fits; what
// was behind the old end or is behind the new one is zeroes.
func (i *Inode) patchInline(h *handle, p []byte, off, size uint64) error {
	data := make([]byte, max(size, inlineHead))
	if i.inline() {
		old, err := i.inlineData()
		if err != nil {
			return err
		}
		copy(data[:size], old[:min(uint64(len(old)), i.raw.Size())])
	}
	copy(data[off:], p)
	if err := i.setInline(h, data); err != nil {
		return err
	}
	i.raw.SetSize(size)
	return nil
}

// resizeInline is resize for an inline file.
func (i *Inode) resizeInline(size uint64, change func(h *handle) error) error {
	room, err := i.inlineRoom()
	if err != nil {
		return err
	}
	if room < 0 || size > uint64(room) {
		if err := i.leaveInline(true); err != nil {
			return err
		}
		return i.setSize(size, change)
	}
	return i.fs.step(creditsInode+i.xattrCredits(), func(h *handle) error {
		if err := i.patchInline(h, nil, 0, size); err != nil {
			return err
		}
		if change != nil {
			if err := change(h); err != nil {
				return err
			}
		}
		return i.markDirty(h)
	})
}

// readInline reads bytes that lie before the end of the file.
func (i *Inode) readInline(p []byte, off uint64) (int, error) {
	data, err := i.inlineData()
	if err != nil {
		return 0, err
	}
	n := 0
	if off < uint64(len(data)) {
		n = copy(p, data[off:])
	}
	clear(p[n:])
	return len(p), nil
}

// leaveInline gives an inline file blocks, if it is one; root says whether the
// superuser's reserve may be used.
func (i *Inode) leaveInline(root bool) error {
	if !i.inline() {
		return nil
	}
	return i.fs.step(creditsWrite+i.dataCredits(0, 1), func(h *handle) error {
		h.root = root
		return i.toBlocks(h, i.fillFromInline)
	})
}

// toBlocks makes an inline inode one with blocks: fill gets the old content,
// with the inode mapping nothing yet, and maps what is needed. When it fails
// the inode is inline as before.
func (i *Inode) toBlocks(h *handle, fill func(h *handle, data []byte) error) error {
	data, err := i.inlineData()
	if err != nil {
		return err
	}
	old := i.raw
	i.raw.Flags &^= ondisk.InodeInlineData
	i.raw.Block = [60]byte{}
	if i.fs.extents {
		i.raw.Flags |= ondisk.InodeExtents
		initExtentRoot(&i.raw.Block)
	}
	i.es.drop(i.fs.ops.es)
	if err := fill(h, data); err != nil {
		i.raw = old
		i.es.drop(i.fs.ops.es)
		return err
	}
	i.noteDatasync(h)
	return i.editSlot(h, func(slot []byte) error {
		xattr.Inode(i.xattrTail(slot)).Remove(xattr.Data)
		return nil
	})
}

// fillFromInline writes the content of a file to its first block.
func (i *Inode) fillFromInline(h *handle, data []byte) error {
	data = data[:min(uint64(len(data)), i.raw.Size())]
	if len(data) == 0 {
		return nil
	}
	hole, err := i.mapRun(0)
	if err != nil {
		return err
	}
	_, err = i.allocInsert(h, hole, 1, i.raw.Size(), allocData, esWritten, func(r esRun) error {
		return i.writeFresh(h, r, data, 0)
	})
	return err
}

// inlineDir shows an inline directory, as a copy.
func (i *Inode) inlineDir() (*htree.Inline, error) {
	data, err := i.inlineData()
	if err != nil {
		return nil, err
	}
	size := min(i.raw.Size(), uint64(len(data)))
	if size < inlineHead {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "inline directory with too small a size", Inode: i.ino})
	}
	return &htree.Inline{Params: &i.fs.ops.dir, Ino: i.ino, Head: data[:inlineHead], Tail: data[inlineHead:size]}, nil
}

// putInlineDir writes an inline directory back.
func (i *Inode) putInlineDir(h *handle, d *htree.Inline) error {
	i.raw.SetSize(uint64(inlineHead + len(d.Tail)))
	return i.setInline(h, slices.Concat(d.Head, d.Tail))
}

// initInlineDir makes a new directory an inline one; false if the inode has no
// room for that.
func (i *Inode) initInlineDir(h *handle, parent ondisk.InodeNumber) (bool, error) {
	if !i.fs.hasInline || i.raw.Flags&ondisk.InodeEncrypt != 0 {
		return false, nil
	}
	if room, err := i.inlineRoom(); err != nil || room < 0 {
		return false, err
	}
	var head [inlineHead]byte
	i.fs.ops.dir.InitInline(head[:], parent)
	i.raw.SetSize(inlineHead)
	return true, i.setInline(h, head[:])
}

// changeInlineDir does one change to an inline directory and writes it back.
func (i *Inode) changeInlineDir(h *handle, change func(d *htree.Inline) error) error {
	d, err := i.inlineDir()
	if err != nil {
		return err
	}
	if err := change(d); err != nil {
		return err
	}
	return i.putInlineDir(h, d)
}

// insertInline adds an entry to an inline directory, which grows into the room
// that the inode has for attributes. htree.ErrDirFull: it needs a block.
func (i *Inode) insertInline(h *handle, name string, ino ondisk.InodeNumber, ftype uint8) error {
	return i.changeInlineDir(h, func(d *htree.Inline) error {
		err := d.Insert(name, ino, ftype)
		if err != htree.ErrDirFull {
			return err
		}
		room, rerr := i.inlineRoom()
		if rerr != nil {
			return rerr
		}
		tail := make([]byte, max(room-inlineHead, 0))
		copy(tail, d.Tail)
		if !d.Grow(tail) {
			return err
		}
		return d.Insert(name, ino, ftype)
	})
}

// inlineDirToBlock gives an inline directory a block.
func (i *Inode) inlineDirToBlock(h *handle) error {
	d, err := i.inlineDir()
	if err != nil {
		return err
	}
	return i.toBlocks(h, func(h *handle, _ []byte) error {
		b, err := i.allocDirBlock(h, 0)
		if err != nil {
			return err
		}
		defer b.Put()
		if err := d.Block(b.Data()); err != nil {
			return first(err, i.freeRun(h, ondisk.FsBlock(b.Block()), 1, true))
		}
		i.raw.SetSize(uint64(i.fs.blockSize))
		i.fs.csum.SetDir(i.seed, b.Data())
		return h.dirty(b)
	})
}

// inlineLink reads the target of a symlink that is inline.
func (i *Inode) inlineLink() ([]byte, error) {
	data, err := i.inlineData()
	if err != nil {
		return nil, err
	}
	if i.raw.Size() > uint64(len(data)) {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "inline symlink longer than its inode", Inode: i.ino})
	}
	return data[:i.raw.Size()], nil
}

// seekInline is Seek in an inline file, at a place before its end.
func (i *Inode) seekInline(off int64, whence int) (int64, error) {
	switch whence {
	case SeekData:
		return off, nil
	case SeekHole:
		return int64(i.raw.Size()), nil
	}
	return 0, syscall.EINVAL
}
