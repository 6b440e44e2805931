package ext4

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand"
	"sort"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// The in-memory twin: a file system as simple as can be. Random operations are
// done on it and on the real one; results and errors must be the same, and so
// must be the trees at the end, after a remount, and as the kernel sees them.

// tnode is an inode of the twin.
type tnode struct {
	mode   uint32
	nlink  uint32
	data   []byte            // of regular files; the target of symlinks
	kids   map[string]*tnode // of directories
	parent *tnode            // of directories
	rdev   uint32
	ino    ondisk.InodeNumber // of the real one
}

func (n *tnode) isDir() bool { return n.mode&ondisk.ModeFmt == ondisk.ModeDir }
func (n *tnode) isReg() bool { return n.mode&ondisk.ModeFmt == ondisk.ModeReg }

// openPair is a file open in both.
type openPair struct {
	n *tnode
	f *File
}

type twin struct {
	t    *testing.T
	m    *testFS
	rng  *rand.Rand
	seed int64
	step int
	root *tnode
	dirs []*tnode // all that exist
	open []openPair
	refs map[ondisk.InodeNumber]uint64 // lookup references taken
	ops  map[string]int

	noExtents bool // fallocate is not supported
	small     bool // files of a few hundred bytes, mostly
}

func newTwin(t *testing.T, m *testFS, seed int64) *twin {
	root := &tnode{mode: ondisk.ModeDir | 0o755, nlink: 3, kids: map[string]*tnode{}, ino: RootIno}
	root.parent = root
	w := &twin{t: t, m: m, rng: rand.New(rand.NewSource(seed)), seed: seed, root: root,
		refs: map[ondisk.InodeNumber]uint64{}, ops: map[string]int{}}
	w.dirs = []*tnode{root}
	lf, err := m.Lookup(RootIno, "lost+found")
	w.must(err)
	w.hold(lf.Ino)
	root.kids["lost+found"] = &tnode{mode: lf.Mode, nlink: 2, kids: map[string]*tnode{}, parent: root, ino: lf.Ino}
	return w
}

func (w *twin) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("seed %d step %d: %v", w.seed, w.step, err)
	}
}

func (w *twin) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d step %d: %s", w.seed, w.step, fmt.Sprintf(format, args...))
}

func (w *twin) hold(ino ondisk.InodeNumber) { w.refs[ino]++ }

// same compares the errors of both; true if both succeeded.
func (w *twin) same(what string, want, got error) bool {
	w.t.Helper()
	w.ops[fmt.Sprintf("%s=%v", strings.Fields(what)[0], got)]++
	if want != got {
		w.fatalf("%s: %v, the twin says %v", what, got, want)
	}
	return got == nil
}

func (w *twin) dir() *tnode { return w.dirs[w.rng.Intn(len(w.dirs))] }

func (w *twin) name() string {
	switch w.rng.Intn(40) {
	case 0:
		return strings.Repeat("n", 255)
	case 1:
		return strings.Repeat("n", 256)
	}
	return fmt.Sprintf("name-%d-%s", w.rng.Intn(30), strings.Repeat("x", w.rng.Intn(3)*40))
}

// made is for an inode that both have just made in d.
func (w *twin) made(d *tnode, name string, n *tnode, a Attr) {
	n.ino, n.nlink = a.Ino, 1
	w.hold(a.Ino)
	d.kids[name] = n
	if n.isDir() {
		n.kids, n.parent, n.nlink = map[string]*tnode{}, d, 2
		d.nlink++
		w.dirs = append(w.dirs, n)
	}
	w.compareAttr(n, a)
}

func (w *twin) compareAttr(n *tnode, a Attr) {
	w.t.Helper()
	if a.Mode != n.mode || a.Nlink != n.nlink || a.Ino != n.ino {
		w.fatalf("inode %d: mode %o links %d, the twin has inode %d mode %o links %d", a.Ino, a.Mode, a.Nlink, n.ino, n.mode, n.nlink)
	}
	if !n.isDir() && a.Size != uint64(len(n.data)) {
		w.fatalf("inode %d: size %d, the twin has %d", a.Ino, a.Size, len(n.data))
	}
}

func (w *twin) mayMake(d *tnode, name string) error {
	switch {
	case len(name) > 255:
		return syscall.ENAMETOOLONG
	case d.nlink == 0:
		return syscall.ENOENT
	case d.kids[name] != nil:
		return syscall.EEXIST
	}
	return nil
}

