package ext4

import (
	"sync"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/extent"
	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// From logical blocks of an inode to blocks of the device: first the
// extent-status cache, then the extent tree. The tree changes only under
// Inode.mu held exclusively; mapRun needs it shared.

// maxLBlocks is the number of logical blocks a file can have at most: the last
// number, 2^32 - 1, cannot be stored as the end of an extent.
const maxLBlocks = 1<<32 - 1

// mapRun says what logical block l is, and how far that goes on. The run
// starts at l and has at least one block; it may end earlier than the real one.
func (i *Inode) mapRun(l ondisk.LBlock) (esRun, error) {
	if r, ok := i.es.lookup(i.fs.ops.es, l); ok {
		return r, nil
	}
	return i.mapFromTree(l)
}

// mapFromTree asks the extent tree, and remembers the answer.
func (i *Inode) mapFromTree(l ondisk.LBlock) (esRun, error) {
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return i.mapIndirect(l)
	}
	t := openTree(i, nil)
	defer t.close()
	e, mapped, err := t.Lookup(l)
	if err != nil {
		return esRun{}, i.fs.report(ondisk.InInode(err, i.ino))
	}
	r, err := i.runOf(e, mapped)
	if err != nil {
		return esRun{}, err
	}
	i.es.insert(i.fs.ops.es, r)
	return r.from(l), nil
}

// runOf turns an extent into a run; one that leads out of the file system is
// corruption.
func (i *Inode) runOf(e extent.Extent, mapped bool) (esRun, error) {
	r := esRun{l: e.Logical, n: e.Len}
	if !mapped {
		return r, nil
	}
	r.st, r.p = esWritten, e.Physical
	if e.Unwritten {
		r.st = esUnwritten
	}
	if !i.fs.validBlocks(r.p, uint64(r.n)) {
		return r, i.fs.report(&ondisk.CorruptError{What: "extent outside of the file system", Inode: i.ino, Block: r.p})
	}
	if mask := uint64(1)<<i.fs.clusterBits - 1; (uint64(r.p)^uint64(r.l))&mask != 0 {
		return r, i.fs.report(&ondisk.CorruptError{What: "extent at another place of its cluster than the file has it", Inode: i.ino, Block: r.p})
	}
	return r, nil
}

// treeOp is one use of an inode's extent tree: the extent.Tree over the buffer
// cache and the pins on the nodes it touched. h is nil for reading.
type treeOp struct {
	extent.Tree
	i    *Inode
	h    *handle
	bufs []treeBuf
	few  [6]treeBuf
}

type treeBuf struct {
	b        *bcache.Buffer
	writable bool
}

var treeOps = sync.Pool{New: func() any { return new(treeOp) }}

// openTree prepares a use of i's tree. The caller holds i.mu, exclusively if h
// is not nil, and calls close; the root is in i.raw, so after a change
// markDirty follows.
func openTree(i *Inode, h *handle) *treeOp {
	t := treeOps.Get().(*treeOp)
	t.i, t.h = i, h
	t.bufs = t.few[:0]
	t.Tree = extent.Tree{Root: i.raw.Block[:], Store: t, BlockSize: i.fs.blockSize, MaxBlock: ondisk.FsBlock(i.fs.blocks)}
	return t
}

func (t *treeOp) close() {
	for k := range t.bufs {
		t.bufs[k].b.Put()
	}
	clear(t.bufs)
	t.i, t.h, t.bufs, t.Tree = nil, nil, nil, extent.Tree{}
	treeOps.Put(t)
}

func (t *treeOp) find(blk ondisk.FsBlock) *treeBuf {
	for k := range t.bufs {
		if t.bufs[k].b.Block() == uint64(blk) {
			return &t.bufs[k]
		}
	}
	return nil
}

// Get is extent.Store's.
func (t *treeOp) Get(blk ondisk.FsBlock, write bool) ([]byte, error) {
	p := t.find(blk)
	if p == nil {
		b, err := t.i.readExtentBlock(blk)
		if err != nil {
			return nil, err
		}
		t.bufs = append(t.bufs, treeBuf{b: b})
		p = &t.bufs[len(t.bufs)-1]
	}
	if write && !p.writable {
		if err := t.h.getWrite(p.b); err != nil {
			return nil, err
		}
		p.writable = true
	}
	return p.b.Data(), nil
}

