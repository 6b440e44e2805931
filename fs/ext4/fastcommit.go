package ext4

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/extent"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// The replay of fast commits, which the kernel writes with the feature
// fast_commit: instead of blocks they tell what was done to inodes and names
// since the last full commit. We replay them, and write none.
//
// A file system of its own is mounted on an overlay over the replayed image,
// and the records are applied to it in order. What differs then goes back to
// the journal as block images, which makes one ordinary transaction of them.
// So the records always meet the state they were made for, and unlike the
// kernel's replay, ours need not bear being repeated.
//
//	INODE       the inode as it is now, but for its mapping
//	ADD_RANGE   logical blocks are mapped like this
//	DEL_RANGE   logical blocks are not mapped any more
//	CREAT       the inode is new, and this is its first name
//	LINK        one more name
//	UNLINK      one name less; without any the inode is freed
//
// Block bitmaps are in no record. All blocks that inodes of the records map,
// before and after, and all that an ADD_RANGE names, are unsure while records
// are applied, and counted as used, so that the allocator, which directories
// and extent trees may need, leaves them alone. At the end those that an inode
// maps are marked as used, and the others as free.

// fcReplay is a replay under way. Nobody else uses its file system.
type fcReplay struct {
	fs     *FS
	inodes map[ondisk.InodeNumber]*Inode // all that records touched and that still exist
	unsure runSet
}

// replayFastCommits is the journal's OnFastCommit.
func (fs *FS) replayFastCommits(fc journal.FastCommits) ([]journal.BlockImage, error) {
	if fc.Features != 0 {
		return nil, mountErrorf(ErrUnsupported, "fast commits with unknown features %#x", fc.Features)
	}
	if fs.clusterBits > 0 {
		return nil, mountErrorf(ErrUnsupported, "the journal holds fast commits of a bigalloc file system: let e2fsck or the kernel replay them")
	}
	over := blockdev.NewOverlay(fs.dev)
	r, err := fs.newReplay(over)
	if err != nil {
		return nil, fmt.Errorf("replaying fast commits: %w", err)
	}
	err = r.run(fc.Tags)
	r.fs.health.reports.Wait()
	r.fs.tearDown()
	if err != nil {
		return nil, fmt.Errorf("replaying fast commits: %w", err)
	}
	fs.logf(LevelInfo, "%d records of fast commits replayed", len(fc.Tags))
	return fs.changedBlocks(over)
}

// newReplay brings a file system up on over, without a journal.
func (fs *FS) newReplay(over blockdev.Device) (*fcReplay, error) {
	sb, err := readSuper(over, ondisk.SuperBlockOffset)
	if err != nil {
		return nil, err
	}
	if err := checkSuper(sb, over, &Options{ReadOnly: true}); err != nil {
		return nil, err
	}
	m := newFS(sb, Options{Errors: ErrorsRemountRO, Logf: fs.opts.Logf, Now: fs.opts.Now})
	m.setDevice(over)
	m.cache = bcache.New(over, m.blockSize, bcache.Options{})
	r := &fcReplay{fs: m, inodes: map[ondisk.InodeNumber]*Inode{}}
	m.replay = r
	m.orphans.recovering.Store(true)
	if err := m.super.attach(m, sb); err != nil {
		return nil, err
	}
	if err := m.loadGroups(sb); err != nil {
		return nil, err
	}
	m.initOps()
	return r, m.startAllocator(sb)
}

// changedBlocks are the blocks of over that differ from what is below it.
func (fs *FS) changedBlocks(over *blockdev.Overlay) ([]journal.BlockImage, error) {
	var out []journal.BlockImage
	next, bs := int64(0), int64(fs.blockSize)
	was := make([]byte, bs)
	for _, off := range over.Changed() {
		for at := max(off/bs*bs, next); at < off+blockdev.ChangedUnit && at < over.Size(); at += bs {
			is := make([]byte, bs)
			if _, err := over.ReadAt(is, at); err != nil {
				return nil, err
			}
			if _, err := fs.dev.ReadAt(was, at); err != nil {
				return nil, err
			}
			if !bytes.Equal(is, was) {
				out = append(out, journal.BlockImage{Block: uint64(at / bs), Data: is})
			}
			next = at + bs
		}
	}
	return out, nil
}

