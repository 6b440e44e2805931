package ext4

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"extfused/fs/ondisk"
)

// The orphan list holds inodes that a crash must not leave as they are:
// unlinked but still open, or with a truncate under way. On disk it is a chain
// from s_last_orphan through the i_dtime of each inode; the next mount deletes
// or truncates what it finds. In core it is linked both ways.
//
// With the feature orphan_file inodes are noted in that file instead, and on the
// list only when it is full: see orphan_file.go.
type orphanState struct {
	mu   sync.Mutex
	head *Inode // +checklocks:mu, the one s_last_orphan names
	n    int    // +checklocks:mu, inodes on the list

	file orphanFile

	recovering atomic.Bool  // mount is working the list off: iget gives inodes without links
	cleaned    atomic.Int64 // inodes deleted or truncated at mount
}

// orphanAdd puts i into the orphan file or on the orphan list within h
// (creditsOrphan); the caller holds i.mu exclusively. Nothing happens when it is
// there already.
func (fs *FS) orphanAdd(h *handle, i *Inode) error {
	if i.orphan.Load() {
		return nil
	}
	o := &fs.orphans
	if done, err := o.file.add(h, i); err != nil {
		return err
	} else if done {
		i.raw.Dtime = 0
		return i.markDirty(h)
	}
	o.mu.Lock()
	i.orphanNext, i.orphanPrev = o.head, nil
	i.raw.Dtime = 0
	if o.head != nil {
		o.head.orphanPrev = i
		i.raw.Dtime = uint32(o.head.ino)
	}
	o.head = i
	o.n++
	i.orphan.Store(true)
	err := fs.setLastOrphan(h, i.ino)
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return i.markDirty(h)
}

// orphanDel takes i out of the orphan file or off the list within h
// (creditsOrphan). The caller
// holds i.mu exclusively, or is evicting i, and calls markDirty afterwards.
func (fs *FS) orphanDel(h *handle, i *Inode) error {
	if !i.orphan.Load() {
		return nil
	}
	o := &fs.orphans
	if i.orphanSlot != 0 {
		return o.file.del(h, i)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	next := ondisk.InodeNumber(0)
	if i.orphanNext != nil {
		next = i.orphanNext.ino
	}
	var err error
	if i.orphanPrev == nil {
		err = fs.setLastOrphan(h, next)
	} else {
		err = fs.relinkOrphanLocked(h, i.orphanPrev, next)
	}
	if err != nil {
		return err
	}
	fs.orphans.unlinkLocked(i)
	i.raw.Dtime = 0
	return nil
}

func (o *orphanState) unlinkLocked(i *Inode) {
	if i.orphanPrev != nil {
		i.orphanPrev.orphanNext = i.orphanNext
	} else {
		o.head = i.orphanNext
	}
	if i.orphanNext != nil {
		i.orphanNext.orphanPrev = i.orphanPrev
	}
	i.orphanPrev, i.orphanNext = nil, nil
	i.orphan.Store(false)
	o.n--
}

// relinkOrphanLocked makes next follow prev on disk. prev's own lock is not
// held: its i_dtime and checksum are the list's while it is on it.
func (fs *FS) relinkOrphanLocked(h *handle, prev *Inode, next ondisk.InodeNumber) error {
	b, slot, err := prev.tableBuffer()
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.getWrite(b); err != nil {
		return err
	}
	prev.raw.Dtime = uint32(next)
	binary.LittleEndian.PutUint32(slot[0x14:], uint32(next))
	fs.csum.SetInode(prev.ino, slot)
	return h.dirty(b)
}

// cleanOrphans finishes what a crash interrupted, at mount: deletes the inodes
// without links that are on the list or in the orphan file, and truncates the
// others to their size.
func (fs *FS) cleanOrphans(sb *ondisk.SuperBlock) error {
	if err := fs.loadOrphanFile(sb); err != nil {
		return err
	}
	present := sb.HasROCompat(ondisk.ROCompatOrphanPresent)
	if sb.LastOrphan == 0 && !present {
		return nil
	}
	fs.orphans.recovering.Store(true)
	defer fs.orphans.recovering.Store(false)
	if sb.State&ondisk.StateError != 0 {
		fs.logf(LevelWarn, "the file system has errors: the orphan list is dropped, e2fsck will find the lost inodes")
		return fs.dropOrphanList()
	}
	list, err := fs.loadOrphanList(ondisk.InodeNumber(sb.LastOrphan))
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := fs.cleanOrphan(i); err != nil {
			return err
		}
	}
	if present {
		if err := fs.cleanOrphanFile(); err != nil {
			return err
		}
	}
	if n := fs.orphans.cleaned.Load(); n > 0 {
		fs.logf(LevelInfo, "%d orphaned inodes cleaned up", n)
	}
	return nil
}

// loadOrphanList links the chain on disk in core, pinned. A chain that is
// damaged is cut at the damage.
func (fs *FS) loadOrphanList(ino ondisk.InodeNumber) ([]*Inode, error) {
	var list []*Inode
	seen := make(map[ondisk.InodeNumber]bool)
	for ino != 0 {
		var i *Inode
		err := error(nil)
		if seen[ino] || ino < fs.firstIno || uint32(ino) > fs.inodes {
			err = fs.corrupt(&ondisk.CorruptError{What: "orphan list: bad inode number", Inode: ino})
		} else {
			i, err = fs.iget(ino)
		}
		if err != nil {
			fs.logf(LevelWarn, "orphan list: inode %d: %v; the rest of the list is dropped", ino, err)
			return list, fs.cutOrphanList(list)
		}
		seen[ino] = true
		list = append(list, i)
		fs.orphans.appendLoaded(list)
		ino = ondisk.InodeNumber(i.raw.Dtime)
	}
	return list, nil
}

// appendLoaded links the last of list behind the others.
func (o *orphanState) appendLoaded(list []*Inode) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := list[len(list)-1]
	if len(list) == 1 {
		o.head = i
	} else {
		prev := list[len(list)-2]
		prev.orphanNext, i.orphanPrev = i, prev
	}
	i.orphan.Store(true)
	o.n++
}

// cutOrphanList ends the chain on disk behind the last of list.
func (fs *FS) cutOrphanList(list []*Inode) error {
	if len(list) == 0 {
		return fs.dropOrphanList()
	}
	h, err := fs.begin(creditsOrphan)
	if err != nil {
		return err
	}
	fs.orphans.mu.Lock()
	err = fs.relinkOrphanLocked(h, list[len(list)-1], 0)
	fs.orphans.mu.Unlock()
	if serr := h.stop(); err == nil {
		err = serr
	}
	return err
}

func (fs *FS) dropOrphanList() error {
	h, err := fs.begin(creditsSuper)
	if err != nil {
		return err
	}
	err = fs.setLastOrphan(h, 0)
	if serr := h.stop(); err == nil {
		err = serr
	}
	return err
}

// cleanOrphan deletes or truncates one pinned inode and puts it.
func (fs *FS) cleanOrphan(i *Inode) error {
	defer fs.iput(i)
	fs.orphans.cleaned.Add(1)
	if i.raw.LinksCount == 0 {
		return nil // iput evicts it
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isReg() {
		if err := i.truncate(i.raw.Size()); err != nil {
			return err
		}
	}
	if !i.orphan.Load() {
		return nil
	}
	h, err := fs.begin(creditsOrphan)
	if err != nil {
		return err
	}
	if err = fs.orphanDel(h, i); err == nil {
		err = i.markDirty(h)
	}
	if serr := h.stop(); err == nil {
		err = serr
	}
	return err
}
