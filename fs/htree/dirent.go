package htree

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

// File types of entries, with the filetype feature. The values are ext4's,
// not those of d_type.
const (
	FtUnknown uint8 = 0
	FtRegFile uint8 = 1
	FtDir     uint8 = 2
	FtChrdev  uint8 = 3
	FtBlkdev  uint8 = 4
	FtFifo    uint8 = 5
	FtSock    uint8 = 6
	FtSymlink uint8 = 7

	ftDirCsum uint8 = 0xDE // det_reserved_ft of the tail
)

const (
	direntHead = 8  // inode, rec_len, name_len, file_type
	minRecLen  = 12 // an entry with a name of one byte
	tailLen    = 12 // struct ext4_dir_entry_tail
)

// recLenFor returns the bytes that an entry with a name of n bytes needs.
func recLenFor(n int) int { return (direntHead + n + 3) &^ 3 }

func direntInode(b []byte, off int) ondisk.InodeNumber {
	return ondisk.InodeNumber(binary.LittleEndian.Uint32(b[off:]))
}

func putInode(b []byte, off int, ino ondisk.InodeNumber) {
	binary.LittleEndian.PutUint32(b[off:], uint32(ino))
}

func direntName(b []byte, off int) []byte {
	return b[off+direntHead : off+direntHead+int(b[off+6])]
}

// recLen reads rec_len, in bytes. Blocks of 64 KiB need one value more than
// 16 bits have: 65535 (or 0) stands for the whole block.
func (p *Params) recLen(b []byte, off int) int {
	n := int(binary.LittleEndian.Uint16(b[off+4:]))
	if p.BlockSize == 1<<16 && (n == 0 || n == 1<<16-1) {
		return 1 << 16
	}
	return n
}

func (p *Params) putRecLen(b []byte, off, n int) {
	if n == 1<<16 {
		n = 1<<16 - 1
	}
	binary.LittleEndian.PutUint16(b[off+4:], uint16(n))
}

// leafLimit is where the entries of a leaf end: at the tail, if there is one.
func (p *Params) leafLimit() int {
	if p.HasCsum {
		return p.BlockSize - tailLen
	}
	return p.BlockSize
}

func (p *Params) fileType(b []byte, off int) uint8 {
	if !p.FileType {
		return FtUnknown
	}
	return b[off+7]
}

// putDirent writes a whole entry of rec bytes at off.
func (p *Params) putDirent(b []byte, off, rec int, ino ondisk.InodeNumber, name string, ftype uint8) {
	putInode(b, off, ino)
	p.putRecLen(b, off, rec)
	b[off+6] = uint8(len(name))
	b[off+7] = 0
	if p.FileType {
		b[off+7] = ftype
	}
	copy(b[off+direntHead:], name)
}

// initTail writes the unused entry that carries the checksum.
func (p *Params) initTail(b []byte) {
	if !p.HasCsum {
		return
	}
	t := b[p.BlockSize-tailLen:]
	clear(t)
	t[4] = tailLen
	t[7] = ftDirCsum
}

// entry is where find found a name.
type entry struct {
	blk  ondisk.LBlock
	b    []byte
	off  int // of the entry in b
	prev int // of the entry before it in the block, -1 if it is the first
}

// scan is the result of walking one leaf: offsets in the block, -1 for none.
type scan struct {
	off  int // the entry with the name
	prev int // the entry before that one
	slot int // the first entry with room for need bytes
}

// scanLeaf walks the entries of leaf b for name and, when need is not 0, for
// room of need bytes: one pass for both. It stops at the name. what is not
// empty when the chain is damaged.
func (p *Params) scanLeaf(b []byte, name string, need int) (s scan, what string) {
	s = scan{-1, -1, -1}
	limit := p.leafLimit()
	prev := -1
	for off := 0; off < limit; {
		if off > limit-minRecLen {
			return s, "entry too close to the block's end"
		}
		rec, nl := p.recLen(b, off), int(b[off+6])
		if rec < minRecLen || rec&3 != 0 || rec < direntHead+nl || off+rec > limit {
			return s, badRecLen(rec, nl)
		}
		used := 0
		if direntInode(b, off) != 0 {
			if nl == len(name) && string(b[off+direntHead:off+direntHead+nl]) == name {
				s.off, s.prev = off, prev
				return s, ""
			}
			used = recLenFor(nl)
		}
		if need != 0 && s.slot < 0 && rec-used >= need {
			s.slot = off
		}
		prev = off
		off += rec
	}
	return s, ""
}

// badRecLen says which rule about rec_len an entry breaks.
func badRecLen(rec, nl int) string {
	switch {
	case rec < minRecLen:
		return "rec_len smaller than an entry"
	case rec&3 != 0:
		return "rec_len not a multiple of 4"
	case rec < direntHead+nl:
		return "rec_len too small for the name"
	}
	return "entry reaches over the block's end"
}

// next checks the entry at off, which is below limit, for those who look at
// every entry, and returns the offset of the one after it.
func (p *Params) next(b []byte, off, limit int) (next int, what string) {
	if off > limit-minRecLen {
		return 0, "entry too close to the block's end"
	}
	rec, nl := p.recLen(b, off), int(b[off+6])
	if rec < minRecLen || rec&3 != 0 || rec < direntHead+nl || off+rec > limit {
		return 0, badRecLen(rec, nl)
	}
	if ino := direntInode(b, off); ino > p.MaxInode {
		return 0, "entry with an inode number out of range"
	} else if ino != 0 && nl == 0 {
		return 0, "entry with an empty name"
	}
	return off + rec, ""
}

// place puts a new entry into the slot at off that scanLeaf found: into the
// unused entry itself, or into the slack behind the name of a used one.
func (p *Params) place(b []byte, off int, name string, ino ondisk.InodeNumber, ftype uint8) {
	rec := p.recLen(b, off)
	if direntInode(b, off) != 0 {
		used := recLenFor(int(b[off+6]))
		p.putRecLen(b, off, used)
		off, rec = off+used, rec-used
	}
	p.putDirent(b, off, rec, ino, name, ftype)
}

// erase unlinks the entry at off from the chain and wipes it.
func (p *Params) erase(b []byte, off, prev int) {
	rec := p.recLen(b, off)
	if prev >= 0 {
		p.putRecLen(b, prev, p.recLen(b, prev)+rec)
		clear(b[off : off+rec])
		return
	}
	putInode(b, off, 0)
	clear(b[off+6 : off+rec])
}
