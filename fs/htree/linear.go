package htree

import "extfused/fs/ondisk"

// find returns the place of name, ErrNotFound if it has none. With write set
// the block may be changed.
func (d *Dir) find(name string, write bool) (entry, error) {
	switch {
	case len(name) > MaxNameLen:
		return entry{}, ErrNameTooLong
	case name == "":
		return entry{}, ErrNotFound
	case d.NBlocks == 0:
		return entry{}, d.corrupt(0, "directory without a block")
	case !d.indexed():
		return d.findLinear(name, write)
	case name == "." || name == "..":
		return d.findDot(name, write)
	}
	return d.findIndexed(name, write)
}

func (d *Dir) findLinear(name string, write bool) (entry, error) {
	early := write && d.NBlocks == 1 // the only block it can be in
	for l := range d.NBlocks {
		b, err := d.Store.Get(l, early)
		if err != nil {
			return entry{}, err
		}
		s, what := d.scanLeaf(b, name, 0)
		if what != "" {
			return entry{}, d.corrupt(l, what)
		}
		if s.off < 0 {
			continue
		}
		if write && !early {
			if b, err = d.Store.Get(l, true); err != nil {
				return entry{}, err
			}
		}
		return entry{l, b, s.off, s.prev}, nil
	}
	return entry{}, ErrNotFound
}

// insertLinear looks for the name and for room in one pass over all blocks.
func (d *Dir) insertLinear(name string, ino ondisk.InodeNumber, ftype uint8) error {
	if d.NBlocks == 0 {
		return d.corrupt(0, "directory without a block")
	}
	need := ondisk.DirRecLen(len(name))
	early := d.NBlocks == 1
	at := entry{off: -1}
	for l := range d.NBlocks {
		b, err := d.Store.Get(l, early)
		if err != nil {
			return err
		}
		s, what := d.scanLeaf(b, name, need)
		if what != "" {
			return d.corrupt(l, what)
		}
		if s.off >= 0 {
			return ErrExist
		}
		if at.off < 0 && s.slot >= 0 {
			at, need = entry{blk: l, b: b, off: s.slot}, 0
		}
	}
	if at.off < 0 {
		return d.insertFull(name, ino, ftype)
	}
	if !early {
		b, err := d.Store.Get(at.blk, true)
		if err != nil {
			return err
		}
		at.b = b
	}
	return d.placeLinear(at, name, ino, ftype)
}

// placeLinear fills a slot of a linear directory. A tree that was there, and
// cannot be used for want of the dir_index feature, is out of date from now on.
func (d *Dir) placeLinear(at entry, name string, ino ondisk.InodeNumber, ftype uint8) error {
	d.place(at.b, at.off, name, ino, ftype)
	d.Indexed = false
	return d.Store.Dirty(at.blk)
}

// insertFull inserts into a linear directory whose blocks have no slot. One
// block, and dir_index: its entries are moved together, and if that makes no
// room, they become an indexed directory. Otherwise it gets one block more.
func (d *Dir) insertFull(name string, ino ondisk.InodeNumber, ftype uint8) error {
	if d.DirIndex && d.NBlocks == 1 {
		return d.insertFullBlock(name, ino, ftype)
	}
	l, b, err := d.Store.New()
	if err != nil {
		return err
	}
	d.NBlocks = l + 1
	d.InitLeaf(b)
	return d.placeLinear(entry{blk: l, b: b}, name, ino, ftype)
}

func (d *Dir) insertFullBlock(name string, ino ondisk.InodeNumber, ftype uint8) error {
	b, err := d.Store.Get(0, true)
	if err != nil {
		return err
	}
	if slot := d.compact(b, ondisk.DirRecLen(len(name))); slot >= 0 {
		return d.placeLinear(entry{b: b, off: slot}, name, ino, ftype)
	}
	if err := d.makeIndexed(b); err != nil {
		return err
	}
	return d.insertIndexed(name, ino, ftype)
}

// compact moves the entries of b, whose chain has been checked, together in
// their order if that makes room for an entry of need bytes, and returns the
// offset of the slot, or -1.
func (p *Params) compact(b []byte, need int) int {
	limit := p.leafLimit()
	live := 0
	for off := 0; off < limit; off += p.recLen(b, off) {
		if dirent(b, off).Inode() != 0 {
			live += ondisk.DirRecLen(dirent(b, off).NameLen())
		}
	}
	if live+need > limit {
		return -1
	}
	to, last := 0, 0
	for off := 0; off < limit; {
		rec := p.recLen(b, off)
		if dirent(b, off).Inode() != 0 {
			n := ondisk.DirRecLen(dirent(b, off).NameLen())
			copy(b[to:to+n], b[off:off+n])
			p.setRecLen(b, to, n)
			last, to = to, to+n
		}
		off += rec
	}
	clear(b[to:limit])
	p.setRecLen(b, last, limit-last)
	return last
}

// Empty tells whether the directory has no entries but "." and "..". All
// entries are checked on the way; a directory that does not begin with those
// two is corrupt.
func (d *Dir) Empty() (bool, error) {
	if d.NBlocks == 0 {
		return false, d.corrupt(0, "directory without a block")
	}
	if d.indexed() {
		return d.emptyIndexed()
	}
	for l := range d.NBlocks {
		b, err := d.Store.Get(l, false)
		if err != nil {
			return false, err
		}
		from := 0
		if l == 0 {
			if from, err = d.afterDots(b); err != nil {
				return false, err
			}
		}
		if empty, err := d.emptyLeaf(l, b, from); !empty || err != nil {
			return false, err
		}
	}
	return true, nil
}

// emptyLeaf tells whether no entry from offset from on is in use.
func (d *Dir) emptyLeaf(l ondisk.LBlock, b []byte, from int) (bool, error) {
	limit := d.leafLimit()
	for off := from; off < limit; {
		next, what := d.next(b, off, limit)
		if what != "" {
			return false, d.corrupt(l, what)
		}
		if dirent(b, off).Inode() != 0 {
			return false, nil
		}
		off = next
	}
	return true, nil
}

// afterDots checks that linear block 0 begins with "." and "..", and returns
// the offset behind them.
func (d *Dir) afterDots(b []byte) (int, error) {
	limit, off := d.leafLimit(), 0
	for _, name := range [...]string{".", ".."} {
		next, what := 0, "directory does not begin with . and .."
		if off < limit {
			var bad string
			if next, bad = d.next(b, off, limit); bad != "" {
				return 0, d.corrupt(0, bad)
			}
			if dirent(b, off).Inode() != 0 && string(dirent(b, off).Name()) == name {
				what = ""
			}
		}
		if what != "" {
			return 0, d.corrupt(0, what)
		}
		off = next
	}
	return off, nil
}
