package ext4

import (
	"syscall"
	"time"

	"extfused/fs/ondisk"
)

// WriteFlags say what a write is besides its bytes.
type WriteFlags uint8

const (
	// WriteCached: the bytes come from the kernel's page cache, which keeps
	// mtime and ctime itself and sends them on: the inode's stay.
	WriteCached WriteFlags = 1 << iota
	// WriteKillPriv drops set-user-id, set-group-id and capabilities first.
	WriteKillPriv

	writeRoot WriteFlags = 1 << 7 // may use the superuser's reserve
)

// timeGrain is how far mtime may lag behind a write: a file that is written
// all the time gets a new time that often only, as with the kernel's clock tick.
const timeGrain = 4 * time.Millisecond

// WriteAt writes p at off; holes are allocated, the file grows as needed. When
// space runs out it returns what fitted. EFBIG past the largest file.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.WriteAtFlags(nil, p, off, 0) }

// WriteAtFlags is WriteAt with flags; c matters to WriteKillPriv.
//
// Bytes over written blocks go straight to the device, with the inode locked
// shared, so any number of them at once, and without a handle. All else is
// done with the inode locked: in each handle blocks are allocated, the data is
// written to them, and only then they are mapped, so that a crash shows either
// nothing or the data.
//
// As an [io.WriterAt] it says why whenever it writes less than p; after an error
// it counts only bytes known to be in the file.
func (f *File) WriteAtFlags(c *Caller, p []byte, off int64, flags WriteFlags) (int, error) {
	if off < 0 || !f.write {
		return 0, syscall.EBADF
	}
	if err := f.fs.writable(); err != nil {
		return 0, err
	}
	n, err := f.writeAt(c, p, off, flags)
	if f.sync && n > 0 {
		if err := f.i.fsync(false); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (f *File) writeAt(c *Caller, p []byte, off int64, flags WriteFlags) (int, error) {
	fits, err := f.i.cutToLimit(p, uint64(off))
	if err != nil || len(p) == 0 {
		return 0, err
	}
	n, err := f.writeFitting(c, fits, off, flags)
	if err == nil && n < len(p) {
		err = syscall.EFBIG
	}
	return n, err
}

// writeFitting writes p, all of which lies below the largest size.
func (f *File) writeFitting(c *Caller, p []byte, off int64, flags WriteFlags) (int, error) {
	if flags&WriteKillPriv == 0 {
		switch done, err := f.i.overwrite(p, uint64(off), flags); {
		case err != nil:
			return 0, err
		case done:
			return len(p), nil
		}
	}
	if f.root {
		flags |= writeRoot
	}
	f.i.mu.Lock()
	defer f.i.mu.Unlock()
	if flags&WriteKillPriv != 0 {
		err := f.fs.step(creditsInode+f.i.xattrCredits(), func(h *handle) error {
			return first(f.i.killPriv(h, c), f.i.markDirty(h))
		})
		if err != nil {
			return 0, err
		}
	}
	return f.i.writeLocked(p, uint64(off), flags)
}

// cutToLimit cuts what would lie behind the largest file; EFBIG if that is all.
func (i *Inode) cutToLimit(p []byte, off uint64) ([]byte, error) {
	i.mu.RLock()
	limit := i.maxBytes()
	i.mu.RUnlock()
	if off >= limit && len(p) > 0 {
		return nil, syscall.EFBIG
	}
	return p[:min(uint64(len(p)), limit-off)], nil
}

// maxBytes is the size of the largest file mapped as i is. i.mu is held.
func (i *Inode) maxBytes() uint64 {
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return min(i.fs.indirectBlocks(), maxLBlocks) << i.fs.blockBits
	}
	return maxLBlocks << i.fs.blockBits
}

// overwrite writes in place if all of the range is written blocks before the
// end of the file, and the times need no change; it reports whether it did.
func (i *Inode) overwrite(p []byte, off uint64, flags WriteFlags) (bool, error) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.inline() || i.journalsData() || off+uint64(len(p)) > i.raw.Size() || flags&WriteCached == 0 && i.timesOld(i.fs.timestamp()) {
		return false, nil
	}
	for done := 0; done < len(p); {
		r, n, err := i.mapBytes(off+uint64(done), len(p)-done)
		if err != nil {
			return false, err
		}
		if r.st != esWritten {
			return false, nil // what was written already is written once more: no harm
		}
		if err := i.fs.writeData(p[done:done+n], i.fs.byteOf(r, off+uint64(done))); err != nil {
			return false, err
		}
		done += n
	}
	i.wroteInPlace()
	return true, nil
}

// wroteInPlace remembers that fsync has a reason to flush the device.
func (i *Inode) wroteInPlace() {
	if !i.dataDirty.Load() {
		i.dataDirty.Store(true)
	}
}

// timesOld tells whether mtime lags behind too far.
func (i *Inode) timesOld(now ondisk.Timestamp) bool {
	m := i.raw.Mtime()
	d := time.Duration(now.Sec-m.Sec)*time.Second + time.Duration(int64(now.Nsec)-int64(m.Nsec))
	return now.Sec != m.Sec && (now.Sec-m.Sec > 1 || now.Sec < m.Sec) || d >= timeGrain || d < 0
}

// writeLocked writes with i.mu held exclusively.
func (i *Inode) writeLocked(p []byte, off uint64, flags WriteFlags) (int, error) {
	switch in, err := i.writeInline(p, off, flags); {
	case err != nil:
		return 0, err
	case in:
		return len(p), nil
	}
	done := 0
	for try := 0; done < len(p); {
		n, err := i.writeStep(p[done:], off+uint64(done), flags)
		done += n
		if err != nil && !i.fs.shouldRetry(err, &try) {
			return done, err
		}
	}
	return done, nil
}