func (w *twin) create() {
	d, name := w.dir(), w.name()
	a, f, err := w.m.Create(nil, d.ino, name, 0o640, syscall.O_RDWR)
	if w.same("create "+name, w.mayMake(d, name), err) {
		n := &tnode{mode: ondisk.ModeReg | 0o640}
		w.made(d, name, n, a)
		w.open = append(w.open, openPair{n, f})
	}
}

func (w *twin) mkdir() {
	d, name := w.dir(), w.name()
	a, err := w.m.Mkdir(nil, d.ino, name, 0o751)
	if w.same("mkdir "+name, w.mayMake(d, name), err) {
		w.made(d, name, &tnode{mode: ondisk.ModeDir | 0o751}, a)
	}
}

func (w *twin) mknod() {
	d, name := w.dir(), w.name()
	a, err := w.m.Mknod(nil, d.ino, name, ondisk.ModeBlk|0o600, 0x12345678)
	if w.same("mknod "+name, w.mayMake(d, name), err) {
		w.made(d, name, &tnode{mode: ondisk.ModeBlk | 0o600, rdev: 0x12345678}, a)
		if a.Rdev != 0x12345678 {
			w.fatalf("device number %#x", a.Rdev)
		}
	}
}

func (w *twin) symlink() {
	d, name := w.dir(), w.name()
	target := bytes.Repeat([]byte("t"), 1+w.rng.Intn(100))
	want := w.mayMake(d, name)
	a, err := w.m.Symlink(nil, d.ino, name, target)
	if w.same("symlink "+name, want, err) {
		w.made(d, name, &tnode{mode: ondisk.ModeLnk | 0o777, data: target}, a)
	}
}

// pick is a random entry of a random directory: its name, and what it is (nil
// now and then).
func (w *twin) pick() (*tnode, string, *tnode) {
	d := w.dir()
	if w.rng.Intn(8) == 0 || len(d.kids) == 0 {
		name := w.name()
		return d, name, d.kids[name]
	}
	names := sortedNames(d)
	name := names[w.rng.Intn(len(names))]
	if name == "lost+found" {
		name = "name-0-"
	}
	return d, name, d.kids[name]
}

