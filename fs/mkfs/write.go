package mkfs

import (
	"encoding/binary"
	"fmt"

	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// wipeTail is how much of the device's end is cleared: other formats keep a
// second signature there.
const wipeTail = 64 << 10

// writer puts a layout on a device.
type writer struct {
	dev     blockdev.Device
	l       *layout
	written int64
}

func (w *writer) writeAll() error {
	steps := []func() error{
		w.clear, w.resizeBlocks, w.directories, w.journalBlocks, w.mmpBlock, w.orphanFile, w.quotaFiles,
		w.maps, w.inodeTables, w.bitmapsAndDescriptors,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	// Everything is durable before anything says that it is there.
	if err := w.dev.Flush(); err != nil {
		return err
	}
	if err := w.superBlock(0); err != nil {
		return err
	}
	return w.dev.Flush()
}

func (w *writer) write(b []byte, off int64) error {
	n, err := w.dev.WriteAt(b, off)
	w.written += int64(n)
	return err
}

func (w *writer) writeBlock(blk ondisk.FsBlock, b []byte) error {
	return w.write(b, w.offset(blk))
}

func (w *writer) offset(blk ondisk.FsBlock) int64 { return int64(blk) << w.l.sb.BlockBits() }

func (w *writer) zero(blk ondisk.FsBlock, n uint64) error {
	if w.l.p.Zeroed || n == 0 {
		return nil
	}
	return w.dev.Zero(w.offset(blk), int64(n)<<w.l.sb.BlockBits())
}

// clear removes what was there: the start with the old superblock and the
// boot sector, the end, and the inode tables if they are to be cleared now.
func (w *writer) clear() error {
	if w.l.p.Zeroed {
		return nil
	}
	first := ondisk.FsBlock(0)
	head := w.l.sb.SuperBlockOf(0) + 1 - first
	if err := w.zero(first, uint64(head)); err != nil {
		return err
	}
	size := w.dev.Size()
	tail := min(int64(wipeTail), size)
	if err := w.dev.Zero(size-tail, tail); err != nil {
		return err
	}
	if err := w.dev.Flush(); err != nil {
		return err
	}
	if !w.l.p.ZeroTables {
		return nil
	}
	for i := range w.l.groups {
		if err := w.zero(w.l.groups[i].inodeTable, uint64(w.l.sb.InodeTableBlocksPerGroup())); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) resizeBlocks() error {
	if w.l.resize == 0 {
		return nil
	}
	double, indirect := w.l.resizeMap()
	if err := w.writeBlock(w.l.resize, double); err != nil {
		return err
	}
	for blk, b := range indirect {
		if err := w.writeBlock(blk, b); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) directories() error {
	l := w.l
	root := l.dirBlock(ondisk.RootIno, dirEntry{".", ondisk.RootIno}, dirEntry{"..", ondisk.RootIno}, dirEntry{"lost+found", lostFoundIno})
	if err := w.writeBlock(l.files[ondisk.RootIno].at(0), root); err != nil {
		return err
	}
	entries := []dirEntry{{".", lostFoundIno}, {"..", ondisk.RootIno}}
	if l.sb.HasIncompat(ondisk.IncompatInlineData) {
		entries = append(entries, dirEntry{}) // the rest, as it comes out of the inode
	}
	b := l.dirBlock(lostFoundIno, entries...)
	for _, r := range l.files[lostFoundIno].runs {
		for i := range ondisk.FsBlock(r.n) {
			if err := w.writeBlock(r.start+i, b); err != nil {
				return err
			}
			b = l.dirBlock(lostFoundIno)
		}
	}
	return nil
}

// journalBlocks makes the journal empty: a superblock, and zeroes, so that no
// old log is ever taken for one of ours.
func (w *writer) journalBlocks() error {
	j := &w.l.journal
	if j.blocks == 0 {
		return nil
	}
	f := w.l.files[ondisk.JournalIno]
	if !w.l.p.LazyJournal {
		for _, r := range f.runs {
			if err := w.zero(r.start, r.n); err != nil {
				return err
			}
		}
	}
	b := make([]byte, w.l.sb.BlockSize())
	err := journal.FormatSuperBlock(b, journal.FormatParams{BlockSize: len(b), Blocks: j.blocks, NumFcBlks: j.fastCommit, UUID: w.l.p.UUID})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return w.writeBlock(f.at(0), b)
}

// mmpBlock says that nobody uses the file system.
func (w *writer) mmpBlock() error {
	if w.l.mmp == 0 {
		return nil
	}
	m := ondisk.MMP{
		Magic: ondisk.MMPMagic, Seq: ondisk.MMPSeqClean, Time: uint64(max(w.l.p.Time.Unix(), 0)), CheckInterval: w.l.sb.MMPInterval,
	}
	b := make([]byte, w.l.sb.BlockSize())
	m.Encode(b)
	w.l.sb.Csum().SetMMP(b)
	return w.writeBlock(w.l.mmp, b)
}

// orphanFile writes empty blocks.
func (w *writer) orphanFile() error {
	ino := ondisk.InodeNumber(w.l.sb.OrphanFileInum)
	if ino == 0 {
		return nil
	}
	c := w.l.sb.Csum()
	b := make([]byte, w.l.sb.BlockSize())
	for _, r := range w.l.files[ino].runs {
		for blk := r.start; blk < r.end(); blk++ {
			ondisk.OrphanBlock(b).Init()
			c.SetOrphanBlock(c.InodeSeed(ino, 0), blk, b)
			if err := w.writeBlock(blk, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// maps writes the blocks that map files.
func (w *writer) maps() error {
	c := w.l.sb.Csum()
	for ino, f := range w.l.files {
		if f.node != 0 {
			node := make([]byte, w.l.sb.BlockSize())
			fillLeaf(node, splitExtents(f.runs))
			c.SetExtentBlock(c.InodeSeed(ino, 0), node)
			if err := w.writeBlock(f.node, node); err != nil {
				return err
			}
		}
		if f.blocks == nil {
			continue
		}
		for at, entries := range f.blocks.nodes {
			if err := w.writeBlock(ondisk.FsBlock(at), f.blocks.encode(entries)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inodeTables writes the blocks with inodes in use, and takes the journal
// inode's copy into the superblock.
func (w *writer) inodeTables() error {
	l := w.l
	all := l.inodes()
	if n, ok := all[ondisk.JournalIno]; ok {
		l.sb.SetJournal(ondisk.JournalIno, &n)
	}
	c := l.sb.Csum()
	size := l.sb.InodeBytes()
	for g := range l.sb.GroupCount() {
		used := l.usedInodes(g)
		if used == 0 {
			break
		}
		perBlock := l.sb.InodesPerBlock()
		table := make([]byte, int((used+perBlock-1)/perBlock)*l.sb.BlockSize())
		for i := range used {
			ino := ondisk.InodeNumber(uint32(g)*l.sb.InodesPerGroup + i + 1)
			raw := table[int(i)*size:][:size]
			if n, ok := all[ino]; ok {
				n.Encode(raw)
				l.leaveInline(ino, raw)
			}
			c.SetInode(ino, raw)
		}
		if err := w.writeBlock(l.groups[g].inodeTable, table); err != nil {
			return err
		}
	}
	return nil
}

// leaveInline writes the empty attribute area that lost+found keeps when its
// content leaves the inode.
func (l *layout) leaveInline(ino ondisk.InodeNumber, raw []byte) {
	const area = ondisk.GoodOldInodeSize + ondisk.InodeExtraSize
	if ino == lostFoundIno && l.sb.HasIncompat(ondisk.IncompatInlineData) {
		binary.LittleEndian.PutUint32(raw[area:], ondisk.XattrMagic)
	}
}

// bitmapsAndDescriptors writes the bitmaps that are initialised, then all
// copies of the descriptors with their checksums, and the superblock's
// backups.
func (w *writer) bitmapsAndDescriptors() error {
	l := w.l
	c := l.sb.Csum()
	size := l.sb.DescSize()
	descs := make([]byte, int(l.sb.DescBlocks())*l.sb.BlockSize())
	bitmap := make([]byte, l.sb.BlockSize())
	for i := range l.groups {
		g, place := ondisk.GroupNumber(i), &l.groups[i]
		d := ondisk.GroupDescAt(descs, uint32(i), size)
		l.fillDesc(d, place)
		if place.flags&ondisk.BGBlockUninit == 0 {
			l.fillBlockBitmap(bitmap, g)
			c.SetBlockBitmap(d, bitmap)
			if err := w.writeBlock(place.blockBitmap, bitmap); err != nil {
				return err
			}
		}
		if place.flags&ondisk.BGInodeUninit == 0 {
			l.fillInodeBitmap(bitmap, g)
			c.SetInodeBitmap(d, bitmap)
			if err := w.writeBlock(place.inodeBitmap, bitmap); err != nil {
				return err
			}
		}
		c.SetGroupDesc(g, d)
	}
	if err := w.descriptors(descs); err != nil {
		return err
	}
	w.countWrites()
	for _, g := range l.backups {
		if err := w.superBlock(g); err != nil {
			return err
		}
	}
	return nil
}

// descriptors writes all copies of the descriptor table.
func (w *writer) descriptors(descs []byte) error {
	l := w.l
	if !l.metaBG() {
		for _, g := range append([]ondisk.GroupNumber{0}, l.backups...) {
			if err := w.writeBlock(l.sb.SuperBlockOf(g)+1, descs); err != nil {
				return err
			}
		}
		return nil
	}
	per := ondisk.GroupNumber(l.sb.DescPerBlock())
	bs := l.sb.BlockSize()
	for i := range ondisk.GroupNumber(l.sb.DescBlocks()) {
		for _, g := range []ondisk.GroupNumber{i * per, i*per + 1, i*per + per - 1} {
			if g >= l.sb.GroupCount() {
				continue
			}
			at := l.superStart(g) + ondisk.FsBlock(l.superBlocks(g)) - 1
			if err := w.writeBlock(at, descs[int(i)*bs:][:bs]); err != nil {
				return err
			}
		}
	}
	return nil
}

// countWrites sets the superblock's count of what was written in its life.
func (w *writer) countWrites() {
	supers := int64(1+len(w.l.backups)) * ondisk.SuperBlockSize
	w.l.sb.KbytesWritten = uint64(w.written+supers) / 1024
}

// superBlock writes the superblock, or its copy in group g.
func (w *writer) superBlock(g ondisk.GroupNumber) error {
	sb := w.l.sb
	sb.BlockGroupNr = uint16(min(g, 1<<16-1))
	if g != 0 {
		sb.State = 0 // who falls back to a copy checks the file system first
	}
	b := make([]byte, ondisk.SuperBlockSize)
	sb.Encode(b)
	ondisk.SetSuperBlockCsum(b)
	off := w.offset(sb.SuperBlockOf(g))
	if g == 0 {
		off = ondisk.SuperBlockOffset
	}
	return w.write(b, off)
}

func (l *layout) fillDesc(d ondisk.GroupDesc, p *groupPlace) {
	d.SetBlockBitmap(p.blockBitmap)
	d.SetInodeBitmap(p.inodeBitmap)
	d.SetInodeTable(p.inodeTable)
	d.SetFreeClusters(p.freeClusters)
	d.SetFreeInodes(p.freeInodes)
	d.SetUsedDirs(p.usedDirs)
	d.SetFlags(p.flags)
	if l.hasGroupCsum() {
		d.SetItableUnused(p.freeInodes)
	}
}

// fillBlockBitmap sets the bits of used clusters, and of those behind the group.
func (l *layout) fillBlockBitmap(b []byte, g ondisk.GroupNumber) {
	clear(b)
	first, end := l.sb.GroupFirstBlock(g), l.groupEnd(g)
	bit := func(blk ondisk.FsBlock) int { return int(ceilDiv(uint64(blk-first), l.ratio)) }
	for i := l.used.after(first); i < len(l.used.runs) && l.used.runs[i].start < end; i++ {
		r := l.used.runs[i]
		setBits(b, bit(max(r.start, first)), bit(min(r.end(), end)))
	}
	setBits(b, bit(end), 8*len(b))
}

// fillInodeBitmap sets the bits of used inodes, and of those behind the group.
func (l *layout) fillInodeBitmap(b []byte, g ondisk.GroupNumber) {
	clear(b)
	setBits(b, 0, int(l.usedInodes(g)))
	setBits(b, int(l.sb.InodesPerGroup), 8*len(b))
}

// setBits sets the bits from up to but not including to.
func setBits(b []byte, from, to int) {
	for ; from < to && from%8 != 0; from++ {
		b[from/8] |= 1 << (from % 8)
	}
	for ; from+8 <= to; from += 8 {
		b[from/8] = 0xff
	}
	for ; from < to; from++ {
		b[from/8] |= 1 << (from % 8)
	}
}
