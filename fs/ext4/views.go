package ext4

import (
	"bufio"
	"fmt"
	"io"

	"extfused/fs/ondisk"
)

// esCensus counts what the extent-status caches of all inodes in core hold.
type esCensus struct {
	objects, reclaimable int // runs; those of lists that the shrinker may drop
	inodes               int // that have any
	top                  struct {
		ino                  ondisk.InodeNumber
		objects, reclaimable int
	}
}

// censusES looks at every inode in core, a shard at a time. extentStatus.mu is
// a leaf that nobody holds for long, so that it may be taken under the shard's.
func (fs *FS) censusES() (c esCensus) {
	for k := range fs.icache.shards {
		sh := &fs.icache.shards[k]
		sh.mu.Lock()
		for ino, i := range sh.m {
			c.add(ino, &i.es)
		}
		sh.mu.Unlock()
	}
	return c
}

// esStats are the figures of the extent-status cache.
func (fs *FS) esStats() ESStats {
	for k := range fs.icache.shards {
		sh := &fs.icache.shards[k]
		sh.mu.Lock()
		for _, i := range sh.m {
			i.es.count(fs.ops.es)
		}
		sh.mu.Unlock()
	}
	return fs.ops.es.stats()
}

func (c *esCensus) add(ino ondisk.InodeNumber, e *extentStatus) {
	e.mu.rlock()
	n, listed := len(e.runs), e.listed
	e.mu.runlock(lockPlain)
	if n == 0 {
		return
	}
	c.inodes++
	c.objects += n
	reclaimable := 0
	if listed {
		reclaimable = n
	}
	c.reclaimable += reclaimable
	if n > c.top.objects || n == c.top.objects && ino < c.top.ino {
		c.top.ino, c.top.objects, c.top.reclaimable = ino, n, reclaimable
	}
}

// WriteESShrinkerInfo prints what /proc/fs/ext4/DEV/es_shrinker_info says
// under a Linux 6.18 kernel, in its words and layout. Runs that fit into their
// inode cost nothing extra, and are not reclaimable. It may be called at any
// moment between Mount and Unmount.
func (fs *FS) WriteESShrinkerInfo(w io.Writer) error {
	s, c := fs.esStats(), fs.censusES()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "stats:\n  %d objects\n  %d reclaimable objects\n  %d/%d cache hits/misses\n", c.objects, c.reclaimable, s.Hits, s.Misses)
	if c.inodes > 0 {
		fmt.Fprintf(out, "  %d inodes on list\n", c.inodes)
	}
	scans := max(s.Scans, 1)
	fmt.Fprintf(out, "average:\n  %d us scan time\n  %d shrunk objects\n", uint64(s.ScanTime.Microseconds())/scans, s.Shrunk/scans)
	if c.inodes > 0 {
		fmt.Fprintf(out, "maximum:\n  %d inode (%d objects, %d reclaimable)\n  %d us max scan time\n",
			c.top.ino, c.top.objects, c.top.reclaimable, s.MaxScanTime.Microseconds())
	}
	return out.Flush()
}
