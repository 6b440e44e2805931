package crashtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// expectation is what a crash state must satisfy.
type expectation struct {
	states []*state
	lo, hi int            // the tree is that after one of these operations
	synced map[uint32]int // file id -> operation of its last fsync that returned
	all    int            // operation of the last sync
	mode   ext4.DataMode
}

// recovered is a tree as read from a mounted crash state.
type recovered struct {
	paths map[string]version
	data  map[uint32][]byte // by inode number
}

// readTree reads everything below the root.
func readTree(fs *ext4.FS) (*recovered, error) {
	r := &recovered{paths: map[string]version{}, data: map[uint32][]byte{}}
	a, err := fs.GetAttr(ext4.RootIno)
	if err != nil {
		return nil, err
	}
	return r, r.walk(fs, "", a)
}

// compare tells where two recoveries of one state differ: in a path, its kind,
// inode number, links, size, target, xattrs, or a file's content.
func (r *recovered) compare(o *recovered) error {
	for p := range o.paths {
		if _, ok := r.paths[p]; !ok {
			return fmt.Errorf("%.60s is missing", p)
		}
	}
	for p, v := range r.paths {
		w, ok := o.paths[p]
		if !ok {
			return fmt.Errorf("%.60s should not be there", p)
		}
		if v.id != w.id || v.kind != w.kind || v.nlink != w.nlink || v.size != w.size || v.target != w.target || v.xattrs != w.xattrs {
			return fmt.Errorf("%.60s is %c, inode %d, %d links, %d bytes, %q %q; we have %c, inode %d, %d links, %d bytes, %q %q",
				p, v.kind, v.id, v.nlink, v.size, v.target, v.xattrs, w.kind, w.id, w.nlink, w.size, w.target, w.xattrs)
		}
		if !bytes.Equal(r.data[v.id], o.data[v.id]) {
			return fmt.Errorf("%.60s has other content", p)
		}
	}
	return nil
}

func (r *recovered) walk(fs *ext4.FS, path string, a ext4.Attr) error {
	v := version{id: uint32(a.Ino), nlink: int(a.Nlink), size: int64(a.Size)}
	x, err := readXattrs(fs, a.Ino)
	if err != nil {
		return fmt.Errorf("%s: xattrs: %w", path, err)
	}
	v.xattrs = x
	switch a.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		v.kind = 'd'
	case syscall.S_IFLNK:
		v.kind = 'l'
		t, err := fs.Readlink(a.Ino)
		if err != nil {
			return fmt.Errorf("%s: readlink: %w", path, err)
		}
		v.target = string(t)
	default:
		v.kind = 'f'
		if err := r.readFile(fs, a); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	r.paths[path] = v
	if v.kind != 'd' {
		return nil
	}
	return r.walkDir(fs, path, a.Ino)
}

