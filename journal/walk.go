package journal

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The walk through a log that recovery and inspection share. It follows the
// log from transaction to transaction, believes nothing, and visits each block
// at most once.

// windowBytes is how much of the log is read at a time.
const windowBytes = 1 << 20

// logReader reads log blocks through a window.
type logReader struct {
	log  *logMap
	end  uint32 // the window does not reach beyond
	buf  []byte
	base uint32
	n    uint32 // blocks in buf
}

// block returns the content of log block blk, valid until the next call.
func (r *logReader) block(blk uint32) ([]byte, error) {
	bs := r.log.blockSize
	if blk-r.base >= r.n {
		if r.buf == nil {
			r.buf = make([]byte, max(min(windowBytes/bs, int(r.log.total)), 1)*bs)
		}
		n := min(uint32(len(r.buf)/bs), r.end-blk)
		if blk >= r.end {
			return nil, &CorruptError{What: "block lies beyond the end of the log", Block: blk}
		}
		r.n = 0
		if err := r.log.read(r.buf[:int(n)*bs], blk); err != nil {
			return nil, fmt.Errorf("journal block %d: %w", blk, err)
		}
		r.base, r.n = blk, n
	}
	return r.buf[int(blk-r.base)*bs:][:bs], nil
}

// loggedBlock is one tag, and where the log has the block.
type loggedBlock struct {
	home  uint64
	block uint32
	flags TagFlags
}

// foundTransaction is a transaction as the log has it.
type foundTransaction struct {
	tid     TID
	start   uint32 // its first log block
	commit  uint32 // log block of its commit block
	next    uint32 // log block behind it
	time    time.Time
	tags    []loggedBlock
	revokes []uint64
	blocks  int // log blocks it takes

	// damage is what is wrong before the commit block, badCommit that the
	// commit block's own checksum fails. structural marks damage that is not a
	// checksum's word.
	damage     []*CorruptError
	structural bool
	badCommit  bool
}

// walker is a position in the log.
type walker struct {
	geo     geometry
	lay     *layout
	r       logReader
	pos     uint32
	seq     TID
	visited uint32
	data    bool // read and verify the data blocks as well
}

// walkEnd says why a walk found no further transaction.
type walkEnd struct {
	why     string
	block   uint32
	seq     TID
	partial *foundTransaction // blocks of a transaction that was not committed
}

func (j *Journal) newWalker(start uint32, seq TID) *walker {
	return &walker{
		geo:  j.geo,
		lay:  &j.lay,
		r:    logReader{log: j.log, end: j.log.total},
		pos:  start,
		seq:  seq,
		data: j.lay.csum != csumNone,
	}
}

// next reads the transaction at the walker's place. Either it, or the reason
// why there is none, or an I/O error is not nil. A transaction without a commit
// block is none.
func (w *walker) next() (*foundTransaction, *walkEnd, error) {
	t := &foundTransaction{tid: w.seq, start: w.pos}
	end, err := w.fill(t)
	if end != nil && t.blocks > 0 {
		end.partial = t
	}
	if end != nil || err != nil {
		return nil, end, err
	}
	return t, nil, nil
}

// fill reads blocks into t up to the commit block, or up to an end.
func (w *walker) fill(t *foundTransaction) (*walkEnd, error) {
	v1 := ^uint32(0)
	for {
		if w.visited >= w.geo.usable() {
			return w.stop("every block of the log has been seen"), nil
		}
		b, err := w.r.block(w.pos)
		if err != nil {
			return nil, err
		}
		h := decodeHeader(b)
		switch {
		case h.Magic != Magic:
			return w.stop("no journal block"), nil
		case h.Sequence != w.seq:
			return w.stop(fmt.Sprintf("sequence %d instead", h.Sequence)), nil
		}
		switch h.BlockType {
		case DescriptorBlock:
			end, err := w.descriptor(t, b, &v1)
			if end != nil || err != nil {
				return end, err
			}
		case RevokeBlock:
			w.revokeBlock(t, b)
			w.advance(1)
		case CommitBlock:
			w.commitBlock(t, b, v1)
			return nil, nil
		default:
			return w.stop("unexpected " + h.BlockType.String()), nil
		}
		t.blocks = int(w.geo.distance(t.start, w.pos))
	}
}

