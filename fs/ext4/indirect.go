package ext4

import (
	"encoding/binary"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// Files without the EXTENTS flag (ext2, ext3) map their blocks through
// i_block: 12 direct ones, then trees of one, two and three levels of blocks
// full of 32-bit numbers. There are no unwritten blocks among them.

// directBlocks is the number of direct blocks in i_block.
const directBlocks = 12

// mapIndirect maps logical block l, and as many behind it as the same block of
// numbers shows to follow it.
func (i *Inode) mapIndirect(l ondisk.LBlock) (esRun, error) {
	level, idx, span := i.fs.indirectPath(l)
	table := i.raw.Block[:4*directBlocks]
	if level > 0 {
		table = i.raw.Block[4*(directBlocks+level-1):][:4]
	}
	if level < 0 {
		return esRun{l: l, n: uint32(maxLBlocks - uint64(l))}, nil
	}
	for ; level > 0; level-- {
		blk := ondisk.FsBlock(binary.LittleEndian.Uint32(table[4*min(idx/span, uint64(len(table)/4-1)):]))
		if blk == 0 { // all below is a hole
			n := span - idx%span
			return i.cacheRun(esRun{l: l, n: uint32(min(n, maxLBlocks-uint64(l)))}), nil
		}
		data, err := i.readIndirect(blk)
		if err != nil {
			return esRun{}, err
		}
		table = data
		idx %= span
		span /= uint64(i.fs.blockSize / 4)
	}
	r, err := i.scanTable(table, int(idx), l)
	if err != nil {
		return r, err
	}
	return i.cacheRun(r), nil
}

func (i *Inode) cacheRun(r esRun) esRun {
	i.es.insert(i.fs.ops.es, r)
	return r
}

// indirectPath says in which of the four trees block l is (level -1: behind
// them all), its index among the tree's blocks, and how many blocks a number
// of the tree's root table stands for.
func (fs *FS) indirectPath(l ondisk.LBlock) (level int, idx, span uint64) {
	idx = uint64(l)
	if idx < directBlocks {
		return 0, idx, 1
	}
	idx -= directBlocks
	per := uint64(fs.blockSize / 4)
	span = per
	for level = 1; level <= 3; level++ {
		if idx < span {
			return level, idx, span
		}
		idx -= span
		span *= per
	}
	return -1, idx, span
}

// readIndirect returns a copy of a block of numbers. They have no checksum.
func (i *Inode) readIndirect(blk ondisk.FsBlock) ([]byte, error) {
	if !i.fs.validBlocks(blk, 1) {
		return nil, i.fs.corrupt(&ondisk.CorruptError{What: "indirect block outside of the file system", Inode: i.ino, Block: blk})
	}
	b, err := i.fs.cache.Read(uint64(blk), nil)
	if err != nil {
		return nil, i.fs.ioError(err)
	}
	defer b.Put()
	return append([]byte(nil), b.Data()...), nil
}

// scanTable finds the run that starts with number k of a table, which is of
// logical block l.
func (i *Inode) scanTable(table []byte, k int, l ondisk.LBlock) (esRun, error) {
	at := func(k int) ondisk.FsBlock { return ondisk.FsBlock(binary.LittleEndian.Uint32(table[4*k:])) }
	r := esRun{l: l, n: 1, p: at(k)}
	if r.p != 0 {
		r.st = esWritten
	}
	for k++; k < len(table)/4; k++ {
		next := ondisk.FsBlock(0)
		if r.p != 0 {
			next = r.p + ondisk.FsBlock(r.n)
		}
		if at(k) != next {
			break
		}
		r.n++
	}
	if r.p != 0 && !i.fs.validBlocks(r.p, uint64(r.n)) {
		return r, i.fs.corrupt(&ondisk.CorruptError{What: "block outside of the file system", Inode: i.ino, Block: r.p})
	}
	return r, nil
}

// indirectBlocks is how many blocks a file can map.
func (fs *FS) indirectBlocks() uint64 {
	per := uint64(fs.blockSize / 4)
	return directBlocks + per + per*per + per*per*per
}

// fits32 tells whether a block can be numbered in 32 bits, as it must be here.
func fits32(blk ondisk.FsBlock) bool { return blk < 1<<32 }

// tableRest is how many logical blocks from l on have their numbers in the same
// block (or in the inode) as l's.
func (fs *FS) tableRest(l ondisk.LBlock) uint32 {
	if l < directBlocks {
		return directBlocks - uint32(l)
	}
	per := uint64(fs.blockSize / 4)
	return uint32(per - (uint64(l)-directBlocks)%per)
}

// insertIndirect maps a run that was a hole and whose numbers are all in one
// block, which is made if it is not there, and those above it (creditsExtent).
// When that fails nothing of the run is mapped. The caller marks the inode dirty.
func (i *Inode) insertIndirect(h *handle, r esRun) error {
	level, idx, span := i.fs.indirectPath(r.l)
	if level < 0 || i.fs.clusterBits > 0 || !fits32(r.p+ondisk.FsBlock(r.n-1)) {
		return syscall.EFBIG
	}
	table, k := i.raw.Block[:4*directBlocks], int(idx)
	var b *bcache.Buffer
	if level > 0 {
		table, k = i.raw.Block[:], directBlocks+level-1
	}
	for ; level > 0; level-- {
		child, err := i.childTable(h, table, k, b)
		if b != nil {
			b.Put()
		}
		if err != nil {
			return err
		}
		b, table = child, child.Data()
		span /= uint64(i.fs.blockSize / 4)
		k = int(idx / span)
		idx %= span
	}
	if b != nil {
		defer b.Put()
		if err := h.getWrite(b); err != nil {
			return err
		}
	}
	for n := uint32(0); n < r.n; n++ {
		binary.LittleEndian.PutUint32(table[4*(k+int(n)):], uint32(r.p)+n)
	}
	i.es.insert(i.fs.ops.es, r)
	if b == nil {
		return nil
	}
	return h.dirty(b)
}

// childTable returns the block of numbers that entry k of a table leads to,
// pinned; a missing one is made, empty. b is the table's block, nil for i_block.
func (i *Inode) childTable(h *handle, table []byte, k int, b *bcache.Buffer) (*bcache.Buffer, error) {
	blk := ondisk.FsBlock(binary.LittleEndian.Uint32(table[4*k:]))
	if blk != 0 {
		if !i.fs.validBlocks(blk, 1) {
			return nil, i.fs.corrupt(&ondisk.CorruptError{What: "indirect block outside of the file system", Inode: i.ino, Block: blk})
		}
		child, err := i.fs.cache.Read(uint64(blk), nil)
		if err != nil {
			return nil, i.fs.ioError(err)
		}
		return child, nil
	}
	if b != nil {
		if err := h.getWrite(b); err != nil {
			return nil, err
		}
	}
	child, err := i.fs.newMetaBlock(h, i, 0)
	if err != nil {
		return nil, err
	}
	i.addMeta(1)
	if !fits32(ondisk.FsBlock(child.Block())) {
		defer child.Put()
		return nil, first(syscall.EFBIG, i.freeRun(h, ondisk.FsBlock(child.Block()), 1, true))
	}
	binary.LittleEndian.PutUint32(table[4*k:], uint32(child.Block()))
	err = h.dirty(child)
	if b != nil {
		err = first(err, h.dirty(b))
	}
	if err != nil {
		child.Put()
		return nil, err
	}
	return child, nil
}

// freeIndirect unmaps and frees all blocks from logical block from on, from the
// end backwards, so that what is left is valid whenever the handle is
// restarted. The caller marks the inode dirty.
func (i *Inode) freeIndirect(h *handle, from ondisk.LBlock) error {
	base, spans := uint64(directBlocks), [4]uint64{}
	bases := [4]uint64{}
	for level, span := 1, uint64(i.fs.blockSize/4); level <= 3; level++ {
		bases[level], spans[level] = base, span
		base += span
		span *= uint64(i.fs.blockSize / 4)
	}
	for level := 3; level >= 1; level-- {
		if bases[level]+spans[level] <= uint64(from) {
			continue
		}
		f := indirectFreer{i: i, h: h, from: uint64(from)}
		if err := f.child(i.raw.Block[4*(directBlocks+level-1):][:4], 0, nil, level, bases[level]); err != nil {
			return err
		}
	}
	f := indirectFreer{i: i, h: h, from: uint64(from)}
	return f.leaf(i.raw.Block[:4*directBlocks], nil, 0)
}

// indirectFreer is one freeIndirect under way.
type indirectFreer struct {
	i    *Inode
	h    *handle
	from uint64
}

// creditsIndirect: a block of numbers, one or two groups, the inode.
const creditsIndirect = 1 + 2*creditsGroup + creditsInode

// ready makes sure that the next change has credits, and takes write access to
// the table that it changes (nil: i_block).
func (f *indirectFreer) ready(b *bcache.Buffer, credits int) error {
	if !f.h.ensure(credits) {
		if err := f.i.markDirty(f.h); err != nil {
			return err
		}
		if err := f.h.restart(creditsTruncate); err != nil {
			return err
		}
	}
	if b == nil {
		return nil
	}
	return f.h.getWrite(b)
}

func (f *indirectFreer) changed(b *bcache.Buffer) error {
	if b == nil {
		return nil
	}
	return f.h.dirty(b)
}

// child frees what is below entry k of a table, which leads to a tree of level
// levels that starts at logical block base, and the tree's root if that is
// empty then.
func (f *indirectFreer) child(table []byte, k int, b *bcache.Buffer, level int, base uint64) error {
	blk := ondisk.FsBlock(binary.LittleEndian.Uint32(table[4*k:]))
	if blk == 0 {
		return nil
	}
	empty, err := f.branch(blk, level, base)
	if err != nil || !empty {
		return err
	}
	if err := f.ready(b, creditsIndirect); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(table[4*k:], 0)
	if err := f.changed(b); err != nil {
		return err
	}
	return f.i.freeRun(f.h, blk, 1, true)
}

// branch frees what block blk of numbers leads to, and reports whether it leads
// to nothing any more.
func (f *indirectFreer) branch(blk ondisk.FsBlock, level int, base uint64) (empty bool, err error) {
	if !f.i.fs.validBlocks(blk, 1) {
		return false, f.i.fs.corrupt(&ondisk.CorruptError{What: "indirect block outside of the file system", Inode: f.i.ino, Block: blk})
	}
	b, err := f.i.fs.cache.Read(uint64(blk), nil)
	if err != nil {
		return false, f.i.fs.ioError(err)
	}
	defer b.Put()
	table := b.Data()
	if level == 1 {
		err = f.leaf(table, b, base)
		return err == nil && isZero(table), err
	}
	span := uint64(1)
	for k := 1; k < level; k++ {
		span *= uint64(len(table) / 4)
	}
	for k := len(table)/4 - 1; k >= 0 && base+uint64(k+1)*span > f.from; k-- {
		if err := f.child(table, k, b, level-1, base+uint64(k)*span); err != nil {
			return false, err
		}
	}
	return isZero(table), nil
}

// leaf frees the blocks whose numbers are in a table, in runs; the first is
// that of logical block base.
func (f *indirectFreer) leaf(table []byte, b *bcache.Buffer, base uint64) error {
	at := func(k int) ondisk.FsBlock { return ondisk.FsBlock(binary.LittleEndian.Uint32(table[4*k:])) }
	for k := len(table)/4 - 1; k >= 0 && base+uint64(k) >= f.from; k-- {
		if at(k) == 0 {
			continue
		}
		end := k + 1
		for k > 0 && base+uint64(k-1) >= f.from && at(k-1) != 0 && at(k-1)+1 == at(k) {
			k--
		}
		n := uint32(end - k)
		if err := f.ready(b, 1+f.i.fs.groupsSpanned(n)*creditsGroup+creditsInode); err != nil {
			return err
		}
		if i := f.i; i.blocksJournaled() {
			if err := i.markDirty(f.h); err != nil {
				return err
			}
			got, err := f.h.reserveRevokes(int(n), creditsTruncate)
			if err != nil {
				return err
			}
			k, n = end-got, uint32(got)
			if b != nil { // the handle may have gone on in the next transaction
				if err := f.h.getWrite(b); err != nil {
					return err
				}
			}
		}
		blk := at(k)
		clear(table[4*k : 4*end])
		if err := f.changed(b); err != nil {
			return err
		}
		if err := f.i.freeRun(f.h, blk, n, f.i.blocksJournaled()); err != nil {
			return err
		}
	}
	return nil
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
