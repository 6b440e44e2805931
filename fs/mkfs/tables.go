package mkfs

import (
	"fmt"

	"extfused/fs/ondisk"
)

func (l *layout) placeSupers() error {
	l.groups = make([]groupPlace, l.sb.GroupCount())
	if boot := uint64(l.superStart(0) - l.sb.GroupFirstBlock(0)); boot != 0 {
		l.used.add(l.sb.GroupFirstBlock(0), boot)
	}
	for g := range l.sb.GroupCount() {
		if g != 0 && l.sb.HasSuper(g) {
			l.backups = append(l.backups, g)
		}
		n := l.superBlocks(g)
		if n == 0 {
			continue
		}
		at := l.superStart(g)
		if uint64(at)+n > uint64(l.groupEnd(g)) {
			return fmt.Errorf("%d blocks: %w", l.sb.Blocks(), ErrTooSmall)
		}
		l.used.add(at, n)
	}
	return nil
}

// superStart is where the superBlocks of group g start.
func (l *layout) superStart(g ondisk.GroupNumber) ondisk.FsBlock {
	if g == 0 {
		return l.sb.SuperBlockOf(0)
	}
	return l.sb.GroupFirstBlock(g)
}

// useClusters ends the placing of tables, which are counted in blocks: what is
// taken from now on is whole clusters.
func (l *layout) useClusters() error {
	l.ratio = 1 << l.sb.ClusterBits()
	var whole space
	for _, r := range l.used.runs {
		start := r.start &^ ondisk.FsBlock(l.ratio-1)
		if l.ratio == 1 {
			start = r.start
		} else if k := len(whole.runs) - 1; k >= 0 {
			start = max(start, whole.runs[k].end())
		}
		if start < r.end() {
			whole.add(start, l.wholeClusters(uint64(r.end()-start)))
		}
	}
	l.used = whole
	l.overhead = l.used.total()/l.ratio + uint64(l.sb.FirstDataBlock)
	return nil
}

// placeTables puts the bitmaps and inode tables of each flex group together
// at its start: all block bitmaps, all inode bitmaps, all tables.
func (l *layout) placeTables() error {
	if l.p.PackedMeta {
		return l.packTables()
	}
	if !l.sb.HasIncompat(ondisk.IncompatFlexBG) && l.p.Stride != 0 {
		return l.strideTables()
	}
	flex := ondisk.GroupNumber(l.sb.FlexSize())
	for first := ondisk.GroupNumber(0); first < l.sb.GroupCount(); first += flex {
		count := min(flex, l.sb.GroupCount()-first)
		if err := l.placeFlex(first, count, flex); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) placeFlex(first, count, flex ondisk.GroupNumber) error {
	from, end := l.sb.GroupFirstBlock(first), l.groupEnd(first+count-1)
	// A flex group of one group keeps the distance of a whole one, so that it
	// can grow.
	gap := ondisk.FsBlock(count)
	if count == 1 {
		gap = ondisk.FsBlock(flex)
	}
	places := []struct {
		n   uint64
		get func(*groupPlace) *ondisk.FsBlock
	}{
		{1, func(g *groupPlace) *ondisk.FsBlock { return &g.blockBitmap }},
		{1, func(g *groupPlace) *ondisk.FsBlock { return &g.inodeBitmap }},
		{uint64(l.sb.InodeTableBlocksPerGroup()), func(g *groupPlace) *ondisk.FsBlock { return &g.inodeTable }},
	}
	for _, pl := range places {
		goal := from
		for i := range l.groups[first : first+count] {
			at, err := l.take(goal, from, end, pl.n)
			if err != nil {
				return fmt.Errorf("group %d: %w", int(first)+i, err)
			}
			*pl.get(&l.groups[int(first)+i]) = at
			if i == 0 && pl.n == 1 {
				from = at + gap
			}
			goal = at + ondisk.FsBlock(pl.n)
		}
	}
	return nil
}

// take allocates n blocks at goal or behind it, else from from on, before end.
func (l *layout) take(goal, from, end ondisk.FsBlock, n uint64) (ondisk.FsBlock, error) {
	at, ok := l.used.find(goal, end, n)
	if !ok {
		at, ok = l.used.find(from, end, n)
	}
	if !ok {
		return 0, fmt.Errorf("no room for %d blocks of metadata: %w", n, ErrTooSmall)
	}
	l.used.add(at, n)
	return at, nil
}

// packTables puts all bitmaps and then all tables of the file system together
// at its start.
func (l *layout) packTables() (err error) {
	first, end := l.sb.GroupFirstBlock(0), l.end()
	goal := first
	for _, get := range []func(*groupPlace) *ondisk.FsBlock{
		func(g *groupPlace) *ondisk.FsBlock { return &g.blockBitmap },
		func(g *groupPlace) *ondisk.FsBlock { return &g.inodeBitmap },
	} {
		for i := range l.groups {
			if goal, err = l.take(goal, first, end, 1); err != nil {
				return err
			}
			*get(&l.groups[i]) = goal
		}
	}
	for i := range l.groups {
		if goal, err = l.take(goal, first, end, uint64(l.sb.InodeTableBlocksPerGroup())); err != nil {
			return err
		}
		l.groups[i].inodeTable = goal
	}
	return nil
}

// strideTables spreads the bitmaps over the disks of a RAID: those of each
// group start a stride further on in it.
func (l *layout) strideTables() (err error) {
	table := uint64(l.sb.InodeTableBlocksPerGroup())
	for i := range l.groups {
		g := ondisk.GroupNumber(i)
		first, end := l.sb.GroupFirstBlock(g), l.groupEnd(g)
		goal, ok := l.used.find(first, end, 1)
		if !ok {
			return fmt.Errorf("group %d: %w", g, ErrTooSmall)
		}
		last := end - 1
		if goal += ondisk.FsBlock(table); goal <= last {
			goal += ondisk.FsBlock(uint64(l.p.Stride) * uint64(g) % uint64(last-goal+1))
		}
		if goal >= last {
			goal = first
		}
		place := &l.groups[i]
		if place.blockBitmap, err = l.take(goal, first, end, 1); err != nil {
			return err
		}
		if place.inodeBitmap, err = l.take(goal, first, end, 1); err != nil {
			return err
		}
		if place.inodeTable, err = l.take(first, first, end, table); err != nil {
			return err
		}
	}
	return nil
}
