package ext4

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// newInode allocates an inode of the given mode in directory dir, whose lock
// the caller holds exclusively: pinned, in the inode table, with one link and
// an empty extent tree (or block map), not named anywhere yet. Owner and
// group follow the caller and the set-group-id rules. It takes
// creditsNewInode.
func (fs *FS) newInode(h *handle, dir *Inode, c *Caller, mode uint32) (*Inode, error) {
	isDir := mode&ondisk.ModeFmt == ondisk.ModeDir
	if fs.opts.QuotaLimits != 0 {
		probe := &Inode{fs: fs}
		fs.initInode(probe, dir, mode, c)
		if err := probe.mayOwn(h); err != nil {
			return nil, err
		}
	}
	g, ok := fs.findGroup(dir, isDir)
	if !ok {
		return nil, syscall.ENOSPC
	}
	ino, b, err := fs.allocInode(h, g, isDir)
	if err != nil {
		return nil, err
	}
	defer b.Put()
	i := &Inode{fs: fs, ino: ino}
	fs.initInode(i, dir, mode, c)
	if err := fs.icache.insertNew(i); err != nil {
		return nil, fs.corrupt(err)
	}
	if err := i.writeNew(h, b); err != nil {
		fs.icache.remove(i)
		return nil, err
	}
	return i, nil
}

// random is a number that nobody has to guess.
func (fs *FS) random() uint32 {
	if fs.opts.Rand != nil {
		return fs.opts.Rand()
	}
	return rand.Uint32()
}

// initInode fills the in-core inode of a new file.
func (fs *FS) initInode(i, dir *Inode, mode uint32, c *Caller) {
	r := &i.raw
	r.Mode = uint16(mode)
	r.LinksCount = 1
	r.ExtraIsize = fs.extraIsize
	r.Generation = fs.random()
	if c != nil {
		r.SetUID(c.UID)
		r.SetGID(c.GID)
	}
	if dir != nil {
		inheritGroup(r, &dir.raw, fs.opts.GrpID || fs.defaultBSDGroups())
		r.Flags = inheritFlags(dir.raw.Flags, uint16(mode))
		if dir.raw.Flags&ondisk.InodeProjInherit != 0 {
			r.Projid = dir.raw.Projid
		}
	}
	now := fs.timestamp()
	r.SetAtime(now)
	r.SetMtime(now)
	r.SetCtime(now)
	r.SetCrtime(now)
	if t := uint16(mode) & ondisk.ModeFmt; fs.extents && (t == ondisk.ModeReg || t == ondisk.ModeDir || t == ondisk.ModeLnk) {
		r.Flags |= ondisk.InodeExtents
		initExtentRoot(&r.Block)
	}
	i.seed = fs.csum.InodeSeed(i.ino, r.Generation)
	i.life = r.Generation
}

// inheritGroup gives a new inode its directory's group where grpid or the
// directory's set-group-id bit says so; directories hand the bit on.
func inheritGroup(r, dir *ondisk.Inode, grpid bool) {
	switch {
	case grpid:
		r.SetGID(dir.GID())
	case dir.Mode&ondisk.ModeSetGID != 0:
		r.SetGID(dir.GID())
		if r.Mode&ondisk.ModeFmt == ondisk.ModeDir {
			r.Mode |= ondisk.ModeSetGID
		}
	}
}

// inheritFlags is what of a directory's flags makes sense on a new inode.
func inheritFlags(flags uint32, mode uint16) uint32 {
	switch mode & ondisk.ModeFmt {
	case ondisk.ModeDir:
		return flags & ondisk.InodeInherited
	case ondisk.ModeReg:
		return flags & ondisk.InodeInheritedReg
	}
	return flags & ondisk.InodeInheritedOther
}

// initExtentRoot makes i_block an empty extent tree with room for 4 entries.
func initExtentRoot(block *[60]byte) {
	hdr := ondisk.ExtentHeader{Magic: ondisk.ExtentMagic, Max: uint16(ondisk.ExtentRoom(len(block)))}
	hdr.Encode(block[:])
}

func (fs *FS) defaultBSDGroups() bool {
	return fs.super.sb.DefaultMountOpts&ondisk.DefmBSDGroups != 0 // never changed while mounted
}

// allocInode takes the first free inode of group g, or of the next group that
// has one. It returns the pinned buffer of the inode table, which h is to
// write the inode to.
func (fs *FS) allocInode(h *handle, g ondisk.GroupNumber, isDir bool) (ondisk.InodeNumber, *bcache.Buffer, error) {
	for n := ondisk.GroupNumber(0); n < fs.groupCount; n++ {
		gr := &fs.groups[g]
		if gr.freeInodes.Load() > 0 && !gr.badInodes.Load() {
			ino, b, err := fs.allocInodeIn(h, g, gr, isDir)
			if ino != 0 || (err != nil && !isCorrupt(err)) {
				return ino, b, err
			}
		}
		if g++; g == fs.groupCount {
			g = 0
		}
	}
	return 0, nil, syscall.ENOSPC
}

