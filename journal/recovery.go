package journal

import (
	"errors"
	"time"
)

// RecoveryStats tells what a recovery found and did.
type RecoveryStats struct {
	Needed       bool
	First, Last  TID // transactions found, inclusive; meaningless if there is none
	Transactions int
	LogBlocks    int    // blocks that they take in the log
	Tags         int    // blocks they logged
	Replayed     int    // home blocks written: the last version of each, if not revoked
	RevokeHits   int    // logged blocks not written because of a revoke
	Revokes      int    // revoke records
	FastCommits  int    // fast-commit tags handed to OnFastCommit
	End          string // why the log ended where it did
	EndBlock     uint32
	NextTID      TID // number of the next transaction
	Duration     time.Duration
}

// foundLog is what the scan of a log believes in.
type foundLog struct {
	transactions []*foundTransaction
	endSeq       TID // the first sequence that is not committed
	endBlock     uint32
	end          string
}

// Recover replays the log: it writes the last committed version of every block
// that was not freed since to its home, and then marks the log empty, with the
// sequence moved on so that nothing of it can ever count again. Nothing is
// written before everything has been read and verified; cut short at any
// point, it can be done again with the same outcome. It works on FsDev, below
// the cache, before Start.
//
// A damaged log gives a *CorruptError. What is damage and what is a commit
// that was interrupted is told apart as described at scan.
func (j *Journal) Recover() (RecoveryStats, error) {
	begin := time.Now()
	st := RecoveryStats{Needed: j.NeedsRecovery()}
	if st.Needed {
		if err := j.recover(&st); err != nil {
			return st, err
		}
	}
	st.NextTID = j.nextTID
	st.Duration = time.Since(begin)
	return st, nil
}

func (j *Journal) recover(st *RecoveryStats) error {
	if j.log.dev.ReadOnly() || j.fsDev.ReadOnly() {
		return ErrReadOnly
	}
	found, err := j.scan()
	if err != nil {
		return err
	}
	found.describe(st)
	revoked := found.revoked()
	plan, err := j.plan(found, revoked, st)
	if err != nil {
		return err
	}
	fc, err := j.fastCommits(found.endSeq)
	if err != nil {
		return err
	}
	if len(fc.Tags) > 0 && j.onFastCommit == nil {
		return ErrFastCommit
	}
	if err := j.replay(plan); err != nil {
		return err
	}
	if err := j.flush(j.fsDev); err != nil {
		return err
	}
	if len(fc.Tags) == 0 {
		return j.endRecovery(found.endSeq)
	}
	st.FastCommits = len(fc.Tags)
	blocks, err := j.onFastCommit(fc)
	if err != nil {
		return err
	}
	if err := j.fullCommit(fc.TID, blocks); err != nil {
		return err
	}
	return j.endRecovery(fc.TID + 1)
}

// Wipe marks the log empty without replaying it, for a file system whose
// superblock says that it needs no recovery: what such a log holds is older
// than what is at home. The sequence moves on as after Recover.
func (j *Journal) Wipe() error {
	if !j.NeedsRecovery() {
		return nil
	}
	if j.log.dev.ReadOnly() {
		return ErrReadOnly
	}
	found, err := j.scan()
	var bad *CorruptError
	switch {
	case errors.As(err, &bad): // each transaction takes a block at least
		return j.endRecovery(j.SuperBlock().Sequence + TID(j.geo.usable()))
	case err != nil:
		return err
	}
	return j.endRecovery(found.endSeq)
}

// endRecovery marks the log empty. Blocks of an interrupted transaction endSeq
// may lie in the log, so that number is never used again.
func (j *Journal) endRecovery(endSeq TID) error {
	if err := j.markEmpty(endSeq + 1); err != nil {
		return err
	}
	j.nextTID = endSeq + 2
	j.resetLog()
	return nil
}

