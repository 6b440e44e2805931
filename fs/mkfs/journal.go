package mkfs

import (
	"fmt"

	"extfused/fs/ondisk"
)

// placeJournal puts the journal near the middle of the device, where the way
// from everywhere is shortest.
func (l *layout) placeJournal() error {
	if !l.sb.HasCompat(ondisk.CompatHasJournal) {
		return nil
	}
	n, fast, err := l.journalBlocks()
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
	l.journal = journalPlace{n, fast}
	l.overhead += ceilDiv(uint64(n), l.ratio)
	goal := l.sb.GroupFirstBlock(0)
	if !l.p.PackedMeta {
		goal = l.sb.GroupFirstBlock(l.journalGroup())
	}
	return l.place(ondisk.JournalIno, goal, uint64(n))
}

// journalBlocks is the length of the journal, and of its area for fast commits.
func (l *layout) journalBlocks() (blocks, fast uint32, err error) {
	n := int64(defaultJournalBlocks(l.sb.Blocks()))
	f := n / fastCommitShare
	if l.p.JournalBytes != 0 {
		n = l.p.JournalBytes / int64(l.sb.BlockSize())
	}
	if n != 0 && l.sb.HasCompat(ondisk.CompatFastCommit) {
		if l.p.FastCommitBytes != 0 {
			f = l.p.FastCommitBytes / int64(l.sb.BlockSize())
		}
		n, fast = n+f, uint32(f)
	}
	if l.p.JournalBytes != 0 && (n < minJournalBlocks || n > maxJournalBlocks) {
		return 0, 0, fmt.Errorf("a journal of %d bytes has %d blocks of %d bytes: it must have %d to %d",
			l.p.JournalBytes, n, l.sb.BlockSize(), minJournalBlocks, maxJournalBlocks)
	}
	return uint32(n), fast, nil
}

// fastCommitShare is how many times longer the default journal is than the area
// for fast commits that it, or another one in its place, gets besides.
const fastCommitShare = 64

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