func (w *walker) stop(why string) *walkEnd {
	return &walkEnd{why: why, block: w.pos, seq: w.seq}
}

func (w *walker) advance(n uint32) {
	w.pos = w.geo.add(w.pos, n)
	w.visited += n
}

// hurt records damage.
func (t *foundTransaction) hurt(structural bool, e CorruptError) {
	e.Sequence, e.HasSeq = t.tid, true
	t.damage = append(t.damage, &e)
	t.structural = t.structural || structural
}

// whole says that nothing is wrong with t.
func (t *foundTransaction) whole() bool { return len(t.damage) == 0 && !t.badCommit }

// firstDamage is the error to report for t, which is not whole.
func (t *foundTransaction) firstDamage() *CorruptError {
	if len(t.damage) > 0 {
		return t.damage[0]
	}
	return &CorruptError{What: "bad checksum of a commit block", Block: t.commit, Sequence: t.tid, HasSeq: true}
}

// descriptor takes the tags of descriptor b, at pos, and steps over the blocks
// behind it.
func (w *walker) descriptor(t *foundTransaction, b []byte, v1 *uint32) (*walkEnd, error) {
	if !w.lay.verifyTail(b) {
		t.hurt(false, CorruptError{What: "bad checksum of a descriptor block", Block: w.pos})
	}
	if w.lay.csum == csumV1 {
		*v1 = crc32be(*v1, b)
	}
	var tags []Tag
	w.lay.forEachTag(b, func(tag Tag) bool {
		tags = append(tags, tag)
		return true
	})
	w.advance(1)
	seed := w.lay.seqSeed(t.tid)
	for _, tag := range tags {
		if w.visited >= w.geo.usable() {
			return w.stop("a descriptor reaches beyond the whole log"), nil
		}
		if err := w.dataBlock(t, tag, seed, v1); err != nil {
			return nil, err
		}
		t.tags = append(t.tags, loggedBlock{home: tag.Home, block: w.pos, flags: tag.Flags})
		w.advance(1)
	}
	return nil, nil
}

// dataBlock verifies the logged block at pos.
func (w *walker) dataBlock(t *foundTransaction, tag Tag, seed uint32, v1 *uint32) error {
	if !w.data {
		return nil
	}
	b, err := w.r.block(w.pos)
	if err != nil {
		return err
	}
	if w.lay.csum == csumV1 {
		*v1 = crc32be(*v1, b)
	}
	if !w.lay.verifyData(tag, seed, b) {
		t.hurt(false, CorruptError{What: "bad checksum of a logged block", Block: w.pos, Home: tag.Home, HasHome: true})
	}
	return nil
}

func (w *walker) revokeBlock(t *foundTransaction, b []byte) {
	if !w.lay.verifyTail(b) {
		t.hurt(false, CorruptError{What: "bad checksum of a revoke block", Block: w.pos})
		return
	}
	if !w.lay.forEachRevoke(b, func(blk uint64) { t.revokes = append(t.revokes, blk) }) {
		t.hurt(true, CorruptError{What: "record count of a revoke block does not fit it", Block: w.pos})
	}
}

func (w *walker) commitBlock(t *foundTransaction, b []byte, v1 uint32) {
	t.badCommit = !w.lay.verifyCommit(b, v1)
	t.time = commitTime(b)
	t.commit = w.pos
	w.advance(1)
	w.seq++
	t.next = w.pos
	t.blocks = int(w.geo.distance(t.start, t.commit)) + 1
}

func commitTime(b []byte) time.Time {
	sec := binary.BigEndian.Uint64(b[offCommitSec:])
	nsec := binary.BigEndian.Uint32(b[offCommitNsec:])
	return time.Unix(int64(sec), int64(nsec))
}
