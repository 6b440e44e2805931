package ext4

import (
	"time"

	"extfused/mballoc"
)

// The allocator knows of a group that was never looked at only what the
// descriptor says, and hopes for the best. In the background of a mount each is
// looked at once, so that no allocation has to be disappointed.

// Pace of that: it begins warmAfter the mount, and rests warmRest times as long
// as the reading of a batch took, at least warmPause. So it takes at most a
// tenth of the device's time.
const (
	warmAfter = 3 * time.Second
	warmRest  = 9
	warmPause = 10 * time.Millisecond
)

// warmGroups looks at all groups worth it, mb_prefetch at a time. pause waits
// and reports whether to go on. Buddies stay within the allocator's bound, and
// bitmaps within that of the buffer cache.
func (fs *FS) warmGroups(pause func(time.Duration) bool) {
	after := fs.opts.warmAfter
	if after == 0 {
		after = warmAfter
	}
	if !pause(after) {
		return
	}
	batch := max(fs.alloc.Tunables().MbPrefetch, 1)
	for g := mballoc.GroupNumber(0); g < mballoc.GroupNumber(fs.groupCount); {
		start, end, read := time.Now(), min(uint64(g)+uint64(batch), uint64(fs.groupCount)), false
		for ; uint64(g) < end; g++ {
			if !fs.alloc.Unread(g) {
				continue
			}
			if !read {
				blockReader{fs}.prefetch(uint64(g), end)
				read = true
			}
			if fs.alloc.Warm(g) != nil && fs.writable() != nil {
				return // what was wrong has been reported
			}
		}
		if read && !pause(max(warmRest*time.Since(start), warmPause)) {
			return
		}
	}
}

// pause waits for d; false means that the mount ends.
func (fs *FS) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-fs.stopWork:
		return false
	case <-t.C:
		return true
	}
}
