package ext4

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"extfused/fs/ondisk"
)

// The extent-status cache: per inode, an ordered list of runs of logical
// blocks whose state is known, so that mapping a block needs no walk of the
// extent tree. It holds nothing the tree does not hold (there is no delayed
// allocation in this house), so any of it may be dropped at any moment.
//
// Locks: a run is added by whoever holds Inode.mu shared (it has just read the
// tree) or exclusive (it has just changed it); extentStatus.mu guards the list
// itself and is a leaf, except that esShard.mu nests inside it. The shrinker
// comes from the other side (shard, then list) and only ever tries the list.
//
// The bound on the memory of all lists holds at every moment but for the runs
// that are being added: whoever makes a list longer and finds the bound passed
// sees it kept again before returning, see esCache.reclaim.

// extentState says what a run of logical blocks is.
type extentState uint8

const (
	esHole      extentState = iota // nothing allocated: reads as zeroes
	esUnwritten                    // allocated, reads as zeroes
	esWritten                      // allocated, holds data
)

// String gives the letter group es_shrinker_info and our tests use.
func (s extentState) String() string {
	switch s {
	case esHole:
		return "hole"
	case esUnwritten:
		return "unwritten"
	case esWritten:
		return "written"
	}
	return "?"
}

// esRun is n blocks from logical block l on, all of one state; p is the block
// of the device that holds l (0 for holes), the others follow it.
type esRun struct {
	l  ondisk.LBlock
	n  uint32
	st extentState
	p  ondisk.FsBlock
}

// end is the first logical block behind the run; it may be 1<<32.
func (r esRun) end() uint64 { return uint64(r.l) + uint64(r.n) }

// from is the part of r from logical block l on; l must lie in r.
func (r esRun) from(l ondisk.LBlock) esRun {
	d := uint32(l - r.l)
	r.l, r.n = l, r.n-d
	if r.st != esHole {
		r.p += ondisk.FsBlock(d)
	}
	return r
}

// upto is the part of r before logical block end; end must lie in r.
func (r esRun) upto(end uint64) esRun {
	if end < r.end() {
		r.n = uint32(end - uint64(r.l))
	}
	return r
}

// follows reports whether b continues a, so that both are one run.
func (a esRun) follows(b esRun) bool {
	if a.st != b.st || a.end() != uint64(b.l) || uint64(a.n)+uint64(b.n) > 1<<32-1 {
		return false
	}
	return a.st == esHole || a.p+ondisk.FsBlock(a.n) == b.p
}

// esInline runs fit into the inode itself; only longer lists cost memory, are
// known to the shrinker and count against its bound.
const esInline = 2

// esRunBytes is what one run of a spilled list costs.
const esRunBytes = 24

// extentStatus is the cache of one inode. The zero value is empty and usable.
type extentStatus struct {
	mu     countLock
	runs   []esRun // ordered by l, no overlap, no two mergeable neighbours
	inline [esInline]esRun

	touched atomic.Bool // looked at since the shrinker passed (set only when clear)
	listed  bool        // guarded by mu
	shard   uint8       // where, if listed; guarded by mu
	slot    int         // index in the shard's list; guarded by esShard.mu
	bytes   int64       // what of esCache.bytes is ours; guarded by mu
}

// lookup returns the known run from l on.
func (e *extentStatus) lookup(c *esCache, l ondisk.LBlock) (esRun, bool) {
	return e.lookupCounting(c, l, lockHit, lockMiss)
}

// lookupCounting is lookup, with what is counted for a hit and a miss.
func (e *extentStatus) lookupCounting(c *esCache, l ondisk.LBlock, hit, miss uint64) (esRun, bool) {
	e.mu.rlock()
	k := e.search(l)
	if k < len(e.runs) && e.runs[k].l <= l {
		r := e.runs[k].from(l)
		spilled := e.listed
		if e.mu.runlock(hit) {
			e.count(c)
		}
		if spilled && !e.touched.Load() {
			e.touched.Store(true)
		}
		return r, true
	}
	if e.mu.runlock(miss) {
		e.count(c)
	}
	return esRun{}, false
}

// count adds the hits and misses since the last call to the file system's.
func (e *extentStatus) count(c *esCache) {
	hits, misses := e.mu.take()
	c.hits.Add(hits)
	c.misses.Add(misses)
}

// search gives the index of the first run that ends behind l.
func (e *extentStatus) search(l ondisk.LBlock) int {
	switch n := len(e.runs); {
	case n == 0 || e.runs[0].end() > uint64(l):
		return 0
	case e.runs[n-1].l <= l: // the end of the file is where most work is
		if e.runs[n-1].end() > uint64(l) {
			return n - 1
		}
		return n
	default:
		return sort.Search(n, func(k int) bool { return e.runs[k].end() > uint64(l) })
	}
}

