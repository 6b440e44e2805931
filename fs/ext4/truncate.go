package ext4

import (
	"extfused/fs/extent"
	"extfused/fs/ondisk"
)

// Freeing the blocks of a file, all behind some size or a range in its middle.
// A file may have more extents than one transaction can free: then it is done
// in steps, each consistent by itself. What shortens a file is protected by the
// orphan list meanwhile: the size on disk is the new one from the first step
// on, and the next mount frees what is left behind it.

// truncate sets the size of i, in bytes, and frees what lies behind it. It is
// called without a handle, with i.mu held exclusively, or by evict, when
// nobody else can reach i. Times are left alone.
func (i *Inode) truncate(newSize uint64) error {
	return i.resize(newSize, nil)
}

// resize is truncate; change (may be nil) alters other attributes of the inode
// in the same handle as the size.
func (i *Inode) resize(newSize uint64, change func(h *handle) error) error {
	if i.inline() {
		return i.resizeInline(newSize, change)
	}
	old := i.raw.Size()
	if newSize > old || !i.mapsBlocks() {
		return i.setSize(newSize, change)
	}
	i.fs.alloc.DiscardInode(&i.pa)
	from := ondisk.LBlock((newSize + uint64(i.fs.blockSize) - 1) >> i.fs.blockBits)
	credits, small := i.freeCredits()
	if !small {
		credits = creditsTruncate
	}
	credits++ // zeroWritten's
	h, err := i.fs.begin(credits + i.xattrCredits())
	if err != nil {
		return err
	}
	err = i.shrink(h, newSize, small, change)
	if err == nil {
		err = i.freeFrom(h, from, maxLBlocks)
	}
	if err == nil && !small && i.raw.LinksCount > 0 {
		if err = h.restartIfLow(creditsOrphan + creditsInode); err == nil {
			err = i.fs.orphanDel(h, i)
		}
	}
	err = first(err, i.markDirty(h))
	return first(err, h.stop())
}

// mapsBlocks tells whether i_block maps blocks (it may also be a device number
// or a short symlink).
func (i *Inode) mapsBlocks() bool {
	switch i.raw.Mode & ondisk.ModeFmt {
	case ondisk.ModeReg, ondisk.ModeDir:
		return i.raw.Flags&ondisk.InodeInlineData == 0
	case ondisk.ModeLnk:
		return i.raw.Size() > ondisk.FastSymlinkMax
	}
	return false
}

// setSize changes nothing but the size (and what change does).
func (i *Inode) setSize(newSize uint64, change func(h *handle) error) error {
	return i.fs.step(creditsInode+i.xattrCredits(), func(h *handle) error {
		if i.raw.Size() != newSize {
			i.raw.SetSize(newSize)
			i.noteDatasync(h)
		}
		if change != nil {
			if err := change(h); err != nil {
				return err
			}
		}
		return i.markDirty(h)
	})
}

// shrink makes the new size true, and zeroes the rest of the last block.
func (i *Inode) shrink(h *handle, newSize uint64, small bool, change func(h *handle) error) error {
	if newSize < i.raw.Size() {
		if err := i.zeroTail(h, newSize); err != nil {
			return err
		}
	}
	i.raw.SetSize(newSize)
	i.noteDatasync(h)
	if change != nil {
		if err := change(h); err != nil {
			return err
		}
	}
	if small {
		return nil
	}
	return i.fs.orphanAdd(h, i)
}

// zeroTail zeroes the block that holds the end of the file, behind it.
func (i *Inode) zeroTail(h *handle, size uint64) error {
	in := size & uint64(i.fs.blockSize-1)
	if in == 0 {
		return nil
	}
	return i.zeroWritten(h, size, uint64(i.fs.blockSize)-in)
}

