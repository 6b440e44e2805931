package ext4

import (
	"errors"
	"syscall"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// Between block numbers and the allocator's clusters: a cluster is one block, or
// with bigalloc several (see cluster.go).

func (fs *FS) clusterOf(blk ondisk.FsBlock) mballoc.Cluster {
	return mballoc.Cluster(uint64(blk)-uint64(fs.firstDataBlock)) >> fs.clusterBits
}

func (fs *FS) blockOf(c mballoc.Cluster) ondisk.FsBlock {
	return ondisk.FsBlock(uint64(c)<<fs.clusterBits + uint64(fs.firstDataBlock))
}

// blockReader is the allocator's view of the group bitmaps
// (mballoc.GroupReader).
type blockReader struct{ fs *FS }

// ReadBitmap implements mballoc.GroupReader.
func (r blockReader) ReadBitmap(g mballoc.GroupNumber, dst []byte) error {
	fs := r.fs
	gr := &fs.groups[g]
	if gr.badBlocks.Load() {
		return &ondisk.CorruptError{What: "block bitmap is known to be damaged", Group: ondisk.GroupNumber(g), HasGroup: true}
	}
	b, err := fs.blockBitmap(ondisk.GroupNumber(g))
	if err != nil {
		return err
	}
	gr.mu.Lock()
	copy(dst, b.Data())
	gr.mu.Unlock()
	b.Put()
	return nil
}

// FreeClusters implements mballoc.GroupReader.
func (r blockReader) FreeClusters(g mballoc.GroupNumber) uint32 {
	return r.fs.groups[g].freeClusters.Load()
}

// Uninit implements mballoc.GroupReader.
func (r blockReader) Uninit(g mballoc.GroupNumber) bool { return r.fs.groups[g].blockUninit.Load() }

// Prefetch implements mballoc.GroupReader. Neighbouring bitmaps of a flex
// group lie next to each other and are read in one go.
func (r blockReader) Prefetch(g mballoc.GroupNumber, n int) {
	last := min(uint64(g)+uint64(n), uint64(r.fs.groupCount))
	r.fs.work.Add(1)
	go func() {
		defer r.fs.work.Done()
		r.prefetch(uint64(g), last)
	}()
}

func (r blockReader) prefetch(g, last uint64) {
	var start ondisk.FsBlock
	run := 0
	for ; g < last; g++ {
		gr := &r.fs.groups[g]
		if gr.blockUninit.Load() || gr.badBlocks.Load() {
			continue
		}
		blk := gr.desc.BlockBitmap()
		if run > 0 && blk == start+ondisk.FsBlock(run) {
			run++
			continue
		}
		if run > 0 {
			r.fs.cache.Prefetch(uint64(start), run)
		}
		start, run = blk, 1
	}
	if run > 0 {
		r.fs.cache.Prefetch(uint64(start), run)
	}
}

// blockBitmap is the buffer of a group's block bitmap, pinned; the bitmap of
// an uninitialised group is synthesised. May do I/O.
func (fs *FS) blockBitmap(g ondisk.GroupNumber) (*bcache.Buffer, error) {
	gr := &fs.groups[g]
	if gr.blockUninit.Load() {
		gr.mu.Lock()
		if gr.blockUninit.Load() {
			b, err := fs.uninitBlockBitmapLocked(g, gr)
			gr.mu.Unlock()
			return b, err
		}
		gr.mu.Unlock()
	}
	blk := gr.desc.BlockBitmap()
	b, err := fs.cache.Read(uint64(blk), func(data []byte) error { return fs.checkBlockBitmap(g, gr, data) })
	if err == nil {
		return b, nil
	}
	if isCorrupt(err) {
		gr.badBlocks.Store(true)
		return nil, fs.corrupt(ondisk.AtBlock(ondisk.InGroup(err, g), blk))
	}
	return nil, fs.ioError(err)
}

func (fs *FS) uninitBlockBitmapLocked(g ondisk.GroupNumber, gr *group) (*bcache.Buffer, error) {
	b, err := fs.cache.Get(uint64(gr.desc.BlockBitmap()))
	if err != nil {
		return nil, fs.ioError(err)
	}
	if !b.Uptodate() {
		fs.initBlockBitmap(g, gr.desc, b.Data())
		b.SetUptodate()
	}
	return b, nil
}

// checkBlockBitmap verifies a bitmap that was read from the device.
func (fs *FS) checkBlockBitmap(g ondisk.GroupNumber, gr *group, bm []byte) error {
	gr.mu.Lock()
	ok := fs.csum.VerifyBlockBitmap(gr.desc, bm)
	gr.mu.Unlock()
	if !ok {
		return ondisk.Corrupt("block bitmap: checksum is wrong")
	}
	d := gr.desc
	for _, own := range []struct {
		blk  ondisk.FsBlock
		n    uint32
		what string
	}{
		{d.BlockBitmap(), 1, "its own block"}, {d.InodeBitmap(), 1, "the inode bitmap"},
		{d.InodeTable(), fs.itableBlocks, "the inode table"},
	} {
		first := fs.groupFirstBlock(g)
		if own.blk < first || uint64(own.blk-first)+uint64(own.n) > uint64(fs.groupBlocks(g)) {
			continue // flex_bg: in another group
		}
		at, n := uint32(own.blk-first)>>fs.clusterBits, own.n>>fs.clusterBits
		if countSet(bm, at, n) != n {
			return ondisk.Corrupt("block bitmap: %s is not marked as used", own.what)
		}
	}
	return nil
}

// handle is also the allocator's Marker: it marks ranges in the on-disk
// bitmap and descriptor within itself. The allocator holds the group's lock.

// TID implements mballoc.Marker.
func (h *handle) TID() uint32 { return h.tid() }

// MarkUsed implements mballoc.Marker.
func (h *handle) MarkUsed(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) error {
	return h.markBlocks(ondisk.GroupNumber(g), uint32(start), n, true)
}

// MarkFree implements mballoc.Marker.
func (h *handle) MarkFree(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) error {
	return h.markBlocks(ondisk.GroupNumber(g), uint32(start), n, false)
}

func (h *handle) markBlocks(g ondisk.GroupNumber, start, n uint32, used bool) error {
	fs, gr := h.fs, &h.fs.groups[g]
	b, err := fs.blockBitmap(g)
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.getWrite(b); err != nil {
		return err
	}
	if err := h.getWrite(gr.gdb); err != nil {
		return err
	}
	gr.mu.Lock()
	err = fs.markBlocksLocked(g, gr, b.Data(), start, n, used)
	gr.mu.Unlock()
	if err != nil {
		return fs.corrupt(ondisk.AtBlock(ondisk.InGroup(err, g), fs.groupFirstBlock(g)+ondisk.FsBlock(start<<fs.clusterBits)))
	}
	if err := h.dirty(b); err != nil {
		return err
	}
	return h.dirty(gr.gdb)
}

// markBlocksLocked changes bitmap, counts and checksums together, or nothing.
func (fs *FS) markBlocksLocked(g ondisk.GroupNumber, gr *group, bm []byte, start, n uint32, used bool) error {
	if uint64(start)+uint64(n) > uint64(len(bm))*8 {
		return ondisk.Corrupt("block range %d+%d is outside the group", start, n)
	}
	set := countSet(bm, start, n)
	free := gr.desc.FreeClusters()
	switch {
	case used && (set != 0 || free < n):
		return ondisk.Corrupt("allocating %d clusters, of which %d are in use already (group has %d free)", n, set, free)
	case !used && set != n:
		return ondisk.Corrupt("freeing %d clusters, of which %d are free already", n, n-set)
	}
	delta := int64(n)
	if used {
		setBits(bm, start, n)
		delta = -delta
	} else {
		clearBits(bm, start, n)
	}
	if gr.blockUninit.Load() {
		gr.desc.SetFlags(gr.desc.Flags() &^ ondisk.BGBlockUninit)
		gr.blockUninit.Store(false)
	}
	free = uint32(int64(free) + delta)
	gr.desc.SetFreeClusters(free)
	gr.freeClusters.Store(free)
	fs.csum.SetBlockBitmap(gr.desc, bm)
	fs.csum.SetGroupDesc(g, gr.desc)
	fs.addClusters(g, delta)
	return nil
}

// allocReq asks for blocks of one inode.
type allocReq struct {
	logical ondisk.LBlock
	n       uint32 // blocks
	size    uint64 // file size in bytes, this write included
	flags   mballoc.Flags

	goal    ondisk.FsBlock // with hasGoal; else near the inode
	hasGoal bool

	left     ondisk.LBlock // the mapped block before logical, with hasLeft
	leftPhys ondisk.FsBlock
	hasLeft  bool

	right     ondisk.LBlock // the first mapped block behind logical+n, with hasRight
	rightPhys ondisk.FsBlock
	hasRight  bool

	writer uint32 // same for what one process writes
}

// allocBlocks allocates up to r.n blocks in one run for inode i and marks them
// used in h. It does not change the inode. ENOSPC: see spaceMayCome.
func (fs *FS) allocBlocks(h *handle, i *Inode, r *allocReq) (ondisk.FsBlock, uint32, error) {
	bits := fs.clusterBits
	lc := r.logical >> bits
	req := mballoc.Request{
		Ino: uint32(i.ino), State: &i.pa, Logical: mballoc.LCluster(lc), Len: fs.clustersOf(r.logical, r.n),
		Goal: fs.clusterOf(fs.allocGoal(i, r)), HasGoal: true,
		Size: r.size, Flags: r.flags, Writer: r.writer,
	}
	if r.hasLeft {
		req.Left = mballoc.Neighbour{Logical: mballoc.LCluster(r.left >> bits), Physical: fs.clusterOf(r.leftPhys), Valid: true}
	}
	if r.hasRight {
		req.Right = mballoc.Neighbour{Logical: mballoc.LCluster(r.right >> bits), Physical: fs.clusterOf(r.rightPhys), Valid: true}
	}
	if r.flags&mballoc.Data == 0 {
		req.State = nil
	}
	if h.root {
		req.Flags |= mballoc.UseRoot
	}
	res, err := fs.alloc.Allocate(h, &req)
	if err != nil {
		return 0, 0, fs.allocError(err)
	}
	skip := uint32(r.logical - lc<<bits) // blocks of the first cluster that are not asked for
	return fs.blockOf(res.Start) + ondisk.FsBlock(skip), min(res.Len<<bits-skip, r.n), nil
}

// allocGoal is the block where it would be best: behind what is mapped before,
// or what the caller says, or near the inode.
func (fs *FS) allocGoal(i *Inode, r *allocReq) ondisk.FsBlock {
	goal := ondisk.FsBlock(0)
	switch {
	case r.hasLeft:
		goal = r.leftPhys + ondisk.FsBlock(r.logical-r.left)
	case r.hasGoal:
		goal = r.goal
	}
	if !fs.validBlocks(goal, 1) {
		return fs.inodeGoal(i)
	}
	return goal
}

// newMetaBlock allocates one block for metadata of inode i near goal (0: near
// the inode): a pinned, zeroed buffer to which h has write access. The caller
// fills it, calls h.dirty, and counts it in the inode.
func (fs *FS) newMetaBlock(h *handle, i *Inode, goal ondisk.FsBlock) (*bcache.Buffer, error) {
	blk, _, err := fs.allocBlocks(h, i, &allocReq{n: 1, goal: goal, hasGoal: goal != 0, flags: mballoc.UseReserved})
	if err != nil {
		return nil, err
	}
	b, err := fs.cache.Get(uint64(blk))
	if err != nil {
		return nil, fs.ioError(err)
	}
	if err := h.getCreate(b); err != nil {
		b.Put()
		return nil, err
	}
	clear(b.Data())
	b.SetUptodate()
	return b, nil
}

// freeBlocks frees n blocks from blk on, in as many groups as they span. For
// metadata (which the journal may hold) each block is revoked. They can be
// allocated again once the transaction has committed.
func (fs *FS) freeBlocks(h *handle, i *Inode, blk ondisk.FsBlock, n uint32, metadata bool) error {
	if !fs.validBlocks(blk, uint64(n)) || n == 0 {
		return fs.corrupt(&ondisk.CorruptError{What: "freeing blocks outside the file system", Inode: i.ino, Block: blk})
	}
	if metadata {
		for k := uint32(0); k < n; k++ {
			if err := h.revoke(blk + ondisk.FsBlock(k)); err != nil {
				return err
			}
		}
	}
	if fs.replay != nil { // what is really free it decides at the end
		fs.replay.drop(uint64(blk), n)
		return nil
	}
	return fs.releaseClusters(h, fs.clusterOf(blk), uint32(fs.clusterBlocks(blk, n)>>fs.clusterBits))
}

// releaseClusters frees n clusters from c on.
func (fs *FS) releaseClusters(h *handle, c mballoc.Cluster, n uint32) error {
	flags := mballoc.FreeFlags(0)
	if h.jh == nil && !fs.opts.Discard {
		flags = mballoc.FreeNow // else writeBackUnlogged discards and releases them, merged
	}
	for n > 0 {
		inGroup := uint64(fs.clustersPerGroup) - uint64(c)%uint64(fs.clustersPerGroup)
		k := uint32(min(uint64(n), inGroup))
		if err := fs.alloc.Free(h, c, k, flags); err != nil {
			return fs.allocError(err)
		}
		c, n = c+mballoc.Cluster(k), n-k
	}
	return nil
}

// inodeGoal is where the first block of an inode should go: in the inode's
// group; with flex groups of at least 4 groups at the start of the flex group,
// one group on for files, so that its first group is left to directories.
func (fs *FS) inodeGoal(i *Inode) ondisk.FsBlock {
	g, _ := fs.groupOf(i.ino)
	if fs.flexBits >= 2 {
		g &^= 1<<fs.flexBits - 1
		if i.raw.Mode&ondisk.ModeFmt == ondisk.ModeReg && g+1 < fs.groupCount {
			g++
		}
	}
	return fs.groupFirstBlock(g)
}

// allocError turns the allocator's errors into ours.
func (fs *FS) allocError(err error) error {
	var bad *mballoc.GroupError
	switch {
	case errors.Is(err, mballoc.ErrNoSpace):
		return syscall.ENOSPC
	case errors.As(err, &bad) && !isCorrupt(err):
		return fs.corrupt(&ondisk.CorruptError{What: bad.Error(), Group: ondisk.GroupNumber(bad.Group), HasGroup: true})
	}
	return err
}

// maxAllocRetries bounds the commits that one operation forces to find space.
const maxAllocRetries = 3

// spaceMayCome tells whether an operation that failed with ENOSPC, and has
// stopped its handle, is worth doing again: blocks that were freed but not
// committed have then been committed. try counts the attempts from 0.
func (fs *FS) spaceMayCome(try int) bool {
	return try < maxAllocRetries && fs.alloc.PendingClusters() > 0 && fs.forceCommit() == nil
}

// reservedClusters is what is kept back so that metadata operations never
// fail half-way: 2 % of the file system, at most 4096 clusters.
// Without extents there is nothing to split, and nothing is kept.
func (fs *FS) reservedClusters() uint64 {
	if !fs.extents {
		return 0
	}
	return min(fs.blocks>>fs.clusterBits/50, 4096)
}

// mayUseRoot tells whether the caller may use the blocks reserved for the
// superuser: root, s_def_resuid, or a member of s_def_resgid.
func (fs *FS) mayUseRoot(c *Caller) bool {
	if c == nil || c.UID == 0 {
		return true
	}
	fs.super.mu.Lock()
	uid, gid := fs.super.sb.Resuid(), fs.super.sb.Resgid()
	fs.super.mu.Unlock()
	if fs.opts.ResUID != nil {
		uid = *fs.opts.ResUID
	}
	if fs.opts.ResGID != nil {
		gid = *fs.opts.ResGID
	}
	if c.UID == uid {
		return true
	}
	if gid == 0 {
		return false
	}
	if c.GID == gid {
		return true
	}
	if c.Groups != nil {
		for _, g := range c.Groups() {
			if g == gid {
				return true
			}
		}
	}
	return false
}

// discardFreed tells the device about blocks that came free for good, with
// -o discard.
func (fs *FS) discardFreed(c mballoc.Cluster, n uint32) {
	if !fs.opts.Discard || fs.discards.unsupported.Load() {
		return
	}
	switch err := fs.discard(c, n); {
	case err == nil:
	case !errors.Is(err, blockdev.ErrNotSupported):
		fs.deviceFailed(err)
	case fs.discards.unsupported.CompareAndSwap(false, true):
		fs.logf(LevelWarn, "discard: %v; no more discards are sent", err)
	}
}

// committed is called by the journal after each commit, in order: the blocks
// that the transaction freed can be used again.
func (fs *FS) committed(tid uint32) {
	if fs.opts.Discard && !fs.discards.unsupported.Load() {
		fs.alloc.Committed(tid, fs.discardFreed)
		return
	}
	fs.alloc.Committed(tid, nil)
}

// Statfs is what statfs(2) shows: the overhead of the file system's own
// structures does not count as space, unless minixdf asks for it.
func (fs *FS) Statfs() StatFS {
	fs.super.mu.Lock()
	reserved := fs.super.sb.ReservedBlocks()
	uuid := fs.super.sb.UUID
	fs.super.mu.Unlock()
	s := StatFS{
		BlockSize: uint32(fs.blockSize), Blocks: fs.blocks,
		BlocksFree: uint64(max(fs.freeClusters.Load(), 0)) << fs.clusterBits,
		Files:      uint64(fs.inodes), FilesFree: uint64(max(fs.freeInodes.Load(), 0)),
		NameLen: MaxNameLen, FSID: foldUUID(uuid),
	}
	if !fs.opts.MinixDF {
		s.Blocks -= min(fs.overhead, s.Blocks)
	}
	reserved += fs.reservedClusters() << fs.clusterBits
	s.BlocksAvail = s.BlocksFree - min(reserved, s.BlocksFree)
	return s
}

// foldUUID is f_fsid: both halves of the UUID, xor.
func foldUUID(u [16]byte) uint64 {
	var v uint64
	for k := 7; k >= 0; k-- {
		v = v<<8 | uint64(u[k]^u[k+8])
	}
	return v
}

// computeOverhead is the number of blocks that statfs does not count: what
// lies before the first data block, superblocks and descriptors, bitmaps,
// inode tables and the internal journal. s_overhead_clusters knows it, if
// mke2fs wrote it.
func (fs *FS) computeOverhead(sb *ondisk.SuperBlock, journalBlocks uint64) uint64 {
	if n := uint64(sb.OverheadClusters); n > 0 && n<<fs.clusterBits < fs.blocks {
		return n << fs.clusterBits
	}
	n := uint64(sb.FirstDataBlock)
	for g := ondisk.GroupNumber(0); g < fs.groupCount; g++ {
		n += uint64(fs.descBlocksIn(g)) + uint64(fs.itableBlocks) + 2
		if sb.HasSuper(g) {
			n++
		}
	}
	return n + journalBlocks
}
