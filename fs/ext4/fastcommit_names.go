package ext4

import (
	"syscall"

	"extfused/fs/extent"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// The records of fast commits that change mappings and names, and what follows
// when all have been applied.

// changeRange maps or unmaps a range of a file. A file that does not exist
// (any more) was deleted later.
func (r *fcReplay) changeRange(h *handle, rec journal.FastCommitRecord) error {
	var x ondisk.FcRange
	decode := x.DecodeAdd
	if rec.Tag == journal.FcDelRange {
		decode = x.DecodeDel
	}
	if err := decode(rec.Value); err != nil {
		return err
	}
	i, err := r.get(x.Inode)
	if i == nil || err != nil {
		return err
	}
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return &ondisk.CorruptError{What: "fast commit: range of a file without extents", Inode: x.Inode}
	}
	i.es.drop(r.fs.ops.es)
	if err := i.unmap(h, x.Logical, x.Len); err != nil {
		return err
	}
	if rec.Tag == journal.FcAddRange {
		t := openTree(i, h)
		err = t.Insert(extent.Extent{Logical: x.Logical, Len: x.Len, Physical: x.Start, Unwritten: x.Unwritten})
		t.close()
		if err != nil {
			return ondisk.InInode(err, i.ino)
		}
	}
	return i.markDirty(h)
}

// unmap takes a range out of the mapping; its blocks are unsure already.
func (i *Inode) unmap(h *handle, from ondisk.LBlock, n uint32) error {
	last := min(uint64(from)+uint64(n), maxLBlocks) - 1
	for {
		t := openTree(i, h)
		done, err := t.Remove(from, ondisk.LBlock(last), freeOps, func(extent.Extent) error { return nil })
		t.close()
		if done || err != nil {
			return ondisk.InInode(err, i.ino)
		}
	}
}

// name applies a CREAT, LINK or UNLINK. Inodes and names that are not there
// were dealt with by a later record.
func (r *fcReplay) name(h *handle, tag journal.FastCommitTag, n *ondisk.FcName) error {
	dir, err := r.get(n.Parent)
	if err != nil {
		return err
	}
	i, err := r.get(n.Inode)
	if err != nil || i == nil || dir == nil {
		return err
	}
	if !dir.isDir() {
		return &ondisk.CorruptError{What: "fast commit: a name in what is no directory", Inode: n.Parent}
	}
	if tag == journal.FcUnlink {
		return r.unlink(h, dir, i, n.Name)
	}
	if tag == journal.FcCreat && i.isDir() {
		if err := r.initDir(h, dir, i); err != nil {
			return err
		}
	}
	switch err := dir.dirInsert(h, n.Name, i); err {
	case nil:
	case syscall.EEXIST:
		return nil
	default:
		return err
	}
	if tag == journal.FcLink {
		i.raw.LinksCount++ // the INODE record that follows knows better
		if err := i.markDirty(h); err != nil {
			return err
		}
	}
	return dir.markDirty(h)
}

// initDir makes the first block of a directory, which no record has.
func (r *fcReplay) initDir(h *handle, parent, i *Inode) error {
	if i.inline() { // the INODE record has all of it
		return nil
	}
	run, err := i.mapRun(0)
	if err != nil || run.st != esHole {
		return err
	}
	if err := i.dirInit(h, parent.ino); err != nil {
		return err
	}
	return i.markDirty(h)
}

// unlink removes a name, if it is still the inode's, and frees the inode when
// that was the last one.
func (r *fcReplay) unlink(h *handle, dir, i *Inode, name string) error {
	switch ino, err := dir.dirLookup(name); {
	case err == syscall.ENOENT:
		return nil
	case err != nil:
		return err
	case ino == i.ino:
		if err := dir.dirDelete(h, name); err != nil {
			return err
		}
		if err := dir.markDirty(h); err != nil {
			return err
		}
	}
	if i.raw.LinksCount > 0 {
		i.raw.LinksCount--
	}
	if i.isDir() {
		i.raw.LinksCount = 0
	}
	if i.raw.LinksCount > 0 {
		return i.markDirty(h)
	}
	return r.release(h, i)
}

// release frees an inode that has lost its last name. One that was still open
// when the power went has no other fate.
func (r *fcReplay) release(h *handle, i *Inode) error {
	if err := i.eachRun(r.drop); err != nil {
		return err
	}
	i.es.drop(r.fs.ops.es)
	if i.raw.Flags&ondisk.InodeExtents != 0 {
		initExtentRoot(&i.raw.Block)
	}
	i.raw.SetSize(0)
	i.raw.SetSectors(0, r.fs.hugeFile, r.fs.blockBits)
	if err := i.dropXattrs(h); err != nil {
		return err
	}
	delete(r.inodes, i.ino)
	return r.fs.freeInode(h, i)
}

// drop is for blocks that an inode has given up. Another may have them as
// data: what was changed in them as metadata must not be written.
func (r *fcReplay) drop(blk uint64, n uint32) {
	r.unsure.add(blk, n)
	r.fs.cache.Forget(blk, int(n))
}

// settle decides which blocks are used, and counts them in their inodes.
func (r *fcReplay) settle(h *handle) error {
	for _, i := range r.inodes {
		if i.raw.LinksCount == 0 {
			if err := r.release(h, i); err != nil {
				return err
			}
		}
	}
	var used runSet
	for _, i := range r.inodes {
		n := uint64(0)
		err := i.eachRun(func(blk uint64, k uint32) {
			used.add(blk, k)
			n += uint64(k)
		})
		if err != nil {
			return err
		}
		if i.raw.Flags&ondisk.InodeExtents == 0 {
			continue
		}
		if acl := i.raw.FileACL(); acl != 0 {
			n++
		}
		i.raw.SetSectors(n<<(r.fs.blockBits-9), r.fs.hugeFile, r.fs.blockBits)
		if err := i.markDirty(h); err != nil {
			return err
		}
	}
	taken := used.sorted()
	if err := r.mark(h, taken, true); err != nil {
		return err
	}
	return r.mark(h, r.unsure.without(taken), false)
}

// mark makes all of the runs used or free in the bitmaps, whatever they are.
func (r *fcReplay) mark(h *handle, runs []fcRun, used bool) error {
	fs := r.fs
	for _, run := range runs {
		for blk := run.from; blk < run.to; {
			if !fs.validBlocks(ondisk.FsBlock(blk), 1) {
				return &ondisk.CorruptError{What: "fast commit: block outside of the file system", Block: ondisk.FsBlock(blk)}
			}
			c := uint64(fs.clusterOf(ondisk.FsBlock(blk)))
			g, at := ondisk.GroupNumber(c/uint64(fs.clustersPerGroup)), uint32(c%uint64(fs.clustersPerGroup))
			n := uint32(min(run.to-blk, uint64(fs.clustersPerGroup-at)))
			if err := r.markInGroup(h, g, at, n, used); err != nil {
				return err
			}
			blk += uint64(n)
		}
	}
	return nil
}

// markInGroup changes those bits of a range that are not yet as they should.
func (r *fcReplay) markInGroup(h *handle, g ondisk.GroupNumber, at, n uint32, used bool) error {
	b, err := r.fs.blockBitmap(g)
	if err != nil {
		return err
	}
	defer b.Put()
	for end := at + n; at < end; {
		k := uint32(0)
		for at+k < end && testBit(b.Data(), at+k) != used {
			k++
		}
		if k > 0 {
			if err := h.markBlocks(g, at, k, used); err != nil {
				return err
			}
		}
		at += k + 1
	}
	return nil
}
