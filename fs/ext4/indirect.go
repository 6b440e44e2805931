package ext4

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

// Files without the EXTENTS flag (ext2, ext3) map their blocks through
// i_block: 12 direct ones, then trees of one, two and three levels of blocks
// full of 32-bit numbers. They can be read here, not changed.

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
