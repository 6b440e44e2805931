// Package info reads what an image says about itself: superblock, journal and
// group descriptors, as dumpe2fs(8) shows them. It needs no mount, takes no
// lock and writes nothing; what it shows of an image in use may be older than
// what its user has in memory.
package info

import (
	"errors"
	"fmt"
	"io"

	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// Info is everything about one image.
type Info struct {
	Super      *ondisk.SuperBlock
	SuperCsum  bool                // the superblock's checksum is right, or it has none
	Unreadable []string            // what could not be read or made sense of, one line each
	Journal    *journal.SuperBlock // of the internal journal; nil if there is none to read
	Groups     []Group
}

// Group is what a group descriptor says.
type Group struct {
	Number       ondisk.GroupNumber
	First, Last  ondisk.FsBlock // its blocks
	Super        bool           // holds a copy of the superblock
	BlockBitmap  ondisk.FsBlock
	InodeBitmap  ondisk.FsBlock
	InodeTable   ondisk.FsBlock // first block of it
	TableBlocks  uint32
	Flags        uint16
	FreeClusters uint32
	FreeInodes   uint32
	UsedDirs     uint32
	ItableUnused uint32
	Checksum     uint16
	CsumOK       bool
}

// Options says how much to read.
type Options struct {
	Groups bool // also the group descriptors
}

// Read reads an image. An error means that there is no superblock to go by, or
// one that contradicts itself or the size of the image; damage further on is
// told in Unreadable.
func Read(dev blockdev.Device, o Options) (*Info, error) {
	b := make([]byte, ondisk.SuperBlockSize)
	if err := readFull(dev, b, ondisk.SuperBlockOffset); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("too short for a superblock: %w", ondisk.ErrNotExt4)
	} else if err != nil {
		return nil, err
	}
	i := &Info{Super: new(ondisk.SuperBlock), SuperCsum: ondisk.VerifySuperBlock(b)}
	if err := i.Super.Decode(b); err != nil {
		return nil, err
	}
	if i.Super.HasIncompat(ondisk.IncompatJournalDev) {
		return nil, fmt.Errorf("an external journal: %w", ondisk.ErrNotExt4)
	}
	if err := i.Super.Check(dev.Size()); err != nil {
		return nil, err
	}
	if !i.SuperCsum {
		i.unreadable(ondisk.Corrupt("superblock: checksum is wrong"))
	}
	if o.Groups {
		i.unreadable(i.readGroups(dev))
	}
	if i.Super.HasCompat(ondisk.CompatHasJournal) && i.Super.JournalInum != 0 {
		i.unreadable(i.readJournal(dev))
	}
	return i, nil
}

func (i *Info) unreadable(err error) {
	if err != nil {
		i.Unreadable = append(i.Unreadable, err.Error())
	}
}

// readFull is io.ReadFull at an offset: a short read is io.EOF.
func readFull(dev blockdev.Device, b []byte, off int64) error {
	n, err := dev.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

func readBlock(dev blockdev.Device, s *ondisk.SuperBlock, blk ondisk.FsBlock) ([]byte, error) {
	if uint64(blk) >= s.Blocks() {
		return nil, &ondisk.CorruptError{What: "a block number outside of the file system", Block: blk}
	}
	b := make([]byte, s.BlockSize())
	return b, readFull(dev, b, int64(blk)<<s.BlockBits())
}

// readGroups reads the primary descriptor table, a block at a time: its size
// was checked against the image's.
func (i *Info) readGroups(dev blockdev.Device) error {
	s, c := i.Super, i.Super.Csum()
	i.Groups = make([]Group, 0, min(s.GroupCount(), 1<<17))
	per := s.DescPerBlock()
	for n := range s.DescBlocks() {
		b, err := readBlock(dev, s, s.DescBlock(n))
		if err != nil {
			return fmt.Errorf("group descriptors: %w", err)
		}
		for k := range min(per, uint32(s.GroupCount())-n*per) {
			g := ondisk.GroupNumber(n*per + k)
			i.Groups = append(i.Groups, describe(s, c, g, ondisk.GroupDescAt(b, k, s.DescSize())))
		}
	}
	return nil
}

func describe(s *ondisk.SuperBlock, c ondisk.Csum, g ondisk.GroupNumber, d ondisk.GroupDesc) Group {
	first := s.GroupFirstBlock(g)
	return Group{
		Number: g, First: first, Last: first + ondisk.FsBlock(s.GroupBlocks(g)) - 1, Super: s.HasSuper(g),
		BlockBitmap: d.BlockBitmap(), InodeBitmap: d.InodeBitmap(),
		InodeTable: d.InodeTable(), TableBlocks: s.InodeTableBlocksPerGroup(),
		Flags: d.Flags(), FreeClusters: d.FreeClusters(), FreeInodes: d.FreeInodes(),
		UsedDirs: d.UsedDirs(), ItableUnused: d.ItableUnused(),
		Checksum: d.Checksum(), CsumOK: c.VerifyGroupDesc(g, d),
	}
}

// FlagNames are the names of a group's flags as dumpe2fs prints them.
func (g *Group) FlagNames() []string {
	var out []string
	for _, f := range []struct {
		bit  uint16
		name string
	}{
		{ondisk.BGInodeUninit, "INODE_UNINIT"}, {ondisk.BGBlockUninit, "BLOCK_UNINIT"}, {ondisk.BGInodeZeroed, "ITABLE_ZEROED"},
	} {
		if g.Flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}
