package ext4

import "extfused/fs/ondisk"

// relatimeAge is the age at which a read renews atime in any case, in seconds.
const relatimeAge = 24 * 60 * 60

// accessed brings atime up to date before a read, as the mount options and the
// inode's flags want it. Errors do not matter to the reader.
func (i *Inode) accessed() {
	fs := i.fs
	if fs.writable() != nil || fs.opts.Atime == AtimeNever {
		return
	}
	now := fs.timestamp()
	i.mu.RLock()
	due := i.atimeDue(now)
	i.mu.RUnlock()
	if !due {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if fs.opts.LazyTime {
		i.raw.SetAtime(now)
		i.lazy.Store(true)
		return
	}
	fs.step(creditsInode, func(h *handle) error {
		i.raw.SetAtime(now)
		return i.markDirty(h)
	})
}

// atimeDue tells whether a read at now is to be noted. With relatime atime
// stays as long as it is not behind mtime and ctime, for a day.
func (i *Inode) atimeDue(now ondisk.Timestamp) bool {
	if i.raw.Flags&ondisk.InodeNoatime != 0 || i.raw.LinksCount == 0 || i.fs.opts.NoDirAtime && i.isDir() {
		return false
	}
	a := i.raw.Atime()
	if i.fs.opts.Atime == AtimeStrict {
		return a.Sec != now.Sec || now.Nsec-a.Nsec >= uint32(timeGrain)
	}
	return !before(i.raw.Mtime(), a) || !before(i.raw.Ctime(), a) || now.Sec-a.Sec >= relatimeAge
}

func before(a, b ondisk.Timestamp) bool {
	return a.Sec < b.Sec || a.Sec == b.Sec && a.Nsec < b.Nsec
}

// Under lazytime the atime of a read changes in memory only (Inode.lazy). It
// goes to the device with the inode's next change, with fsync and Sync, and
// when nothing refers to the inode any more.

// writeLazy writes an inode whose times changed in memory only. The caller has
// it pinned, and holds no lock.
func (fs *FS) writeLazy(i *Inode) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.lazy.Load() {
		return nil
	}
	err := fs.step(creditsInode, i.markDirty)
	i.lazy.Store(false) // also on an error: it has been told
	return err
}

// writeLazies is writeLazy for all inodes in memory; the first error counts.
func (fs *FS) writeLazies() (err error) {
	if !fs.opts.LazyTime || fs.writable() != nil {
		return nil
	}
	for k := range fs.icache.shards {
		for _, i := range fs.icache.shards[k].pinLazy() {
			err = first(err, fs.writeLazy(i))
			fs.iput(i)
		}
	}
	return err
}

// pinLazy pins the live inodes whose times wait in memory.
func (sh *icacheShard) pinLazy() (list []*Inode) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, i := range sh.m {
		if i.state == inodeLive && i.lazy.Load() {
			if i.refs.Add(1) == 1 {
				sh.idleDelLocked(i)
			}
			list = append(list, i)
		}
	}
	return list
}