// allocInodeIn takes the first free inode of group g; 0 when there is none.
func (fs *FS) allocInodeIn(h *handle, g ondisk.GroupNumber, gr *group, isDir bool) (ondisk.InodeNumber, *bcache.Buffer, error) {
	bm, err := fs.inodeBitmap(g, gr)
	if err != nil {
		return 0, nil, err
	}
	defer bm.Put()
	if err := h.getWrite(bm); err != nil {
		return 0, nil, err
	}
	if err := h.getWrite(gr.gdb); err != nil {
		return 0, nil, err
	}
	if err := fs.initBlocksOfGroup(h, g, gr); err != nil {
		return 0, nil, err
	}
	gr.mu.Lock()
	idx, fresh := fs.takeInodeLocked(g, gr, bm.Data(), isDir)
	if idx < 0 {
		gr.mu.Unlock()
		return 0, nil, nil
	}
	ino := ondisk.InodeNumber(uint32(g)*fs.inodesPerGroup + uint32(idx) + 1)
	blk, _ := fs.inodeSlot(ino)
	var tb *bcache.Buffer
	if fresh {
		tb, err = fs.freshTableBlock(blk)
	}
	gr.mu.Unlock()
	if !fresh {
		tb, err = fs.cache.Read(uint64(blk), nil)
	}
	if err == nil {
		err = h.dirty(bm)
	} else {
		err = fs.ioError(err)
	}
	if err == nil {
		err = h.dirty(gr.gdb)
	}
	return ino, tb, err
}

// takeInodeLocked marks the first free inode as used and returns its index,
// -1 when there is none. fresh: no other inode in its block of the table is
// in use, so that the block need not be read (and may never have been
// written).
func (fs *FS) takeInodeLocked(g ondisk.GroupNumber, gr *group, bm []byte, isDir bool) (idx int, fresh bool) {
	n, ok := nextZeroBit(bm, gr.inoHint, fs.inodesPerGroup)
	gr.inoHint = n
	if !ok || gr.desc.FreeInodes() == 0 {
		return -1, false
	}
	gr.inoHint = n + 1
	return int(n), fs.takeIndexLocked(g, gr, bm, n, isDir)
}

// takeIndexLocked marks the free inode with index n of the group as used; fresh
// as for takeInodeLocked.
func (fs *FS) takeIndexLocked(g ondisk.GroupNumber, gr *group, bm []byte, n uint32, isDir bool) (fresh bool) {
	d := gr.desc
	first := n - n%fs.inodesPerBlock
	fresh = countSet(bm, first, min(fs.inodesPerBlock, fs.inodesPerGroup-first)) == 0
	setBits(bm, n, 1)
	fs.noteUsedInode(d, n)
	free := d.FreeInodes() - 1
	d.SetFreeInodes(free)
	gr.freeInodes.Store(free)
	dirs := int64(0)
	if isDir {
		dirs = 1
		d.SetUsedDirs(d.UsedDirs() + 1)
		gr.usedDirs.Store(d.UsedDirs())
	}
	fs.csum.SetInodeBitmap(d, bm)
	fs.csum.SetGroupDesc(g, d)
	fs.addInodes(g, -1, dirs)
	return fresh
}

// noteUsedInode ends the group's inode table being uninitialised, and moves
// the border behind which no inode was ever used.
func (fs *FS) noteUsedInode(d ondisk.GroupDesc, idx uint32) {
	if !fs.hasGroupCsum {
		return
	}
	used := fs.inodesPerGroup - min(d.ItableUnused(), fs.inodesPerGroup)
	if d.Flags()&ondisk.BGInodeUninit != 0 {
		d.SetFlags(d.Flags() &^ ondisk.BGInodeUninit)
		used = 0
	}
	if idx >= used {
		d.SetItableUnused(fs.inodesPerGroup - idx - 1)
	}
}

// nextZeroBit finds the first clear bit in [from, n).
func nextZeroBit(bm []byte, from, n uint32) (uint32, bool) {
	for from < n {
		if from%64 == 0 && int(from/8)+8 <= len(bm) {
			w := ^binary.LittleEndian.Uint64(bm[from/8:])
			if w == 0 {
				from += 64
				continue
			}
			from += uint32(bits.TrailingZeros64(w))
			return from, from < n
		}
		if !testBit(bm, from) {
			return from, true
		}
		from++
	}
	return n, false
}

// freshTableBlock is the buffer of a table block without any inode in use, as
// zeroes. It does no I/O.
func (fs *FS) freshTableBlock(blk ondisk.FsBlock) (*bcache.Buffer, error) {
	b, err := fs.cache.Get(uint64(blk))
	if err == nil && !b.Uptodate() {
		clear(b.Data())
		b.SetUptodate()
	}
	return b, err
}