func (r *fcReplay) run(records []journal.FastCommitRecord) error {
	if err := r.claim(records); err != nil {
		return err
	}
	h, err := r.fs.begin(0)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if err = r.apply(h, rec); err != nil {
			err = fmt.Errorf("%v record in journal block %d: %w", rec.Tag, rec.Block, err)
			break
		}
	}
	if err == nil {
		err = r.settle(h)
	}
	if serr := h.stop(); err == nil {
		err = serr
	}
	if err == nil {
		err = r.fs.syncUnlogged()
	}
	return err
}

func (r *fcReplay) apply(h *handle, rec journal.FastCommitRecord) error {
	switch rec.Tag {
	case journal.FcInode:
		return r.inode(h, rec.Value)
	case journal.FcAddRange, journal.FcDelRange:
		return r.changeRange(h, rec)
	case journal.FcCreat, journal.FcLink, journal.FcUnlink:
		var n ondisk.FcName
		if err := n.Decode(rec.Value); err != nil {
			return err
		}
		return r.name(h, rec.Tag, &n)
	}
	return nil
}

// claim makes all blocks that ADD_RANGE records name unsure, and marks them as
// used, before the allocator has seen any bitmap.
func (r *fcReplay) claim(records []journal.FastCommitRecord) error {
	for _, rec := range records {
		if rec.Tag != journal.FcAddRange {
			continue
		}
		var x ondisk.FcRange
		if err := x.DecodeAdd(rec.Value); err != nil {
			return err
		}
		if !r.fs.validBlocks(x.Start, uint64(x.Len)) {
			return ondisk.InInode(ondisk.AtBlock(ondisk.Corrupt("fast commit: range outside of the file system"), x.Start), x.Inode)
		}
		r.unsure.add(uint64(x.Start), x.Len)
	}
	h, err := r.fs.begin(0)
	if err != nil {
		return err
	}
	err = r.mark(h, r.unsure.sorted(), true)
	if serr := h.stop(); err == nil {
		err = serr
	}
	return err
}

// known tells whether records may speak of ino.
func (r *fcReplay) known(ino ondisk.InodeNumber) bool {
	return ino == RootIno || ino >= r.fs.firstIno && uint32(ino) <= r.fs.inodes
}

