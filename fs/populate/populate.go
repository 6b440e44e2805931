// Package populate fills a fresh file system from a directory or a tar archive:
// owners, modes, times, extended attributes, hard links, holes, device nodes.
//
// It mounts the image in this process, without its journal, whose turn comes
// with the first real mount: a crash while an image is being made leaves
// nothing worth keeping, and so every block is written once. The same source,
// clock and UUID give the same image.
package populate

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"
	"time"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// Options are what may be chosen.
type Options struct {
	// Time, if not zero, is the time of change and creation of every inode, and
	// the time of reading is then that of writing: so two runs give one image,
	// though the first one has read the source.
	Time          time.Time
	NoXattrs      bool
	KeepRootOwner bool // the root directory keeps its owner
	// Progress, if not nil, is told how many bytes of the source are done, of
	// how many (0: unknown). It is called often.
	Progress func(done, total int64)
}

// Stats counts what was made.
type Stats struct {
	Files, Dirs, Links, Others int
	Bytes                      int64 // of content, holes left out
}

// entry is one thing of the source.
type entry struct {
	path     string // clean, relative; "." is the root
	mode     uint32 // S_IFMT | permissions
	uid, gid uint32
	rdev     uint32 // the kernel's 32-bit encoding
	size     int64
	atime    ext4.Time
	mtime    ext4.Time
	target   string // of a symlink
	link     string // path of an earlier entry: a hard link to it
	xattrs   []xattr
	content  func(w *fileWriter) error // of a regular file
}

type xattr struct {
	name  string
	value []byte
}

// filler puts entries into a file system.
type filler struct {
	fs    *ext4.FS
	o     Options
	inos  map[string]ondisk.InodeNumber // directories, and all that hard links may name
	late  []lateTimes                   // directories, whose times come last
	stats Stats
	done  int64
	total int64
	buf   []byte
}

type lateTimes struct {
	ino          ondisk.InodeNumber
	atime, mtime ext4.Time
}

func newFiller(fs *ext4.FS, o Options) *filler {
	return &filler{fs: fs, o: o, inos: map[string]ondisk.InodeNumber{".": ext4.RootIno}, buf: make([]byte, 1<<20)}
}

// add makes one entry. Directories that were not named before it are made.
func (f *filler) add(e *entry) error {
	if err := f.addEntry(e); err != nil {
		return fmt.Errorf("%s: %w", e.path, err)
	}
	return nil
}

func (f *filler) addEntry(e *entry) error {
	if e.path == "." {
		if e.mode&ondisk.ModeFmt != ondisk.ModeDir {
			return errors.New("the root has to be a directory")
		}
		return f.finish(e, ext4.RootIno)
	}
	dir, name := path.Split(e.path)
	parent, err := f.dir(path.Clean(dir), e)
	if err != nil {
		return err
	}
	if e.link != "" {
		return f.hardLink(e, parent, name)
	}
	ino, err := f.node(e, parent, name)
	if err != nil {
		return err
	}
	f.inos[e.path] = ino
	if e.content != nil {
		if err := f.fill(e, ino); err != nil {
			return err
		}
	}
	return f.finish(e, ino)
}

// dir is the inode of a directory, which is made with its parents where the
// source does not name it before what it holds.
func (f *filler) dir(p string, below *entry) (ondisk.InodeNumber, error) {
	if ino, ok := f.inos[p]; ok {
		return ino, nil
	}
	implied := &entry{path: p, mode: ondisk.ModeDir | 0o755, atime: below.mtime, mtime: below.mtime}
	if err := f.addEntry(implied); err != nil {
		return 0, err
	}
	return f.inos[p], nil
}

func (f *filler) hardLink(e *entry, parent ondisk.InodeNumber, name string) error {
	ino, ok := f.inos[e.link]
	if !ok {
		return fmt.Errorf("a hard link to %s, which comes nowhere before it", e.link)
	}
	attr, err := f.fs.Link(ino, parent, name)
	if err != nil {
		return err
	}
	f.fs.Forget(attr.Ino, 1)
	f.inos[e.path] = ino
	f.stats.Links++
	if f.o.Time.IsZero() {
		return nil
	}
	_, err = f.fs.SetAttr(nil, ino, &ext4.SetAttr{Valid: ext4.SetCtime, Ctime: timeOf(f.o.Time)})
	return err
}