// inodeBitmap is the pinned buffer of a group's inode bitmap; that of an
// uninitialised group is synthesised: no inode is in use. May do I/O.
func (fs *FS) inodeBitmap(g ondisk.GroupNumber, gr *group) (*bcache.Buffer, error) {
	blk := gr.desc.InodeBitmap()
	if fs.hasGroupCsum {
		gr.mu.Lock()
		if gr.desc.Flags()&ondisk.BGInodeUninit != 0 {
			b, err := fs.uninitInodeBitmap(blk)
			gr.mu.Unlock()
			return b, err
		}
		gr.mu.Unlock()
	}
	b, err := fs.cache.Read(uint64(blk), func(data []byte) error {
		gr.mu.Lock()
		defer gr.mu.Unlock()
		if !fs.csum.VerifyInodeBitmap(gr.desc, data) {
			return ondisk.Corrupt("inode bitmap: checksum is wrong")
		}
		return nil
	})
	if err == nil {
		return b, nil
	}
	if isCorrupt(err) {
		gr.badInodes.Store(true)
		return nil, fs.corrupt(ondisk.AtBlock(ondisk.InGroup(err, g), blk))
	}
	return nil, fs.ioError(err)
}

func (fs *FS) uninitInodeBitmap(blk ondisk.FsBlock) (*bcache.Buffer, error) {
	b, err := fs.cache.Get(uint64(blk))
	if err != nil {
		return nil, fs.ioError(err)
	}
	if !b.Uptodate() {
		clear(b.Data())
		setBits(b.Data(), fs.inodesPerGroup, uint32(fs.blockSize)*8-fs.inodesPerGroup)
		b.SetUptodate()
	}
	return b, nil
}

// initBlocksOfGroup writes the block bitmap of a group whose first inode is
// being taken: older tools expect a group with inodes to have one.
func (fs *FS) initBlocksOfGroup(h *handle, g ondisk.GroupNumber, gr *group) error {
	if !gr.blockUninit.Load() {
		return nil
	}
	b, err := fs.blockBitmap(g)
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.getWrite(b); err != nil {
		return err
	}
	gr.mu.Lock()
	if gr.blockUninit.Load() {
		gr.desc.SetFlags(gr.desc.Flags() &^ ondisk.BGBlockUninit)
		gr.blockUninit.Store(false)
		fs.csum.SetBlockBitmap(gr.desc, b.Data())
		fs.csum.SetGroupDesc(g, gr.desc)
	}
	gr.mu.Unlock()
	return h.dirty(b)
}

// freeInode gives the number of an evicted inode back, within h: the inode is
// marked deleted on disk, leaves the table of in-core inodes, and its bit is
// cleared. It takes creditsFreeInode, less the orphan list.
func (fs *FS) freeInode(h *handle, i *Inode) error {
	isDir := i.raw.Mode&ondisk.ModeFmt == ondisk.ModeDir
	i.raw.Dtime = uint32(fs.now().Unix())
	if err := i.markDirty(h); err != nil {
		return err
	}
	i.settleQuota(true)
	fs.icache.remove(i)
	g, idx := fs.groupOf(i.ino)
	gr := &fs.groups[g]
	bm, err := fs.inodeBitmap(g, gr)
	if err != nil {
		return err
	}
	defer bm.Put()
	if err := h.getWrite(bm); err != nil {
		return err
	}
	if err := h.getWrite(gr.gdb); err != nil {
		return err
	}
	gr.mu.Lock()
	err = fs.clearInodeLocked(g, gr, bm.Data(), idx, isDir)
	gr.mu.Unlock()
	if err != nil {
		return fs.corrupt(ondisk.InInode(ondisk.InGroup(err, g), i.ino))
	}
	if err := h.dirty(bm); err != nil {
		return err
	}
	return h.dirty(gr.gdb)
}

func (fs *FS) clearInodeLocked(g ondisk.GroupNumber, gr *group, bm []byte, idx uint32, isDir bool) error {
	if !testBit(bm, idx) {
		return ondisk.Corrupt("freeing an inode that is free")
	}
	d := gr.desc
	clearBits(bm, idx, 1)
	gr.inoHint = min(gr.inoHint, idx)
	d.SetFreeInodes(d.FreeInodes() + 1)
	gr.freeInodes.Store(d.FreeInodes())
	dirs := int64(0)
	if isDir && d.UsedDirs() > 0 {
		dirs = -1
		d.SetUsedDirs(d.UsedDirs() - 1)
		gr.usedDirs.Store(d.UsedDirs())
	}
	fs.csum.SetInodeBitmap(d, bm)
	fs.csum.SetGroupDesc(g, d)
	fs.addInodes(g, 1, dirs)
	return nil
}
