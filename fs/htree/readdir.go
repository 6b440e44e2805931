package htree

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"extfused/fs/ondisk"
)

// EOFCookie is above the cookie of every entry.
const EOFCookie uint64 = 1<<63 - 1

// firstName is the position of the first name: 0 is ".", 1 is "..".
const firstName = 2

// maxMinor keeps some positions behind the last minor hash free for names
// that collide there.
const maxMinor = 0xffffff00

// Entry is a name as ReadDir reports it.
type Entry struct {
	Name []byte // valid during the call only
	Ino  ondisk.InodeNumber
	Type uint8
	Next uint64 // cookie to continue behind this entry, below 2^63
}

// ReadDir calls fn for the entries from cookie on, 0 being the start, until fn
// returns false, in which case that entry counts as not read, or the end.
//
// With dir_index the order is "." and "..", then the hash, and a cookie is the
// position in that order: (major hash / 2) << 32 | minor hash, so that it
// outlives conversion to an index, splits and compaction, and names that come
// and go meanwhile move no other name. Names that agree in all 63 bits follow
// one another in byte order at the next free positions; only among those may
// an entry be skipped when one before it goes away.
// Without dir_index (and in linear directories of several blocks, which are
// never converted) a cookie is a byte offset.
func (d *Dir) ReadDir(cookie uint64, fn func(Entry) bool) error {
	if cookie >= EOFCookie {
		return nil
	}
	switch {
	case d.NBlocks == 0:
		return d.corrupt(0, "directory without a block")
	case d.indexed():
		return d.readIndexed(cookie, fn)
	case d.DirIndex && d.NBlocks == 1:
		return d.readBlock(cookie, fn)
	}
	return d.readLinear(cookie, fn)
}

func (d *Dir) readLinear(cookie uint64, fn func(Entry) bool) error {
	bs, limit := uint64(d.BlockSize), d.leafLimit()
	for l := cookie / bs; l < uint64(d.NBlocks); l++ {
		b, err := d.Store.Get(ondisk.LBlock(l), false)
		if err != nil {
			return err
		}
		for off := 0; off < limit; {
			next, what := d.next(b, off, limit)
			if what != "" {
				return d.corrupt(ondisk.LBlock(l), what)
			}
			ino := dirent(b, off).Inode()
			if ino != 0 && l*bs+uint64(off) >= cookie {
				e := Entry{dirent(b, off).Name(), ino, d.fileType(b, off), l*bs + uint64(next)}
				if !fn(e) {
					return nil
				}
			}
			off = next
		}
	}
	return nil
}

// found is a name with its position by hash.
type found struct {
	pos  uint64
	name []byte
	ino  ondisk.InodeNumber
	typ  uint8
}

// lister collects the names of one leaf, or of all leaves that share a hash.
type lister struct {
	names   []found
	cookie  uint64
	version uint8
	lo, hi  uint32 // bounds of major, both allowed
}

var listers = sync.Pool{New: func() any { return new(lister) }}

func (d *Dir) newLister(cookie uint64, version uint8) *lister {
	li := listers.Get().(*lister)
	li.cookie, li.version, li.lo, li.hi = cookie, version, 0, hashEOF-2
	return li
}

func (li *lister) done() {
	clear(li.names) // they point into blocks
	li.names = li.names[:0]
	listers.Put(li)
}

// position returns where a name stands. A name in a leaf that is not its
// hash's (damage, or made by a machine with the other kind of char) stands at
// the edge of the leaf, so that it is listed once and nothing goes round.
func (li *lister) position(major, minor uint32) uint64 {
	switch {
	case major < li.lo:
		major, minor = li.lo, 0
	case major > li.hi:
		major, minor = li.hi, maxMinor
	}
	return uint64(major>>1)<<32 | uint64(min(minor, maxMinor))
}

// start is the major hash at which a cookie's search begins.
func start(cookie uint64) uint32 { return uint32(cookie>>32) << 1 }

