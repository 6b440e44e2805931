package metrics

import (
	"slices"
	"sort"

	"github.com/prometheus/client_golang/prometheus"

	"extfused/fs/fusefs"
	"extfused/journal"
	"extfused/mballoc"
)

// allMetrics and allHistograms are every family there is.
var allMetrics = slices.Concat(fusefsMetrics, ext4Metrics, mballocMetrics, journalMetrics, bcacheMetrics, blockdevMetrics)

var allHistograms = []histogram{
	{"extfused_fusefs_latency_seconds", "Time from the arrival of a FUSE request to its answer; of cheap requests one in eight is timed.", []string{"op"}, fuseLatency},
	{"extfused_journal_commit_latency_seconds", "Time a commit took, from the lock of the transaction to the flush of the commit block.", nil,
		func(s *snapshot, p putHistogram) {
			if s.fs.Journal != nil {
				journalHistogram(&s.fs.Journal.CommitLatency, p)
			}
		}},
	{"extfused_journal_begin_wait_seconds", "Time that those operations waited which had to wait for the journal.", nil,
		func(s *snapshot, p putHistogram) {
			if s.fs.Journal != nil {
				journalHistogram(&s.fs.Journal.BeginWait, p)
			}
		}},
}

var fuseBounds = func() (b []float64) {
	for _, d := range fusefs.LatencyBuckets {
		b = append(b, d.Seconds())
	}
	return b
}()

// fuseLatency leaves out the operations that never occurred.
func fuseLatency(s *snapshot, p putHistogram) {
	for op := range s.fuse.Ops {
		if o := &s.fuse.Ops[op]; o.Requests > 0 {
			p(fuseBounds, o.Latency[:], o.Time, fusefs.Op(op).String())
		}
	}
}

func journalHistogram(h *journal.Histogram, p putHistogram) {
	p(journal.LatencyBuckets[:], h.Counts[:], h.Sum)
}

// perOp is a counter for each kind of FUSE request.
func perOp(name, help string, value func(*fusefs.OpStats) uint64) metric {
	return metric{name, help, prometheus.CounterValue, []string{"op"}, func(s *snapshot, p put) {
		for op := range s.fuse.Ops {
			p(float64(value(&s.fuse.Ops[op])), fusefs.Op(op).String())
		}
	}}
}

var fusefsMetrics = []metric{
	perOp("extfused_fusefs_requests_total", "FUSE requests answered.", func(o *fusefs.OpStats) uint64 { return o.Requests }),
	perOp("extfused_fusefs_errors_total", "FUSE requests answered with an error, those that say that a name does not exist apart.", func(o *fusefs.OpStats) uint64 { return o.Errors }),
	perOp("extfused_fusefs_negative_answers_total", "FUSE requests answered with: no such name, or no such attribute.", func(o *fusefs.OpStats) uint64 { return o.Negative }),
	counter("extfused_fusefs_read_bytes_total", "File data sent to the kernel.", func(s *snapshot) uint64 { return s.fuse.Ops[fusefs.OpRead].Bytes }),
	counter("extfused_fusefs_written_bytes_total", "File data received from the kernel.", func(s *snapshot) uint64 { return s.fuse.Ops[fusefs.OpWrite].Bytes }),
	counter("extfused_fusefs_panics_total", "Bugs that were caught and answered with EIO.", func(s *snapshot) uint64 { return s.fuse.Panics }),
	gauge("extfused_fusefs_open_files", "Open regular files.", func(s *snapshot) float64 { return float64(s.fuse.OpenHandles) }),
}