func (r *recovered) walkDir(fs *ext4.FS, path string, ino ondisk.InodeNumber) error {
	d, err := fs.OpenDir(ino)
	if err != nil {
		return err
	}
	defer d.Release()
	var names []string
	err = d.ReadDir(0, func(e ext4.DirEnt) bool {
		if n := string(e.Name); n != "." && n != ".." && (path != "" || n != "lost+found") {
			names = append(names, n)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%s: readdir: %w", path, err)
	}
	for _, n := range names {
		a, err := fs.Lookup(ino, n)
		if err != nil {
			return fmt.Errorf("%s/%s: lookup: %w", path, n, err)
		}
		err = r.walk(fs, path+"/"+n, a)
		fs.Forget(a.Ino, 1)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *recovered) readFile(fs *ext4.FS, a ext4.Attr) error {
	f, err := fs.Open(a.Ino, syscall.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Release()
	buf := make([]byte, a.Size)
	for n := 0; n < len(buf); {
		k, err := f.ReadAt(buf[n:], int64(n))
		if err != nil && k == 0 {
			return err
		}
		if k == 0 {
			return fmt.Errorf("read ends at %d of %d", n, len(buf))
		}
		n += k
	}
	r.data[uint32(a.Ino)] = buf
	return nil
}

func readXattrs(fs *ext4.FS, ino ondisk.InodeNumber) (string, error) {
	buf := make([]byte, 64<<10)
	n, err := fs.ListXattr(nil, ino, buf)
	if err != nil {
		return "", err
	}
	var out []string
	for _, name := range strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		val := make([]byte, 4096)
		k, err := fs.GetXattr(ino, name, val)
		if err != nil {
			return "", err
		}
		out = append(out, name+"="+string(val[:k]))
	}
	slices.Sort(out)
	return strings.Join(out, ";"), nil
}

// check compares a recovered tree with what is expected.
func (e *expectation) check(r *recovered) error {
	print := fingerprint(r.paths)
	err := fmt.Errorf("the tree is none of those after operations %d to %d: %s", e.lo, e.hi, e.nearest(r))
	for j := e.lo; j <= e.hi; j++ {
		if e.states[j].print != print {
			continue
		}
		if err = e.checkContent(r, j); err == nil {
			return nil
		}
	}
	return err
}

// nearest describes how the tree differs from the oldest and newest allowed.
func (e *expectation) nearest(r *recovered) string {
	var out []string
	for _, j := range []int{e.lo, e.hi} {
		for _, p := range slices.Sorted(maps.Keys(e.states[j].paths)) {
			w := e.states[j].paths[p]
			g, ok := r.paths[p]
			if !ok {
				out = append(out, fmt.Sprintf("[%d] %.60s missing", j, p))
			} else if g.kind != w.kind || g.nlink != w.nlink || g.target != w.target || g.xattrs != w.xattrs {
				out = append(out, fmt.Sprintf("[%d] %.60s is %c/%d links, not %c/%d (xattrs %d, not %d bytes)", j, p, g.kind, g.nlink, w.kind, w.nlink, len(g.xattrs), len(w.xattrs)))
			}
		}
		for _, p := range slices.Sorted(maps.Keys(r.paths)) {
			if _, ok := e.states[j].paths[p]; !ok {
				out = append(out, fmt.Sprintf("[%d] %.60s too much", j, p))
			}
		}
	}
	if len(out) > 12 {
		out = out[:12]
	}
	return strings.Join(out, "; ")
}

// checkContent compares all files, the tree being that after operation j.
func (e *expectation) checkContent(r *recovered, j int) error {
	for p, want := range e.states[j].paths {
		if want.kind != 'f' {
			continue
		}
		if err := e.checkFile(r, j, p, want); err != nil {
			return fmt.Errorf("%.60s (the tree is that after operation %d): %w", p, j, err)
		}
	}
	return nil
}

// unchanged tells whether a file is as it was when it was last synced.
func (e *expectation) unchanged(id uint32) bool {
	s := max(e.synced[id], e.all)
	was, ok := e.states[s].byID[id]
	for k := s; k <= e.hi && ok; k++ {
		v, there := e.states[k].byID[id]
		ok = there && s > 0 && v.size == was.size && slices.Equal(v.words, was.words)
	}
	return ok
}

func (e *expectation) checkFile(r *recovered, j int, path string, want version) error {
	var versions []version
	from, to := max(j, e.synced[want.id], e.all), e.hi
	if e.mode == ext4.DataJournal { // content is of the tree's moment, the next operation perhaps half done
		if was, ok := e.states[from].byID[want.id]; ok && (was.size != want.size || !slices.Equal(was.words, want.words)) {
			return fmt.Errorf("was synced by operation %d", from)
		}
		from, to = j, min(to, j+1)
	}
	for k := from; k <= to; k++ {
		if v, ok := e.states[k].byID[want.id]; ok {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		versions = []version{want}
	}
	got := r.paths[path]
	lo, hi := versions[0].size, versions[0].size
	for _, v := range versions {
		lo, hi = min(lo, v.size), max(hi, v.size)
	}
	if got.size < lo || got.size > hi {
		return fmt.Errorf("%d bytes, want %d to %d", got.size, lo, hi)
	}
	if e.mode == ext4.DataWriteback && !e.unchanged(want.id) {
		return nil
	}
	data := r.data[got.id]
	for i := 0; (i+1)*wordSize <= len(data); i++ {
		id := binary.LittleEndian.Uint32(data[i*wordSize:])
		op := binary.LittleEndian.Uint32(data[i*wordSize+4:])
		if op != 0 && id != want.id {
			return fmt.Errorf("offset %d shows data of file %d (written by operation %d)", i*wordSize, id, op)
		}
		if !slices.ContainsFunc(versions, func(v version) bool { return v.word(i) == op }) {
			return fmt.Errorf("offset %d was written by operation %d, want %d", i*wordSize, op, versions[0].word(i))
		}
	}
	return nil
}
