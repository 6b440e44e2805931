package ext4

import "syscall"

// Values of whence for Seek, as in lseek(2).
const (
	SeekData = 3
	SeekHole = 4
)

// Seek answers SEEK_DATA and SEEK_HOLE from the mapping: data is written
// blocks, everything else is a hole, and there is one at the end of the file.
// ENXIO at or behind the end, and for SEEK_DATA when only holes follow.
func (f *File) Seek(off int64, whence int) (int64, error) {
	if whence != SeekData && whence != SeekHole {
		return 0, syscall.EINVAL
	}
	i := f.i
	i.mu.RLock()
	defer i.mu.RUnlock()
	size := i.raw.Size()
	if off < 0 || uint64(off) >= size {
		return 0, syscall.ENXIO
	}
	if i.inline() {
		return i.seekInline(off, whence)
	}
	for at := uint64(off); at < size; {
		r, _, err := i.mapBytes(at, 1)
		if err != nil {
			return 0, err
		}
		if (r.st == esWritten) == (whence == SeekData) {
			return int64(at), nil
		}
		at = r.end() << f.fs.blockBits
	}
	if whence == SeekHole {
		return int64(size), nil
	}
	return 0, syscall.ENXIO
}