var ext4Metrics = []metric{
	{"extfused_ext4_mount_info", "What is mounted where; always 1.", prometheus.GaugeValue, []string{"image", "mountpoint", "version"},
		func(s *snapshot, p put) { p(1, s.src.Image, s.src.Mountpoint, s.src.Version) }},
	gauge("extfused_ext4_block_size_bytes", "Size of a block.", func(s *snapshot) float64 { return float64(s.stat.BlockSize) }),
	gauge("extfused_ext4_blocks", "Blocks for data, without the overhead of the file system.", func(s *snapshot) float64 { return float64(s.stat.Blocks) }),
	gauge("extfused_ext4_free_blocks", "Free blocks, those reserved for root included.", func(s *snapshot) float64 { return float64(s.stat.BlocksFree) }),
	gauge("extfused_ext4_available_blocks", "Free blocks that ordinary users may take.", func(s *snapshot) float64 { return float64(s.stat.BlocksAvail) }),
	gauge("extfused_ext4_inodes", "Inodes there are.", func(s *snapshot) float64 { return float64(s.stat.Files) }),
	gauge("extfused_ext4_free_inodes", "Inodes not in use.", func(s *snapshot) float64 { return float64(s.stat.FilesFree) }),
	gauge("extfused_ext4_directories", "Directories.", func(s *snapshot) float64 { return float64(s.fs.Directories) }),
	gauge("extfused_ext4_cached_inodes", "Inodes in memory.", func(s *snapshot) float64 { return float64(s.fs.InodesCached) }),
	gauge("extfused_ext4_idle_inodes", "Inodes in memory that nothing refers to.", func(s *snapshot) float64 { return float64(s.fs.InodesIdle) }),
	gauge("extfused_ext4_orphans", "Inodes without a name that are still open.", func(s *snapshot) float64 { return float64(s.fs.Orphans) }),
	gauge("extfused_ext4_superblock_errors", "Error count of the superblock.", func(s *snapshot) float64 { return float64(s.fs.Errors) }),
	gauge("extfused_ext4_read_only", "1 if nothing can be written, by option or after an error.", func(s *snapshot) float64 { return bool01(s.fs.ReadOnly) }),
	counter("extfused_ext4_inodes_loaded_total", "Inodes read from the image.", func(s *snapshot) uint64 { return uint64(s.fs.InodesLoaded) }),
	counter("extfused_ext4_inodes_deleted_total", "Inodes freed with their last name and user.", func(s *snapshot) uint64 { return uint64(s.fs.InodesEvicted) }),
	counter("extfused_ext4_inodes_dropped_total", "Idle inodes dropped from memory.", func(s *snapshot) uint64 { return uint64(s.fs.InodesDropped) }),
	counter("extfused_ext4_orphans_cleaned_total", "Orphans of a crash cleaned up at the mount.", func(s *snapshot) uint64 { return uint64(s.fs.OrphansCleaned) }),
	counter("extfused_ext4_discard_calls_total", "Times that the device was told of freed space, by -o discard or a trim.", func(s *snapshot) uint64 { return uint64(s.fs.DiscardCalls) }),
	counter("extfused_ext4_discarded_bytes_total", "Freed space that the device was told of.", func(s *snapshot) uint64 { return uint64(s.fs.DiscardedBytes) }),
	counter("extfused_ext4_extent_status_hits_total", "Lookups of file blocks answered from memory.", func(s *snapshot) uint64 { return s.fs.Extents.Hits }),
	counter("extfused_ext4_extent_status_misses_total", "Lookups of file blocks that read the extent tree.", func(s *snapshot) uint64 { return s.fs.Extents.Misses }),
	counter("extfused_ext4_extent_status_shrunk_total", "Runs of file blocks dropped from memory.", func(s *snapshot) uint64 { return s.fs.Extents.Shrunk }),
	gauge("extfused_ext4_extent_status_size_bytes", "Memory of the runs of file blocks, those apart that fit into their inode.", func(s *snapshot) float64 { return float64(s.fs.Extents.Bytes) }),
	counter("extfused_ext4_corruptions_total", "Damage found in the image since the mount.", func(s *snapshot) uint64 { return uint64(s.fs.Corruptions) }),
	counter("extfused_ext4_io_errors_total", "Errors of the device since the mount.", func(s *snapshot) uint64 { return uint64(s.fs.IOErrors) }),
}

// criteria name the criteria as mb_stats does, without prefix and suffix.
var criteria = [...]string{"p2_aligned", "goal_fast", "best_avail", "goal_slow", "any_free"}

var _ = [1]struct{}{}[len(criteria)-len(mballoc.Stats{}.Criteria)] // one name each

// perCriterion is a counter for each criterion of the allocator.
func perCriterion(name, help string, value func(*mballoc.CriterionStats) uint64) metric {
	return metric{name, help, prometheus.CounterValue, []string{"criterion"}, func(s *snapshot, p put) {
		for i := range s.alloc.Criteria {
			p(float64(value(&s.alloc.Criteria[i])), criteria[i])
		}
	}}
}

