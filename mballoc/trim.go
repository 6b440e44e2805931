package mballoc

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// trimState lets an allocation that found nothing wait for a trim, which may have had it. Whoever
// trims holds no lock and needs none meanwhile, so the wait lasts as long as a discard.
type trimState struct {
	changes atomic.Uint64 // written with mu held
	mu      sync.Mutex
	cond    sync.Cond
	held    int // runs being discarded; guarded by mu
}

// hold counts a run that is taken out of the buddy. It is called before that.
func (t *trimState) hold() {
	t.mu.Lock()
	t.held++
	t.changes.Add(1)
	t.mu.Unlock()
}

// release counts a run that is back in the buddy, and wakes who waits.
func (t *trimState) release() {
	t.mu.Lock()
	t.held--
	t.changes.Add(1)
	t.mu.Unlock()
	t.cond.Broadcast()
}

// seen is to be asked before a search, for wait.
func (t *trimState) seen() uint64 { return t.changes.Load() }

// wait reports whether a search that found nothing is worth another: a trim has taken a run or
// given one back since. If one is held, it waits until it is given back.
func (t *trimState) wait(seen uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for now := t.changes.Load(); t.held > 0 && t.changes.Load() == now; {
		t.cond.Wait()
	}
	return t.changes.Load() != seen
}

// Trim calls discard for the free runs of at least minLen clusters in [from, from+n), and returns
// how many clusters that were (FITRIM). Clusters are held while they are being discarded, like
// preallocation, so nobody can allocate them. A group that was trimmed as a whole, and into which
// nothing has been freed since, is skipped as long as minLen is no smaller than the last time.
// discard runs without a lock held; its error ends the trim.
func (a *Allocator) Trim(from Cluster, n, minLen uint64, discard func(start Cluster, n uint32) error) (uint64, error) {
	if uint64(from) >= a.geo.Clusters {
		return 0, fmt.Errorf("mballoc: trim from cluster %d outside the file system's %d", from, a.geo.Clusters)
	}
	end := from + Cluster(min(n, a.geo.Clusters-uint64(from)))
	again := minLen < a.trimmedWith.Load()
	var total uint64
	for from < end {
		g, off := a.split(from)
		part := min(uint64(end-from), uint64(a.geo.groupLen(g)-uint32(off)))
		gi := &a.groups[g]
		if again || !gi.is(groupTrimmed) {
			done, err := a.trimGroup(gi, uint32(off), uint32(off)+uint32(part), minLen, discard)
			total += done
			if err != nil {
				return total, err
			}
		}
		from += Cluster(part)
	}
	a.trimmedWith.Store(minLen)
	return total, nil
}

// trimGroup trims [pos, end) of one group. A group whose bitmap cannot be read is passed over.
func (a *Allocator) trimGroup(gi *GroupInfo, pos, end uint32, minLen uint64, discard func(start Cluster, n uint32) error) (total uint64, err error) {
	whole := pos == 0 && end == a.geo.groupLen(gi.num)
	if uint64(gi.free.Load()) < minLen || gi.free.Load() == 0 {
		return 0, nil
	}
	if whole { // before the first look, so that a release during the trim clears it again
		gi.state.Or(groupTrimmed)
	}
	for pos < end && err == nil {
		var n uint32
		n, pos, err = a.trimRun(gi, pos, end, minLen, discard)
		total += uint64(n)
	}
	if err != nil {
		gi.state.And(^uint32(groupTrimmed))
	}
	return total, err
}

// trimRun discards the next free run of at least minLen clusters, and tells its length and where to
// look after it.
func (a *Allocator) trimRun(gi *GroupInfo, pos, end uint32, minLen uint64, discard func(start Cluster, n uint32) error) (uint32, uint32, error) {
	a.trims.hold()
	defer a.trims.release()
	pa, pos := a.holdRun(gi, pos, end, minLen)
	if pa == nil {
		return 0, end, nil
	}
	n := pa.length
	err := discard(a.cluster(gi.num, pa.start), n)
	a.stripeFor(uint32(gi.num)).inc(cDiscardCalls)
	a.releasePALocked(pa)
	if err != nil {
		n = 0
	}
	return n, pos, err
}

// holdRun takes the next free run of at least minLen clusters out of the buddy, and tells where to
// look after it.
func (a *Allocator) holdRun(gi *GroupInfo, pos, end uint32, minLen uint64) (*PreallocSpace, uint32) {
	gi.mu.lock(&a.contended, lockGroup)
	defer gi.mu.unlock()
	b, err := a.loadLocked(gi)
	if err != nil {
		return nil, end
	}
	for pos = b.nextFree(pos); pos < end; pos = b.nextFree(pos) {
		stop := min(b.runEnd(pos), end)
		if uint64(stop-pos) < max(minLen, 1) {
			pos = stop
			continue
		}
		pa := &PreallocSpace{group: gi.num, start: GrpCluster(pos), length: stop - pos}
		b.markUsed(pos, stop-pos)
		a.linkPALocked(a.stripeFor(uint32(gi.num)), gi, pa)
		a.publishLocked(gi)
		return pa, stop
	}
	return nil, end
}
