package ext4

import (
	"sync/atomic"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/journal"
	"extfused/mballoc"
)

// discards counts what -o discard and Trim told the device.
type discards struct {
	calls       atomic.Int64
	bytes       atomic.Int64
	unsupported atomic.Bool
}

// Stats is a snapshot of the counters; the parts are not of one moment.
type Stats struct {
	Device    blockdev.DeviceStats
	Cache     bcache.Stats
	Journal   *journal.Stats // nil without a journal
	Allocator mballoc.Stats
	Extents   ESStats // the extent-status cache

	FreeBlocks, FreeInodes, Directories int64
	InodesCached, InodesIdle            int64
	InodesLoaded, InodesEvicted         int64 // from disk; deleted
	InodesDropped                       int64 // from memory, by the bound
	Orphans, OrphansCleaned             int64
	DiscardCalls, DiscardedBytes        int64 // freed space that the device was told of
	Corruptions, IOErrors               int64
	Errors                              uint32 // s_error_count
	ReadOnly                            bool
}

// Stats may be called at any moment between Mount and Unmount.
func (fs *FS) Stats() Stats {
	s := Stats{
		Device: fs.count.Stats(), Cache: fs.cache.Stats(), Allocator: fs.alloc.Stats(), Extents: fs.esStats(),
		FreeBlocks: fs.freeClusters.Load() << fs.clusterBits, FreeInodes: fs.freeInodes.Load(),
		Directories:  fs.usedDirs.Load(),
		InodesLoaded: fs.icache.loads.Load(), InodesEvicted: fs.icache.evicts.Load(),
		InodesDropped:  fs.icache.drops.Load(),
		OrphansCleaned: fs.orphans.cleaned.Load(),
		DiscardCalls:   fs.discards.calls.Load(), DiscardedBytes: fs.discards.bytes.Load(),
		Corruptions: fs.health.corruptions.Load(), IOErrors: fs.health.ioErrors.Load(),
		ReadOnly: fs.readOnly.Load(),
	}
	if fs.jnl != nil {
		j := fs.jnl.Stats()
		s.Journal = &j
	}
	for k := range fs.icache.shards {
		sh := &fs.icache.shards[k]
		sh.mu.Lock()
		s.InodesCached += int64(len(sh.m))
		s.InodesIdle += int64(sh.n)
		sh.mu.Unlock()
	}
	fs.orphans.mu.Lock()
	s.Orphans = int64(fs.orphans.n + fs.orphans.file.entries())
	fs.orphans.mu.Unlock()
	fs.super.mu.Lock()
	s.Errors = fs.super.sb.ErrorCount
	fs.super.mu.Unlock()
	return s
}

// GroupStats is what one group holds; see dumpe2fs.
type GroupStats struct {
	Group                              ondisk.GroupNumber
	FreeClusters, FreeInodes, UsedDirs uint32
	Damaged                            bool
}

// Group returns the counts of one group, which must exist.
func (fs *FS) Group(g ondisk.GroupNumber) GroupStats {
	gr := &fs.groups[g]
	return GroupStats{
		Group: g, FreeClusters: gr.freeClusters.Load(), FreeInodes: gr.freeInodes.Load(),
		UsedDirs: gr.usedDirs.Load(), Damaged: gr.badBlocks.Load() || gr.badInodes.Load(),
	}
}

// Allocator is the block allocator, for its views and tunables.
func (fs *FS) Allocator() *mballoc.Allocator { return fs.alloc }

// Groups is the number of block groups.
func (fs *FS) Groups() ondisk.GroupNumber { return fs.groupCount }
