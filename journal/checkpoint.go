package journal

import (
	"cmp"
	"math"
	"slices"

	"extfused/blockdev/bcache"
)

// Checkpointing writes what is committed to its home, so that the log's oldest
// part can be given up. A buffer is written when no transaction holds it; its
// content then is what was last committed. One that the running or committing
// transaction holds may be in the middle of a change, and waits for the commit
// after which it is that transaction's affair: blocks that change all the time
// move on from list to list without ever being written.

// homeBatch is how many bytes are written home under one hold of homeMu.
const homeBatch = 4 << 20

// CheckpointOnce writes home all that can be without a commit, and moves the
// tail. It returns how many log blocks became free.
func (j *Journal) CheckpointOnce() (freed int, err error) {
	freed, _, err = j.checkpoint(math.MaxInt, true)
	return freed, err
}

// checkpoint frees at least want log blocks if it can, oldest first. busy says
// that buffers were left because a transaction holds them. An error aborts the
// journal. Without tail the superblock goes on naming the old tail: the caller
// will mark the log empty before anything is written to it.
func (j *Journal) checkpoint(want int, tail bool) (freed int, busy bool, err error) {
	j.cpRun.Lock()
	defer j.cpRun.Unlock()
	if err := j.Err(); err != nil {
		return 0, false, err
	}
	bufs := j.collectOld(want)
	per := max(homeBatch/j.log.blockSize, 1)
	for len(bufs) > 0 && err == nil {
		n := min(per, len(bufs))
		var left bool
		left, err = j.writeHome(bufs[:n])
		busy = busy || left
		bufs = bufs[n:]
	}
	for _, b := range bufs {
		b.Put()
	}
	if err == nil {
		freed, err = j.dropFinished(tail)
	}
	if err != nil {
		j.Abort(err)
		return 0, false, j.Err()
	}
	return freed, busy, nil
}

// collectOld returns the buffers that protect the oldest want blocks of the
// log, each with a pin for the caller.
func (j *Journal) collectOld(want int) []*bcache.Buffer {
	j.cp.Lock()
	defer j.cp.Unlock()
	var bufs []*bcache.Buffer
	for _, t := range j.cp.queue {
		if want <= 0 {
			break
		}
		want -= t.logLen
		for _, jh := range t.cpList {
			if jh.cp == t {
				jh.buf.Ref()
				bufs = append(bufs, jh.buf)
			}
		}
	}
	slices.SortFunc(bufs, func(a, b *bcache.Buffer) int { return cmp.Compare(a.Block(), b.Block()) })
	return bufs
}

// written is a buffer on its way home, and who wants it there.
type written struct {
	b  *bcache.Buffer
	cp *Transaction
}

// writeHome writes those of bufs that no transaction holds, and uses up the
// pins. busy says that there were others.
func (j *Journal) writeHome(bufs []*bcache.Buffer) (busy bool, err error) {
	done := make([]written, 0, len(bufs))
	j.homeMu.Lock()
	err = j.cache.WriteBuffersIf(bufs, func(b *bcache.Buffer) bool {
		jh := headOf(b)
		switch {
		case jh == nil || jh.cp == nil: // it was freed meanwhile
			return false
		case jh.tx != nil:
			busy = true
			return false
		}
		done = append(done, written{b, jh.cp})
		return true
	})
	j.homeMu.Unlock()
	j.at("home written")
	if err == nil {
		j.atHome(done)
	}
	for _, b := range bufs {
		b.Put()
	}
	return busy, err
}

// atHome takes buffers that have been written off their checkpoint lists,
// unless a commit has moved them to another in the meantime.
func (j *Journal) atHome(done []written) {
	j.cp.Lock()
	defer j.cp.Unlock()
	j.stats.checkpointed.Add(uint64(len(done)))
	for _, w := range done {
		w.b.Lock()
		released := false
		if jh := headOf(w.b); jh != nil && jh.cp == w.cp {
			j.setCpLocked(jh, nil)
			released = jh.release(j)
		}
		w.b.Unlock()
		if released {
			w.b.Put()
		}
	}
}

// dropFinished gives up the oldest transactions that protect nothing any more.
func (j *Journal) dropFinished(tail bool) (freed int, err error) {
	j.cp.Lock()
	n := 0
	for n < len(j.cp.queue) && j.cp.queue[n].cpCount == 0 {
		freed += j.cp.queue[n].logLen
		n++
	}
	start, tid := j.cp.head, j.cp.headTID
	if n < len(j.cp.queue) {
		start, tid = j.cp.queue[n].logStart, j.cp.queue[n].tid
	}
	j.cp.queue = append(j.cp.queue[:0:0], j.cp.queue[n:]...)
	j.cp.Unlock()
	if n == 0 {
		return 0, nil
	}
	if err := j.flush(j.fsDev); err != nil {
		return 0, err
	}
	j.at("home flushed")
	if tail {
		if err := j.moveTail(start, tid); err != nil {
			return 0, err
		}
	}
	j.stats.checkpoints.Add(1)
	j.mu.Lock()
	j.avail += freed
	j.cond.Broadcast()
	j.mu.Unlock()
	return freed, nil
}

// cpTarget is how many log blocks the background should free now, 0 for none.
// It begins when less than half of the log is free, or too much memory is held,
// and then frees an eighth of the log more than that, oldest first.
func (j *Journal) cpTarget() int {
	usable := int(j.geo.usable())
	j.mu.Lock()
	free := j.avail
	if j.running.Load() != nil {
		free += j.reserve
	}
	starved := j.starved > 0
	j.mu.Unlock()
	switch {
	case starved:
		return usable
	case free < usable/2:
		return usable/2 - free + usable/8
	}
	j.cp.Lock()
	defer j.cp.Unlock()
	if int64(j.cp.pinned)*int64(j.log.blockSize) > j.opt.MaxPinned {
		used := 0
		for _, t := range j.cp.queue {
			used += t.logLen
		}
		return max(used/2, 1)
	}
	return 0
}

// checkpointLoop is the goroutine that keeps the log from filling up.
func (j *Journal) checkpointLoop() {
	defer j.workers.Done()
	for {
		select {
		case <-j.quit:
			return
		case <-j.cpKick:
		}
		for want := j.cpTarget(); want > 0; want = j.cpTarget() {
			freed, busy, err := j.checkpoint(want, true)
			if err != nil {
				return
			}
			if freed == 0 {
				j.unblock(busy)
				break // the end of that commit, or of the next, kicks again
			}
		}
	}
}

// unblock asks for the commit of the running transaction if the checkpoint can
// go no further without, and the next transaction would have to wait for it.
func (j *Journal) unblock(busy bool) {
	j.mu.Lock()
	t := j.running.Load()
	tight := j.avail < j.reserve
	j.mu.Unlock()
	if busy && tight && t != nil {
		j.CommitStart(t.tid)
	}
}
