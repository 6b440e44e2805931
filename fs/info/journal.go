package info

import (
	"encoding/binary"
	"fmt"

	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// readJournal finds the journal's first block through its inode, and decodes
// the journal superblock there.
func (i *Info) readJournal(dev blockdev.Device) error {
	ino := ondisk.InodeNumber(i.Super.JournalInum)
	n, err := readInode(dev, i.Super, ino)
	if err != nil {
		return fmt.Errorf("journal: %w", ondisk.InInode(err, ino))
	}
	blk, err := firstBlock(dev, i.Super, n)
	if err != nil {
		return fmt.Errorf("journal: %w", ondisk.InInode(err, ino))
	}
	b, err := readBlock(dev, i.Super, blk)
	if err != nil {
		return fmt.Errorf("journal: %w", ondisk.InInode(err, ino))
	}
	var j journal.SuperBlock
	if err := j.Decode(b); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	i.Journal = &j
	return nil
}

func readInode(dev blockdev.Device, s *ondisk.SuperBlock, ino ondisk.InodeNumber) (*ondisk.Inode, error) {
	if ino == 0 || uint32(ino) > s.InodesCount {
		return nil, ondisk.Corrupt("inode number out of range (1 to %d)", s.InodesCount)
	}
	g, index := s.GroupOfInode(ino)
	per := s.DescPerBlock()
	descs, err := readBlock(dev, s, s.DescBlock(uint32(g)/per))
	if err != nil {
		return nil, err
	}
	d := ondisk.GroupDescAt(descs, uint32(g)%per, s.DescSize())
	b, err := readBlock(dev, s, d.InodeTable()+ondisk.FsBlock(index/s.InodesPerBlock()))
	if err != nil {
		return nil, err
	}
	raw := b[int(index%s.InodesPerBlock())*s.InodeBytes():][:s.InodeBytes()]
	if !s.Csum().VerifyInode(ino, raw) {
		return nil, ondisk.Corrupt("inode checksum is wrong")
	}
	n := new(ondisk.Inode)
	return n, n.Decode(raw)
}

// firstBlock maps a file's logical block 0, which must be there: down the left
// edge of its extent tree, whose depth must fall by one at each step, or from
// the first word of its block map.
func firstBlock(dev blockdev.Device, s *ondisk.SuperBlock, n *ondisk.Inode) (ondisk.FsBlock, error) {
	if n.Flags&ondisk.InodeExtents == 0 {
		if blk := binary.LittleEndian.Uint32(n.Block[:]); blk != 0 {
			return ondisk.FsBlock(blk), nil
		}
		return 0, ondisk.Corrupt("no first block")
	}
	node := n.Block[:]
	var h ondisk.ExtentHeader
	for depth := -1; ; depth = int(h.Depth) {
		if err := h.Decode(node); err != nil {
			return 0, err
		}
		if depth >= 0 && int(h.Depth) != depth-1 || h.Entries == 0 {
			return 0, ondisk.Corrupt("extent node of depth %d with %d entries below one of depth %d", h.Depth, h.Entries, depth)
		}
		if h.Depth == 0 {
			x := ondisk.GetExtent(node, 0)
			if x.Block != 0 {
				return 0, ondisk.Corrupt("no first block")
			}
			return x.Start, nil
		}
		var err error
		if node, err = readBlock(dev, s, ondisk.GetExtentIdx(node, 0).Leaf); err != nil {
			return 0, err
		}
	}
}
