package fusefs

import (
	"log"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ext4"
)

// Options of a FileSystem. The zero value serves with the defaults.
type Options struct {
	EntryTimeout time.Duration // how long the kernel keeps names; 0 is DefaultTimeout
	AttrTimeout  time.Duration // how long it keeps attributes; 0 is DefaultTimeout

	NoXattr bool // no extended attributes: one GETXATTR less for each file written

	StrictAtime bool // each opening drops the cached pages, so that reads are seen

	// UID and GID, if set, are whom all files belong to, whatever the image
	// says; new files are stored as theirs, and chown to others is refused.
	UID, GID *uint32

	// OnPanic is told of panics of ours, which end as EIO; nil logs them.
	OnPanic func(op Op, value any, stack []byte)
}

// DefaultTimeout is long because nobody else changes the image.
const DefaultTimeout = 24 * time.Hour

// FileSystem serves an ext4.FS to go-fuse.
type FileSystem struct {
	fs      *ext4.FS
	stats   counters
	handles handles
	forgets forgets

	blockSize             uint32 // st_blksize
	entryValid, attrValid uint64 // seconds
	noXattr               bool
	strictAtime           bool
	owner                 owner

	notify notifier // to the kernel; nil before Mount, or when it has none
}

// notifier is the part of the transport that talks back to the kernel.
type notifier interface {
	InodeNotify(node uint64, off int64, length int64) fuse.Status
}

var _ fuse.RawFileSystem = (*FileSystem)(nil)

// New makes a FileSystem of a mounted ext4.FS, which stays the caller's to
// unmount, after OnUnmount.
func New(fs *ext4.FS, o Options) *FileSystem {
	f := &FileSystem{
		fs: fs, noXattr: o.NoXattr, blockSize: max(fs.Statfs().BlockSize, minBlksize),
		entryValid: seconds(o.EntryTimeout), attrValid: seconds(o.AttrTimeout),
		strictAtime: o.StrictAtime, owner: owner{uid: o.UID, gid: o.GID},
	}
	f.stats.onPanic = o.OnPanic
	if o.OnPanic == nil {
		f.stats.onPanic = func(op Op, value any, stack []byte) { log.Printf("panic in %s: %v\n%s", op, value, stack) }
	}
	f.forgets = forgets{fs: fs, guard: f.catch}
	return f
}

// minBlksize is the least st_blksize: the kernel's FUSE client keeps track of
// dirty data in units of it, and pages are no smaller.
const minBlksize = 4096

func seconds(d time.Duration) uint64 {
	if d == 0 {
		d = DefaultTimeout
	}
	return uint64(d / time.Second)
}

// catch is deferred around work outside of requests.
func (f *FileSystem) catch(string) {
	if r := recover(); r != nil {
		f.stats.caught(OpForget, r)
	}
}

// String names the file system in go-fuse's messages.
func (f *FileSystem) String() string { return "extfused" }

// SetDebug does nothing: go-fuse's Debug option shows requests.
func (f *FileSystem) SetDebug(bool) {}

// Init is for go-fuse's own transport, which Mount does without.
func (f *FileSystem) Init(*fuse.Server) {}

// OnUnmount is called after the last request: open files that the kernel never
// released (it aborted the connection) are closed. Once is enough; more is no
// error.
func (f *FileSystem) OnUnmount() {
	f.forgets.stop()
	f.handles.removeAll(func(o *openFile) { o.File.Release() })
}

// Drain waits until inodes that the kernel has forgotten so far are freed.
func (f *FileSystem) Drain() { f.forgets.drain() }

// Stats sums up what has been served.
func (f *FileSystem) Stats() Stats {
	s := f.stats.sum()
	s.OpenHandles = f.handles.open.Load()
	return s
}