// collectNames adds the names of leaf b from offset from on, except "." and
// ".." of a linear block and those that stand before the cookie for sure.
func (d *Dir) collectNames(li *lister, l ondisk.LBlock, b []byte, from int) error {
	limit := d.leafLimit()
	for off := from; off < limit; {
		next, what := d.next(b, off, limit)
		if what != "" {
			return d.corrupt(l, what)
		}
		if ino := dirent(b, off).Inode(); ino != 0 {
			name := dirent(b, off).Name()
			if !d.AnyName && (bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0) {
				return d.corrupt(l, "name with a slash or NUL in it")
			}
			pos := li.position(d.Hash(li.version, name))
			if pos>>32 >= li.cookie>>32 {
				li.names = append(li.names, found{pos, name, ino, d.fileType(b, off)})
			}
		}
		off = next
	}
	return nil
}

// emit reports the collected names in order and forgets them; more is false
// if fn wants no more.
func (li *lister) emit(fn func(Entry) bool) (more bool) {
	slices.SortFunc(li.names, func(x, y found) int {
		return cmp.Or(cmp.Compare(x.pos, y.pos), bytes.Compare(x.name, y.name))
	})
	free := uint64(firstName)
	for i := range li.names {
		n := &li.names[i]
		pos := max(n.pos, free)
		free = pos + 1
		if pos < li.cookie {
			continue
		}
		if !fn(Entry{n.name, n.ino, n.typ, free}) {
			return false
		}
	}
	clear(li.names)
	li.names = li.names[:0]
	return true
}

// emitDots reports "." and "..", which are at the given offsets of block 0.
func (d *Dir) emitDots(b []byte, dotdot int, cookie uint64, fn func(Entry) bool) (more bool) {
	if cookie == 0 && !fn(Entry{b[8:9], dirent(b, 0).Inode(), d.fileType(b, 0), 1}) {
		return false
	}
	return cookie > 1 || fn(Entry{b[dotdot+8 : dotdot+10], dirent(b, dotdot).Inode(), d.fileType(b, dotdot), 2})
}

// readBlock lists a linear directory of one block in the order of the index
// that it will become.
func (d *Dir) readBlock(cookie uint64, fn func(Entry) bool) error {
	b, err := d.Store.Get(0, false)
	if err != nil {
		return err
	}
	from, err := d.afterDots(b)
	if err != nil {
		return err
	}
	if !d.emitDots(b, d.recLen(b, 0), cookie, fn) {
		return nil
	}
	li := d.newLister(cookie, d.HashVersion)
	defer li.done()
	if err := d.collectNames(li, 0, b, from); err != nil {
		return err
	}
	li.emit(fn)
	return nil
}

func (d *Dir) readIndexed(cookie uint64, fn func(Entry) bool) error {
	var pa path
	if err := d.openRoot(&pa); err != nil {
		return err
	}
	if !d.emitDots(pa.s[0].b, dotdotOff, cookie, fn) {
		return nil
	}
	leaf, err := d.descend(&pa, start(cookie))
	if err != nil {
		return err
	}
	li := d.newLister(cookie, pa.version)
	defer li.done()
	for ok := true; ok; leaf, ok, err = d.forward(&pa) {
		if err != nil {
			return err
		}
		if err := d.collectGroup(li, &pa, leaf); err != nil {
			return err
		}
		if !li.emit(fn) {
			return nil
		}
	}
	return err
}

// collectGroup adds the names of a leaf and of those behind it that continue
// its last hash; the path then stands at the last of them.
func (d *Dir) collectGroup(li *lister, pa *path, leaf ondisk.LBlock) error {
	li.lo = pa.lo &^ 1
	for {
		next, ok := pa.following()
		li.hi = hashEOF - 2
		if ok {
			li.hi = next &^ 1
			if next&1 == 0 && next > 0 {
				li.hi = next - 2
			}
		}
		b, err := d.Store.Get(leaf, false)
		if err != nil {
			return err
		}
		if err := d.collectNames(li, leaf, b, 0); err != nil {
			return err
		}
		if !ok || next&1 == 0 {
			return nil
		}
		if leaf, _, err = d.forward(pa); err != nil {
			return err
		}
	}
}
