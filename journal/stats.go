package journal

import (
	"sync/atomic"
	"time"
)

// LatencyBuckets are the upper bounds, in seconds, of the buckets of every
// Histogram; one more counts what is above the last.
var LatencyBuckets = [...]float64{
	50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5,
}

// Histogram counts durations.
type Histogram struct {
	Counts [len(LatencyBuckets) + 1]uint64 // not cumulative
	Count  uint64
	Sum    time.Duration
	Max    time.Duration
}

// Stats are counters since Open, and sizes at the moment of the call.
type Stats struct {
	Commits           uint64
	Handles           uint64 // handles begun
	BlocksLogged      uint64 // metadata blocks written to the log
	LogBlocksWritten  uint64 // the same with descriptors, revokes and commit blocks
	Revokes           uint64 // revoke records written
	CopyOuts          uint64 // buffers copied because a commit still needed them
	Overdrafts        uint64 // credits that handles had to borrow: estimates too low
	SyncWaits         uint64 // calls that waited for a commit
	Flushes           uint64 // device flushes asked for
	Checkpoints       uint64 // times the tail moved
	Checkpointed      uint64 // blocks written home
	CommitLatency     Histogram
	LockWait          Histogram // part of it: waiting for handles to stop
	BeginWait         Histogram // of those Begins that had to wait
	LogBlocks         int       // blocks of the circular log
	FreeLogBlocks     int       // neither used nor reserved
	PinnedBlocks      int       // committed, not yet home
	Pending           int       // transactions in the log, not yet checkpointed
	RunningBlocks     int       // dirtied in the running transaction
	RunningRevokes    int
	RunningTID        TID // 0 if none
	CommittedTID      TID
	MaxTransaction    int // blocks
	Aborted           bool
	RunningAgeSeconds float64
}

type histogram struct {
	counts [len(LatencyBuckets) + 1]atomic.Uint64
	sum    atomic.Int64
	max    atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(LatencyBuckets) && d.Seconds() > LatencyBuckets[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
	for {
		old := h.max.Load()
		if int64(d) <= old || h.max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func (h *histogram) snapshot() (s Histogram) {
	for i := range h.counts {
		s.Counts[i] = h.counts[i].Load()
		s.Count += s.Counts[i]
	}
	s.Sum, s.Max = time.Duration(h.sum.Load()), time.Duration(h.max.Load())
	return s
}

// counters are the running sums behind Stats. What handles do is counted in
// the transaction, and added up when it commits.
type counters struct {
	commits, handles, blocks, logBlocks, revokes atomic.Uint64
	copyOuts, overdrafts, waits, flushes         atomic.Uint64
	checkpoints, checkpointed                    atomic.Uint64
	latency, lockWait, beginWait                 histogram
}

// commit adds up transaction t, which took d to commit.
func (c *counters) commit(t *Transaction, d time.Duration) {
	c.commits.Add(1)
	c.handles.Add(wordHandles(t.word.Load()))
	c.blocks.Add(uint64(max(t.dirty.Load(), 0)))
	c.logBlocks.Add(uint64(t.logLen))
	c.revokes.Add(uint64(t.revokes.count.Load()))
	c.latency.observe(d)
}

// Stats is cheap, and may be called at any time.
func (j *Journal) Stats() Stats {
	c := &j.stats
	s := Stats{
		Commits: c.commits.Load(), Handles: c.handles.Load(), BlocksLogged: c.blocks.Load(),
		LogBlocksWritten: c.logBlocks.Load(), Revokes: c.revokes.Load(), CopyOuts: c.copyOuts.Load(),
		Overdrafts: c.overdrafts.Load(), SyncWaits: c.waits.Load(), Flushes: c.flushes.Load(),
		Checkpoints: c.checkpoints.Load(), Checkpointed: c.checkpointed.Load(),
		CommitLatency: c.latency.snapshot(), LockWait: c.lockWait.snapshot(), BeginWait: c.beginWait.snapshot(),
		LogBlocks: int(j.geo.usable()), CommittedTID: j.CommittedTID(), MaxTransaction: j.maxTx,
		Aborted: j.aborted.Load(),
	}
	if t := j.running.Load(); t != nil {
		s.Handles += wordHandles(t.word.Load())
		s.RunningTID = t.tid
		s.RunningBlocks, s.RunningRevokes = int(t.dirty.Load()), int(t.revokes.count.Load())
		s.RunningAgeSeconds = time.Since(t.started).Seconds()
	}
	j.mu.Lock()
	s.FreeLogBlocks = j.avail
	j.mu.Unlock()
	j.cp.Lock()
	s.PinnedBlocks, s.Pending = j.cp.pinned, len(j.cp.queue)
	j.cp.Unlock()
	return s
}
