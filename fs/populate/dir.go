package populate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// Dir fills m with the content of a directory, in the order of names. Sockets
// are left out, as they mean nothing to who did not bind them.
func Dir(m *ext4.FS, dir string, o Options) (Stats, error) {
	f := newFiller(m, o)
	if o.Progress != nil {
		f.total = treeSize(dir)
	}
	w := &dirWalk{f: f, root: dir, links: map[devIno]string{}}
	if err := w.walk("."); err != nil {
		return f.stats, err
	}
	return f.stats, f.end()
}

type devIno struct{ dev, ino uint64 }

// dirWalk reads a tree of the host.
type dirWalk struct {
	f     *filler
	root  string
	links map[devIno]string // files with several names, by the first one
}

// treeSize adds up the sizes of files; what cannot be read will be told later.
func treeSize(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// walk adds the entry at path p and all below it.
func (w *dirWalk) walk(p string) error {
	host := filepath.Join(w.root, p)
	var st unix.Stat_t
	stat := unix.Lstat
	if p == "." {
		stat = unix.Stat // the directory asked for may be named by a symlink
	}
	if err := stat(host, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: host, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return nil
	}
	e, err := w.entry(p, host, &st)
	if err != nil {
		return err
	}
	if err := w.f.add(e); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	names, err := readNames(host)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.walk(filepath.Join(p, name)); err != nil {
			return err
		}
	}
	return nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (w *dirWalk) entry(p, host string, st *unix.Stat_t) (*entry, error) {
	e := &entry{
		path: filepath.ToSlash(p), mode: st.Mode, uid: st.Uid, gid: st.Gid, rdev: encodeDev(unix.Major(st.Rdev), unix.Minor(st.Rdev)), size: st.Size,
		atime: ext4.Time{Sec: st.Atim.Sec, Nsec: uint32(st.Atim.Nsec)}, mtime: ext4.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)},
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
		id := devIno{st.Dev, st.Ino}
		if first, ok := w.links[id]; ok {
			e.link = first
			w.f.progress(sizeOfFile(st))
			return e, nil
		}
		w.links[id] = e.path
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		e.target, err = os.Readlink(host)
	case unix.S_IFREG:
		e.content = func(fw *fileWriter) error { return copyFile(fw, host, st.Size) }
	}
	if err == nil && !w.f.o.NoXattrs {
		e.xattrs, err = readXattrs(host)
	}
	return e, err
}

func sizeOfFile(st *unix.Stat_t) int64 {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Size
}

// encodeDev is the kernel's 32-bit encoding of a device number.
func encodeDev(major, minor uint32) uint32 {
	return minor&0xff | major<<8 | (minor&^0xff)<<12
}

// copyFile copies the parts of a file that are no holes.
func copyFile(w *fileWriter, host string, size int64) error {
	src, err := os.Open(host)
	if err != nil {
		return err
	}
	defer src.Close()
	for off := int64(0); off < size; {
		from, to := nextData(src, off, size)
		w.f.progress(from - off)
		for from < to {
			n := min(to-from, int64(len(w.f.buf)))
			if err := w.copyAt(from, io.NewSectionReader(src, from, n), n); err != nil {
				return err
			}
			from += n
			w.f.progress(n)
		}
		off = to
	}
	return nil
}

// nextData is the next part of a file that is no hole, at or behind off. Where
// the host cannot tell, everything is data.
func nextData(f *os.File, off, size int64) (from, to int64) {
	from, err := f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return size, size
	}
	if err != nil {
		return off, size
	}
	if to, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
		to = size
	}
	return min(from, size), min(to, size)
}

// readXattrs reads the attributes of a file itself, not of what a symlink
// names. A host that has none is no error.
func readXattrs(host string) ([]xattr, error) {
	list, err := xattrCall(func(b []byte) (int, error) { return unix.Llistxattr(host, b) })
	if err != nil || len(list) == 0 {
		return nil, noXattrs(host, err)
	}
	var out []xattr
	for _, name := range bytes.Split(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		value, err := xattrCall(func(b []byte) (int, error) { return unix.Lgetxattr(host, string(name), b) })
		if errors.Is(err, syscall.ENODATA) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
			continue // listed, but not for us
		}
		if err != nil {
			return nil, fmt.Errorf("%s: attribute %s: %w", host, name, err)
		}
		if keepXattr(string(name)) {
			out = append(out, xattr{string(name), value})
		}
	}
	slices.SortFunc(out, func(a, b xattr) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return out, nil
}

func noXattrs(host string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return fmt.Errorf("%s: attributes: %w", host, err)
}

// keepXattr tells whether an attribute is the file's own, and not made up by
// the host's security module or overlay.
func keepXattr(name string) bool {
	return name != "security.evm" && !bytes.HasPrefix([]byte(name), []byte("trusted.overlay."))
}

// xattrCall calls get with a buffer as large as it wants.
func xattrCall(get func([]byte) (int, error)) ([]byte, error) {
	for size := 256; ; size *= 8 {
		b := make([]byte, size)
		n, err := get(b)
		if err == nil {
			return b[:n], nil
		}
		if !errors.Is(err, syscall.ERANGE) || size > 1<<20 {
			return nil, err
		}
	}
}

var _ = [1]struct{}{}[ondisk.ModeDir-unix.S_IFDIR] // the host's file types are those of the image