// readExtentBlock returns a node of i's tree pinned, its checksum verified when
// it comes from the device.
func (i *Inode) readExtentBlock(blk ondisk.FsBlock) (*bcache.Buffer, error) {
	if !i.fs.validBlocks(blk, 1) {
		return nil, &ondisk.CorruptError{What: "extent node outside of the file system", Inode: i.ino, Block: blk}
	}
	if b := i.fs.cache.Lookup(uint64(blk)); b != nil && b.Uptodate() {
		return b, nil
	} else if b != nil {
		b.Put()
	}
	return i.fs.cache.Read(uint64(blk), func(data []byte) error {
		if !i.fs.csum.VerifyExtentBlock(i.seed, data) {
			return &ondisk.CorruptError{What: "extent node with a wrong checksum", Inode: i.ino, Block: blk}
		}
		return ondisk.AtBlock(extent.CheckNode(data, ondisk.FsBlock(i.fs.blocks)), blk)
	})
}

// New is extent.Store's: a node near the inode's data.
func (t *treeOp) New() (ondisk.FsBlock, []byte, error) {
	b, err := t.i.fs.newMetaBlock(t.h, t.i, 0)
	if err != nil {
		return 0, nil, err
	}
	t.i.addMeta(1)
	t.bufs = append(t.bufs, treeBuf{b: b, writable: true})
	return ondisk.FsBlock(b.Block()), b.Data(), nil
}

// Dirty is extent.Store's.
func (t *treeOp) Dirty(blk ondisk.FsBlock) error {
	p := t.find(blk)
	if p == nil {
		return syscall.EINVAL // never asked for: a bug of the caller
	}
	t.i.fs.csum.SetExtentBlock(t.i.seed, p.b.Data())
	return t.h.dirty(p.b)
}

// Free is extent.Store's.
func (t *treeOp) Free(blk ondisk.FsBlock) error {
	if p := t.find(blk); p != nil {
		p.b.Put()
		*p = t.bufs[len(t.bufs)-1]
		t.bufs[len(t.bufs)-1] = treeBuf{}
		t.bufs = t.bufs[:len(t.bufs)-1]
	}
	return t.i.freeRun(t.h, blk, 1, true)
}

// treeDepth is the depth of i's extent tree, 0 if all extents are in the inode.
func (i *Inode) treeDepth() int {
	return min(int(i.raw.Block[6]), ondisk.ExtentMaxDepth)
}

// insertRun maps a run that was a hole. The caller marks the inode dirty.
func (i *Inode) insertRun(h *handle, r esRun) error {
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return i.insertIndirect(h, r)
	}
	t := openTree(i, h)
	err := t.Insert(extent.Extent{Logical: r.l, Len: r.n, Physical: r.p, Unwritten: r.st == esUnwritten})
	t.close()
	if err != nil {
		i.es.drop(i.fs.ops.es)
		return i.fs.report(ondisk.InInode(err, i.ino))
	}
	i.es.insert(i.fs.ops.es, r)
	return nil
}

// convertRun makes a mapped run, as mapRun gave it, written or unwritten. The
// caller marks the inode dirty.
func (i *Inode) convertRun(h *handle, r esRun, st extentState) error {
	t := openTree(i, h)
	err := t.Convert(r.l, r.n, st == esUnwritten)
	t.close()
	if err != nil {
		i.es.drop(i.fs.ops.es)
		return i.fs.report(ondisk.InInode(err, i.ino))
	}
	r.st = st
	i.es.insert(i.fs.ops.es, r)
	return nil
}

// allocKind is what blocks are wanted for.
type allocKind uint8

const (
	allocData      allocKind = iota // file data: normalised, preallocated
	allocFallocate                  // a length known to be wanted as it is
	allocDirectory                  // one block of a directory
)

// maxAlloc is the most blocks asked for at once: what an unwritten extent holds.
const maxAlloc = ondisk.ExtentMaxUnwrittenLen

