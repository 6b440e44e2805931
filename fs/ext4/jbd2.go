package ext4

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// This file and jbd2_open.go are the only ones that talk to the journal. Every change of metadata
// goes through a handle: begin, then for each buffer getWrite (or getCreate),
// change, dirty; then stop. On an image without a journal the same calls mark
// buffers dirty, and a timer writes them back: no other file asks which it is.

// Credits: how many distinct blocks a step may dirty at most. begin takes
// their sum; what is not used goes back at stop, so a generous figure costs
// log space only for the moment that the handle lives.
const (
	// creditsInode: the block of the inode table.
	creditsInode = 1
	// creditsSuper: the superblock (head of the orphan list).
	creditsSuper = 1
	// creditsGroup: one allocation or release of blocks in one group: the
	// bitmap and the block with the group's descriptor.
	creditsGroup = 2
	// creditsNewInode: inode bitmap, descriptor block, inode table block, and
	// the block bitmap of a group that was uninitialised.
	creditsNewInode = 4
	// creditsOrphan: putting an inode on the orphan list changes the
	// superblock and the inode; taking it off the superblock or the inode
	// before it, and itself. An orphan file costs one block instead.
	creditsOrphan = creditsSuper + 2*creditsInode
	// creditsFreeInode: the inode, inode bitmap and descriptor, and the orphan
	// list.
	creditsFreeInode = creditsInode + creditsGroup + creditsOrphan
	// creditsExtent: inserting one extent changes at most every node of the
	// path (depth 5, the root being in the inode) and splits each of them, so
	// 5 old and 5 new nodes. The new nodes come from one group as a rule,
	// from two at most where one fills up.
	creditsExtent = 5 + 5 + 2*creditsGroup
	// creditsWrite: allocating data in one request (one group), its extent,
	// and the inode.
	creditsWrite = creditsGroup + creditsExtent + creditsInode
	// creditsDirInsert: a name in a directory of any size: the leaf, its
	// split-off half, two inner nodes and their halves, the root: 7 blocks, of
	// which 3 are new and each brings an extent into the directory's own tree,
	// all of it in the group next to the directory.
	creditsDirInsert = 7 + creditsExtent + creditsInode
	// creditsDirDelete: the leaf and the directory's inode.
	creditsDirDelete = 1 + creditsInode
	// creditsXattr: an attribute block changed or replaced: old and new block,
	// the group of each, the inode, and the superblock for the feature.
	creditsXattr = 2 + 2*creditsGroup + creditsInode + creditsSuper
	// creditsTruncate: what one step of a truncate starts with: the inode, the
	// path in the extent tree, the superblock, and a few groups that blocks
	// are freed in. When it runs low the step restarts its handle.
	creditsTruncate = creditsInode + 5 + creditsOrphan + 8*creditsGroup
)

// handle is one atomic step. It belongs to one goroutine.
type handle struct {
	fs   *FS
	jh   *journal.Handle // nil: no journal
	dead bool            // restart failed: the step has ended
	root bool            // on behalf of one who may use the superuser's reserve

	later []*Inode // pins that are given back when the step has ended
}

var handlePool = sync.Pool{New: func() any { return new(handle) }}

// begin starts a step that dirties at most credits blocks. It may wait for
// log space or for a commit to lock the transaction, so no handle and none of
// the locks below it in the lock order may be held. EROFS: the file system is
// read-only (by now); EIO: shut down.
func (fs *FS) begin(credits int) (*handle, error) {
	if err := fs.writable(); err != nil {
		return nil, err
	}
	h := handlePool.Get().(*handle)
	h.fs, h.jh, h.dead, h.root = fs, nil, false, false
	if fs.jnl == nil {
		fs.unlogged.mu.RLock()
		return h, nil
	}
	if fs.quota.on {
		credits += creditsQuota
	}
	jh, err := fs.jnl.Begin(min(credits, fs.maxCredits()))
	if err != nil {
		handlePool.Put(h)
		return nil, fs.journalError(err)
	}
	h.jh = jh
	return h, nil
}

