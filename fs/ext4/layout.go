package ext4

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"syscall"

	"extfused/fs/extent"
	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// Where files and free space lie, for those who want to look at it. All of
// this may be called on a mount that is being used: what it says of one file,
// or of one group, is of one moment.

// FileExtent is a run of blocks of a file.
type FileExtent struct {
	Logical   ondisk.LBlock  `json:"logical"`
	Physical  ondisk.FsBlock `json:"physical"`
	Len       uint32         `json:"length"` // blocks
	Unwritten bool           `json:"unwritten,omitempty"`
}

// FileLayout is where the blocks of one inode are.
type FileLayout struct {
	Ino     ondisk.InodeNumber `json:"inode"`
	Mode    uint32             `json:"mode"`
	Size    uint64             `json:"size"` // bytes
	Extents []FileExtent       `json:"extents"`
	// Meta is the number of blocks beside those of the extents: nodes of the
	// tree, indirect blocks, the attribute block.
	Meta uint32 `json:"metadata_blocks"`
	// Broken says that some block does not follow the one before it on the
	// device. Holes in the file do not count; indirect blocks do, in the order
	// in which e2fsck visits them.
	Broken bool `json:"-"`
	// NonContiguous is e2fsck's notion of it: Broken, and smaller than a group
	// (a larger file cannot be in one piece).
	NonContiguous bool `json:"non_contiguous"`
}

// FileLayout looks at one inode. ESTALE: there is no such inode (any more).
func (fs *FS) FileLayout(ino ondisk.InodeNumber) (FileLayout, error) {
	l := FileLayout{Ino: ino}
	err := fs.layoutOf(&l)
	return l, err
}