var mballocMetrics = []metric{
	counter("extfused_mballoc_requests_total", "Allocation requests.", func(s *snapshot) uint64 { return s.alloc.Reqs }),
	counter("extfused_mballoc_allocations_total", "Allocation requests that were served.", func(s *snapshot) uint64 { return s.alloc.Success }),
	counter("extfused_mballoc_allocated_clusters_total", "Clusters handed out.", func(s *snapshot) uint64 { return s.alloc.Allocated }),
	counter("extfused_mballoc_inode_prealloc_hits_total", "Requests served by preallocation of the inode.", func(s *snapshot) uint64 { return s.alloc.PreallocHits }),
	counter("extfused_mballoc_group_prealloc_hits_total", "Requests served by preallocation of a locality group.", func(s *snapshot) uint64 { return s.alloc.GroupPAHits }),
	counter("extfused_mballoc_goal_hits_total", "Requests served at their goal.", func(s *snapshot) uint64 { return s.alloc.GoalHits }),
	counter("extfused_mballoc_stream_goal_hits_total", "Requests served in the group of the streaming goal.", func(s *snapshot) uint64 { return s.alloc.StreamGoalHits }),
	perCriterion("extfused_mballoc_criterion_hits_total", "Requests served by a criterion.", func(c *mballoc.CriterionStats) uint64 { return c.Hits }),
	perCriterion("extfused_mballoc_groups_considered_total", "Groups looked at under a criterion.", func(c *mballoc.CriterionStats) uint64 { return c.GroupsConsidered }),
	perCriterion("extfused_mballoc_extents_scanned_total", "Free extents compared under a criterion.", func(c *mballoc.CriterionStats) uint64 { return c.ExtentsScanned }),
	perCriterion("extfused_mballoc_useless_loops_total", "Searches under a criterion that found nothing.", func(c *mballoc.CriterionStats) uint64 { return c.UselessLoops }),
	counter("extfused_mballoc_groups_scanned_total", "Groups whose buddy was searched.", func(s *snapshot) uint64 { return s.alloc.GroupsScanned }),
	counter("extfused_mballoc_busy_groups_skipped_total", "Groups passed over because another allocation held them.", func(s *snapshot) uint64 { return s.alloc.BusySkipped }),
	gauge("extfused_mballoc_loaded_buddies", "Buddies in memory.", func(s *snapshot) float64 { return float64(s.alloc.BuddiesLoaded) }),
	counter("extfused_mballoc_generated_buddies_total", "Buddies made from bitmaps.", func(s *snapshot) uint64 { return s.alloc.Buddies }),
	{"extfused_mballoc_generation_seconds_total", "Time spent making buddies.", prometheus.CounterValue, nil,
		func(s *snapshot, p put) { p(float64(s.alloc.BuddiesNs) / 1e9) }},
	gauge("extfused_mballoc_preallocations", "Preallocations there are.", func(s *snapshot) float64 { return float64(s.alloc.Preallocations) }),
	counter("extfused_mballoc_preallocated_clusters_total", "Clusters preallocated.", func(s *snapshot) uint64 { return s.alloc.Preallocated }),
	counter("extfused_mballoc_discarded_clusters_total", "Preallocated clusters given back unused.", func(s *snapshot) uint64 { return s.alloc.Discarded }),
	counter("extfused_mballoc_freed_clusters_total", "Clusters freed.", func(s *snapshot) uint64 { return s.alloc.Freed }),
	gauge("extfused_mballoc_pending_clusters", "Clusters freed by transactions that have not committed.", func(s *snapshot) float64 { return float64(s.alloc.Pending) }),
	counter("extfused_mballoc_released_clusters_total", "Freed clusters that returned to a buddy after their commit.", func(s *snapshot) uint64 { return s.alloc.Released }),
	{"extfused_mballoc_freed_extents_total", "Freed extents: inserted by themselves, folded into a neighbour, or closing a gap between two.", prometheus.CounterValue, []string{"how"},
		func(s *snapshot, p put) {
			p(float64(s.alloc.FreedInserted), "inserted")
			p(float64(s.alloc.FreedFolded), "folded")
			p(float64(s.alloc.FreedJoined), "joined")
		}},
	counter("extfused_mballoc_released_extents_total", "Freed extents that returned to a buddy after their commit.", func(s *snapshot) uint64 { return s.alloc.ReleasedExtents }),
	{"extfused_mballoc_lock_waits_total", "Lock acquisitions that had to wait, by kind of lock.", prometheus.CounterValue, []string{"lock"}, contended},
}

func contended(s *snapshot, p put) {
	names := make([]string, 0, len(s.alloc.Contended))
	for name := range s.alloc.Contended {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		p(float64(s.alloc.Contended[name]), name)
	}
}

// ofJournal emits nothing for an image without a journal.
func ofJournal(name, help string, kind prometheus.ValueType, value func(*journal.Stats) float64) metric {
	return metric{name, help, kind, nil, func(s *snapshot, p put) {
		if s.fs.Journal != nil {
			p(value(s.fs.Journal))
		}
	}}
}