// stop ends the step; h is not to be used afterwards.
func (h *handle) stop() error {
	fs := h.fs
	var err error
	if fs.quota.on && !h.dead {
		err = fs.flushQuota(h)
	}
	switch {
	case h.jh != nil:
		err = first(err, fs.journalError(h.jh.Stop()))
	case !h.dead:
		fs.unlogged.mu.RUnlock()
	}
	h.fs, h.jh = nil, nil
	later := h.later
	h.later = nil
	handlePool.Put(h)
	for _, i := range later {
		fs.iput(i)
	}
	return err
}

// getWrite announces a change of b's content.
func (h *handle) getWrite(b *bcache.Buffer) error {
	if h.jh == nil {
		return nil
	}
	if h.jh.Credits() <= 0 {
		h.jh.Extend(creditsExtent)
	}
	return h.fs.journalError(h.jh.GetWriteAccess(b))
}

// getCreate announces that b, a freshly allocated block, gets new content.
func (h *handle) getCreate(b *bcache.Buffer) error {
	if h.jh == nil {
		return nil
	}
	if h.jh.Credits() <= 0 {
		h.jh.Extend(creditsExtent)
	}
	return h.fs.journalError(h.jh.GetCreateAccess(b))
}

// dirty says that b's new content is complete, checksum included.
func (h *handle) dirty(b *bcache.Buffer) error {
	if h.jh == nil {
		b.MarkDirty()
		return nil
	}
	return h.fs.journalError(h.jh.DirtyMetadata(b))
}

// revoke forgets a metadata block that is being freed: the running
// transaction no longer writes it, and a replay of older ones will not
// overwrite what the block holds next.
func (h *handle) revoke(blk ondisk.FsBlock) error {
	if h.jh == nil {
		h.fs.cache.Forget(uint64(blk), 1)
		return nil
	}
	return h.fs.journalError(h.jh.Revoke(uint64(blk)))
}

// ensure makes sure that n credits are left, extending if need be; false:
// restart.
func (h *handle) ensure(n int) bool {
	return h.jh == nil || h.jh.Credits() >= n || h.jh.Extend(n-h.jh.Credits())
}

// restart ends the step and begins the next one with the same handle. What
// was done so far must be consistent by itself. On error the handle is still
// to be stopped.
func (h *handle) restart(credits int) error {
	if h.fs.quota.on && !h.dead {
		if err := h.fs.flushQuota(h); err != nil {
			return err
		}
		credits += creditsQuota
	}
	if h.jh == nil {
		if !h.dead { // let a write-back in
			h.fs.unlogged.mu.RUnlock()
			h.fs.unlogged.mu.RLock()
		}
		return nil
	}
	err := h.jh.Restart(min(credits, h.fs.maxCredits()))
	if err != nil {
		h.jh, h.dead = nil, true
	}
	return h.fs.journalError(err)
}

// tid is the transaction that the step belongs to; never 0.
func (h *handle) tid() uint32 {
	if h.jh == nil {
		return unloggedTID
	}
	return uint32(h.jh.TID())
}

// maxCredits is the largest step that one transaction can hold. A journal of
// the least size has fewer than the sums above, which are worst cases: the
// step then starts with what there is, and may borrow.
func (fs *FS) maxCredits() int { return fs.jnl.MaxCredits() }

// journalError turns the journal's errors into ours. An aborted journal makes
// the file system read-only, once.
func (fs *FS) journalError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, journal.ErrClosed) {
		return syscall.EROFS
	}
	fs.aborted(err)
	var corrupt *ondisk.CorruptError
	if errors.As(err, &corrupt) {
		return err
	}
	var no syscall.Errno
	if errors.As(err, &no) && no == syscall.ENOSPC {
		return syscall.EIO // the log device is full: not the caller's concern
	}
	return syscall.EROFS
}

// syncTID makes everything durable that transaction tid (of inode.syncTID)
// contains, and data written before the call; 0 flushes the data alone.
func (fs *FS) syncTID(tid uint32) error {
	if err := first(fs.stoppedErr(), fs.writeLazies()); err != nil {
		return err
	}
	if fs.jnl == nil {
		return fs.syncUnlogged()
	}
	running, ok := fs.jnl.RunningTID()
	if tid != 0 {
		if err := fs.jnl.WaitDurable(journal.TID(tid)); err != nil {
			return fs.commitError(err)
		}
		if ok && running == journal.TID(tid) {
			return nil // that commit's flush came after our call
		}
	}
	return fs.flushDevice()
}