// allocRun allocates up to n blocks for the start of hole, a run as mapRun gave
// it; size is what the file's size will be, in bytes. The blocks are in nobody's
// map yet: insertRun or freeRun follows in the same handle. With bigalloc they
// come in whole clusters, of which a file's logical cluster has got one or none.
func (i *Inode) allocRun(h *handle, hole esRun, n uint32, size uint64, kind allocKind) (ondisk.FsBlock, uint32, error) {
	req := allocReq{logical: hole.l, n: min(n, hole.n, maxAlloc), size: size}
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		req.n = min(req.n, i.fs.tableRest(hole.l))
	}
	if kind != allocDirectory {
		req.flags = mballoc.Data
	}
	if kind == allocFallocate {
		req.flags |= mballoc.NoNormalize
	}
	if kind == allocData && i.writers.Load() == 0 {
		req.flags |= mballoc.NoWriter
	}
	if err := i.neighbours(hole, &req); err != nil {
		return 0, 0, err
	}
	if err := i.clipToClusters(hole, &req); err != nil {
		return 0, 0, err
	}
	var err error
	if req.n, err = i.quotaRoom(h, req.n); err != nil {
		return 0, 0, err
	}
	p, got, err := i.fs.allocBlocks(h, i, &req)
	if err != nil {
		return 0, 0, err
	}
	if !i.addBlocks(i.fs.clusterBlocks(p, got)) {
		return 0, 0, first(syscall.EFBIG, i.fs.freeBlocks(h, i, p, got, false))
	}
	return p, got, nil
}

// neighbours fills in what is mapped before the hole and right behind it, or
// else where blocks of that place would be best.
func (i *Inode) neighbours(hole esRun, req *allocReq) error {
	if hole.end() < maxLBlocks {
		r, err := i.mapRun(ondisk.LBlock(hole.end()))
		if err != nil {
			return err
		}
		if r.st != esHole {
			req.right, req.rightPhys, req.hasRight = r.l, r.p, true
		}
	}
	if hole.l > 0 {
		r, err := i.mapRun(hole.l - 1)
		if err != nil {
			return err
		}
		if r.st != esHole {
			req.left, req.leftPhys, req.hasLeft = r.l, r.p, true
			return nil
		}
	}
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return nil
	}
	t := openTree(i, nil)
	defer t.close()
	left, _, ok, _, err := t.Neighbours(hole.l)
	if err != nil {
		return i.fs.report(ondisk.InInode(err, i.ino))
	}
	if ok { // with a gap between
		req.left = ondisk.LBlock(left.End() - 1)
		req.leftPhys, req.hasLeft = left.At(req.left), true
		return nil
	}
	req.goal, req.hasGoal = t.FindGoal(hole.l)
	return nil
}

// addBlocks counts n more (or less) blocks in i_blocks; false: it cannot hold
// the number.
func (i *Inode) addBlocks(n int64) bool {
	fs := i.fs
	v := int64(i.raw.Sectors(fs.hugeFile, fs.blockBits)) + n<<(fs.blockBits-9)
	return i.raw.SetSectors(uint64(max(v, 0)), fs.hugeFile, fs.blockBits)
}

// blocksJournaled tells whether the blocks that i maps went through the journal:
// those of directories, of symlinks and of files whose data is logged. Freeing them must revoke them, or a
// replay writes an old target over whatever the block holds by then.
func (i *Inode) blocksJournaled() bool {
	f := i.raw.Mode & ondisk.ModeFmt
	return f == ondisk.ModeDir || f == ondisk.ModeLnk || i.journalsData()
}

// freeRun gives blocks back that are mapped nowhere any more; metadata says
// that they were nodes or directory blocks. The caller marks the inode dirty.
func (i *Inode) freeRun(h *handle, p ondisk.FsBlock, n uint32, metadata bool) error {
	if err := i.fs.freeBlocks(h, i, p, n, metadata); err != nil {
		return err
	}
	i.addBlocks(-i.fs.clusterBlocks(p, n))
	return nil
}

// addMeta counts n more (or less) blocks of metadata, each of which has a
// cluster of its own.
func (i *Inode) addMeta(n int64) { i.addBlocks(n << i.fs.clusterBits) }

// allocInsert allocates, fills by the given function and maps up to n blocks of
// a hole, in h. When something fails nothing of it remains.
func (i *Inode) allocInsert(h *handle, hole esRun, n uint32, size uint64, kind allocKind, st extentState, fill func(r esRun) error) (esRun, error) {
	p, got, implied, err := i.impliedRun(hole, n)
	if err == nil && !implied {
		p, got, err = i.allocRun(h, hole, n, size, kind)
	}
	if err != nil {
		return esRun{}, err
	}
	r := esRun{l: hole.l, n: got, st: st, p: p}
	if fill != nil {
		err = fill(r)
	}
	if err == nil {
		err = i.insertRun(h, r)
	}
	if err != nil && !implied {
		err = first(err, i.freeRun(h, p, got, i.blocksJournaled()))
	}
	if err != nil {
		return esRun{}, err
	}
	return r, nil
}