// node makes the inode and its name. A directory may be there: lost+found, or
// one that the source names twice.
func (f *filler) node(e *entry, parent ondisk.InodeNumber, name string) (ondisk.InodeNumber, error) {
	var attr ext4.Attr
	var err error
	switch e.mode & ondisk.ModeFmt {
	case ondisk.ModeDir:
		if attr, err = f.fs.Mkdir(nil, parent, name, e.mode&^ondisk.ModeFmt); errors.Is(err, syscall.EEXIST) {
			attr, err = f.fs.Lookup(parent, name)
		} else if err == nil {
			f.stats.Dirs++
		}
		if err == nil && attr.Mode&ondisk.ModeFmt != ondisk.ModeDir {
			err = syscall.ENOTDIR
		}
	case ondisk.ModeLnk:
		f.stats.Others++
		attr, err = f.fs.Symlink(nil, parent, name, []byte(e.target))
	case ondisk.ModeReg:
		f.stats.Files++
		attr, err = f.fs.Mknod(nil, parent, name, e.mode, 0)
	default:
		f.stats.Others++
		attr, err = f.fs.Mknod(nil, parent, name, e.mode, e.rdev)
	}
	if err != nil {
		return 0, err
	}
	f.fs.Forget(attr.Ino, 1)
	return attr.Ino, nil
}

// finish gives an inode its owner, mode, attributes and times. The owner comes
// first, since it takes set-user-id and capabilities away.
func (f *filler) finish(e *entry, ino ondisk.InodeNumber) error {
	s := ext4.SetAttr{Valid: ext4.SetUID | ext4.SetGID | ext4.SetMode, UID: e.uid, GID: e.gid, Mode: e.mode}
	if ino == ext4.RootIno && f.o.KeepRootOwner {
		s.Valid = ext4.SetMode
	}
	if e.mode&ondisk.ModeFmt == ondisk.ModeLnk {
		s.Valid &^= ext4.SetMode
	}
	if _, err := f.fs.SetAttr(nil, ino, &s); err != nil {
		return err
	}
	if !f.o.NoXattrs {
		for _, x := range e.xattrs {
			if err := f.fs.SetXattr(nil, ino, x.name, x.value, 0); err != nil {
				return fmt.Errorf("attribute %s: %w", x.name, err)
			}
		}
	}
	if e.mode&ondisk.ModeFmt == ondisk.ModeDir {
		f.late = append(f.late, lateTimes{ino, e.atime, e.mtime})
		return nil
	}
	return f.setTimes(ino, e.atime, e.mtime)
}

func (f *filler) setTimes(ino ondisk.InodeNumber, atime, mtime ext4.Time) error {
	s := ext4.SetAttr{Valid: ext4.SetAtime | ext4.SetMtime, Atime: atime, Mtime: mtime}
	if !f.o.Time.IsZero() {
		t := timeOf(f.o.Time)
		s.Valid |= ext4.SetCtime | ext4.SetCrtime
		s.Atime, s.Ctime, s.Crtime = mtime, t, t
	}
	_, err := f.fs.SetAttr(nil, ino, &s)
	return err
}

// end sets the times of directories, which their entries have changed.
func (f *filler) end() error {
	for _, d := range f.late {
		if err := f.setTimes(d.ino, d.atime, d.mtime); err != nil {
			return err
		}
	}
	return nil
}

// fill writes a file's content.
func (f *filler) fill(e *entry, ino ondisk.InodeNumber) error {
	file, err := f.fs.Open(ino, syscall.O_WRONLY)
	if err != nil {
		return err
	}
	defer file.Release()
	w := &fileWriter{f: f, file: file}
	if err := e.content(w); err != nil {
		return err
	}
	if w.end >= e.size {
		return nil
	}
	_, err = f.fs.SetAttr(nil, ino, &ext4.SetAttr{Valid: ext4.SetSize, Size: uint64(e.size)})
	return err
}

// fileWriter writes pieces of a file and reports progress.
type fileWriter struct {
	f    *filler
	file *ext4.File
	end  int64 // behind the last byte written
}

// copyAt writes n bytes of r at off. A short r is an error: the source changes.
func (w *fileWriter) copyAt(off int64, r io.Reader, n int64) error {
	for n > 0 {
		b := w.f.buf[:min(n, int64(len(w.f.buf)))]
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
		if err := w.writeAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
		n -= int64(len(b))
	}
	return nil
}

func (w *fileWriter) writeAt(b []byte, off int64) error {
	for len(b) > 0 {
		n, err := w.file.WriteAt(b, off)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		b, off = b[n:], off+int64(n)
		w.end = off
		w.f.stats.Bytes += int64(n)
	}
	return nil
}

// progress says that n more bytes of the source are done.
func (f *filler) progress(n int64) {
	f.done += n
	if f.o.Progress != nil {
		f.o.Progress(f.done, f.total)
	}
}

func timeOf(t time.Time) ext4.Time { return ext4.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())} }

// cleanPath makes a path relative and clean; one that leaves the root is an
// error.
func cleanPath(p string) (string, error) {
	clean := path.Clean(strings.TrimLeft(p, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q leads out of the file system", p)
	}
	return clean, nil
}