// durable tells whether transaction tid (of inode.syncTID; 0 for none) needs no
// commit any more.
func (fs *FS) durable(tid uint32) bool {
	return fs.jnl != nil && (tid == 0 || fs.jnl.CommittedTID().AtLeast(journal.TID(tid)))
}

// runningTID is the transaction that is running, or else being committed; 0
// without a journal or when everything is durable.
func (fs *FS) runningTID() uint32 {
	if fs.jnl == nil {
		return 0
	}
	if tid, ok := fs.jnl.RunningTID(); ok {
		return uint32(tid)
	}
	return uint32(fs.jnl.CommittedTID()) + 1
}

// forceCommit commits the running transaction and waits: it is what an
// allocation needs that found only blocks whose release is not yet durable.
// Called without a handle.
func (fs *FS) forceCommit() error {
	if fs.jnl == nil {
		if fs.opts.Discard { // what was freed waits for it
			return fs.writeBackUnlogged()
		}
		return nil
	}
	if err := fs.jnl.Commit(); err != nil {
		return fs.commitError(err)
	}
	return nil
}

// commitError is what a failed wait for durability returns: EIO, or the
// device's own errno.
func (fs *FS) commitError(err error) error {
	fs.aborted(err)
	return syscall.EIO
}

// flushDevice makes everything written so far durable.
func (fs *FS) flushDevice() error {
	if fs.opts.NoBarrier {
		return nil
	}
	if err := fs.dev.Flush(); err != nil {
		fs.deviceFailed(err)
		return syscall.EIO
	}
	return nil
}

// deviceFailed ends all changes after an error that leaves open what of the
// writes before it is durable: nobody may be told afterwards that it is.
func (fs *FS) deviceFailed(err error) {
	if fs.jnl != nil {
		fs.jnl.Abort(err)
	}
	fs.aborted(err)
}

// Sync commits the running transaction and makes everything written before
// the call durable.
func (fs *FS) Sync() error {
	if fs.readOnly.Load() {
		return fs.stoppedErr()
	}
	if err := first(fs.stoppedErr(), fs.writeLazies()); err != nil {
		return err
	}
	if fs.jnl == nil {
		return fs.syncUnlogged()
	}
	tid, running := fs.jnl.RunningTID()
	if err := fs.forceCommit(); err != nil {
		return err
	}
	if running && fs.jnl.CommittedTID().AtLeast(tid) {
		return nil // that commit's flush came after our call
	}
	return fs.flushDevice()
}

// unloggedTID is the one transaction of an image without a journal.
const unloggedTID = 1

// unlogged is the writing back of an image without a journal. A handle holds
// mu shared, so that nobody changes a buffer while it is being written.
type unlogged struct {
	mu     sync.RWMutex
	writes atomic.Int64
}

// syncUnlogged writes back all dirty buffers and flushes.
func (fs *FS) syncUnlogged() error {
	if err := fs.writeBackUnlogged(); err != nil {
		return err
	}
	return fs.flushDevice()
}

func (fs *FS) writeBackUnlogged() error {
	fs.unlogged.mu.Lock()
	defer fs.unlogged.mu.Unlock()
	fs.unlogged.writes.Add(1)
	if err := fs.cache.WriteDirty(); err != nil {
		fs.deviceFailed(err)
		return syscall.EIO
	}
	if fs.opts.Discard {
		fs.committed(unloggedTID) // no handle is open: nobody frees anything meanwhile
	}
	return nil
}

// ioError counts a failed read or write of the device, tells the operator of
// the first one of its kind, and gives the errno for the caller.
func (fs *FS) ioError(err error) error {
	fs.health.ioErrors.Add(1)
	kind := "I/O"
	var op *blockdev.OpError
	if errors.As(err, &op) {
		kind = op.Op
	}
	if fs.health.firstTime(kind) {
		fs.logf(LevelError, "%v; further %s errors are only counted", err, kind)
	}
	var no syscall.Errno
	if op != nil && errors.As(op.Err, &no) && no == syscall.ENOSPC {
		return syscall.ENOSPC
	}
	return syscall.EIO
}
