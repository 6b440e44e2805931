package ext4

import (
	"errors"
	"syscall"

	"extfused/blockdev"
	"extfused/mballoc"
)

// TrimRange is what Trim looks at, in bytes: struct fstrim_range of FITRIM.
type TrimRange struct {
	Start, Len uint64 // of the file system; Len may reach beyond its end
	MinLen     uint64 // shorter free runs are left alone; rounded down to clusters
}

// Trim tells the device of the free space in r, holes of an image file
// afterwards, and returns how many bytes that were. What was freed before is
// committed first, so that it counts. A group that was trimmed, and into which
// nothing was freed since, is passed over. stop is asked before each discard;
// what it returns, unless nil, ends the trim, as an error of the device does.
//
// EINVAL: r has nothing in it, or no group has room for MinLen; EOPNOTSUPP: the
// device knows no discards; EROFS.
func (fs *FS) Trim(r TrimRange, stop func() error) (trimmed uint64, err error) {
	if err := fs.writable(); err != nil {
		return 0, err
	}
	shift := fs.blockBits + fs.clusterBits
	first := uint64(fs.firstDataBlock) << fs.blockBits
	size := fs.blocks << fs.blockBits
	start, end := max(r.Start, first), min(r.Len, size-min(r.Start, size))+r.Start
	minLen := r.MinLen >> shift
	if r.Start >= size || r.Len < uint64(fs.blockSize) || minLen > uint64(fs.clustersPerGroup) {
		return 0, syscall.EINVAL
	}
	if err := fs.Sync(); err != nil {
		return 0, err
	}
	from, to := (start-first+1<<shift-1)>>shift, (end-min(first, end))>>shift
	if end == size { // the last cluster may be short
		to = (end - first + 1<<shift - 1) >> shift
	}
	if from >= to {
		return 0, nil
	}
	n, err := fs.alloc.Trim(mballoc.Cluster(from), to-from, minLen, func(c mballoc.Cluster, n uint32) error {
		if err := stop(); err != nil {
			return err
		}
		return fs.trimError(fs.discard(c, n))
	})
	return n << shift, err
}

// trimError is what Trim returns when a discard failed.
func (fs *FS) trimError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, blockdev.ErrNotSupported):
		return syscall.EOPNOTSUPP
	}
	fs.deviceFailed(err)
	return syscall.EIO
}

// discard tells the device that clusters hold nothing.
func (fs *FS) discard(c mballoc.Cluster, n uint32) error {
	off := int64(fs.blockOf(c)) << fs.blockBits
	size := min(int64(n)<<fs.clusterBits<<fs.blockBits, int64(fs.blocks)<<fs.blockBits-off)
	if err := fs.dev.Discard(off, size); err != nil {
		return err
	}
	fs.discards.calls.Add(1)
	fs.discards.bytes.Add(size)
	return nil
}