// insert records r, in place of whatever was known of its range.
func (e *extentStatus) insert(c *esCache, r esRun) {
	if r.n == 0 {
		return
	}
	e.mu.lock()
	e.replaceLocked(r.l, r.end(), &r)
	over := e.accountLocked(c)
	e.mu.unlock()
	if over {
		c.reclaim(e)
	}
}

// remove forgets what is known of the blocks [from, end). A run that it cuts
// in two makes the list longer.
func (e *extentStatus) remove(c *esCache, from ondisk.LBlock, end uint64) {
	e.mu.lock()
	e.replaceLocked(from, end, nil)
	over := e.accountLocked(c)
	e.mu.unlock()
	if over {
		c.reclaim(e)
	}
}

// drop forgets everything; the inode leaves memory or its tree is in doubt.
func (e *extentStatus) drop(c *esCache) {
	e.mu.lock()
	e.runs = nil
	e.accountLocked(c)
	e.mu.unlock()
	e.count(c)
}

// replaceLocked cuts [from, end) out of the list and puts r (if not nil) there,
// folded into its neighbours where it continues them.
func (e *extentStatus) replaceLocked(from ondisk.LBlock, end uint64, r *esRun) {
	if e.runs == nil {
		e.runs = e.inline[:0]
	}
	lo := e.search(from)
	hi := lo
	for hi < len(e.runs) && uint64(e.runs[hi].l) < end {
		hi++
	}
	var parts [3]esRun // left rest, r, right rest
	k := 0
	if lo < hi && e.runs[lo].l < from {
		parts[k] = e.runs[lo].upto(uint64(from))
		k++
	} else if r != nil && lo > 0 && e.runs[lo-1].follows(*r) {
		lo--
		parts[k] = e.runs[lo]
		k++
	}
	k = appendRun(parts[:], k, r)
	if lo < hi && e.runs[hi-1].end() > end {
		rest := e.runs[hi-1].from(ondisk.LBlock(end))
		k = appendRun(parts[:], k, &rest)
	} else if r != nil && hi < len(e.runs) && parts[k-1].follows(e.runs[hi]) {
		parts[k-1].n += e.runs[hi].n
		hi++
	}
	e.spliceLocked(lo, hi, parts[:k])
}

// appendRun adds r to the k parts, folded into the last where it continues it.
func appendRun(parts []esRun, k int, r *esRun) int {
	if r == nil {
		return k
	}
	if k > 0 && parts[k-1].follows(*r) {
		parts[k-1].n += r.n
		return k
	}
	parts[k] = *r
	return k + 1
}

// spliceLocked puts parts in place of runs[lo:hi].
func (e *extentStatus) spliceLocked(lo, hi int, parts []esRun) {
	old := len(e.runs)
	grow := len(parts) - (hi - lo)
	for len(e.runs) < old+grow {
		e.runs = append(e.runs, esRun{})
	}
	copy(e.runs[lo+len(parts):], e.runs[hi:old])
	e.runs = e.runs[:old+grow]
	copy(e.runs[lo:], parts)
}

// accountLocked brings the shared figures in line with the list, enters it in or
// takes it out of the shrinker's list, and reports whether it has taken memory
// while the bound is passed.
func (e *extentStatus) accountLocked(c *esCache) bool {
	var bytes int64
	if cap(e.runs) > esInline {
		if len(e.runs) <= esInline { // back into the inode
			e.runs = append(e.inline[:0], e.runs...)
		} else {
			bytes = int64(cap(e.runs)) * esRunBytes
		}
	}
	if bytes == e.bytes {
		return false
	}
	grown := bytes > e.bytes
	total := c.bytes.Add(bytes - e.bytes)
	e.bytes = bytes
	if want := bytes > 0; want != e.listed {
		e.listed = want
		c.enlist(e, want)
	}
	return grown && total > c.max
}

// esShards spreads the shrinker's lists; a power of two.
const esShards = 16

// esCache is what all extentStatus of a file system share: the bound on their
// memory, the lists the shrinker walks, and the figures.
type esCache struct {
	max    int64        // bytes of spilled lists that are kept
	bytes  atomic.Int64 // bytes of spilled lists now
	shards [esShards]esShard
	next   atomic.Uint32 // the shard that the next list enters

	hits, misses atomic.Uint64 // without those that the inodes still have
	shrunk       atomic.Uint64 // runs dropped by the shrinker
	scans        atomic.Uint64 // times the shrinker ran
	scanNs       atomic.Int64  // time it took in all
	maxScanNs    atomic.Int64  // and at most
	from         atomic.Uint32 // the shard that the next shrinker begins with
}

