package journal

import (
	"errors"
	"time"
)

// LoggedBlock is a block that a transaction logged.
type LoggedBlock struct {
	Home  uint64 // block of the file system
	Block uint32 // log block with its content
	Flags TagFlags
}

// TransactionInfo is a transaction as it lies in the log.
type TransactionInfo struct {
	TID       TID
	Start     uint32 // first log block
	Blocks    int    // log blocks, commit block included
	Committed bool   // has its commit block; without, replay ignores it
	Commit    uint32 // log block of the commit block
	Time      time.Time
	Logged    []LoggedBlock
	Revokes   []uint64 // blocks of the file system
	Damage    []error  // each a *CorruptError
}

// LogInfo describes a log.
type LogInfo struct {
	SuperBlock  SuperBlock
	First, Last uint32 // blocks of the circular log, inclusive
	FcFirst     uint32 // first block of the fast-commit area, if FcBlocks is not 0
	FcBlocks    uint32
	Empty       bool   // nothing to recover
	End         string // why the log ends
	EndBlock    uint32
	EndTID      TID // the first transaction that is not in it
	FastCommits FastCommits
}

// InspectOptions choose what Inspect looks at.
type InspectOptions struct {
	// Old walks a log that is empty, too: from its first block, whatever
	// transaction lies there, up to where the sequence breaks.
	Old bool
}

// Inspect walks the log without writing or believing anything, and calls fn
// (which may be nil) with each transaction in order, the last one possibly not
// committed. It does not stop at damaged ones. An error is that of reading, of
// a superblock that makes no sense, or fn's.
func Inspect(p Params, o InspectOptions, fn func(TransactionInfo) error) (LogInfo, error) {
	j, err := Open(p)
	if err != nil {
		return LogInfo{}, err
	}
	sb := j.super.sb
	info := LogInfo{SuperBlock: sb, First: j.geo.first, Last: j.geo.last - 1, Empty: sb.Start == 0}
	if j.geo.fcFirst < j.geo.fcLast {
		info.FcFirst, info.FcBlocks = j.geo.fcFirst, j.geo.fcLast-j.geo.fcFirst
	}
	start, seq := sb.Start, sb.Sequence
	if info.Empty {
		info.End, info.EndBlock, info.EndTID = "the log is empty", 0, sb.Sequence+1
		var ok bool
		if start, seq, ok, err = j.oldStart(); !o.Old || !ok || err != nil {
			return info, err
		}
	}
	if err := j.inspectFrom(start, seq, &info, fn); err != nil {
		return info, err
	}
	if !info.Empty {
		info.FastCommits, err = j.fastCommits(info.EndTID)
	}
	return info, err
}

// oldStart finds what an empty log has at its beginning.
func (j *Journal) oldStart() (uint32, TID, bool, error) {
	r := logReader{log: j.log, end: j.geo.last}
	b, err := r.block(j.geo.first)
	if err != nil {
		return 0, 0, false, err
	}
	h := decodeHeader(b)
	return j.geo.first, h.Sequence, h.Magic == Magic, nil
}

func (j *Journal) inspectFrom(start uint32, seq TID, info *LogInfo, fn func(TransactionInfo) error) error {
	w := j.newWalker(start, seq)
	for {
		t, end, err := w.next()
		if err != nil {
			return err
		}
		if end != nil {
			info.End, info.EndBlock, info.EndTID = end.why, end.block, end.seq
			t = end.partial
		}
		if t != nil && fn != nil {
			if err := fn(j.describe(t, end == nil)); err != nil {
				return err
			}
		}
		if end != nil {
			return nil
		}
	}
}

func (j *Journal) describe(t *foundTransaction, committed bool) TransactionInfo {
	i := TransactionInfo{TID: t.tid, Start: t.start, Blocks: t.blocks, Committed: committed, Revokes: t.revokes}
	for _, tag := range t.tags {
		i.Logged = append(i.Logged, LoggedBlock{Home: tag.home, Block: tag.block, Flags: tag.flags})
	}
	for _, d := range t.damage {
		i.Damage = append(i.Damage, d)
	}
	if !committed {
		return i
	}
	i.Commit, i.Time = t.commit, t.time
	if t.badCommit {
		i.Damage = append(i.Damage, (&foundTransaction{tid: t.tid, commit: t.commit}).firstDamage())
	}
	var bad *CorruptError
	if errors.As(j.checkTags(t), &bad) {
		i.Damage = append(i.Damage, bad)
	}
	return i
}
