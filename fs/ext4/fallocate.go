package ext4

import (
	"syscall"

	"extfused/fs/ondisk"
)

// Modes of Allocate, with the values of fallocate(2).
const (
	FallocKeepSize  = 0x01
	FallocPunchHole = 0x02
	FallocZeroRange = 0x10
)

// Allocate is fallocate(2) on [off, off+n): mode 0 or FallocKeepSize allocates
// what is missing, without writing; FallocPunchHole|FallocKeepSize frees the
// range, and FallocZeroRange makes it read as zeroes while it stays allocated.
// EOPNOTSUPP for other modes and for files mapped by indirect blocks, EFBIG
// past the largest file. On ENOSPC what could be allocated stays, as in ext4.
func (f *File) Allocate(off, n int64, mode uint32) error {
	if off < 0 || n <= 0 {
		return syscall.EINVAL
	}
	if !f.write {
		return syscall.EBADF
	}
	i := f.i
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.mayAllocate(mode); err != nil {
		return err
	}
	if err := i.leaveInline(f.root); err != nil {
		return err
	}
	if i.raw.Flags&ondisk.InodeExtents == 0 {
		return syscall.EOPNOTSUPP
	}
	if end := uint64(off) + uint64(n); end > i.maxBytes() {
		return syscall.EFBIG
	}
	start, end := uint64(off), uint64(off)+uint64(n)
	switch mode {
	case 0, FallocKeepSize:
		return i.preallocate(start, end, mode&FallocKeepSize != 0, f.root)
	case FallocPunchHole | FallocKeepSize:
		return i.punchHole(start, end)
	case FallocZeroRange, FallocZeroRange | FallocKeepSize:
		return i.zeroRange(start, end, mode&FallocKeepSize != 0, f.root)
	}
	return syscall.EOPNOTSUPP
}

// preallocate allocates what is missing of bytes [start, end) as unwritten.
func (i *Inode) preallocate(start, end uint64, keepSize, root bool) error {
	return i.eachStep(start, end, root, func(h *handle, at uint64) (uint64, error) {
		r, n, err := i.mapBytes(at, int(end-at))
		if err != nil {
			return 0, err
		}
		if r.st == esHole {
			if r, err = i.allocInsert(h, r, i.fs.blocksOf(at, n), end, allocFallocate, esUnwritten, nil); err != nil {
				return 0, err
			}
			i.noteDatasync(h)
		}
		at = min(end, r.end()<<i.fs.blockBits)
		i.growTo(h, at, keepSize)
		return at, nil
	})
}

// growTo makes the file at least size bytes long.
func (i *Inode) growTo(h *handle, size uint64, keepSize bool) {
	if !keepSize && size > i.raw.Size() {
		i.raw.SetSize(size)
		i.noteDatasync(h)
	}
}

// eachStep works its way from start to end: do is given a position and returns
// the next one, having used creditsWrite at most. One handle serves as many
// calls as it has credits for. root says whether the superuser's reserve may be
// used. The times change.
func (i *Inode) eachStep(start, end uint64, root bool, do func(h *handle, at uint64) (uint64, error)) error {
	for try := 0; start < end; {
		h, err := i.fs.begin(creditsWrite)
		if err != nil {
			return err
		}
		h.root = root
		for first := true; start < end && err == nil && (first || h.ensure(creditsWrite)); first = false {
			var next uint64
			if next, err = do(h, start); err == nil {
				start = next
			}
		}
		i.touchFile()
		err = first(err, i.markDirty(h))
		err = first(err, h.stop())
		if err != nil && !i.fs.shouldRetry(err, &try) {
			return err
		}
	}
	return nil
}

// touchFile is for a file whose content changed.
func (i *Inode) touchFile() {
	now := i.fs.timestamp()
	i.raw.SetMtime(now)
	i.raw.SetCtime(now)
}

// pageSize is that of the kernel's page cache on most machines, in bytes.
const pageSize = 4096

// punchHole frees the blocks that lie wholly in [start, end) and zeroes the
// rest of it. One that goes past the end of the file is one to the end of the
// page or block that it ends in, and no further, as in ext4: blocks preallocated
// behind stay.
func (i *Inode) punchHole(start, end uint64) error {
	bs := uint64(i.fs.blockSize)
	size := i.raw.Size()
	if start >= size {
		return nil
	}
	if end > size {
		page := max(bs, pageSize)
		end = (size + page - 1) &^ (page - 1)
	}
	i.fs.alloc.DiscardInode(&i.pa)
	h, err := i.fs.begin(creditsTruncate + creditsExtent + creditsEdges)
	if err != nil {
		return err
	}
	first0, last := (start+bs-1)&^(bs-1), end&^(bs-1)
	err = i.zeroEdges(h, start, end)
	if err == nil && first0 < last {
		err = i.freeFrom(h, ondisk.LBlock(first0>>i.fs.blockBits), last>>i.fs.blockBits)
	}
	i.touchFile()
	err = first(err, i.markDirty(h))
	return first(err, h.stop())
}

// creditsEdges is what zeroEdges takes where the data is logged.
const creditsEdges = 2

// zeroEdges zeroes the parts of [start, end) that are not whole blocks.
func (i *Inode) zeroEdges(h *handle, start, end uint64) error {
	bs := uint64(i.fs.blockSize)
	up, down := (start+bs-1)&^(bs-1), end&^(bs-1)
	if up > down { // within one block
		return i.zeroWritten(h, start, end-start)
	}
	if err := i.zeroWritten(h, start, up-start); err != nil {
		return err
	}
	return i.zeroWritten(h, down, end-down)
}

// zeroRange makes [start, end) unwritten blocks, zeroed at its edges.
func (i *Inode) zeroRange(start, end uint64, keepSize, root bool) error {
	bs := uint64(i.fs.blockSize)
	err := i.fs.step(creditsInode+creditsEdges, func(h *handle) error {
		return first(i.zeroEdges(h, start, end), i.markDirty(h))
	})
	if err != nil {
		return err
	}
	if err := i.preallocate(start, end, keepSize, root); err != nil {
		return err
	}
	start, end = (start+bs-1)&^(bs-1), end&^(bs-1)
	return i.eachStep(start, end, root, func(h *handle, at uint64) (uint64, error) {
		r, n, err := i.mapBytes(at, int(end-at))
		if err != nil {
			return 0, err
		}
		if r.st == esWritten {
			r.n = min(i.fs.blocksOf(at, n), maxAlloc)
			if err := i.convertRun(h, r, esUnwritten); err != nil {
				return 0, err
			}
			i.noteDatasync(h)
		}
		return min(end, r.end()<<i.fs.blockBits), nil
	})
}
