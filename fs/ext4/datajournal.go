package ext4

import (
	"extfused/blockdev/bcache"
	"extfused/fs/extent"
	"extfused/fs/ondisk"
)

// data=journal, and chattr +j for single files: what is written to a file is
// logged like metadata, in the transaction that maps it, so that after a crash
// mapping, size and content are of one moment. The content lives in the buffer
// cache until a checkpoint brings it home. So whoever reads such a file looks
// there first, whoever writes goes through it, and its blocks are revoked when
// they are freed. A file is one or the other kind: a change waits until the log
// holds nothing of it.

// journalsData tells whether the content of i is logged. The caller holds i.mu.
func (i *Inode) journalsData() bool {
	fs := i.fs
	return fs.jnl != nil && i.isReg() && (fs.dataMode == DataJournal || i.raw.Flags&ondisk.InodeJournalData != 0)
}

// chooseDataMode is what data= says, or else the superblock's default. Without a
// journal there is nothing to choose.
func (fs *FS) chooseDataMode(sb *ondisk.SuperBlock) error {
	fs.dataMode = fs.opts.Data
	if fs.dataMode == DataDefault {
		fs.dataMode = DataOrdered
		switch sb.DefaultMountOpts & ondisk.DefmDataMode {
		case ondisk.DefmDataJournal:
			fs.dataMode = DataJournal
		case ondisk.DefmDataWriteback:
			fs.dataMode = DataWriteback
		}
	}
	switch {
	case fs.opts.Data == DataJournal && !sb.HasCompat(ondisk.CompatHasJournal):
		return mountErrorf(ErrBadOption, "data=journal needs a journal, which the file system does not have")
	case fs.opts.AsyncCommit && fs.dataMode == DataOrdered:
		return mountErrorf(ErrBadOption, "journal_async_commit needs data=writeback or data=journal: with data=ordered a commit has to wait for the data")
	}
	return nil
}

// maxLogged is how many blocks of data one step logs at most: little enough to
// leave room for others in the transaction.
func (fs *FS) maxLogged() int { return max(1, min(256, fs.maxCredits()/4)) }

// dataCredits is how many blocks a step that writes n bytes at off logs of them.
func (i *Inode) dataCredits(off uint64, n int) int {
	if n == 0 || !i.journalsData() {
		return 0
	}
	return min(int(i.fs.blocksOf(off, n)), i.fs.maxLogged())
}

// cutToStep cuts p, to be written at off, to what dataCredits was for.
func (i *Inode) cutToStep(p []byte, off uint64) []byte {
	if !i.journalsData() {
		return p
	}
	in := int(off & uint64(i.fs.blockSize-1))
	return p[:min(len(p), i.fs.maxLogged()<<i.fs.blockBits-in)]
}

// logData writes p, which lies in r from byte off of the file on, in h. Blocks
// that are fresh hold nothing yet: around p they become zeroes.
func (i *Inode) logData(h *handle, r esRun, p []byte, off uint64, fresh bool) error {
	bs := uint64(i.fs.blockSize)
	for len(p) > 0 {
		in := off & (bs - 1)
		n := min(int(bs-in), len(p))
		blk := uint64(r.p) + off>>i.fs.blockBits - uint64(r.l)
		if err := i.logBlock(h, blk, p[:n], int(in), fresh); err != nil {
			return err
		}
		p, off = p[n:], off+uint64(n)
	}
	i.noteDatasync(h)
	return nil
}

// logBlock changes one block from byte in on.
func (i *Inode) logBlock(h *handle, blk uint64, p []byte, in int, fresh bool) error {
	b, err := i.dataBuffer(blk, fresh || len(p) == i.fs.blockSize)
	if err != nil {
		return i.fs.ioError(err)
	}
	defer b.Put()
	if fresh {
		err = h.getCreate(b)
	} else {
		err = h.getWrite(b)
	}
	if err != nil {
		return err
	}
	if fresh {
		clear(b.Data()[:in])
		clear(b.Data()[in+len(p):])
	}
	copy(b.Data()[in:], p)
	b.SetUptodate()
	return h.dirty(b)
}

// dataBuffer is the pinned buffer of a block; where all of it will be written
// its content is not read.
func (i *Inode) dataBuffer(blk uint64, whole bool) (*bcache.Buffer, error) {
	if whole {
		return i.fs.cache.Get(blk)
	}
	return i.fs.cache.Read(blk, nil)
}

// readLogged reads bytes from off on that lie in r, a written run: blocks that
// are cached from there, and what lies between them from the device.
func (i *Inode) readLogged(p []byte, r esRun, off uint64) error {
	bs := uint64(i.fs.blockSize)
	missing := 0 // bytes before p[at:] that are yet to be read
	at := 0
	flush := func() error {
		if missing == 0 {
			return nil
		}
		from := at - missing
		missing = 0
		return i.fs.readData(p[from:at], i.fs.byteOf(r, off+uint64(from)))
	}
	for at < len(p) {
		here := off + uint64(at)
		in := here & (bs - 1)
		n := min(int(bs-in), len(p)-at)
		b := i.fs.cache.Lookup(uint64(r.p) + here>>i.fs.blockBits - uint64(r.l))
		if b == nil || !b.Uptodate() {
			if b != nil {
				b.Put()
			}
			missing += n
			at += n
			continue
		}
		err := flush()
		copy(p[at:at+n], b.Data()[in:])
		b.Put()
		if err != nil {
			return err
		}
		at += n
	}
	return flush()
}

// unlogData is called before i's content stops being logged, with i.mu held
// exclusively and no handle: it empties the log, and then the cache of i's
// blocks, which from now on change behind its back.
func (i *Inode) unlogData() error {
	if err := i.fs.jnl.Flush(); err != nil {
		return i.fs.commitError(err)
	}
	if i.inline() {
		return nil
	}
	forget := func(p ondisk.FsBlock, n uint32) { i.fs.cache.Forget(uint64(p), int(n)) }
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return i.eachIndirectRun(forget)
	}
	t := openTree(i, nil)
	defer t.close()
	err := t.Iterate(0, func(e extent.Extent) bool {
		forget(e.Physical, e.Len)
		return true
	})
	return i.fs.report(ondisk.InInode(err, i.ino))
}

// eachIndirectRun calls fn for the mapped runs of a file without extents.
func (i *Inode) eachIndirectRun(fn func(p ondisk.FsBlock, n uint32)) error {
	end := (i.raw.Size() + uint64(i.fs.blockSize) - 1) >> i.fs.blockBits
	for l := uint64(0); l < end; {
		r, err := i.mapRun(ondisk.LBlock(l))
		if err != nil {
			return err
		}
		if r.st != esHole {
			fn(r.p, r.n)
		}
		l = r.end()
	}
	return nil
}

// maxRevokeStep is how many journaled blocks one step frees at most.
const maxRevokeStep = 4096

// reserveRevokes makes sure that h can free some journaled blocks, n if
// possible, and returns how many; what was done in h must be consistent by
// itself, and the inode be marked dirty, since it may have to go on in the next
// transaction, with the given credits.
func (h *handle) reserveRevokes(n, credits int) (int, error) {
	if h.jh == nil {
		return n, nil
	}
	n = min(n, maxRevokeStep, h.fs.jnl.MaxRevokes()/2+1)
	for {
		if got := h.jh.ReserveRevokes(n, min(n, 32)); got > 0 {
			return min(n, got), nil
		}
		if err := h.jh.RestartCommitted(min(credits, h.fs.maxCredits())); err != nil {
			h.jh, h.dead = nil, true
			return 0, h.fs.journalError(err)
		}
	}
}
