package htree

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

// An inline directory (feature inline_data) has no block. Its entries are in
// the 60 bytes of i_block, after the number of the parent directory, and go on
// in the value of the attribute system.data, which may be empty:
//
//	i_block  | parent 4 | entries ... 56 |      system.data  | entries ... |
//
// Each of the two is a chain of its own, whose rec_len add up to its length.
// There is no "." and no "..", and no checksum but the inode's.

// InlineBytes is the room in i_block; the parent's number takes the first four.
const InlineBytes = 60

const inlineStart = 4

// Inline is an inline directory: views of the caller's bytes, or copies of them.
type Inline struct {
	*Params
	Ino  ondisk.InodeNumber // the directory itself
	Head []byte             // i_block, InlineBytes long
	Tail []byte             // the value of system.data
}

// InitInline makes an empty directory of the 60 bytes of i_block.
func (p *Params) InitInline(head []byte, parent ondisk.InodeNumber) {
	clear(head)
	binary.LittleEndian.PutUint32(head, uint32(parent))
	p.setRecLen(head, inlineStart, InlineBytes-inlineStart)
}

// Parent is the number of the parent directory.
func (d *Inline) Parent() ondisk.InodeNumber {
	return ondisk.InodeNumber(binary.LittleEndian.Uint32(d.Head))
}

// regions are the two chains, the second of which may be empty.
func (d *Inline) regions() [2][]byte { return [2][]byte{d.Head[inlineStart:], d.Tail} }

func (d *Inline) corrupt(what string) error {
	return &ondisk.CorruptError{What: "inline directory: " + what, Inode: d.Ino}
}

// find returns the region and the offset of a name; region nil if there is none.
func (d *Inline) find(name string) (region []byte, s scan, err error) {
	for _, r := range d.regions() {
		s, what := d.scan(r, len(r), name, 0)
		if what != "" {
			return nil, s, d.corrupt(what)
		}
		if s.off >= 0 {
			return r, s, nil
		}
	}
	return nil, s, nil
}

// Lookup is Dir.Lookup.
func (d *Inline) Lookup(name string) (ondisk.InodeNumber, uint8, error) {
	switch {
	case len(name) > MaxNameLen:
		return 0, 0, ErrNameTooLong
	case name == ".":
		return d.Ino, ondisk.FtDir, nil
	}
	ino, ftype := d.Parent(), uint8(ondisk.FtDir)
	if name != ".." {
		r, s, err := d.find(name)
		if err != nil {
			return 0, 0, err
		}
		if r == nil || name == "" {
			return 0, 0, ErrNotFound
		}
		ino, ftype = dirent(r, s.off).Inode(), d.fileType(r, s.off)
	}
	if ino == 0 || ino > d.MaxInode {
		return 0, 0, d.corrupt("entry with an inode number out of range")
	}
	return ino, ftype, nil
}

// Insert adds an entry. ErrDirFull if it does not fit: then Grow, or a block,
// makes room.
func (d *Inline) Insert(name string, ino ondisk.InodeNumber, ftype uint8) error {
	if err := checkNewName(name); err != nil {
		return err
	}
	need := ondisk.DirRecLen(len(name))
	var slot []byte
	at := -1
	for _, r := range d.regions() {
		s, what := d.scan(r, len(r), name, need)
		switch {
		case what != "":
			return d.corrupt(what)
		case s.off >= 0:
			return ErrExist
		case at < 0 && s.slot >= 0:
			slot, at, need = r, s.slot, 0
		}
	}
	if at < 0 {
		return ErrDirFull
	}
	d.place(slot, at, name, ino, ftype)
	return nil
}

// Delete removes an entry.
func (d *Inline) Delete(name string) error {
	if name == "." || name == ".." {
		return ErrInvalidName
	}
	r, s, err := d.find(name)
	if err != nil {
		return err
	}
	if r == nil {
		return ErrNotFound
	}
	d.erase(r, s.off, s.prev)
	return nil
}

// Set makes an entry, which may be "..", point to another inode.
func (d *Inline) Set(name string, ino ondisk.InodeNumber, ftype uint8) error {
	if name == ".." {
		binary.LittleEndian.PutUint32(d.Head, uint32(ino))
		return nil
	}
	r, s, err := d.find(name)
	if err != nil {
		return err
	}
	if r == nil {
		return ErrNotFound
	}
	e := dirent(r, s.off)
	e.SetInode(ino)
	if d.FileType {
		e.SetFileType(ftype)
	}
	return nil
}

// Empty tells whether there is no entry.
func (d *Inline) Empty() (bool, error) {
	for _, r := range d.regions() {
		for off := 0; off < len(r); {
			next, what := d.next(r, off, len(r))
			if what != "" {
				return false, d.corrupt(what)
			}
			if dirent(r, off).Inode() != 0 {
				return false, nil
			}
			off = next
		}
	}
	return true, nil
}

// Grow makes tail, which is longer than the old one and begins with it, the
// directory's: the new room goes to its last entry, or is an unused one. False
// if so little is of no use.
func (d *Inline) Grow(tail []byte) bool {
	more := len(tail) - len(d.Tail)
	if more < minRecLen || len(tail)&3 != 0 {
		return false
	}
	last := -1
	for off := 0; off < len(d.Tail); {
		next, what := d.next(d.Tail, off, len(d.Tail))
		if what != "" {
			return false
		}
		last, off = off, next
	}
	clear(tail[len(d.Tail):])
	if last < 0 {
		d.setRecLen(tail, 0, more)
	} else {
		d.setRecLen(tail, last, d.recLen(tail, last)+more)
	}
	d.Tail = tail
	return true
}

// Block fills b, of a block's size, with what the directory is as a block,
// without the checksum. Entries follow "." and ".." in the order in which they
// are.
func (d *Inline) Block(b []byte) error {
	if ok := d.Parent() != 0 && d.Parent() <= d.MaxInode; !ok {
		return d.corrupt("parent with an inode number out of range")
	}
	d.InitBlock(b, d.Ino, d.Parent())
	limit, to := d.leafLimit(), 2*minRecLen
	last := minRecLen
	for _, r := range d.regions() {
		for off := 0; off < len(r); {
			next, what := d.next(r, off, len(r))
			if what != "" {
				return d.corrupt(what)
			}
			if to+next-off > limit {
				return d.corrupt("too large")
			}
			d.setRecLen(b, last, to-last)
			copy(b[to:], r[off:next])
			last, to, off = to, to+next-off, next
		}
	}
	d.setRecLen(b, last, limit-last)
	return nil
}