var journalMetrics = []metric{
	ofJournal("extfused_journal_commits_total", "Transactions committed.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Commits) }),
	ofJournal("extfused_journal_handles_total", "Handles begun.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Handles) }),
	ofJournal("extfused_journal_logged_blocks_total", "Metadata blocks written to the log.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.BlocksLogged) }),
	ofJournal("extfused_journal_log_blocks_written_total", "All blocks written to the log.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.LogBlocksWritten) }),
	ofJournal("extfused_journal_revokes_total", "Revoke records written.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Revokes) }),
	ofJournal("extfused_journal_copied_buffers_total", "Buffers copied because a commit still needed them.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.CopyOuts) }),
	ofJournal("extfused_journal_overdrafts_total", "Credits that handles had to borrow.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Overdrafts) }),
	ofJournal("extfused_journal_sync_waits_total", "Calls that waited for a commit.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.SyncWaits) }),
	ofJournal("extfused_journal_flushes_total", "Device flushes asked for.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Flushes) }),
	ofJournal("extfused_journal_checkpoints_total", "Times that the tail of the log moved.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Checkpoints) }),
	ofJournal("extfused_journal_checkpointed_blocks_total", "Blocks written to their home.", prometheus.CounterValue, func(j *journal.Stats) float64 { return float64(j.Checkpointed) }),
	ofJournal("extfused_journal_log_blocks", "Size of the log.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return float64(j.LogBlocks) }),
	ofJournal("extfused_journal_free_log_blocks", "Free blocks of the log.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return float64(j.FreeLogBlocks) }),
	ofJournal("extfused_journal_pinned_blocks", "Blocks that are committed, and not yet home.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return float64(j.PinnedBlocks) }),
	ofJournal("extfused_journal_running_blocks", "Blocks that the running transaction has changed.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return float64(j.RunningBlocks) }),
	ofJournal("extfused_journal_running_age_seconds", "Age of the running transaction.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return j.RunningAgeSeconds }),
	ofJournal("extfused_journal_aborted", "1 after the journal has given up.", prometheus.GaugeValue, func(j *journal.Stats) float64 { return bool01(j.Aborted) }),
}

var bcacheMetrics = []metric{
	counter("extfused_bcache_hits_total", "Metadata blocks found in the cache.", func(s *snapshot) uint64 { return s.fs.Cache.Hits }),
	counter("extfused_bcache_misses_total", "Metadata blocks read from the device.", func(s *snapshot) uint64 { return s.fs.Cache.Misses }),
	counter("extfused_bcache_evictions_total", "Blocks dropped from the cache.", func(s *snapshot) uint64 { return s.fs.Cache.Evictions }),
	gauge("extfused_bcache_buffers", "Blocks in the cache.", func(s *snapshot) float64 { return float64(s.fs.Cache.Buffers) }),
	gauge("extfused_bcache_size_bytes", "Content of the cache.", func(s *snapshot) float64 { return float64(s.fs.Cache.Bytes) }),
	gauge("extfused_bcache_dirty_buffers", "Blocks changed without a journal, and not yet written.", func(s *snapshot) float64 { return float64(s.fs.Cache.Dirty) }),
	gauge("extfused_bcache_held_buffers", "Blocks in use, or held by the journal.", func(s *snapshot) float64 { return float64(s.fs.Cache.Held) }),
}

var blockdevMetrics = []metric{
	counter("extfused_blockdev_reads_total", "Reads from the device.", func(s *snapshot) uint64 { return s.fs.Device.Reads }),
	counter("extfused_blockdev_read_bytes_total", "Bytes read from the device.", func(s *snapshot) uint64 { return s.fs.Device.ReadBytes }),
	counter("extfused_blockdev_writes_total", "Writes to the device.", func(s *snapshot) uint64 { return s.fs.Device.Writes }),
	counter("extfused_blockdev_written_bytes_total", "Bytes written to the device.", func(s *snapshot) uint64 { return s.fs.Device.WriteBytes }),
	counter("extfused_blockdev_flushes_total", "Flushes of the device.", func(s *snapshot) uint64 { return s.fs.Device.Flushes }),
	counter("extfused_blockdev_discards_total", "Discards.", func(s *snapshot) uint64 { return s.fs.Device.Discards }),
	counter("extfused_blockdev_discarded_bytes_total", "Bytes discarded.", func(s *snapshot) uint64 { return s.fs.Device.DiscardBytes }),
	counter("extfused_blockdev_zeroed_bytes_total", "Bytes zeroed without writing them.", func(s *snapshot) uint64 { return s.fs.Device.ZeroBytes }),
	counter("extfused_blockdev_errors_total", "Operations that failed.", func(s *snapshot) uint64 { return s.fs.Device.Errors }),
}