// layoutOf fills l, whose Ino is given; it reuses l.Extents.
func (fs *FS) layoutOf(l *FileLayout) error {
	i, err := fs.iget(l.Ino)
	if err != nil {
		return err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.raw.LinksCount == 0 && i.ino >= fs.firstIno {
		return syscall.ESTALE
	}
	*l = FileLayout{Ino: l.Ino, Mode: uint32(i.raw.Mode), Size: i.raw.Size(), Extents: l.Extents[:0]}
	if i.raw.FileACL() != 0 {
		l.Meta++
	}
	switch {
	case !i.mapsBlocks():
	case i.raw.Flags&ondisk.InodeExtents != 0:
		err = i.extentLayout(l)
	default:
		err = i.indirectLayout(l)
	}
	blocks := uint64(l.Meta)
	for _, e := range l.Extents {
		blocks += uint64(e.Len)
	}
	l.Broken = l.Broken && i.ino != ondisk.ResizeIno
	l.NonContiguous = l.Broken && blocks < uint64(fs.blocksPerGroup)
	return err
}

// extentLayout reads an extent tree.
func (i *Inode) extentLayout(l *FileLayout) error {
	t := openTree(i, nil)
	defer t.close()
	next := ondisk.FsBlock(0)
	err := t.Iterate(0, func(e extent.Extent) bool {
		l.Extents = append(l.Extents, FileExtent{e.Logical, e.Physical, e.Len, e.Unwritten})
		l.Broken = l.Broken || next != 0 && e.Physical != next
		next = e.Physical + ondisk.FsBlock(e.Len)
		return true
	})
	if err == nil && t.Depth() > 0 {
		err = t.EachNode(func(blk ondisk.FsBlock, _ []byte) error {
			if blk != 0 {
				l.Meta++
			}
			return nil
		})
	}
	return i.fs.report(ondisk.InInode(err, i.ino))
}

// indirectLayout reads the trees of a file without the EXTENTS flag.
func (i *Inode) indirectLayout(l *FileLayout) error {
	w := indirectWalk{i: i, l: l}
	if err := w.table(i.raw.Block[:4*directBlocks], 0, 0); err != nil {
		return err
	}
	base, span := uint64(directBlocks), uint64(i.fs.blockSize/4)
	for level := 1; level <= 3; level++ {
		if err := w.table(i.raw.Block[4*(directBlocks+level-1):][:4], level, base); err != nil {
			return err
		}
		base += span
		span *= uint64(i.fs.blockSize / 4)
	}
	return nil
}

type indirectWalk struct {
	i    *Inode
	l    *FileLayout
	last ondisk.FsBlock // visited before; 0 for none
}

// table visits the blocks whose numbers are in b, which are level levels above
// data; the first leads to logical block base.
func (w *indirectWalk) table(b []byte, level int, base uint64) error {
	span := uint64(1)
	for range level {
		span *= uint64(w.i.fs.blockSize / 4)
	}
	for k := 0; k < len(b)/4; k++ {
		blk := ondisk.FsBlock(binary.LittleEndian.Uint32(b[4*k:]))
		at := base + uint64(k)*span
		if blk == 0 || at >= maxLBlocks {
			continue
		}
		w.l.Broken = w.l.Broken || w.last != 0 && blk != w.last+1
		w.last = blk
		if level == 0 {
			w.data(blk, ondisk.LBlock(at))
			continue
		}
		w.l.Meta++
		below, err := w.i.readIndirect(blk)
		if err != nil {
			return err
		}
		if err := w.table(below, level-1, at); err != nil {
			return err
		}
	}
	return nil
}

func (w *indirectWalk) data(blk ondisk.FsBlock, at ondisk.LBlock) {
	if n := len(w.l.Extents); n > 0 {
		e := &w.l.Extents[n-1]
		if uint64(e.Logical)+uint64(e.Len) == uint64(at) && e.Physical+ondisk.FsBlock(e.Len) == blk {
			e.Len++
			return
		}
	}
	w.l.Extents = append(w.l.Extents, FileExtent{at, blk, 1, false})
}

// EachFile calls fn with the layout of every inode in use, in the order of
// their numbers, until it returns an error, which EachFile returns. What fn
// gets is valid during the call. Inodes that are damaged are passed over; that
// has been reported.
func (fs *FS) EachFile(fn func(*FileLayout) error) error {
	var l FileLayout
	for g := range fs.groupCount {
		inos, err := fs.usedInodes(g)
		if err != nil {
			if isCorrupt(err) {
				continue
			}
			return err
		}
		for _, ino := range inos {
			l.Ino = ino
			err := fs.layoutOf(&l)
			switch {
			case errors.Is(err, syscall.ESTALE), isCorrupt(err):
				continue
			case err == nil:
				err = fn(&l)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// usedInodes lists the inodes of a group that are in use and that we read.
func (fs *FS) usedInodes(g ondisk.GroupNumber) ([]ondisk.InodeNumber, error) {
	gr := &fs.groups[g]
	if gr.freeInodes.Load() == fs.inodesPerGroup {
		return nil, nil
	}
	b, err := fs.inodeBitmap(g, gr)
	if err != nil {
		return nil, err
	}
	defer b.Put()
	var list []ondisk.InodeNumber
	gr.mu.Lock()
	defer gr.mu.Unlock()
	n := fs.inodesPerGroup
	if fs.hasGroupCsum {
		n -= min(gr.desc.ItableUnused(), n)
	}
	for k, v := range b.Data()[:(n+7)/8] {
		for ; v != 0; v &= v - 1 {
			idx := uint32(8*k + bits.TrailingZeros8(v))
			ino := ondisk.InodeNumber(uint32(g)*fs.inodesPerGroup + idx + 1)
			if idx < n && fs.validIno(ino) {
				list = append(list, ino)
			}
		}
	}
	return list, nil
}

// FreeRuns calls fn for each run of free blocks in the bitmaps, in ascending
// order; a run may reach over group borders. Free is what is free on the
// device: preallocation is, and so is what a transaction freed that has not
// committed. Groups with a damaged bitmap are passed over.
func (fs *FS) FreeRuns(fn func(start ondisk.FsBlock, blocks uint64) error) error {
	c := freeRuns{fs: fs, fn: fn}
	bm := make([]byte, fs.blockSize)
	for g := range fs.groupCount {
		err := (blockReader{fs}).ReadBitmap(mballoc.GroupNumber(g), bm)
		if isCorrupt(err) {
			continue
		}
		if err == nil {
			err = c.group(g, bm)
		}
		if err != nil {
			return err
		}
	}
	return c.flush()
}

// freeRuns joins the free bits of bitmaps to runs.
type freeRuns struct {
	fs       *FS
	fn       func(start ondisk.FsBlock, blocks uint64) error
	start, n uint64 // the run so far, in clusters
}

func (c *freeRuns) flush() error {
	if c.n == 0 {
		return nil
	}
	at, blocks := c.fs.blockOf(mballoc.Cluster(c.start)), c.n<<c.fs.clusterBits
	c.n = 0
	return c.fn(at, min(blocks, c.fs.blocks-uint64(at)))
}

func (c *freeRuns) group(g ondisk.GroupNumber, bm []byte) error {
	first := uint64(g) * uint64(c.fs.clustersPerGroup)
	length := (c.fs.groupBlocks(g) + 1<<c.fs.clusterBits - 1) >> c.fs.clusterBits
	for at := uint32(0); at < length; {
		run, used := bitRun(bm, at, length)
		if used || c.start+c.n != first+uint64(at) {
			if err := c.flush(); err != nil {
				return err
			}
			c.start = first + uint64(at)
		}
		if !used {
			c.n += uint64(run)
		}
		at += run
	}
	return nil
}

// bitRun is the number of equal bits from bit at on, before end, and what they
// are.
func bitRun(bm []byte, at, end uint32) (n uint32, set bool) {
	bit := func(k uint32) bool { return bm[k>>3]>>(k&7)&1 != 0 }
	set = bit(at)
	whole := byte(0)
	if set {
		whole = 0xff
	}
	k := at + 1
	for k < end && bit(k) == set {
		if k&7 == 0 && k+8 <= end && bm[k>>3] == whole {
			k += 8
			continue
		}
		k++
	}
	return k - at, set
}