type esShard struct {
	mu   sync.Mutex
	list []*extentStatus
	hand int
	_    [24]byte
}

// ESStats are the figures of the extent-status cache, as in es_shrinker_info.
type ESStats struct {
	Hits, Misses uint64 // lookups answered from the cache, and not
	Bytes        int64  // memory of the lists that do not fit into their inode
	MaxBytes     int64
	Inodes       int    // inodes with such a list
	Shrunk       uint64 // runs dropped for the bound
	Scans        uint64 // shrinker runs
	ScanTime     time.Duration
	MaxScanTime  time.Duration
}

// newESCache makes the shared part; max is in bytes, <= 0 means 16 MiB.
func newESCache(max int64) *esCache {
	if max <= 0 {
		max = 16 << 20
	}
	return &esCache{max: max}
}

// enlist enters e in a shard's list or takes it out. Called with e.mu held.
func (c *esCache) enlist(e *extentStatus, in bool) {
	if in {
		e.shard = uint8(c.next.Add(1) % esShards)
		s := &c.shards[e.shard]
		s.mu.Lock()
		s.list = append(s.list, e)
		e.slot = len(s.list) - 1
		s.mu.Unlock()
		return
	}
	s := &c.shards[e.shard]
	s.mu.Lock()
	s.removeLocked(e)
	s.mu.Unlock()
}

// removeLocked takes e out of the list by putting the last one in its place.
func (s *esShard) removeLocked(e *extentStatus) {
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[e.slot], moved.slot = moved, e.slot
	s.list[last] = nil
	s.list = s.list[:last]
}

// reclaim brings the memory below the bound again after e has grown, and drops e
// if nothing else helps: the other lists are all in use, or others fill them as
// fast. Nobody is left to do it for somebody else, who may not be running: each
// list that grew past the bound is within it, or gone, when its owner goes on,
// whatever the schedule. Called without e.mu.
func (c *esCache) reclaim(e *extentStatus) {
	c.shrink(c.max - c.max/8)
	if c.bytes.Load() <= c.max {
		return
	}
	e.mu.lock()
	c.shrunk.Add(uint64(len(e.runs)))
	e.runs = nil
	e.accountLocked(c)
	e.mu.unlock()
}

// shrink drops lists that nobody looked at since the last pass until no more
// than target bytes are left, or it has seen all of them three times. Any number
// of callers share the work, each in another shard.
func (c *esCache) shrink(target int64) {
	start := time.Now()
	c.scans.Add(1)
	from := c.from.Add(1)
	for pass := uint32(0); pass < 3*esShards && c.bytes.Load() > target; pass++ {
		c.shrinkShard(&c.shards[(from+pass)%esShards], target)
	}
	took := int64(time.Since(start))
	c.scanNs.Add(took)
	for old := c.maxScanNs.Load(); took > old && !c.maxScanNs.CompareAndSwap(old, took); {
		old = c.maxScanNs.Load()
	}
}

// shrinkShard passes once over a shard's list as a clock does.
func (c *esCache) shrinkShard(s *esShard, target int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := len(s.list); n > 0 && len(s.list) > 0 && c.bytes.Load() > target; n-- {
		if s.hand >= len(s.list) {
			s.hand = 0
		}
		e := s.list[s.hand]
		if e.touched.Load() {
			e.touched.Store(false)
			s.hand++
			continue
		}
		if !e.mu.tryLock() { // its owner may be waiting for this very shard
			s.hand++
			continue
		}
		c.shrunk.Add(uint64(len(e.runs)))
		c.bytes.Add(-e.bytes)
		e.runs, e.bytes, e.listed = nil, 0, false
		s.removeLocked(e)
		e.mu.unlock()
	}
}

// stats gives the figures, except for the hits and misses that inodes still
// have; it is safe at any moment.
func (c *esCache) stats() ESStats {
	st := ESStats{Hits: c.hits.Load(), Misses: c.misses.Load(), Bytes: c.bytes.Load(), MaxBytes: c.max,
		Shrunk: c.shrunk.Load(), Scans: c.scans.Load(),
		ScanTime: time.Duration(c.scanNs.Load()), MaxScanTime: time.Duration(c.maxScanNs.Load())}
	for k := range c.shards {
		c.shards[k].mu.Lock()
		st.Inodes += len(c.shards[k].list)
		c.shards[k].mu.Unlock()
	}
	return st
}
