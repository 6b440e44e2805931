package journal

import (
	"sync"

	"extfused/blockdev/bcache"
)

// journalHead is what the journal knows of a buffer (jbd2's journal_head). It
// hangs on Buffer.JH and keeps a pin while any of tx, next and cp is set.
//
// Fields are guarded by the buffer's Lock. cp is written with cp.Mutex held as
// well, so either lock is enough to read it.
type journalHead struct {
	buf *bcache.Buffer
	blk uint64

	// tx is the transaction the buffer belongs to; if that one is committing,
	// next is the running one, provided it has joined that, too.
	tx, next     *Transaction
	inTx, inNext joined

	copied bool    // the committing tx has its content in the log's chunk
	frozen *[]byte // content as tx left it, if next took over before copied

	cp *Transaction // committed transaction whose log still protects the buffer

	// link[tid&1] continues the list of the transaction; two transactions at
	// most hold the head at once, and their numbers differ by one.
	link [2]*journalHead
}

// joined says what a transaction does with a buffer.
type joined struct {
	modified bool // log it
	forgot   bool // it was freed: do not log it, and give up older versions at commit
}

// in returns jh's entry for t, nil if it has not joined. jh may be nil.
func (jh *journalHead) in(t *Transaction) *joined {
	switch {
	case jh == nil:
		return nil
	case jh.tx == t:
		return &jh.inTx
	case jh.next == t:
		return &jh.inNext
	}
	return nil
}

// headOf is b's head, nil if it has none. b is locked.
func headOf(b *bcache.Buffer) *journalHead {
	jh, _ := b.JH.(*journalHead)
	return jh
}

// headPool recycles the heads of one journal. A checkpoint list may still name
// a head that has been recycled; it looks at cp under cp.Mutex and sees that
// the head has moved on. So a head must never move to another journal, whose
// cp.Mutex is another one.
type headPool struct{ pool sync.Pool }

func (p *headPool) get() *journalHead {
	if jh, _ := p.pool.Get().(*journalHead); jh != nil {
		return jh
	}
	return new(journalHead)
}

func (p *headPool) put(jh *journalHead) { p.pool.Put(jh) }

// attach gives b a head. b is locked, pinned by the caller, and has none.
func (j *Journal) attach(b *bcache.Buffer) *journalHead {
	jh := j.heads.get()
	jh.buf, jh.blk = b, b.Block()
	b.Ref()
	b.JH = jh
	return jh
}

// release takes the head off its locked buffer if nothing needs it any more,
// and says whether it did; the caller then unlocks the buffer and puts the pin
// that the head had.
func (jh *journalHead) release(j *Journal) bool {
	if jh.tx != nil || jh.cp != nil {
		return false
	}
	jh.buf.JH = nil
	*jh = journalHead{}
	j.heads.put(jh)
	return true
}

// leaveTx ends jh's membership in the transaction that has just finished.
func (jh *journalHead) leaveTx(j *Journal) {
	if jh.frozen != nil {
		j.putFrozen(jh.frozen)
		jh.frozen = nil
	}
	jh.copied = false
	jh.tx, jh.inTx = jh.next, jh.inNext
	jh.next, jh.inNext = nil, joined{}
}

var frozenPool sync.Pool // *[]byte, of any block size

func (j *Journal) getFrozen() *[]byte {
	if p, _ := frozenPool.Get().(*[]byte); p != nil && len(*p) == j.log.blockSize {
		return p
	}
	b := make([]byte, j.log.blockSize)
	return &b
}

func (j *Journal) putFrozen(p *[]byte) { frozenPool.Put(p) }
