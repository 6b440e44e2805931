package ext4

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

// Where a file lies, read without any cache: for the journal, which must be
// found before it is replayed, and for the orphan file.

func (fs *FS) readRaw(blk ondisk.FsBlock, p []byte) error {
	n, err := fs.dev.ReadAt(p, int64(blk)<<fs.blockBits)
	if n == len(p) {
		return nil
	}
	return fs.ioError(err)
}

// blockRun is Len adjacent blocks from Block on.
type blockRun struct {
	Block uint64
	Len   uint32
}

// runList collects blocks in logical order, joining those that touch.
type runList struct {
	fs    *FS
	runs  []blockRun
	total uint64 // blocks so far
	limit uint64 // blocks of the file
}

func (l *runList) add(logical uint64, blk ondisk.FsBlock, n uint32) error {
	if logical >= l.limit {
		return nil
	}
	n = uint32(min(uint64(n), l.limit-logical))
	if logical != l.total {
		return ondisk.Corrupt("file has a hole at block %d", l.total)
	}
	if !l.fs.validBlocks(blk, uint64(n)) {
		return ondisk.Corrupt("file has blocks outside the file system")
	}
	l.total += uint64(n)
	if k := len(l.runs) - 1; k >= 0 && l.runs[k].Block+uint64(l.runs[k].Len) == uint64(blk) && l.runs[k].Len+n > n {
		l.runs[k].Len += n
		return nil
	}
	l.runs = append(l.runs, blockRun{Block: uint64(blk), Len: n})
	return nil
}

// inodeRuns lists the blocks of a file without holes, in logical order, as
// many as its size says.
func (fs *FS) inodeRuns(i *Inode) ([]blockRun, error) {
	l := &runList{fs: fs, limit: (i.raw.Size() + uint64(fs.blockSize) - 1) >> fs.blockBits}
	if l.limit == 0 || l.limit > fs.blocks {
		return nil, &ondisk.CorruptError{What: "file size is out of range", Inode: i.ino}
	}
	var err error
	if i.raw.Flags&ondisk.InodeExtents != 0 {
		err = l.extents(i, i.raw.Block[:], -1)
	} else {
		err = l.blockMap(&i.raw.Block)
	}
	if err == nil && l.total != l.limit {
		err = ondisk.Corrupt("file has a hole at block %d", l.total)
	}
	return l.runs, ondisk.InInode(err, i.ino)
}

// extents walks an extent node; depth is what the header must say, -1 at the
// root.
func (l *runList) extents(i *Inode, node []byte, depth int) error {
	var h ondisk.ExtentHeader
	if err := h.Decode(node); err != nil {
		return err
	}
	if h.Depth > ondisk.ExtentMaxDepth || (depth >= 0 && int(h.Depth) != depth) {
		return ondisk.Corrupt("extent node has depth %d", h.Depth)
	}
	for k := 0; k < int(h.Entries); k++ {
		if h.Depth == 0 {
			x := ondisk.GetExtent(node, k)
			n, unwritten := x.Length()
			if unwritten {
				return ondisk.Corrupt("file has unwritten blocks")
			}
			if err := l.add(uint64(x.Block), x.Start, n); err != nil {
				return err
			}
			continue
		}
		if err := l.extentChild(i, ondisk.GetExtentIdx(node, k).Leaf, int(h.Depth)-1); err != nil {
			return err
		}
	}
	return nil
}

func (l *runList) extentChild(i *Inode, blk ondisk.FsBlock, depth int) error {
	if !l.fs.validBlocks(blk, 1) {
		return ondisk.Corrupt("extent node is outside the file system")
	}
	node := make([]byte, l.fs.blockSize)
	if err := l.fs.readRaw(blk, node); err != nil {
		return err
	}
	if !l.fs.csum.VerifyExtentBlock(i.seed, node) {
		return ondisk.AtBlock(ondisk.Corrupt("extent node: checksum is wrong"), blk)
	}
	return l.extents(i, node, depth)
}

// blockMap walks a classic block map: 12 direct blocks, then trees of one, two
// and three levels.
func (l *runList) blockMap(block *[60]byte) error {
	for k := 0; k < 15 && l.total < l.limit; k++ {
		blk := binary.LittleEndian.Uint32(block[4*k:])
		if err := l.indirect(ondisk.FsBlock(blk), max(k-11, 0)); err != nil {
			return err
		}
	}
	return nil
}

func (l *runList) indirect(blk ondisk.FsBlock, level int) error {
	if level == 0 {
		return l.add(l.total, blk, 1)
	}
	if !l.fs.validBlocks(blk, 1) {
		return ondisk.Corrupt("indirect block is outside the file system")
	}
	p := make([]byte, l.fs.blockSize)
	if err := l.fs.readRaw(blk, p); err != nil {
		return err
	}
	for ; len(p) >= 4 && l.total < l.limit; p = p[4:] {
		if err := l.indirect(ondisk.FsBlock(binary.LittleEndian.Uint32(p)), level-1); err != nil {
			return err
		}
	}
	return nil
}