// get is the inode, nil if it is not in use. Its blocks become unsure.
func (r *fcReplay) get(ino ondisk.InodeNumber) (*Inode, error) {
	if i := r.inodes[ino]; i != nil {
		return i, nil
	}
	if !r.known(ino) {
		return nil, &ondisk.CorruptError{What: "fast commit: inode number out of range", Inode: ino}
	}
	used, err := r.inUse(ino)
	if err != nil || !used {
		return nil, err
	}
	i := &Inode{fs: r.fs, ino: ino}
	if err := r.fs.loadInode(i); err == syscall.ESTALE {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r.inodes[ino] = i
	return i, i.eachRun(r.unsure.add)
}

// inUse asks the inode bitmap.
func (r *fcReplay) inUse(ino ondisk.InodeNumber) (bool, error) {
	g, idx := r.fs.groupOf(ino)
	bm, err := r.fs.inodeBitmap(g, &r.fs.groups[g])
	if err != nil {
		return false, err
	}
	defer bm.Put()
	return testBit(bm.Data(), idx), nil
}

// eachRun calls fn with all that the inode's mapping takes: data and nodes.
func (i *Inode) eachRun(fn func(blk uint64, n uint32)) error {
	if i.raw.Flags&ondisk.InodeExtents == 0 || i.isLink() && i.raw.Size() <= ondisk.FastSymlinkMax && i.raw.BlocksLo == 0 {
		return nil
	}
	t := openTree(i, nil)
	defer t.close()
	err := t.EachNode(func(blk ondisk.FsBlock, _ []byte) error {
		if blk != 0 {
			fn(uint64(blk), 1)
		}
		return nil
	})
	if err == nil {
		err = t.Iterate(0, func(e extent.Extent) bool {
			fn(uint64(e.Physical), e.Len)
			return true
		})
	}
	return ondisk.InInode(err, i.ino)
}

const iBlockOff, iBlockEnd = 0x28, 0x64 // i_block within struct ext4_inode

// inode makes the inode what the record says. Its mapping stays, and so do
// the size of a directory and whether it is indexed: those are of our own
// replay of its names.
func (r *fcReplay) inode(h *handle, value []byte) error {
	ino, raw, err := ondisk.FcInodeRaw(value)
	if err != nil {
		return err
	}
	old, err := r.get(ino)
	if err != nil {
		return err
	}
	var want ondisk.Inode
	full := make([]byte, r.fs.inodeSize)
	copy(full, raw)
	if err := want.Decode(full); err != nil {
		return err
	}
	if err := r.takeInode(h, ino, want.Mode&ondisk.ModeFmt == ondisk.ModeDir); err != nil {
		return err
	}
	i := &Inode{fs: r.fs, ino: ino}
	b, slot, err := i.tableBuffer()
	if err != nil {
		return err
	}
	defer b.Put()
	r.mergeInode(ino, slot, raw, old, &want)
	if err := h.dirty(b); err != nil {
		return err
	}
	if old != nil {
		old.es.drop(r.fs.ops.es)
	}
	delete(r.inodes, ino)
	if err := r.fs.loadInode(i); err != nil {
		return err
	}
	r.inodes[ino] = i
	return nil
}

// mergeInode writes the record over the inode in the table.
func (r *fcReplay) mergeInode(ino ondisk.InodeNumber, slot, raw []byte, old *Inode, want *ondisk.Inode) {
	raw = raw[:min(len(raw), len(slot))]
	same := old != nil && old.raw.Generation == want.Generation && (old.raw.Mode^want.Mode)&ondisk.ModeFmt == 0
	if !same {
		clear(slot)
	}
	copy(slot[:iBlockOff], raw)
	copy(slot[iBlockEnd:], raw[iBlockEnd:])
	mapping := slot[iBlockOff:iBlockEnd]
	switch {
	case want.Flags&ondisk.InodeExtents == 0:
		copy(mapping, raw[iBlockOff:iBlockEnd]) // a device number, or a short symlink
	case binary.LittleEndian.Uint16(mapping) != ondisk.ExtentMagic:
		initExtentRoot((*[60]byte)(mapping))
	}
	if want.Mode&ondisk.ModeFmt == ondisk.ModeDir {
		var n ondisk.Inode
		if n.Decode(slot) == nil {
			n.SetSize(0)
			n.Flags &^= ondisk.InodeIndex
			if same {
				n.SetSize(old.raw.Size())
				n.Flags |= old.raw.Flags & ondisk.InodeIndex
			}
			n.Encode(slot)
		}
	}
	r.fs.csum.SetInode(ino, slot)
}

// takeInode marks the inode as used, if it is free.
func (r *fcReplay) takeInode(h *handle, ino ondisk.InodeNumber, isDir bool) error {
	fs := r.fs
	g, idx := fs.groupOf(ino)
	gr := &fs.groups[g]
	bm, err := fs.inodeBitmap(g, gr)
	if err != nil {
		return err
	}
	defer bm.Put()
	if testBit(bm.Data(), idx) {
		return nil
	}
	if err := fs.initBlocksOfGroup(h, g, gr); err != nil {
		return err
	}
	blk, _ := fs.inodeSlot(ino)
	gr.mu.Lock()
	fresh := fs.takeIndexLocked(g, gr, bm.Data(), idx, isDir)
	var tb *bcache.Buffer
	if fresh {
		tb, err = fs.freshTableBlock(blk)
	}
	gr.mu.Unlock()
	if err != nil {
		return fs.ioError(err)
	}
	if tb != nil {
		tb.Put()
	}
	if err := h.dirty(bm); err != nil {
		return err
	}
	return h.dirty(gr.gdb)
}
