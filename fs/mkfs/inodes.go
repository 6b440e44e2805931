package mkfs

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

// inlineExtents is how many extents an inode holds without a node.
const inlineExtents = 4

// splitExtents maps a file that lies in runs, from its block 0 on.
func splitExtents(runs []run) (out []ondisk.ExtentLeaf) {
	logical := ondisk.LBlock(0)
	for _, r := range runs {
		for r.n > 0 {
			n := min(r.n, ondisk.ExtentMaxInitLen)
			out = append(out, ondisk.ExtentLeaf{Block: logical, Len: uint16(n), Start: r.start})
			logical += ondisk.LBlock(n)
			r.start += ondisk.FsBlock(n)
			r.n -= n
		}
	}
	return out
}

// fillLeaf writes a leaf node with the extents into b, all of which it uses.
func fillLeaf(b []byte, extents []ondisk.ExtentLeaf) {
	h := ondisk.ExtentHeader{Magic: ondisk.ExtentMagic, Entries: uint16(len(extents)), Max: uint16(ondisk.ExtentRoom(len(b)))}
	h.Encode(b)
	for i, x := range extents {
		ondisk.PutExtent(b, i, x)
	}
}

// newInode is an inode as all those made here start.
func (l *layout) newInode(mode, links uint16) ondisk.Inode {
	n := ondisk.Inode{Mode: mode, LinksCount: links, ExtraIsize: l.extraIsize()}
	t := ondisk.Timestamp{Sec: l.p.Time.Unix()}
	n.SetAtime(t)
	n.SetCtime(t)
	n.SetMtime(t)
	n.SetCrtime(t)
	return n
}

// setBlocks stores the size of a file of n blocks, and the clusters that it
// takes with its map.
func (l *layout) setBlocks(n *ondisk.Inode, data, clusters uint64) {
	n.SetSize(data << l.sb.BlockBits())
	n.SetSectors(clusters*l.ratio<<(l.sb.BlockBits()-9), l.sb.HasROCompat(ondisk.ROCompatHugeFile), l.sb.BlockBits())
}

// mapFile gives the inode the file's map: extents inline or in a node, or a
// block map.
func (l *layout) mapFile(n *ondisk.Inode, f *file) {
	var mapping uint64
	if f.blocks != nil {
		mapping = uint64(len(f.blocks.nodes))
		for i, e := range f.blocks.root {
			binary.LittleEndian.PutUint32(n.Block[4*i:], e)
		}
	} else {
		mapping = mapExtents(n, f)
	}
	l.setBlocks(n, f.size(), ceilDiv(f.size(), l.ratio)+mapping)
}

// mapExtents returns how many blocks besides the inode it takes.
func mapExtents(n *ondisk.Inode, f *file) (mapping uint64) {
	n.Flags |= ondisk.InodeExtents
	extents := splitExtents(f.runs)
	fillLeaf(n.Block[:], extents[:min(len(extents), inlineExtents)])
	if f.node == 0 {
		return 0
	}
	// As a tree that has grown: what was inline stays behind the one index.
	h := ondisk.ExtentHeader{Magic: ondisk.ExtentMagic, Entries: 1, Max: inlineExtents, Depth: 1}
	h.Encode(n.Block[:])
	ondisk.PutExtentIdx(n.Block[:], 0, ondisk.ExtentIdx{Leaf: f.node})
	return 1
}

