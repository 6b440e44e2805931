package matrix

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

func hash(b []byte) []byte {
	h := sha256.Sum256(b)
	return h[:6]
}

// ours is a mount in this process.
type ours struct{ fs *ext4.FS }

// find looks a path up. It holds no reference afterwards: nothing else works on
// this mount.
func (o ours) find(p string) (ext4.Attr, error) {
	a, err := o.fs.GetAttr(ext4.RootIno)
	for _, name := range strings.Split(path.Clean(p), "/") {
		if err != nil || name == "." {
			return a, err
		}
		if a, err = o.fs.Lookup(a.Ino, name); err == nil {
			o.fs.Forget(a.Ino, 1)
		}
	}
	return a, err
}

func (o ours) parent(p string) (ondisk.InodeNumber, string, error) {
	a, err := o.find(path.Dir(p))
	return a.Ino, path.Base(p), err
}

func (o ours) made(a ext4.Attr, err error) error {
	if err == nil {
		o.fs.Forget(a.Ino, 1)
	}
	return err
}

func (o ours) mkdir(p string) error {
	dir, name, err := o.parent(p)
	if err != nil {
		return err
	}
	return o.made(o.fs.Mkdir(nil, dir, name, 0o755))
}

func (o ours) write(p string, off int64, b []byte) error {
	a, err := o.find(p)
	if err == syscall.ENOENT {
		dir, name, perr := o.parent(p)
		if perr != nil {
			return perr
		}
		if a, err = o.fs.Mknod(nil, dir, name, unix.S_IFREG|0o644, 0); err == nil {
			o.fs.Forget(a.Ino, 1)
		}
	}
	if err != nil || len(b) == 0 {
		return err
	}
	f, err := o.fs.Open(a.Ino, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Release()
	for len(b) > 0 {
		n, err := f.WriteAt(b, off)
		if err != nil {
			return err
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func (o ours) truncate(p string, size int64) error {
	a, err := o.find(p)
	if err != nil {
		return err
	}
	_, err = o.fs.SetAttr(nil, a.Ino, &ext4.SetAttr{Valid: ext4.SetSize, Size: uint64(size)})
	return err
}

func (o ours) symlink(to, p string) error {
	dir, name, err := o.parent(p)
	if err != nil {
		return err
	}
	return o.made(o.fs.Symlink(nil, dir, name, []byte(to)))
}

func (o ours) link(old, p string) error {
	a, err := o.find(old)
	if err != nil {
		return err
	}
	dir, name, err := o.parent(p)
	if err != nil {
		return err
	}
	return o.made(o.fs.Link(a.Ino, dir, name))
}

func (o ours) rename(old, p string) error {
	from, name, err := o.parent(old)
	if err != nil {
		return err
	}
	to, newName, err := o.parent(p)
	if err != nil {
		return err
	}
	return o.fs.Rename(nil, from, name, to, newName, 0)
}

func (o ours) remove(p string) error {
	dir, name, err := o.parent(p)
	if err != nil {
		return err
	}
	if err = o.fs.Unlink(dir, name); err == syscall.EISDIR {
		err = o.fs.Rmdir(dir, name)
	}
	return err
}

func (o ours) setXattr(p, name string, value []byte) error {
	a, err := o.find(p)
	if err != nil {
		return err
	}
	return o.fs.SetXattr(nil, a.Ino, name, value, 0)
}

// lines lists the tree.
func (o ours) lines() ([]string, error) {
	root, err := o.fs.GetAttr(ext4.RootIno)
	if err != nil {
		return nil, err
	}
	var out []string
	if err := o.list(".", root, &out); err != nil {
		return nil, err
	}
	sort.Strings(out)
	return out, nil
}

func (o ours) list(p string, a ext4.Attr, out *[]string) error {
	var data []byte
	var err error
	kind := byte('f')
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		kind = 'd'
	case unix.S_IFLNK:
		kind = 'l'
		data, err = o.fs.Readlink(a.Ino)
	default:
		data, err = o.read(a)
	}
	if err != nil {
		return &fs.PathError{Op: "read", Path: p, Err: err}
	}
	xattrs, err := o.xattrs(a.Ino)
	if err != nil {
		return &fs.PathError{Op: "xattrs", Path: p, Err: err}
	}
	*out = append(*out, line(p, kind, int(a.Nlink), data, xattrs))
	if kind != 'd' {
		return nil
	}
	return o.listDir(p, a.Ino, out)
}

func (o ours) listDir(p string, ino ondisk.InodeNumber, out *[]string) error {
	d, err := o.fs.OpenDir(ino)
	if err != nil {
		return err
	}
	defer d.Release()
	var names []string
	err = d.ReadDir(0, func(e ext4.DirEnt) bool {
		names = append(names, string(e.Name))
		return true
	})
	for _, name := range names {
		if name == "." || name == ".." || p == "." && name == "lost+found" {
			continue
		}
		a, lerr := o.fs.Lookup(ino, name)
		if lerr != nil {
			return &fs.PathError{Op: "lookup", Path: p + "/" + name, Err: lerr}
		}
		lerr = o.list(path.Join(p, name), a, out)
		o.fs.Forget(a.Ino, 1)
		if lerr != nil {
			return lerr
		}
	}
	return err
}

func (o ours) read(a ext4.Attr) ([]byte, error) {
	b := make([]byte, a.Size)
	f, err := o.fs.Open(a.Ino, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if n, err := f.ReadAt(b, 0); err != nil && err != io.EOF || n < len(b) {
		return nil, err
	}
	return b, nil
}

func (o ours) xattrs(ino ondisk.InodeNumber) (map[string]string, error) {
	out := map[string]string{}
	list := make([]byte, 4096)
	n, err := o.fs.ListXattr(nil, ino, list)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		v := make([]byte, 1<<16)
		n, err := o.fs.GetXattr(ino, name, v)
		if err != nil {
			return nil, err
		}
		out[name] = string(v[:n])
	}
	return out, nil
}

// kernel is a mountpoint.
type kernel struct{ root string }

func (k kernel) at(p string) string { return filepath.Join(k.root, p) }

func (k kernel) mkdir(p string) error { return os.Mkdir(k.at(p), 0o755) }

func (k kernel) write(p string, off int64, b []byte) error {
	f, err := os.OpenFile(k.at(p), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(b, off)
	return err
}

func (k kernel) truncate(p string, size int64) error { return os.Truncate(k.at(p), size) }
func (k kernel) symlink(to, p string) error          { return os.Symlink(to, k.at(p)) }
func (k kernel) link(old, p string) error            { return os.Link(k.at(old), k.at(p)) }
func (k kernel) rename(old, p string) error          { return os.Rename(k.at(old), k.at(p)) }
func (k kernel) remove(p string) error               { return os.Remove(k.at(p)) }

func (k kernel) setXattr(p, name string, value []byte) error {
	return unix.Lsetxattr(k.at(p), name, value, 0)
}

func (k kernel) lines() ([]string, error) {
	var out []string
	err := filepath.WalkDir(k.root, func(host string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p, err := filepath.Rel(k.root, host)
		if err != nil {
			return err
		}
		if p == "lost+found" {
			return fs.SkipDir
		}
		l, err := k.line(p, host)
		out = append(out, l)
		return err
	})
	sort.Strings(out)
	return out, err
}

func (k kernel) line(p, host string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(host, &st); err != nil {
		return "", err
	}
	var data []byte
	var err error
	kind := byte('f')
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		kind = 'd'
	case unix.S_IFLNK:
		kind = 'l'
		var to string
		to, err = os.Readlink(host)
		data = []byte(to)
	default:
		data, err = os.ReadFile(host)
	}
	if err != nil {
		return "", err
	}
	xattrs, err := k.xattrs(host)
	return line(p, kind, int(st.Nlink), data, xattrs), err
}

func (k kernel) xattrs(host string) (map[string]string, error) {
	out := map[string]string{}
	list := make([]byte, 4096)
	n, err := unix.Llistxattr(host, list)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		v := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(host, name, v)
		if err != nil {
			return nil, err
		}
		out[name] = string(v[:n])
	}
	return out, nil
}
