package ext4

// Fsync makes the file's data durable, and its inode too; with datasync only as
// much of the inode as is needed to read the data back.
//
// If the transaction that holds the last change has yet to commit, its commit
// does it all: fsyncs that wait for one commit share it. If it has committed,
// only data that was written in place since needs a flush of the device.
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
	tid := i.syncTID.Load()
	if datasync {
		tid = i.datasyncTID.Load()
	}
	dirty := i.ops.dataDirty.Swap(false)
	if !dirty && fs.durable(tid) {
		return nil
	}
	if err := fs.syncTID(tid); err != nil {
		i.ops.dataDirty.Store(true)
		return err
	}
	return nil
}
