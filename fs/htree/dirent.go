package htree

import "extfused/fs/ondisk"

const (
	head      = ondisk.DirEntryHeader
	minRecLen = head + 4 // an entry with a name of one byte
)

// dirent is the entry at offset off of a block: a view that goes on to the end of
// the block.
func dirent(b []byte, off int) ondisk.DirEntry2 { return ondisk.DirEntry2(b[off:]) }

func (p *Params) recLen(b []byte, off int) int { return dirent(b, off).RecLen(p.BlockSize) }

func (p *Params) setRecLen(b []byte, off, n int) { dirent(b, off).SetRecLen(n, p.BlockSize) }

// leafLimit is where the entries of a leaf end: at the tail, if there is one.
func (p *Params) leafLimit() int {
	if p.HasCsum {
		return p.BlockSize - ondisk.DirTailSize
	}
	return p.BlockSize
}

// fileType is the type of the entry at off, if the file system stores one.
func (p *Params) fileType(b []byte, off int) uint8 {
	t := dirent(b, off).FileType()
	if !p.FileType || t >= ondisk.FtMax {
		return ondisk.FtUnknown
	}
	return t
}

// putDirent writes a whole entry of rec bytes at off.
func (p *Params) putDirent(b []byte, off, rec int, ino ondisk.InodeNumber, name string, ftype uint8) {
	e := dirent(b, off)
	e.SetInode(ino)
	e.SetRecLen(rec, p.BlockSize)
	e[6] = uint8(len(name))
	copy(e[head:], name)
	if !p.FileType {
		ftype = 0 // the upper half of a 16-bit name_len
	}
	e.SetFileType(ftype)
}

// initTail writes the unused entry that carries the checksum.
func (p *Params) initTail(b []byte) {
	if p.HasCsum {
		ondisk.InitDirTail(b)
	}
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
	return p.scan(b, p.leafLimit(), name, need)
}

// scan is scanLeaf for entries that end at limit.
func (p *Params) scan(b []byte, limit int, name string, need int) (s scan, what string) {
	s = scan{-1, -1, -1}
	prev := -1
	for off := 0; off < limit; {
		if off > limit-minRecLen {
			return s, "entry too close to the block's end"
		}
		e := dirent(b, off)
		rec, nl := e.RecLen(p.BlockSize), e.NameLen()
		if rec < minRecLen || rec&3 != 0 || rec < head+nl || off+rec > limit {
			return s, badRecLen(rec, nl)
		}
		used := 0
		if e.Inode() != 0 {
			if nl == len(name) && string(e.Name()) == name {
				s.off, s.prev = off, prev
				return s, ""
			}
			used = ondisk.DirRecLen(nl)
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
	case rec < head+nl:
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
	e := dirent(b, off)
	rec, nl := e.RecLen(p.BlockSize), e.NameLen()
	if rec < minRecLen || rec&3 != 0 || rec < head+nl || off+rec > limit {
		return 0, badRecLen(rec, nl)
	}
	if ino := e.Inode(); ino > p.MaxInode {
		return 0, "entry with an inode number out of range"
	} else if ino != 0 && nl == 0 {
		return 0, "entry with an empty name"
	}
	return off + rec, ""
}

// place puts a new entry into the slot at off that scanLeaf found: into the
// unused entry itself, or into the slack behind the name of a used one.
func (p *Params) place(b []byte, off int, name string, ino ondisk.InodeNumber, ftype uint8) {
	e, rec := dirent(b, off), p.recLen(b, off)
	if e.Inode() != 0 {
		used := ondisk.DirRecLen(e.NameLen())
		p.setRecLen(b, off, used)
		off, rec = off+used, rec-used
	}
	p.putDirent(b, off, rec, ino, name, ftype)
}

// erase unlinks the entry at off from the chain and wipes it.
func (p *Params) erase(b []byte, off, prev int) {
	rec := p.recLen(b, off)
	if prev >= 0 {
		p.setRecLen(b, prev, p.recLen(b, prev)+rec)
		clear(b[off : off+rec])
		return
	}
	dirent(b, off).SetInode(0)
	clear(b[off+6 : off+rec])
}
