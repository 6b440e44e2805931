package ext4

import (
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// The orphan file (feature orphan_file, inode s_orphan_file_inum) is an array of
// inode numbers, 0 where free. An entry costs one block, and no lock that all
// share, where the list changes the superblock and the inode before. While the file
// system is mounted for writing the feature orphan_present says that the file may
// hold entries; it goes with the unmount. All blocks are in memory meanwhile, as
// in the kernel.
type orphanFile struct {
	blocks []orphanBlock // none: no orphan file, or nothing to protect without a journal
	seed   uint32        // of the checksums of its blocks
	usable bool          // entries may be added
}

type orphanBlock struct {
	buf  *bcache.Buffer // pinned for the life of the mount
	free atomic.Int32   // slots that nobody has claimed

	mu   sync.Mutex
	hint int // +checklocks:mu, where to look for a free slot first
}

// maxOrphanFileBlocks bounds the file; mke2fs makes 32 to 512 blocks.
const maxOrphanFileBlocks = 4096

// loadOrphanFile reads the orphan file, if there is one.
func (fs *FS) loadOrphanFile(sb *ondisk.SuperBlock) error {
	if !sb.HasCompat(ondisk.CompatOrphanFile) {
		return nil
	}
	ino := ondisk.InodeNumber(sb.OrphanFileInum)
	if ino < fs.firstIno || uint32(ino) > fs.inodes {
		return fs.corrupt(&ondisk.CorruptError{What: "orphan file: bad inode number", Inode: ino})
	}
	i := &Inode{fs: fs, ino: ino}
	if err := fs.loadInode(i); err != nil {
		return err
	}
	runs, err := fs.inodeRuns(i)
	if err != nil {
		return fs.report(err)
	}
	n := uint64(0)
	for _, r := range runs {
		n += uint64(r.Len)
	}
	if n > maxOrphanFileBlocks {
		return fs.corrupt(&ondisk.CorruptError{What: "orphan file: too large", Inode: ino})
	}
	f := &fs.orphans.file
	f.seed, f.usable = i.seed, fs.jnl != nil
	f.blocks = make([]orphanBlock, n)
	k := 0
	for _, r := range runs {
		for b := range r.Len {
			if err := f.load(fs, i, &f.blocks[k], ondisk.FsBlock(r.Block)+ondisk.FsBlock(b)); err != nil {
				return err
			}
			k++
		}
	}
	return nil
}

// load reads one block of the file i and counts its free slots.
func (f *orphanFile) load(fs *FS, i *Inode, ob *orphanBlock, blk ondisk.FsBlock) error {
	b, err := fs.cache.Read(uint64(blk), func(data []byte) error {
		if !fs.csum.VerifyOrphanBlock(f.seed, blk, data) {
			return ondisk.Corrupt("orphan file block: checksum is wrong")
		}
		return ondisk.OrphanBlock(data).Check()
	})
	if err != nil {
		return fs.report(ondisk.AtBlock(ondisk.InInode(err, i.ino), blk))
	}
	ob.buf = b
	v, free := ondisk.OrphanBlock(b.Data()), int32(0)
	for k := range v.Slots() {
		if v.Inode(k) == 0 {
			free++
		}
	}
	ob.free.Store(free)
	return nil
}

// put gives the pins back.
func (f *orphanFile) put() {
	for k := range f.blocks {
		if b := f.blocks[k].buf; b != nil {
			b.Put()
		}
	}
	f.blocks = nil
}

// entries is how many slots are taken.
func (f *orphanFile) entries() (n int) {
	for k := range f.blocks {
		b := &f.blocks[k]
		n += ondisk.OrphanBlock(b.buf.Data()).Slots() - int(b.free.Load())
	}
	return n
}

// claim reserves a slot of the block.
func (b *orphanBlock) claim() bool {
	for {
		n := b.free.Load()
		if n <= 0 {
			return false
		}
		if b.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// add notes i in the file; false if there is no room, or no file. Which block is
// tried first depends on the inode, so that several writers use several.
func (f *orphanFile) add(h *handle, i *Inode) (bool, error) {
	if !f.usable {
		return false, nil
	}
	for k := range f.blocks {
		n := (int(i.ino) + k) % len(f.blocks)
		b := &f.blocks[n]
		if !b.claim() {
			continue
		}
		slot, err := b.set(h, f, i.ino)
		if err != nil {
			b.free.Add(1)
			return false, err
		}
		i.orphanSlot = 1 + n*ondisk.OrphanBlock(b.buf.Data()).Slots() + slot
		i.orphan.Store(true)
		return true, nil
	}
	return false, nil
}

// set stores ino in a free slot, of which there is one.
func (b *orphanBlock) set(h *handle, f *orphanFile, ino ondisk.InodeNumber) (int, error) {
	slot := -1
	err := b.change(h, f, func(v ondisk.OrphanBlock) {
		for k := range v.Slots() {
			at := (b.hint + k) % v.Slots()
			if v.Inode(at) == 0 {
				slot = at
				b.hint = at + 1
				v.SetInode(at, ino)
				return
			}
		}
	})
	if err == nil && slot < 0 {
		err = h.fs.corrupt(ondisk.Corrupt("orphan file block without the free slot that was counted"))
	}
	return slot, err
}

// change alters the block within h, checksum included.
func (b *orphanBlock) change(h *handle, f *orphanFile, fn func(v ondisk.OrphanBlock)) error {
	if err := h.getWrite(b.buf); err != nil {
		return err
	}
	b.mu.Lock()
	fn(ondisk.OrphanBlock(b.buf.Data()))
	h.fs.csum.SetOrphanBlock(f.seed, ondisk.FsBlock(b.buf.Block()), b.buf.Data())
	b.mu.Unlock()
	return h.dirty(b.buf)
}

// del takes i out of the file.
func (f *orphanFile) del(h *handle, i *Inode) error {
	if err := f.clear(h, i.orphanSlot-1); err != nil {
		return err
	}
	i.orphanSlot = 0
	i.orphan.Store(false)
	return nil
}

// clear frees a slot, counted through all blocks.
func (f *orphanFile) clear(h *handle, slot int) error {
	per := ondisk.OrphanBlock(f.blocks[0].buf.Data()).Slots()
	b := &f.blocks[slot/per]
	if err := b.change(h, f, func(v ondisk.OrphanBlock) { v.SetInode(slot%per, 0) }); err != nil {
		return err
	}
	b.free.Add(1)
	return nil
}

// cleanOrphanFile finishes, at mount, what the inodes in the file are there for.
// Each slot is freed in the transaction that does so.
func (fs *FS) cleanOrphanFile() error {
	f := &fs.orphans.file
	for k := range f.blocks {
		v := ondisk.OrphanBlock(f.blocks[k].buf.Data())
		for s := range v.Slots() {
			ino := v.Inode(s)
			if ino == 0 {
				continue
			}
			if err := fs.cleanOrphanSlot(ino, k*v.Slots()+s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (fs *FS) cleanOrphanSlot(ino ondisk.InodeNumber, slot int) error {
	if ino < fs.firstIno || uint32(ino) > fs.inodes {
		return fs.corrupt(&ondisk.CorruptError{What: "orphan file: bad inode number", Inode: ino})
	}
	i, err := fs.iget(ino)
	if err == syscall.ESTALE { // it is gone already
		return fs.step(creditsOrphan, func(h *handle) error { return fs.orphans.file.clear(h, slot) })
	}
	if err != nil {
		return err
	}
	i.mu.Lock()
	i.orphanSlot = slot + 1
	i.orphan.Store(true)
	i.mu.Unlock()
	return fs.cleanOrphan(i)
}