// writeStep writes as much as one handle can take, and at least one run.
func (i *Inode) writeStep(p []byte, off uint64, flags WriteFlags) (int, error) {
	h, err := i.fs.begin(creditsWrite + i.dataCredits(off, len(p)))
	if err != nil {
		return 0, err
	}
	h.root = flags&writeRoot != 0
	done := 0
	for done < len(p) && err == nil && (done == 0 || h.ensure(creditsWrite+i.dataCredits(off+uint64(done), len(p)-done))) {
		var n int
		n, err = i.writeRun(h, p[done:], off+uint64(done))
		done += n
	}
	if done > 0 {
		if now := i.fs.timestamp(); flags&WriteCached == 0 {
			i.raw.SetMtime(now)
			i.raw.SetCtime(now)
		}
	}
	err = first(err, i.markDirty(h))
	return done, first(err, h.stop())
}

// writeRun writes the first bytes of p, as far as one run of the mapping goes,
// and sees to it that they are mapped and within the file's size.
func (i *Inode) writeRun(h *handle, p []byte, off uint64) (int, error) {
	r, n, err := i.mapBytes(off, len(p))
	if err != nil {
		return 0, err
	}
	p = i.cutToStep(p[:n], off)
	n = len(p)
	switch {
	case r.st == esWritten && i.journalsData():
		err = i.logData(h, r, p, off, false)
	case r.st == esWritten:
		if err = i.fs.writeData(p, i.fs.byteOf(r, off)); err == nil {
			i.wroteInPlace()
		}
	case r.st == esUnwritten:
		err = i.writeUnwritten(h, r, p, off)
	default:
		n, err = i.writeHole(h, r, p, off)
	}
	if err != nil {
		return 0, err
	}
	if end := off + uint64(n); end > i.raw.Size() {
		i.raw.SetSize(end)
		i.noteDatasync(h)
	}
	return n, nil
}

// blocksOf is how many blocks from the one with byte off on hold n bytes.
func (fs *FS) blocksOf(off uint64, n int) uint32 {
	return uint32((off+uint64(n)-1)>>fs.blockBits - off>>fs.blockBits + 1)
}

// writeHole allocates for the start of a hole and writes there; it returns how
// many bytes found room.
func (i *Inode) writeHole(h *handle, hole esRun, p []byte, off uint64) (int, error) {
	n := 0
	size := max(i.raw.Size(), off+uint64(len(p)))
	_, err := i.allocInsert(h, hole, i.fs.blocksOf(off, len(p)), size, allocData, esWritten, func(r esRun) error {
		n = int(min(uint64(len(p)), r.end()<<i.fs.blockBits-off))
		return i.writeFresh(h, r, p[:n], off)
	})
	if err != nil {
		return 0, err
	}
	i.noteDatasync(h)
	return n, nil
}

// zeroOutBlocks is the longest unwritten extent that a write into it turns
// written as a whole, the rest filled with zeroes, rather than splitting it
// (32 KiB with blocks of 4 KiB, as extent_max_zeroout_kb).
const zeroOutBlocks = 8

// writeUnwritten writes into preallocated blocks, and converts them.
func (i *Inode) writeUnwritten(h *handle, r esRun, p []byte, off uint64) error {
	blocks := i.fs.blocksOf(off, len(p))
	if r.n > blocks && r.n <= zeroOutBlocks && !i.journalsData() && i.fs.blockBits <= 12 && r.end() <= (i.raw.Size()+uint64(i.fs.blockSize)-1)>>i.fs.blockBits {
		blocks = r.n
	}
	r.n = blocks
	if err := i.writeFresh(h, r, p, off); err != nil {
		return err
	}
	i.noteDatasync(h)
	return i.convertRun(h, r, esWritten)
}

// writeFresh writes p, which starts at byte off of the file, to the blocks of r
// that hold nothing yet: before and behind it they become zeroes.
func (i *Inode) writeFresh(h *handle, r esRun, p []byte, off uint64) error {
	if i.journalsData() {
		return i.logData(h, r, p, off, true)
	}
	fs := i.fs
	start := uint64(r.l) << fs.blockBits
	end := r.end() << fs.blockBits
	head, tail := int(off-start), int(end-off-uint64(len(p)))
	if head == 0 && tail == 0 {
		return fs.writeData(p, fs.byteOf(r, off))
	}
	buf := fs.ops.bufs.Get().(*[]byte)
	defer fs.ops.bufs.Put(buf)
	if total := int(end - start); total <= len(*buf) {
		return fs.writePadded((*buf)[:total], head, p, fs.byteOf(r, start))
	}
	bs := fs.blockSize
	if head > 0 { // the first block, with its zeroes
		k := bs - head
		if err := fs.writePadded((*buf)[:bs], head, p[:k], fs.byteOf(r, start)); err != nil {
			return err
		}
		p, off = p[k:], off+uint64(k)
	}
	whole := len(p) &^ (bs - 1)
	if err := fs.writeData(p[:whole], fs.byteOf(r, off)); err != nil || tail == 0 {
		return err
	}
	return fs.writePadded((*buf)[:(tail+len(p)-whole)&^(bs-1)], 0, p[whole:], fs.byteOf(r, off+uint64(whole)))
}

// writePadded writes buf with p from head on and zeroes around it.
func (fs *FS) writePadded(buf []byte, head int, p []byte, at int64) error {
	clear(buf[:head])
	n := copy(buf[head:], p)
	clear(buf[head+n:])
	return fs.writeData(buf, at)
}
