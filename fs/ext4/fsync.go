package ext4

import "extfused/fs/ondisk"

// Fsync makes the file's data durable, and its inode too; with datasync only as
// much of the inode as is needed to read the data back.
//
// If the transaction that holds the last change has yet to commit, its commit
// does it all: fsyncs that wait for one commit share it. If it has committed,
// only data that was written in place since needs a flush of the device. Those
// of one file wait for each other, as what one has taken on itself to flush is
// durable for the others only when that has been done; they share the next one.
func (f *File) Fsync(datasync bool) error { return f.i.fsync(datasync) }

// Fsync makes the entries of the directory durable.
func (d *Dir) Fsync(datasync bool) error { return d.i.fsync(datasync) }

func (i *Inode) fsync(datasync bool) error {
	fs := i.fs
	if err := fs.stoppedErr(); err != nil {
		return err
	}
	if fs.opts.ReadOnly {
		return nil
	}
	i.fsyncMu.Lock()
	defer i.fsyncMu.Unlock()
	if i.lazy.Load() && !datasync {
		if err := fs.writeLazy(i); err != nil {
			return err
		}
	}
	tid := i.syncTID.Load()
	if datasync {
		tid = i.datasyncTID.Load()
	}
	dirty := i.dataDirty.Swap(false)
	err := fs.makeDurable(tid, dirty)
	if err != nil && dirty {
		i.dataDirty.Store(true)
	}
	return err
}

// makeDurable commits transaction tid if that is still to be done, and else
// flushes the device if that was asked for.
func (fs *FS) makeDurable(tid uint32, flush bool) error {
	if !fs.durable(tid) {
		if err := fs.syncTID(tid); err != nil || fs.durable(tid) {
			return err
		}
	}
	if !flush {
		return nil
	}
	return fs.syncTID(0)
}

// syncNames makes changes of the directory's names durable if the mount or
// the directory wants each to be. No lock is held.
func (dir *Inode) syncNames() error {
	if !dir.fs.opts.DirSync {
		dir.mu.RLock()
		flags := dir.raw.Flags
		dir.mu.RUnlock()
		if flags&(ondisk.InodeSync|ondisk.InodeDirsync) == 0 {
			return nil
		}
	}
	return dir.fsync(false)
}

// noteLoaded is for an inode that has just been read: whatever its earlier life
// in memory changed may be in the running transaction, or still in the device's
// cache.
func (i *Inode) noteLoaded() {
	i.dataDirty.Store(true)
	tid := i.fs.runningTID()
	i.syncTID.Store(tid)
	i.datasyncTID.Store(tid)
}