// zeroWritten zeroes n bytes from off on, which lie in one block, on the device
// (or in h, which takes a credit for it, if the data is logged) if the block
// holds data; elsewhere they are zeroes already.
func (i *Inode) zeroWritten(h *handle, off, n uint64) error {
	if n == 0 {
		return nil
	}
	r, _, err := i.mapBytes(off, 1)
	if err != nil || r.st != esWritten {
		return err
	}
	buf := i.fs.ops.bufs.Get().(*[]byte)
	defer i.fs.ops.bufs.Put(buf)
	clear((*buf)[:n])
	if i.journalsData() {
		return i.logData(h, r, (*buf)[:n], off, false)
	}
	if err := i.fs.writeData((*buf)[:n], i.fs.byteOf(r, off)); err != nil {
		return err
	}
	i.wroteInPlace()
	return nil
}

// maxSmallCredits bounds what counts as freed in one step.
const maxSmallCredits = 64

// freeCredits is what freeing all blocks of i takes, if its extents are all in
// the inode and that can be done in one handle.
func (i *Inode) freeCredits() (int, bool) {
	if i.raw.Flags&ondisk.InodeExtents == 0 || i.treeDepth() > 0 || i.journalsData() {
		return 0, false
	}
	groups := 0
	t := openTree(i, nil)
	defer t.close()
	err := t.Iterate(0, func(e extent.Extent) bool {
		groups += i.fs.groupsSpanned(e.Len)
		return true
	})
	credits := creditsInode + groups*creditsGroup
	return credits, err == nil && credits <= maxSmallCredits
}

// groupsSpanned is how many groups n blocks in a row can lie in at most.
func (fs *FS) groupsSpanned(n uint32) int {
	return int((n+fs.blocksPerGroup-2)/fs.blocksPerGroup) + 1
}

// freeOps is how many extents and nodes a step frees at most.
const freeOps = 16

// freeFrom unmaps and frees the blocks [from, end) in as many steps as it takes.
// The handle has credits for the first; the caller marks the inode dirty at last.
func (i *Inode) freeFrom(h *handle, from ondisk.LBlock, end uint64) error {
	if uint64(from) >= end {
		return nil
	}
	i.es.remove(i.fs.ops.es, from, end)
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		i.noteDatasync(h)
		return i.freeIndirect(h, from)
	}
	for {
		done, err := i.freeStep(h, from, ondisk.LBlock(end-1))
		if err != nil || done {
			return err
		}
		if err := i.markDirty(h); err != nil {
			return err
		}
		if err := h.restartIfLow(creditsTruncate + freeOps*creditsGroup); err != nil {
			return err
		}
	}
}

func (i *Inode) freeStep(h *handle, from, to ondisk.LBlock) (bool, error) {
	t := openTree(i, h)
	defer t.close()
	start, err := i.freeStart(t, from, to)
	if err != nil {
		return false, err
	}
	var gone unmapped
	done, err := t.Remove(start, to, freeOps, func(e extent.Extent) error {
		r, err := i.runOf(e, true)
		if err != nil {
			return err
		}
		i.noteDatasync(h)
		if i.fs.clusterBits > 0 {
			gone.runs = append(gone.runs, r)
			return nil
		}
		return i.freeRun(h, r.p, r.n, i.blocksJournaled())
	})
	if err == nil {
		err = gone.free(h, t)
	}
	if err != nil {
		i.es.drop(i.fs.ops.es)
		err = i.fs.report(ondisk.InInode(err, i.ino))
	}
	return done && start == from, err
}

// freeStart is where the removal of [from, to] begins in one step: at from,
// unless the blocks have been logged and are more than the transaction can
// record as revoked.
func (i *Inode) freeStart(t *treeOp, from, to ondisk.LBlock) (ondisk.LBlock, error) {
	if !i.blocksJournaled() || t.h.jh == nil {
		return from, nil
	}
	left, _, ok, _, err := t.Neighbours(to)
	if err != nil || !ok || left.End() <= uint64(from) {
		return from, i.fs.report(ondisk.InInode(err, i.ino))
	}
	last := min(left.End(), uint64(to)+1)
	n, err := t.h.reserveRevokes(int(last-uint64(from)), creditsTruncate)
	if err != nil {
		return 0, err
	}
	return ondisk.LBlock(max(uint64(from), last-uint64(n))), nil
}

// restartIfLow makes sure that n credits are left, in a new transaction if
// there is no room in this one.
func (h *handle) restartIfLow(n int) error {
	if h.ensure(n) {
		return nil
	}
	return h.restart(n)
}
