package xattr

import (
	"encoding/binary"

	"extfused/fs/ondisk"
)

var le = binary.LittleEndian

// Area is a place that holds attributes. It is a view of the caller's bytes.
// The zero Area is empty and has no room.
type Area struct {
	b     []byte // value offsets count from b[0]
	first int    // offset of the first entry
	magic []byte // in an inode: the four bytes before b
}

// Entry is one attribute of an Area.
type Entry struct {
	Name Name
	Size uint32 // of the value, in bytes
	Inum uint32 // not 0: the value is the content of this inode (ea_inode)
	Hash uint32 // e_hash
	offs int    // of the value
	at   int    // of the entry
}

// Block is the view of a whole xattr block. Errors: *ondisk.CorruptError.
func Block(b []byte) (Area, error) {
	var h ondisk.XattrHeader
	if err := h.Decode(b); err != nil {
		return Area{}, err
	}
	return Area{b: b, first: ondisk.XattrHeaderSize}, nil
}

// InitBlock makes b an empty xattr block with one reference. The checksum is
// the caller's.
func InitBlock(b []byte) Area {
	clear(b)
	h := ondisk.XattrHeader{Magic: ondisk.XattrMagic, Refcount: 1, Blocks: 1}
	h.Encode(b)
	return Area{b: b, first: ondisk.XattrHeaderSize}
}

// Inode is the view of the attributes in an inode: tail is what follows
// i_extra_isize's end, up to the inode size. A tail without the magic number
// holds none; the first Set starts it. Too short a tail has no room.
func Inode(tail []byte) Area {
	if len(tail) < ondisk.XattrIbodyHeader+4 {
		return Area{}
	}
	tail = tail[:len(tail)&^(ondisk.XattrPad-1)]
	return Area{b: tail[ondisk.XattrIbodyHeader:], magic: tail[:ondisk.XattrIbodyHeader]}
}

// started tells whether the bytes are attributes at all.
func (a Area) started() bool {
	return len(a.b) > 0 && (a.magic == nil || le.Uint32(a.magic) == ondisk.XattrMagic)
}

func (a Area) start() {
	if !a.started() {
		clear(a.b)
		le.PutUint32(a.magic, ondisk.XattrMagic)
	}
}

// next reads the entry at offset at; ok is false at the end mark, or where an
// entry does not fit (Check tells the difference).
func (a Area) next(at int) (x ondisk.XattrEntry, ok bool) {
	if at >= len(a.b) || ondisk.XattrIsLast(a.b[at:]) || x.Decode(a.b[at:]) != nil {
		return x, false
	}
	return x, true
}

func (a Area) name(at int, x *ondisk.XattrEntry) []byte {
	from := at + ondisk.XattrEntrySize
	return a.b[from : from+int(x.NameLen)]
}