// inodes are the inodes in use by number. Reserved ones that nothing uses are
// empty.
func (l *layout) inodes() map[ondisk.InodeNumber]ondisk.Inode {
	bad := ondisk.Inode{}
	t := ondisk.Timestamp{Sec: l.p.Time.Unix()}
	bad.SetAtime(t)
	bad.SetCtime(t)
	bad.SetMtime(t)
	all := map[ondisk.InodeNumber]ondisk.Inode{ondisk.BadIno: bad}
	if l.resize != 0 {
		all[ondisk.ResizeIno] = l.resizeInode()
	}
	for ino, f := range l.files {
		n := l.newInode(ondisk.ModeReg|0o600, 1)
		switch {
		case ino == ondisk.RootIno:
			n = l.newInode(ondisk.ModeDir|0o755, 3)
			n.SetUID(l.p.RootUID)
			n.SetGID(l.p.RootGID)
		case ino == lostFoundIno:
			n = l.newInode(ondisk.ModeDir|0o700, 2)
		case l.quotaOf(ino) >= 0:
			n.Flags |= ondisk.InodeImmutable
		}
		l.mapFile(&n, f)
		if k := l.quotaOf(ino); k >= 0 {
			n.SetSize(uint64(len(l.quotaContent(l.quotas[k].kind))))
		}
		all[ino] = n
	}
	return all
}

// resizeInode maps the reserved descriptor blocks, so that nothing else uses
// them: its double indirect block points to those of the primary copy, and
// each of these, as an indirect block, to the blocks with the same place in the
// groups with backups. These are its twins, save for clusters in blocks of 1 KiB,
// where the superblock of group 0 alone has the boot block before it.
func (l *layout) resizeInode() ondisk.Inode {
	n := l.newInode(ondisk.ModeReg|0o600, 1)
	per := uint64(l.sb.BlockSize() / 4)
	reserved := uint64(l.sb.ReservedGDTBlocks)
	l.setBlocks(&n, 0, reserved*uint64(1+len(l.backups))+1)
	n.SetSize((12 + per + per*per) << l.sb.BlockBits())
	binary.LittleEndian.PutUint32(n.Block[4*13:], uint32(l.resize))
	return n
}

// resizeMap is the content of the resize inode's blocks: the double indirect
// block, and the reserved blocks of the primary copy, by number.
func (l *layout) resizeMap() (double []byte, indirect map[ondisk.FsBlock][]byte) {
	bs := l.sb.BlockSize()
	double = make([]byte, bs)
	indirect = map[ondisk.FsBlock][]byte{}
	table := l.sb.SuperBlockOf(0) + 1
	for i := range ondisk.FsBlock(l.sb.ReservedGDTBlocks) {
		index := ondisk.FsBlock(l.sb.DescBlocks()) + i // in the descriptor table
		slot := int(index) % (bs / 4)
		binary.LittleEndian.PutUint32(double[4*slot:], uint32(table+index))
		b := make([]byte, bs)
		for j, g := range l.backups {
			binary.LittleEndian.PutUint32(b[4*j:], uint32(table+index)+uint32(g)*l.sb.BlocksPerGroup)
		}
		indirect[table+index] = b
	}
	return double, indirect
}

type dirEntry struct {
	name string
	ino  ondisk.InodeNumber
}

// dirBlock is a directory block with the given entries, the last one reaching
// to the end, or with one empty entry.
func (l *layout) dirBlock(owner ondisk.InodeNumber, entries ...dirEntry) []byte {
	bs := l.sb.BlockSize()
	b := make([]byte, bs)
	end := bs
	if l.sb.HasROCompat(ondisk.ROCompatMetadataCsum) {
		end -= ondisk.DirTailSize
		ondisk.InitDirTail(b)
	}
	if len(entries) == 0 {
		ondisk.DirEntry2(b).SetRecLen(end, bs)
	}
	off := 0
	for i, x := range entries {
		n := ondisk.DirRecLen(len(x.name))
		if i == len(entries)-1 {
			n = end - off
		}
		e := ondisk.DirEntry2(b[off:])
		e.SetRecLen(n, bs)
		off += n
		if x.ino == 0 {
			continue
		}
		e.SetInode(x.ino)
		e.SetName([]byte(x.name))
		if l.sb.HasIncompat(ondisk.IncompatFiletype) {
			e.SetFileType(ondisk.FtDir)
		}
	}
	c := l.sb.Csum()
	c.SetDirBlock(c.InodeSeed(owner, 0), b)
	return b
}