func sortedNames(d *tnode) []string {
	names := make([]string, 0, len(d.kids))
	for name := range d.kids {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (w *twin) link() {
	_, _, n := w.pick()
	if n == nil {
		return
	}
	d, name := w.dir(), w.name()
	want := w.mayMake(d, name)
	if want != syscall.ENAMETOOLONG && want != syscall.ENOENT && n.isDir() {
		want = syscall.EPERM
	}
	a, err := w.m.Link(n.ino, d.ino, name)
	if w.same("link "+name, want, err) {
		n.nlink++
		d.kids[name] = n
		w.hold(n.ino)
		w.compareAttr(n, a)
	}
}

func (w *twin) lookupErr(name string, n *tnode) error {
	if len(name) > 255 {
		return syscall.ENAMETOOLONG
	}
	if n == nil {
		return syscall.ENOENT
	}
	return nil
}

func (w *twin) unlink() {
	d, name, n := w.pick()
	want := w.lookupErr(name, n)
	if want == nil && n.isDir() {
		want = syscall.EISDIR
	}
	if w.same("unlink "+name, want, w.m.Unlink(d.ino, name)) {
		delete(d.kids, name)
		n.nlink--
	}
}

func (w *twin) rmdir() {
	d, name, n := w.pick()
	want := w.lookupErr(name, n)
	switch {
	case want != nil:
	case !n.isDir():
		want = syscall.ENOTDIR
	case len(n.kids) > 0:
		want = syscall.ENOTEMPTY
	}
	if w.same("rmdir "+name, want, w.m.Rmdir(d.ino, name)) {
		delete(d.kids, name)
		w.goneDir(d, n)
	}
}

func (w *twin) goneDir(parent, n *tnode) {
	n.nlink = 0
	parent.nlink--
	for k, d := range w.dirs {
		if d == n {
			w.dirs = append(w.dirs[:k], w.dirs[k+1:]...)
			return
		}
	}
}

// below tells whether n is d or in a directory below it.
func below(n, d *tnode) bool {
	for ; n != d; n = n.parent {
		if n.parent == n {
			return false
		}
	}
	return true
}

func (w *twin) renameErr(src *tnode, sname string, dst *tnode, dname string, dd *tnode, flags uint32) error {
	switch {
	case len(sname) > 255 || len(dname) > 255:
		return syscall.ENAMETOOLONG
	case src == nil:
		return syscall.ENOENT
	case dst == nil && flags == RenameExchange:
		return syscall.ENOENT
	case dst != nil && flags == RenameNoReplace:
		return syscall.EEXIST
	case dst == nil || dst == src || flags == RenameExchange:
		return nil
	case src.isDir() && !dst.isDir():
		return syscall.ENOTDIR
	case !src.isDir() && dst.isDir():
		return syscall.EISDIR
	case dst.isDir() && len(dst.kids) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

func (w *twin) rename() {
	sd, sname, src := w.pick()
	dd, dname, dst := w.pick()
	flags := []uint32{0, 0, 0, RenameNoReplace, RenameExchange}[w.rng.Intn(5)]
	if src != nil && src.isDir() && below(dd, src) || dst != nil && dst.isDir() && below(sd, dst) {
		return // the kernel does not let these through
	}
	want := w.renameErr(src, sname, dst, dname, dd, flags)
	err := w.m.Rename(nil, sd.ino, sname, dd.ino, dname, flags)
	if !w.same("rename "+sname+" "+dname, want, err) || src == dst {
		return
	}
	if flags == RenameExchange {
		sd.kids[sname], dd.kids[dname] = dst, src
		w.moved(dst, dd, sd)
		w.moved(src, sd, dd)
		return
	}
	if dst != nil && dst.isDir() {
		w.goneDir(dd, dst)
	} else if dst != nil {
		dst.nlink--
	}
	delete(sd.kids, sname)
	dd.kids[dname] = src
	w.moved(src, sd, dd)
}

func (w *twin) moved(n, from, to *tnode) {
	if n.isDir() && from != to {
		n.parent = to
		from.nlink--
		to.nlink++
	}
}

func (w *twin) lookup() {
	d, name, n := w.pick()
	a, err := w.m.Lookup(d.ino, name)
	if w.same("lookup "+name, w.lookupErr(name, n), err) {
		w.hold(a.Ino)
		w.compareAttr(n, a)
		if n.mode&ondisk.ModeFmt == ondisk.ModeLnk {
			target, err := w.m.Readlink(a.Ino)
			if err != nil || !bytes.Equal(target, n.data) {
				w.fatalf("readlink: %q %v, the twin has %q", target, err, n.data)
			}
		}
	}
}

func (w *twin) reopen() {
	if _, _, n := w.pick(); n != nil && n.isReg() {
		flags := uint32(syscall.O_RDWR)
		if w.rng.Intn(4) == 0 {
			flags |= syscall.O_TRUNC
			n.data = n.data[:0]
		}
		f, err := w.m.Open(n.ino, flags)
		w.must(err)
		w.open = append(w.open, openPair{n, f})
	}
}

// file is a random open file; nil if there is none.
func (w *twin) file() *openPair {
	if len(w.open) == 0 {
		return nil
	}
	return &w.open[w.rng.Intn(len(w.open))]
}

const twinMaxSize = 400 << 10

func (w *twin) place() (off, n int) {
	if w.small && w.rng.Intn(10) > 0 {
		return w.rng.Intn(140), 1 + w.rng.Intn(80)
	}
	off = w.rng.Intn(twinMaxSize - 1)
	n = 1 + w.rng.Intn(1<<w.rng.Intn(17))
	if w.rng.Intn(2) == 0 {
		off &^= 4095
	}
	if w.rng.Intn(2) == 0 {
		n = (n + 4095) &^ 4095
	}
	return off, min(n, twinMaxSize-off)
}

func (n *tnode) grow(size int) {
	if size > len(n.data) {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
}

func (w *twin) write() {
	o := w.file()
	if o == nil {
		return
	}
	off, n := w.place()
	p := make([]byte, n)
	w.rng.Read(p)
	got, err := o.f.WriteAt(p, int64(off))
	if !w.same("write", nil, err) || got != n {
		w.fatalf("wrote %d of %d", got, n)
	}
	o.n.grow(off + n)
	copy(o.n.data[off:], p)
}

func (w *twin) read() {
	if o := w.file(); o != nil {
		off, n := w.place()
		w.compareData(o, off, n)
	}
}

func (w *twin) compareData(o *openPair, off, n int) {
	w.t.Helper()
	want := o.n.data[min(off, len(o.n.data)):min(off+n, len(o.n.data))]
	p := make([]byte, n)
	got, err := o.f.ReadAt(p, int64(off))
	w.must(err)
	if !bytes.Equal(p[:got], want) {
		at := 0
		for at < got && at < len(want) && p[at] == want[at] {
			at++
		}
		w.fatalf("inode %d: reading %d at %d gives %d bytes, the twin %d; first difference at %d", o.n.ino, n, off, got, len(want), off+at)
	}
}

func (w *twin) truncate() {
	o := w.file()
	if o == nil {
		return
	}
	size := w.rng.Intn(twinMaxSize)
	if w.rng.Intn(3) == 0 {
		size = 0
	}
	_, err := w.m.SetAttr(nil, o.n.ino, &SetAttr{Valid: SetSize, Size: uint64(size)})
	if w.same("truncate", nil, err) {
		o.n.grow(size)
		o.n.data = o.n.data[:size:size]
	}
}

func (w *twin) allocate() {
	o := w.file()
	if o == nil {
		return
	}
	off, n := w.place()
	mode := []uint32{0, FallocKeepSize, FallocPunchHole | FallocKeepSize, FallocPunchHole | FallocKeepSize,
		FallocZeroRange, FallocZeroRange | FallocKeepSize, FallocPunchHole}[w.rng.Intn(7)]
	want := error(nil)
	if mode == FallocPunchHole || w.noExtents {
		want = syscall.EOPNOTSUPP
	}
	if !w.same(fmt.Sprintf("fallocate%#x", mode), want, o.f.Allocate(int64(off), int64(n), mode)) {
		return
	}
	if mode&FallocKeepSize == 0 {
		o.n.grow(off + n)
	}
	if mode&(FallocPunchHole|FallocZeroRange) != 0 {
		end := min(off+n, len(o.n.data))
		if off < end {
			clear(o.n.data[off:end])
		}
	}
}

func (w *twin) seek() {
	o := w.file()
	if o == nil {
		return
	}
	off, _ := w.place()
	data, err := o.f.Seek(int64(off), SeekData)
	for k := off; k < len(o.n.data) && (err == syscall.ENXIO || int64(k) < data); k++ {
		if o.n.data[k] != 0 {
			w.fatalf("inode %d: SEEK_DATA from %d says %d (%v), but byte %d is not zero", o.n.ino, off, data, err, k)
		}
	}
	hole, err := o.f.Seek(int64(off), SeekHole)
	if off < len(o.n.data) != (err == nil) || err == nil && hole > int64(len(o.n.data)) {
		w.fatalf("inode %d of %d bytes: SEEK_HOLE from %d says %d, %v", o.n.ino, len(o.n.data), off, hole, err)
	}
}

func (w *twin) closeFile() {
	if len(w.open) == 0 {
		return
	}
	k := w.rng.Intn(len(w.open))
	w.compareData(&w.open[k], 0, twinMaxSize)
	w.open[k].f.Release()
	w.open = append(w.open[:k], w.open[k+1:]...)
}

// forget gives all lookup references of one inode back.
func (w *twin) forget() {
	for ino, n := range w.refs {
		w.m.Forget(ino, n)
		delete(w.refs, ino)
		return
	}
}

func (w *twin) fsync() {
	if o := w.file(); o != nil {
		w.must(o.f.Fsync(w.rng.Intn(2) == 0))
	}
}

func (w *twin) run(steps int) {
	acts := []func(){w.create, w.create, w.mkdir, w.mknod, w.symlink, w.link, w.unlink, w.unlink, w.rmdir, w.rename, w.rename,
		w.lookup, w.reopen, w.write, w.write, w.write, w.read, w.truncate, w.allocate, w.allocate, w.seek, w.closeFile, w.forget}
	for k := 0; k < steps; k++ {
		w.step++
		if w.rng.Intn(200) == 0 {
			w.fsync()
		}
		acts[w.rng.Intn(len(acts))]()
	}
}

// quiet closes all files and forgets all inodes, as an unmount does.
func (w *twin) quiet() {
	for len(w.open) > 0 {
		w.closeFile()
	}
	for len(w.refs) > 0 {
		w.forget()
	}
}

// compareTree walks both trees.
func (w *twin) compareTree(d *tnode, ino ondisk.InodeNumber) {
	w.t.Helper()
	d.ino = ino
	a, err := w.m.GetAttr(ino)
	w.must(err)
	w.compareAttr(d, a)
	found := readAll(w.t, w.m.FS, ino)
	if found["."] != ino || found[".."] != d.parent.ino {
		w.fatalf("directory %d: . is %d, .. is %d, wanted %d", ino, found["."], found[".."], d.parent.ino)
	}
	if len(found) != len(d.kids)+2 {
		w.fatalf("directory %d has %d entries, the twin %d", ino, len(found)-2, len(d.kids))
	}
	for name, n := range d.kids {
		a, err := w.m.Lookup(ino, name)
		w.must(err)
		if found[name] != a.Ino {
			w.fatalf("%q is inode %d by lookup, %d by readdir", name, a.Ino, found[name])
		}
		w.compareNode(n, a)
		w.m.Forget(a.Ino, 1)
	}
}

func (w *twin) compareNode(n *tnode, a Attr) {
	w.compareAttr(n, a)
	switch {
	case n.isDir():
		w.compareTree(n, a.Ino)
	case n.isReg():
		f, err := w.m.Open(a.Ino, syscall.O_RDONLY)
		w.must(err)
		w.compareData(&openPair{n, f}, 0, twinMaxSize)
		f.Release()
	case n.mode&ondisk.ModeFmt == ondisk.ModeLnk:
		target, err := w.m.Readlink(a.Ino)
		if err != nil || !bytes.Equal(target, n.data) {
			w.fatalf("readlink: %q %v, the twin has %q", target, err, n.data)
		}
	}
}

// readAll reads a directory; a name that comes twice fails the test.
func readAll(t testing.TB, fs *FS, ino ondisk.InodeNumber) map[string]ondisk.InodeNumber {
	t.Helper()
	d, err := fs.OpenDir(ino)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	found := map[string]ondisk.InodeNumber{}
	err = d.ReadDir(0, func(e DirEnt) bool {
		if _, twice := found[string(e.Name)]; twice {
			t.Errorf("directory %d: %q comes twice", ino, e.Name)
		}
		found[string(e.Name)] = e.Ino
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// twinSeed moves the seeds, to try others or one that failed.
var twinSeed = flag.Int64("twin.seed", 0, "added to the seeds of TestTwin")

func TestTwin(t *testing.T) {
	variants := []struct {
		name string
		size int64
		args []string
		o    Options
	}{
		{name: "4k", size: 64 << 20},
		{name: "1k", size: 48 << 20, args: []string{"-b", "1024"}},
		{name: "4k-nojournal", size: 64 << 20, args: []string{"-O", "^has_journal"}},
		{name: "1k-nocsum-noindex", size: 48 << 20, args: []string{"-b", "1024", "-O", "^metadata_csum,^dir_index,^64bit", "-I", "128"}},
		{name: "ext3", size: 48 << 20, args: []string{"-t", "ext3", "-b", "1024"}},
		{name: "ext2", size: 64 << 20, args: []string{"-t", "ext2", "-b", "4096"}},
		{name: "64k", size: 512 << 20, args: []string{"-b", "65536"}},
		{name: "1k-orphan-file", size: 48 << 20, args: []string{"-b", "1024", "-O", "orphan_file"}},
		{name: "4k-datajournal", size: 64 << 20, o: Options{Data: DataJournal}},
		{name: "1k-datajournal-small-log", size: 48 << 20, args: []string{"-b", "1024", "-J", "size=1"}, o: Options{Data: DataJournal}},
		{name: "4k-datajournal-inline-bigalloc", size: 64 << 20, args: []string{"-O", "inline_data,bigalloc", "-C", "16384"}, o: Options{Data: DataJournal}},
		{name: "ext3-datajournal", size: 48 << 20, args: []string{"-t", "ext3", "-b", "1024"}, o: Options{Data: DataJournal}},
	}
	steps := 6000
	if testing.Short() {
		steps = 1000
	}
	for k, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			seed := *twinSeed + int64(k+1)
			t.Logf("seed %d", seed)
			m := mountImage(t, ext4test.Mke2fs(t, v.size, v.args...), v.o)
			w := newTwin(t, m, seed)
			w.noExtents = !m.extents
			for round := 0; round < 3; round++ {
				w.run(steps / 3)
				w.quiet()
				w.compareTree(w.root, RootIno)
				m.remount()
				w.compareTree(w.root, RootIno)
			}
			m.unmount()
			t.Log(w.ops)
			compareKernel(t, m.path, w.root)
		})
	}
}