// scan finds the committed transactions. The log ends, without that being an
// error, at the first block that is not of the expected sequence, and
//
//   - where a commit block, but nothing else, fails its checksum, and no valid
//     commit block of a later transaction lies anywhere in the log: a commit
//     block that was being written when the power went. jbd2 refuses such a
//     log; but if later transactions were committed, so was this one, and it
//     is corrupt;
//   - with asynchronous commits, where any checksum of a transaction fails,
//     under the same condition;
//   - where blocks fail that an earlier commit block, by its time, closes:
//     those are left over from a former life of the log (jbd2 calls it lazy
//     journal initialisation).
//
// Every other bad checksum is an error.
func (j *Journal) scan() (*foundLog, error) {
	sb := j.SuperBlock()
	w := j.newWalker(sb.Start, sb.Sequence)
	found := &foundLog{endSeq: sb.Sequence, endBlock: sb.Start}
	var last time.Time
	for {
		t, end, err := w.next()
		if err != nil {
			return nil, err
		}
		if end != nil {
			found.end, found.endBlock = end.why, end.block
			return found, nil
		}
		if !t.whole() {
			found.end, found.endBlock = "interrupted commit", t.start
			if stale(t, last) {
				found.end = "left over from before"
				return found, nil
			}
			return found, j.judge(t, last)
		}
		if err := j.checkTags(t); err != nil {
			return nil, err
		}
		found.transactions = append(found.transactions, t)
		found.endSeq = t.tid + 1
		last = t.time
	}
}

// stale says whether damaged t is older than the transaction before it.
func stale(t *foundTransaction, last time.Time) bool {
	return !t.structural && !last.IsZero() && t.time.Before(last)
}

// judge decides whether damaged t is an interrupted commit (nil) or corrupt.
func (j *Journal) judge(t *foundTransaction, last time.Time) error {
	e := t.firstDamage()
	if !t.badCommit && (t.structural || !j.lay.async) {
		return e
	}
	later, err := j.laterCommit(t, last)
	if err != nil {
		return err
	}
	if later {
		return e
	}
	return nil
}

// laterCommit looks for evidence that transactions after t were committed.
func (j *Journal) laterCommit(t *foundTransaction, last time.Time) (bool, error) {
	if j.lay.csum == csumV1 {
		n, end, err := j.newWalker(t.next, t.tid+1).next()
		return end == nil && err == nil && n.whole(), err
	}
	r := logReader{log: j.log, end: j.geo.last}
	for blk := j.geo.first; blk < j.geo.last; blk++ {
		b, err := r.block(blk)
		if err != nil {
			return false, err
		}
		h := decodeHeader(b)
		if h.Magic != Magic || h.BlockType != CommitBlock || !h.Sequence.After(t.tid) ||
			uint32(h.Sequence-t.tid) > j.geo.usable() || !j.lay.verifyCommit(b, 0) {
			continue
		}
		if last.IsZero() || !commitTime(b).Before(last) {
			return true, nil
		}
	}
	return false, nil
}

// checkTags refuses homes that cannot be.
func (j *Journal) checkTags(t *foundTransaction) error {
	for _, tag := range t.tags {
		what := ""
		switch {
		case tag.home >= j.fsBlocks:
			what = "logged block lies beyond the end of the file system"
		case !j.external && j.log.contains(tag.home):
			what = "logged block lies in the journal itself"
		default:
			continue
		}
		return &CorruptError{What: what, Block: tag.block, Sequence: t.tid, HasSeq: true, Home: tag.home, HasHome: true}
	}
	return nil
}

func (f *foundLog) describe(st *RecoveryStats) {
	st.Transactions = len(f.transactions)
	st.End, st.EndBlock = f.end, f.endBlock
	for i, t := range f.transactions {
		if i == 0 {
			st.First = t.tid
		}
		st.Last = t.tid
		st.Tags += len(t.tags)
		st.Revokes += len(t.revokes)
		st.LogBlocks += t.blocks
	}
}

// revoked maps every revoked block to the last transaction that freed it.
// Versions of the block up to that one are not to be replayed.
func (f *foundLog) revoked() map[uint64]TID {
	m := make(map[uint64]TID)
	for _, t := range f.transactions {
		for _, blk := range t.revokes {
			m[blk] = t.tid
		}
	}
	return m
}
