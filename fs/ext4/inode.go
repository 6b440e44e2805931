package ext4

import (
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// inodeState is the life cycle of an in-core inode, guarded by its shard.
type inodeState uint8

const (
	inodeLoading inodeState = iota // being read; others wait on the shard's cond
	inodeLive
	inodeEvicting // last reference gone, being freed; others wait until it left the table
	inodeGone     // no longer in the table
)

// Inode is the in-core inode.
//
// mu is both i_rwsem and the mapping lock. For directories it guards the
// namespace; for files it is exclusive for allocation and size changes, and
// shared for reads and overwrites of written blocks.
type Inode struct {
	fs  *FS
	ino ondisk.InodeNumber

	mu  sync.RWMutex
	raw ondisk.Inode // +checklocks:mu

	// life is i_generation as it was when the inode came into memory.
	life uint32

	// linkable: Tmpfile made it, and Link may give it its first name.
	linkable bool // +checklocks:mu

	seed uint32 // of the checksums of the inode's own blocks; constant after load

	// pa is mballoc's part of the inode; it has its own lock.
	pa mballoc.InodeState

	inodeOps // what the operations keep in core

	// shown is the Blocks of the last Attr given out, or blocksUnseen.
	shown atomic.Uint64

	// lazy: a time is newer than on the device, see atime.go.
	lazy atomic.Bool

	// syncTID and datasyncTID are the transactions that fsync and fdatasync
	// must wait for; 0 when there is none.
	syncTID     atomic.Uint32
	datasyncTID atomic.Uint32

	// lastAllocGroup is where Orlov last put a child of this directory when
	// its own flex group was full (i_last_alloc_group), plus one.
	lastAllocGroup atomic.Uint32

	// orphan is set while the inode is on the orphan list or in the orphan
	// file; the links are guarded by orphans.mu.
	orphan                 atomic.Bool
	orphanPrev, orphanNext *Inode
	// orphanSlot is its place in the orphan file, counted from 1; 0: it is on the
	// list. Guarded by mu.
	orphanSlot int

	// refs counts lookups, open files and pins. It only leaves zero under the
	// shard's lock.
	refs    atomic.Int64
	lookups atomic.Int64 // the part of refs that Forget may return

	state              inodeState // guarded by the shard
	idlePrev, idleNext *Inode     // the shard's idle list, guarded by the shard
}

// icacheShards is a power of two.
const icacheShards = 64

type icacheShard struct {
	mu   sync.Mutex
	cond sync.Cond
	m    map[ondisk.InodeNumber]*Inode
	idle Inode // list head: idleNext is the most recently used
	n    int   // length of the idle list
	_    [64]byte
}

type icache struct {
	shards  [icacheShards]icacheShard
	maxIdle int // per shard
	loads   atomic.Int64
	evicts  atomic.Int64
	drops   atomic.Int64
}

func (c *icache) init(maxIdle int) {
	c.maxIdle = max(maxIdle/icacheShards, 1)
	for k := range c.shards {
		sh := &c.shards[k]
		sh.cond.L = &sh.mu
		sh.m = make(map[ondisk.InodeNumber]*Inode)
		sh.idle.idleNext, sh.idle.idlePrev = &sh.idle, &sh.idle
	}
}

// shard spreads neighbouring numbers over the shards.
func (c *icache) shard(ino ondisk.InodeNumber) *icacheShard {
	return &c.shards[ino%icacheShards]
}

func (sh *icacheShard) idleAddLocked(i *Inode) {
	h := &sh.idle
	i.idleNext, i.idlePrev = h.idleNext, h
	h.idleNext.idlePrev, h.idleNext = i, i
	sh.n++
}

func (sh *icacheShard) idleDelLocked(i *Inode) {
	if i.idleNext == nil {
		return
	}
	i.idlePrev.idleNext, i.idleNext.idlePrev = i.idleNext, i.idlePrev
	i.idleNext, i.idlePrev = nil, nil
	sh.n--
}

// findLocked returns the live inode with one more reference, waiting out
// loading and eviction; nil when it is not in the table.
func (sh *icacheShard) findLocked(ino ondisk.InodeNumber) *Inode {
	for {
		i := sh.m[ino]
		if i == nil {
			return nil
		}
		if i.state == inodeLive {
			if i.refs.Add(1) == 1 {
				sh.idleDelLocked(i)
			}
			return i
		}
		sh.cond.Wait()
	}
}

// Ino returns the inode's number.
func (i *Inode) Ino() ondisk.InodeNumber { return i.ino }

// iget returns the inode pinned; the caller iputs it. A number outside the
// file system is damage; ESTALE: there is no such inode (any more).
func (fs *FS) iget(ino ondisk.InodeNumber) (*Inode, error) {
	sh := fs.icache.shard(ino)
	sh.mu.Lock()
	return fs.igetLocked(sh, ino)
}

// igetNow is iget for those who hold a handle: an inode that is on its way out
// is not waited for, but ESTALE.
func (fs *FS) igetNow(ino ondisk.InodeNumber) (*Inode, error) {
	sh := fs.icache.shard(ino)
	sh.mu.Lock()
	if i := sh.m[ino]; i != nil && i.state == inodeEvicting {
		sh.mu.Unlock()
		return nil, syscall.ESTALE
	}
	return fs.igetLocked(sh, ino)
}

// igetLocked does iget's work; it unlocks the shard.
func (fs *FS) igetLocked(sh *icacheShard, ino ondisk.InodeNumber) (*Inode, error) {
	if i := sh.findLocked(ino); i != nil {
		sh.mu.Unlock()
		return i, nil
	}
	if !fs.validIno(ino) {
		sh.mu.Unlock()
		return nil, fs.corrupt(&ondisk.CorruptError{What: "inode number out of range", Inode: ino})
	}
	i := &Inode{fs: fs, ino: ino}
	i.refs.Store(1)
	sh.m[ino] = i
	sh.mu.Unlock()

	err := fs.loadInode(i)
	sh.mu.Lock()
	if err != nil {
		i.state = inodeGone
		delete(sh.m, ino)
	} else {
		i.state = inodeLive
	}
	sh.cond.Broadcast()
	sh.mu.Unlock()
	if err != nil {
		return nil, err
	}
	fs.icache.loads.Add(1)
	return i, nil
}

// ihold takes another reference; the caller already has one.
func (fs *FS) ihold(i *Inode) { i.refs.Add(1) }

// iput gives one reference back. The last one of an inode without links
// evicts it, which begins handles and takes i.mu: so it must not be called
// with a handle or an inode lock held, unless another reference is known to
// stay.
func (fs *FS) iput(i *Inode) { fs.iputN(i, 1) }

func (fs *FS) iputN(i *Inode, n int64) {
	if i == nil || i.refs.Add(-n) > 0 {
		return
	}
	sh := fs.icache.shard(i.ino)
	sh.mu.Lock()
	if i.refs.Load() != 0 || i.state != inodeLive || i.idleNext != nil {
		sh.mu.Unlock()
		return
	}
	if i.raw.LinksCount == 0 && fs.mayEvict() {
		i.state = inodeEvicting
		sh.mu.Unlock()
		fs.evict(i)
		return
	}
	if i.lazy.Load() && fs.writable() == nil {
		i.refs.Add(1)
		sh.mu.Unlock()
		if err := fs.writeLazy(i); err != nil {
			fs.logf(LevelWarn, "inode %d: writing its times: %v", i.ino, err)
		}
		fs.iputN(i, 1)
		return
	}
	if i.orphan.Load() { // a truncate that failed half-way: the list holds it
		sh.mu.Unlock()
		return
	}
	sh.idleAddLocked(i)
	old := fs.trimLocked(sh)
	sh.mu.Unlock()
	if old != nil {
		fs.forgetInode(old)
	}
}

// trimLocked takes at most one inode off the idle list's end and out of the
// table when the list is longer than its bound.
func (fs *FS) trimLocked(sh *icacheShard) *Inode {
	if sh.n <= fs.icache.maxIdle {
		return nil
	}
	i := sh.idle.idlePrev
	sh.idleDelLocked(i)
	i.state = inodeGone
	delete(sh.m, i.ino)
	return i
}

// forgetInode drops what an inode that left the table still holds.
func (fs *FS) forgetInode(i *Inode) {
	i.leave(fs)
	fs.alloc.DiscardInode(&i.pa)
	fs.icache.drops.Add(1)
}

// insertNew puts a freshly allocated inode into the table, pinned. An older
// life of the number may still be on its way out: wait for it.
func (c *icache) insertNew(i *Inode) error {
	sh := c.shard(i.ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for sh.m[i.ino] != nil {
		old := sh.m[i.ino]
		if old.state == inodeLive {
			return &ondisk.CorruptError{What: "allocated inode is in use", Inode: i.ino}
		}
		sh.cond.Wait()
	}
	i.state = inodeLive
	i.refs.Store(1)
	sh.m[i.ino] = i
	return nil
}

// remove takes an inode out of the table, whatever its state.
func (c *icache) remove(i *Inode) {
	sh := c.shard(i.ino)
	sh.mu.Lock()
	sh.idleDelLocked(i)
	if sh.m[i.ino] == i {
		delete(sh.m, i.ino)
	}
	i.state = inodeGone
	sh.cond.Broadcast()
	sh.mu.Unlock()
}

// addLookup turns into a lookup reference, which Forget returns later; the
// caller keeps his own pin.
func (i *Inode) addLookup() {
	i.refs.Add(1)
	i.lookups.Add(1)
}

// Forget returns n lookup references to an inode.
func (fs *FS) Forget(ino ondisk.InodeNumber, n uint64) {
	sh := fs.icache.shard(ino)
	sh.mu.Lock()
	i := sh.m[ino]
	if i == nil || i.state != inodeLive {
		sh.mu.Unlock()
		return
	}
	take := min(int64(n&(1<<62-1)), i.lookups.Load())
	i.lookups.Add(-take)
	sh.mu.Unlock()
	if take > 0 {
		fs.iputN(i, take)
	}
}

// LookupInode returns the attributes of an inode by number and takes one
// lookup reference, as Lookup does: for readdirplus. ESTALE: it is gone.
func (fs *FS) LookupInode(ino ondisk.InodeNumber) (Attr, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return Attr{}, err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.raw.LinksCount == 0 {
		return Attr{}, syscall.ESTALE
	}
	i.addLookup()
	return i.attrLocked(), nil
}

// inodeSlot is where an inode lies: block, and byte offset in it.
func (fs *FS) inodeSlot(ino ondisk.InodeNumber) (ondisk.FsBlock, int) {
	g, idx := fs.groupOf(ino)
	blk := fs.groups[g].desc.InodeTable() + ondisk.FsBlock(idx/fs.inodesPerBlock)
	return blk, int(idx%fs.inodesPerBlock) * fs.inodeSize
}

// tableBuffer is the pinned buffer of the inode table that holds i, and the
// inode's bytes in it.
func (i *Inode) tableBuffer() (*bcache.Buffer, []byte, error) {
	blk, off := i.fs.inodeSlot(i.ino)
	b, err := i.fs.cache.Read(uint64(blk), nil)
	if err != nil {
		return nil, nil, i.fs.ioError(err)
	}
	return b, b.Data()[off : off+i.fs.inodeSize], nil
}

// tableReadahead is how many blocks of an inode table are read at once, a
// power of two (ext4's inode_readahead_blks): who asks for one inode of a
// directory will ask for its neighbours.
const tableReadahead = 32

// prefetchTable reads the neighbourhood of table block blk of group g, as far
// as the table is in use, unless blk is cached.
func (fs *FS) prefetchTable(g ondisk.GroupNumber, blk ondisk.FsBlock) {
	if b := fs.cache.Lookup(uint64(blk)); b != nil {
		b.Put()
		return
	}
	gr := &fs.groups[g]
	gr.mu.Lock()
	used := fs.inodesPerGroup
	if fs.hasGroupCsum {
		used -= min(gr.desc.ItableUnused(), used)
	}
	gr.mu.Unlock()
	first := gr.desc.InodeTable()
	at := uint32(blk-first) &^ (tableReadahead - 1)
	end := min(at+tableReadahead, (used+fs.inodesPerBlock-1)/fs.inodesPerBlock)
	if end > at+1 {
		fs.cache.Prefetch(uint64(first)+uint64(at), int(end-at))
	}
}

// loadInode reads an inode from its table and checks it. ESTALE: it is free.
func (fs *FS) loadInode(i *Inode) error {
	g, _ := fs.groupOf(i.ino)
	blk, _ := fs.inodeSlot(i.ino)
	fs.prefetchTable(g, blk)
	b, slot, err := i.tableBuffer()
	if err != nil {
		return err
	}
	defer b.Put()
	if err := fs.checkInode(i, slot); err != nil {
		if isCorrupt(err) {
			return fs.corrupt(ondisk.AtBlock(ondisk.InInode(err, i.ino), ondisk.FsBlock(b.Block())))
		}
		return err
	}
	i.seed = fs.csum.InodeSeed(i.ino, i.raw.Generation)
	i.life = i.raw.Generation
	i.noteLoaded()
	i.startCharge()
	return nil
}

func (fs *FS) checkInode(i *Inode, slot []byte) error {
	r := &i.raw
	if err := r.Decode(slot); err != nil {
		return err
	}
	if r.LinksCount == 0 && (r.Mode == 0 || !fs.orphans.recovering.Load()) {
		return syscall.ESTALE
	}
	if !fs.csum.VerifyInode(i.ino, slot) {
		return ondisk.Corrupt("inode: checksum is wrong")
	}
	switch r.Mode & ondisk.ModeFmt {
	case ondisk.ModeReg, ondisk.ModeDir, ondisk.ModeLnk, ondisk.ModeChr, ondisk.ModeBlk, ondisk.ModeFIFO, ondisk.ModeSock:
	default:
		if !fs.reservedIno(i.ino) {
			return ondisk.Corrupt("inode: mode %#o has no file type", r.Mode)
		}
	}
	if r.Size() > 1<<63-1 {
		return ondisk.Corrupt("inode: size %d is negative", int64(r.Size()))
	}
	if acl := r.FileACL(); acl != 0 && !fs.validBlocks(acl, 1) {
		return ondisk.Corrupt("inode: attribute block %d is outside the file system", acl)
	}
	return nil
}

// markDirty writes the inode to its table within h (creditsInode). The caller
// holds mu exclusively, or is the only one who can reach the inode.
func (i *Inode) markDirty(h *handle) error {
	blk, off := i.fs.inodeSlot(i.ino)
	b, err := i.fs.cache.Read(uint64(blk), nil)
	if err != nil {
		return i.fs.ioError(err)
	}
	defer b.Put()
	if err := h.getWrite(b); err != nil {
		return err
	}
	i.settleQuota(false)
	i.syncTID.Store(h.tid())
	i.encode(b.Data()[off : off+i.fs.inodeSize])
	if err := h.dirty(b); err != nil || i.raw.Size() <= ondisk.MaxSmallFile {
		return err
	}
	return i.fs.noteLargeFile(h)
}

// editSlot lets edit change the inode's own bytes of the table, attributes in
// the inode for example, then encodes the inode over them, with the checksum.
// Otherwise it is markDirty.
func (i *Inode) editSlot(h *handle, edit func(slot []byte) error) error {
	b, slot, err := i.tableBuffer()
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.getWrite(b); err != nil {
		return err
	}
	if i.onOrphanList() {
		i.fs.orphans.mu.Lock()
		err = edit(slot)
		i.fs.orphans.mu.Unlock()
	} else {
		err = edit(slot)
	}
	i.syncTID.Store(h.tid())
	i.encode(slot)
	if derr := h.dirty(b); err == nil {
		err = derr
	}
	return err
}

// onOrphanList tells whether i is on the list, rather than in the orphan file.
func (i *Inode) onOrphanList() bool { return i.orphan.Load() && i.orphanSlot == 0 }

// encode writes the inode over its bytes. While an inode is on the orphan
// list its i_dtime, and so its checksum, belongs to the list's lock. An fsync that
// finds lazy clear relies on syncTID being that of the times that waited.
func (i *Inode) encode(slot []byte) {
	if i.lazy.Load() {
		i.lazy.Store(false)
	}
	if i.onOrphanList() {
		i.fs.orphans.mu.Lock()
		defer i.fs.orphans.mu.Unlock()
	}
	i.raw.Encode(slot)
	i.fs.csum.SetInode(i.ino, slot)
}

// writeNew is markDirty for an inode that was just allocated: nothing of what
// its place in the table b held before stays.
func (i *Inode) writeNew(h *handle, b *bcache.Buffer) error {
	_, off := i.fs.inodeSlot(i.ino)
	if err := h.getWrite(b); err != nil {
		return err
	}
	slot := b.Data()[off : off+i.fs.inodeSize]
	clear(slot)
	i.settleQuota(false)
	i.encode(slot)
	i.syncTID.Store(h.tid())
	i.datasyncTID.Store(h.tid())
	return h.dirty(b)
}

// noteDatasync says that what h changed is needed to read the data back, so
// that fdatasync must wait for it: size and mapping, not times.
func (i *Inode) noteDatasync(h *handle) { i.datasyncTID.Store(h.tid()) }

// isDir, isReg and isLink tell the file type, which never changes.
func (i *Inode) isDir() bool  { return i.raw.Mode&ondisk.ModeFmt == ondisk.ModeDir }
func (i *Inode) isReg() bool  { return i.raw.Mode&ondisk.ModeFmt == ondisk.ModeReg }
func (i *Inode) isLink() bool { return i.raw.Mode&ondisk.ModeFmt == ondisk.ModeLnk }

// attrLocked is what stat(2) shows. The caller holds mu at least shared.
func (i *Inode) attrLocked() Attr {
	r, fs := &i.raw, i.fs
	a := Attr{
		Ino: i.ino, Generation: r.Generation, Life: i.life, Mode: uint32(r.Mode), Nlink: uint32(r.LinksCount),
		UID: r.UID(), GID: r.GID(), Size: r.Size(), Blocks: r.Sectors(fs.hugeFile, fs.blockBits),
		Atime: Time(r.Atime()), Mtime: Time(r.Mtime()), Ctime: Time(r.Ctime()),
		Flags: r.Flags, ProjectID: r.Projid,
	}
	if t, ok := r.Crtime(); ok {
		a.Crtime = Time(t)
	}
	switch r.Mode & ondisk.ModeFmt {
	case ondisk.ModeChr, ondisk.ModeBlk:
		major, minor := ondisk.DecodeDev(&r.Block)
		a.Rdev = minor&0xff | major<<8 | minor&^0xff<<12
	}
	i.shown.Store(a.Blocks)
	return a
}

// evict frees an inode without links after its last reference is gone: its
// blocks, its attributes, its number. The inode is in state evicting, so
// nobody else reaches it. After an error what is left stays on the orphan
// list, for the next mount.
func (fs *FS) evict(i *Inode) {
	if err := fs.evictInode(i); err != nil {
		fs.logf(LevelWarn, "inode %d: deleting it: %v", i.ino, err)
	}
	fs.icache.remove(i)
	i.leave(fs)
	fs.alloc.DiscardInode(&i.pa)
	fs.icache.evicts.Add(1)
}

func (fs *FS) evictInode(i *Inode) error {
	if i.hasBlocks() {
		if err := i.truncate(0); err != nil {
			return err
		}
	}
	h, err := fs.begin(creditsFreeInode + creditsXattr + i.valueCredits())
	if err != nil {
		return err
	}
	err = i.dropXattrs(h)
	if err == nil {
		err = fs.orphanDel(h, i)
	}
	if err == nil {
		err = fs.freeInode(h, i)
	}
	if serr := h.stop(); err == nil {
		err = serr
	}
	return err
}

// hasBlocks tells whether there is anything for truncate to free.
func (i *Inode) hasBlocks() bool {
	if i.inline() {
		return false
	}
	switch i.raw.Mode & ondisk.ModeFmt {
	case ondisk.ModeReg, ondisk.ModeDir:
		return i.raw.Size() != 0 || i.raw.BlocksLo != 0 || i.raw.BlocksHi != 0
	case ondisk.ModeLnk:
		return i.raw.Size() > ondisk.FastSymlinkMax
	}
	return false
}
