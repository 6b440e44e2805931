package ext4

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/fs/htree"
	"extfused/fs/ondisk"
)

// opsState is what the operations keep per file system.
type opsState struct {
	es  *esCache
	dir htree.Params

	xattrs xattrShares
	values valueShares

	bufs sync.Pool // *[]byte, scratch of scratchBytes
}

// inodeOps is what the operations keep per inode, embedded in Inode. The zero
// value is a fresh inode's.
type inodeOps struct {
	es extentStatus
	// dataDirty: data was written in place since the last flush that this
	// inode's fsync waited for; set after the write, cleared before the flush.
	dataDirty atomic.Bool
	fsyncMu   sync.Mutex   // held from clearing dataDirty until that data is durable
	writers   atomic.Int32 // open files that may write
	charged   charge       // of quotas; guarded by Inode.mu, as raw is
	// valueEntries is how many attribute values the inode has in inodes of their
	// own; only kept with quotas, which count them.
	valueEntries int64
	noXattrs     atomic.Bool // it is known to have no extended attribute
}

// scratchBytes is the largest unaligned piece of new data that is put together
// in memory with the zeroes around it, and written at once.
const scratchBytes = 64 << 10

// initOps prepares the operations; Mount calls it when geometry, csum, dev and
// the superblock are known.
func (fs *FS) initOps() {
	fs.ops.es = newESCache(fs.opts.CacheBytes / 4)
	fs.ops.dir = htree.Params{
		BlockSize:   fs.blockSize,
		MaxInode:    ondisk.InodeNumber(fs.inodes),
		HasCsum:     fs.csum.Metadata(),
		FileType:    fs.fileType,
		DirIndex:    fs.dirIndex,
		LargeDir:    fs.largeDir,
		HashVersion: fs.hashVersion,
		Unsigned:    fs.unsignedHash,
		HashSeed:    fs.hashSeed,
	}
	fs.ops.bufs.New = func() any { b := make([]byte, max(scratchBytes, fs.blockSize)); return &b }
}

// leave is called when the inode leaves memory: its part of the shared caches
// goes with it.
func (o *inodeOps) leave(fs *FS) { o.es.drop(fs.ops.es) }

// errNoEntry is what looking up a name that is not there gives.
const errNoEntry = syscall.ENOENT

// report turns an error from below into what the caller gets: corruption goes
// through errors=, an errno stays, all else was the device.
func (fs *FS) report(err error) error {
	var no syscall.Errno
	switch {
	case err == nil:
		return nil
	case isCorrupt(err):
		return fs.corrupt(err)
	case errors.As(err, &no):
		return no
	}
	return fs.ioError(err)
}

// first is the error of the step that went wrong; what went wrong while
// cleaning up after it has been reported where it happened.
func first(err, cleanup error) error {
	if err != nil {
		return err
	}
	return cleanup
}

// step runs fn in a handle of the given credits, and again, after a commit has
// released freed blocks, if it failed for lack of space. fn leaves nothing
// half done when it fails. The locks fn needs are held; no handle is.
func (fs *FS) step(credits int, fn func(h *handle) error) error {
	for try := 0; ; {
		h, err := fs.begin(credits)
		if err != nil {
			return err
		}
		err = fn(h)
		err = first(err, h.stop())
		if !fs.shouldRetry(err, &try) {
			return err
		}
	}
}

// shouldRetry tells whether an operation that failed with err, and has stopped
// its handle, is worth doing again: it was for lack of space, and a commit has
// released some since. n counts the attempts from 0.
func (fs *FS) shouldRetry(err error, n *int) bool {
	if err != syscall.ENOSPC || !fs.spaceMayCome(*n) {
		return false
	}
	*n++
	return true
}