// Check validates everything in the area: entries and values lie inside it and
// do not overlap. Whoever gets the bytes from the device calls it once; the
// other methods are safe without, but may find nonsense; Set calls it itself.
func (a Area) Check() error {
	if !a.started() {
		return nil
	}
	end := a.first
	for !ondisk.XattrIsLast(a.b[end:]) {
		var x ondisk.XattrEntry
		if err := x.Decode(a.b[end:]); err != nil {
			return err
		}
		if end += ondisk.XattrEntryLen(int(x.NameLen)); len(a.b)-end < 4 {
			return ondisk.Corrupt("xattr entries have no end")
		}
	}
	var used [ondiskMaxBlock / ondisk.XattrPad / 64]uint64
	for at := a.first; at < end; {
		x, _ := a.next(at)
		if err := a.checkValue(&x, end+4, used[:]); err != nil {
			return err
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
	return nil
}

// ondiskMaxBlock is the largest block size, in bytes.
const ondiskMaxBlock = 65536

// checkValue marks the value's words in used.
func (a Area) checkValue(x *ondisk.XattrEntry, low int, used []uint64) error {
	if x.ValueInum != 0 || x.ValueSize == 0 {
		return nil
	}
	from, to := int(x.ValueOffs), int(x.ValueOffs)+ondisk.XattrValueLen(int(x.ValueSize))
	if x.ValueSize > uint32(len(a.b)) || from < low || to > len(a.b) || from%ondisk.XattrPad != 0 {
		return ondisk.Corrupt("xattr value of %d bytes at %d is outside its area", x.ValueSize, from)
	}
	for w := from / ondisk.XattrPad; w < to/ondisk.XattrPad; w++ {
		if used[w/64]>>(w%64)&1 != 0 {
			return ondisk.Corrupt("xattr value of %d bytes at %d overlaps another", x.ValueSize, from)
		}
		used[w/64] |= 1 << (w % 64)
	}
	return nil
}

// Each calls fn for every attribute in stored order, until it returns false.
func (a Area) Each(fn func(Entry) bool) {
	if !a.started() {
		return
	}
	for at := a.first; ; {
		x, ok := a.next(at)
		if !ok {
			return
		}
		e := entryOf(at, &x)
		e.Name.Suffix = string(a.name(at, &x))
		if !fn(e) {
			return
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
}

func entryOf(at int, x *ondisk.XattrEntry) Entry {
	return Entry{
		Name: Name{Index: x.NameIndex}, Size: x.ValueSize, Inum: x.ValueInum, Hash: x.Hash,
		offs: int(x.ValueOffs), at: at,
	}
}

// Find looks an attribute up. It allocates nothing.
func (a Area) Find(n Name) (Entry, bool) {
	if !a.started() {
		return Entry{}, false
	}
	for at := a.first; ; {
		x, ok := a.next(at)
		if !ok {
			return Entry{}, false
		}
		if x.NameIndex == n.Index && string(a.name(at, &x)) == n.Suffix {
			e := entryOf(at, &x)
			e.Name.Suffix = n.Suffix
			return e, true
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
}

// Value is an attribute's value, in the area's own bytes: nil if it is in an
// inode of its own, or where no value can be.
func (a Area) Value(e Entry) []byte {
	if e.Inum != 0 || e.offs < 0 || e.offs > len(a.b) || uint64(e.Size) > uint64(len(a.b)-e.offs) {
		return nil
	}
	return a.b[e.offs : e.offs+int(e.Size) : e.offs+int(e.Size)]
}

// Empty tells whether there is no attribute.
func (a Area) Empty() bool {
	return !a.started() || ondisk.XattrIsLast(a.b[a.first:])
}

// extent finds the offset of the end mark, and of the lowest value.
func (a Area) extent() (end, low int) {
	low = len(a.b)
	for end = a.first; ; {
		x, ok := a.next(end)
		if !ok {
			return end, low
		}
		if x.ValueInum == 0 && x.ValueSize > 0 {
			low = min(low, int(x.ValueOffs))
		}
		end += ondisk.XattrEntryLen(int(x.NameLen))
	}
}

// Room is how many bytes entries and values may still take.
func (a Area) Room() int {
	if len(a.b) == 0 {
		return 0
	}
	if !a.started() {
		return len(a.b) - 4
	}
	end, low := a.extent()
	return max(low-end-4, 0)
}

// needs is the room that an attribute takes.
func needs(n Name, size int) int {
	return ondisk.XattrEntryLen(len(n.Suffix)) + ondisk.XattrValueLen(size)
}

// Fits tells whether Set would find room, counting what it would replace.
func (a Area) Fits(n Name, size int) bool {
	room := a.Room()
	if e, ok := a.Find(n); ok {
		room += ondisk.XattrEntryLen(len(n.Suffix))
		if e.Inum == 0 {
			room += ondisk.XattrValueLen(int(e.Size))
		}
	}
	return len(a.b) > 0 && needs(n, size) <= room
}

// Stored is a value as an area keeps it: its bytes, or the inode whose content
// it is.
type Stored struct {
	Bytes []byte
	Inum  uint32 // not 0: the inode, and the other two count instead of Bytes
	Size  uint32 // bytes
	CRC   uint32 // of the bytes, with the file system's seed: what the inode keeps as its hash
}

// room is what the value takes in the area, before padding.
func (v Stored) room() int { return len(v.Bytes) }

// Set stores an attribute, replacing one of the same name. It returns
// ErrNoSpace, and changes nothing, when there is no room. If what is replaced
// had its value in an inode (Entry.Inum), that is the caller's to release.
func (a Area) Set(n Name, value []byte) error { return a.Store(n, Stored{Bytes: value}) }

// Store is Set for a value that may be in an inode of its own.
func (a Area) Store(n Name, v Stored) error {
	if len(n.Suffix) > MaxNameLen {
		return ErrName
	}
	if len(v.Bytes) > MaxValue || v.Size > MaxValue {
		return ErrValue
	}
	if !a.Fits(n, v.room()) {
		return ErrNoSpace
	}
	if err := a.Check(); err != nil {
		return err
	}
	a.start()
	if e, ok := a.Find(n); ok {
		if e.Inum == 0 && len(v.Bytes) > 0 && ondisk.XattrValueLen(int(e.Size)) == ondisk.XattrValueLen(len(v.Bytes)) {
			a.overwrite(e, v.Bytes)
			return nil
		}
		a.cut(e)
	}
	a.insert(n, v)
	return nil
}

// Inums lists the inodes that values of the area are in; one may come twice.
func (a Area) Inums() (list []uint32) {
	a.Each(func(e Entry) bool {
		if e.Inum != 0 {
			list = append(list, e.Inum)
		}
		return true
	})
	return list
}

// overwrite puts a value in the place of one that takes the same room.
func (a Area) overwrite(e Entry, value []byte) {
	place := a.b[e.offs : e.offs+ondisk.XattrValueLen(len(value))]
	clear(place[copy(place, value):])
	x, _ := a.next(e.at)
	x.ValueSize = uint32(len(value))
	x.Hash = a.entryHash(e.Name.Suffix, place)
	x.Encode(a.b[e.at:])
	a.rehash()
}

// insert adds an attribute that is not there; there is room.
func (a Area) insert(n Name, v Stored) {
	end, low := a.extent()
	at, size := a.place(n), ondisk.XattrEntryLen(len(n.Suffix))
	copy(a.b[at+size:], a.b[at:end])
	clear(a.b[at : at+size])
	clear(a.b[end+size : end+size+4])
	x := ondisk.XattrEntry{NameLen: uint8(len(n.Suffix)), NameIndex: n.Index, ValueSize: uint32(len(v.Bytes))}
	var place []byte
	if len(v.Bytes) > 0 {
		low -= ondisk.XattrValueLen(len(v.Bytes))
		place = a.b[low : low+ondisk.XattrValueLen(len(v.Bytes))]
		clear(place[copy(place, v.Bytes):])
		x.ValueOffs = uint16(low)
	}
	if x.Hash = a.entryHash(n.Suffix, place); v.Inum != 0 {
		x.ValueInum, x.ValueSize, x.Hash = v.Inum, v.Size, EntryHashInode(n.Suffix, v.CRC)
	}
	x.Encode(a.b[at:])
	copy(a.b[at+ondisk.XattrEntrySize:], n.Suffix)
	a.rehash()
}

// place is where an entry for n goes: in order in a block, last in an inode.
func (a Area) place(n Name) int {
	at := a.first
	for {
		x, ok := a.next(at)
		if !ok || a.magic == nil && compare(n, &x, a.name(at, &x)) < 0 {
			return at
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
}

// compare orders as blocks do: index, then length, then bytes.
func compare(n Name, x *ondisk.XattrEntry, name []byte) int {
	if d := int(n.Index) - int(x.NameIndex); d != 0 {
		return d
	}
	if d := len(n.Suffix) - len(name); d != 0 {
		return d
	}
	switch s := string(name); {
	case n.Suffix < s:
		return -1
	case n.Suffix > s:
		return 1
	}
	return 0
}

// Remove takes an attribute out, and tells whether it was there.
func (a Area) Remove(n Name) bool {
	e, ok := a.Find(n)
	if ok {
		a.cut(e)
		a.rehash()
	}
	return ok
}

// cut removes entry and value, and moves the values below it up, so that free
// space stays in one piece. What gets free is zeroed.
func (a Area) cut(e Entry) {
	end, low := a.extent()
	if size := ondisk.XattrValueLen(int(e.Size)); e.Inum == 0 && e.Size > 0 &&
		e.offs >= low && size <= len(a.b)-e.offs {
		copy(a.b[low+size:e.offs+size], a.b[low:e.offs])
		clear(a.b[low : low+size])
		a.moveValues(e.offs, size)
	}
	size := ondisk.XattrEntryLen(len(e.Name.Suffix))
	copy(a.b[e.at:], a.b[e.at+size:end])
	clear(a.b[end-size : end])
}

// moveValues adds by to the offsets of values below offset.
func (a Area) moveValues(offset, by int) {
	for at := a.first; ; {
		x, ok := a.next(at)
		if !ok {
			return
		}
		if x.ValueInum == 0 && x.ValueSize > 0 && int(x.ValueOffs) < offset {
			x.ValueOffs += uint16(by)
			x.Encode(a.b[at:])
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
}
