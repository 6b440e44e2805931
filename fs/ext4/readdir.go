package ext4

import (
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/fs/htree"
	"extfused/fs/ondisk"
)

// Dir is an open directory. It pins its inode until Release.
type Dir struct {
	fs       *FS
	i        *Inode
	released atomic.Bool
}

// OpenDir opens a directory. ENOTDIR.
func (fs *FS) OpenDir(ino ondisk.InodeNumber) (*Dir, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return nil, err
	}
	if !i.isDir() {
		fs.iput(i)
		return nil, syscall.ENOTDIR
	}
	return &Dir{fs: fs, i: i}, nil
}

// Release closes the directory. A second call does nothing.
func (d *Dir) Release() {
	if !d.released.Swap(true) {
		d.fs.iput(d.i)
	}
}

// dirBatch is a piece of a directory, copied out of its blocks.
type dirBatch struct {
	names []byte
	ents  []batchEnt
}

type batchEnt struct {
	ino  ondisk.InodeNumber
	end  int // of its name in names; it begins where the one before ends
	typ  uint8
	next uint64
}

// batchBytes is about what the kernel asks for at once.
const batchBytes = 32 << 10

// direntRoom is what a name costs besides its bytes, for the size of a batch.
const direntRoom = 32

var dirBatches = sync.Pool{New: func() any { return new(dirBatch) }}

// ReadDir calls fn for the entries from cookie on (0: from the start) until fn
// returns false, in which case that entry counts as not read, or the end. "."
// and ".." come first. Cookies stay valid while the directory changes: a name
// that stays is neither lost nor repeated.
//
// fn is called without a lock, so it may look at the entries' inodes.
func (d *Dir) ReadDir(cookie uint64, fn func(DirEnt) bool) error {
	if cookie == 0 {
		d.i.accessed()
	}
	b := dirBatches.Get().(*dirBatch)
	defer dirBatches.Put(b)
	for {
		full, err := d.fill(b, cookie)
		if err != nil {
			return err
		}
		start := 0
		for k := range b.ents {
			e := &b.ents[k]
			if !fn(DirEnt{Ino: e.ino, Name: b.names[start:e.end], Type: e.typ, Next: e.next}) {
				return nil
			}
			start, cookie = e.end, e.next
		}
		if !full {
			return nil
		}
	}
}

// fill copies the next entries; full says that there may be more of them.
func (d *Dir) fill(b *dirBatch, cookie uint64) (full bool, err error) {
	b.names, b.ents = b.names[:0], b.ents[:0]
	d.i.mu.RLock()
	defer d.i.mu.RUnlock()
	if d.i.raw.LinksCount == 0 {
		return false, nil // removed: empty, without even "."
	}
	op := openDirOp(d.i, nil)
	defer op.close()
	err = op.ReadDir(cookie, func(e htree.Entry) bool {
		if len(b.names)+direntRoom*len(b.ents) >= batchBytes {
			full = true
			return false
		}
		b.names = append(b.names, d.i.shownName(e.Name)...)
		b.ents = append(b.ents, batchEnt{ino: e.Ino, end: len(b.names), typ: direntType(e.Type), next: e.Next})
		return true
	})
	return full, d.fs.dirError(err)
}

// direntType is the DT_ value of a directory entry's file type.
func direntType(ft uint8) uint8 { return uint8(ondisk.FileTypeMode(ft) >> 12) }
