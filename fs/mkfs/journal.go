package mkfs

import (
	"fmt"
	"slices"

	"extfused/fs/ondisk"
)

// placeJournal puts the journal near the middle of the device, where the way
// from everywhere is shortest.
func (l *layout) placeJournal() error {
	if !l.sb.HasCompat(ondisk.CompatHasJournal) {
		return nil
	}
	n, err := l.journalBlocks()
	if err != nil {
		return err
	}
	if n == 0 {
		l.sb.FeatureCompat &^= uint32(ondisk.CompatHasJournal)
		l.note = "the file system is too small for a journal, it has none"
		return nil
	}
	free := l.sb.Blocks() - uint64(l.sb.FirstDataBlock) - l.used.total()
	if uint64(n) > free/2 && l.p.JournalBytes != 0 || uint64(n) >= free {
		return fmt.Errorf("a journal of %d blocks is too big for a file system with %d free blocks", n, free)
	}
	l.journal.blocks = n
	return l.takeJournal(l.sb.GroupFirstBlock(l.journalGroup()), uint64(n))
}

// takeJournal allocates n blocks from goal on and, where an inode does not
// hold their extents, a node for these: the block before the journal. If that
// one is taken, it is the one that is next when the first extent comes that
// the inode has no room for.
func (l *layout) takeJournal(goal ondisk.FsBlock, n uint64) (err error) {
	j, before := &l.journal, space{slices.Clone(l.used.runs)}
	if j.runs, err = l.takeRuns(goal, n); err != nil {
		return err
	}
	extents := splitExtents(j.runs)
	if len(extents) <= inlineExtents {
		return nil
	}
	if first := j.runs[0].start; first > l.sb.GroupFirstBlock(0) && l.used.isFree(first-1, 1) {
		j.node = first - 1
		l.used.add(j.node, 1)
		return nil
	}
	var head uint64
	for _, x := range extents[:inlineExtents+1] {
		head += uint64(x.Len)
	}
	l.used = before
	if j.runs, err = l.takeRuns(goal, head); err != nil {
		return err
	}
	first := l.sb.GroupFirstBlock(0)
	if j.node, err = l.take(j.runs[len(j.runs)-1].end(), first, l.end(), 1); err != nil || head == n {
		return err
	}
	rest, err := l.takeRuns(j.node, n-head)
	j.runs = append(j.runs, rest...)
	return err
}

func (l *layout) journalBlocks() (uint32, error) {
	if l.p.JournalBytes == 0 {
		return defaultJournalBlocks(l.sb.Blocks()), nil
	}
	n := l.p.JournalBytes / int64(l.sb.BlockSize())
	if n < minJournalBlocks || n > maxJournalBlocks {
		return 0, fmt.Errorf("a journal of %d bytes has %d blocks of %d bytes: it must have %d to %d",
			l.p.JournalBytes, n, l.sb.BlockSize(), minJournalBlocks, maxJournalBlocks)
	}
	return uint32(n), nil
}

// journalGroup chooses the group: in the flex group of the middle block the
// first one or the one behind it, before that the middle one or a neighbour;
// whichever has most free blocks, the first of equals.
func (l *layout) journalGroup() ondisk.GroupNumber {
	middle := (l.sb.Blocks() - uint64(l.sb.FirstDataBlock)) / 2
	g, _ := l.sb.GroupOfBlock(max(ondisk.FsBlock(middle), ondisk.FsBlock(l.sb.FirstDataBlock)))
	flex := ondisk.GroupNumber(l.sb.FlexSize())
	start := g
	if flex > 1 && g > flex {
		g &^= flex - 1
		for g < l.sb.GroupCount() && l.freeIn(g) == 0 {
			g++
		}
		if g == l.sb.GroupCount() {
			g = 0
		}
		start = g
	} else if g > 0 {
		start = g - 1
	}
	end := min(g+1, l.sb.GroupCount()-1)
	best := start
	for i := start; i <= end; i++ {
		if l.freeIn(i) > l.freeIn(best) {
			best = i
		}
	}
	return best
}

func (l *layout) freeIn(g ondisk.GroupNumber) uint64 {
	return uint64(l.sb.GroupBlocks(g)) - l.used.used(l.sb.GroupFirstBlock(g), l.groupEnd(g))
}
