package crashtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"extfused/blockdev/bdtest"
	"extfused/fs/ext4"
)

// Marks in the record.
type (
	started int // operation k begins
	// promise: the tree is not older than after operation `tree`; file id's
	// content (0: every file's) not older than after operation `content`.
	promise struct {
		tree, content int
		id            uint32
	}
)

// workload runs random operations on a file system and a model of it.
type workload struct {
	rng    *rand.Rand
	rec    *bdtest.Recorder
	fs     *ext4.FS
	root   *node
	op     int
	nextID uint32
	states []*state // states[k] is the tree after operation k
	opened []*node  // unlinked while open
	trace  []string
	done   atomic.Int64 // the last operation that has ended
}

var caller = &ext4.Caller{}

func newWorkload(seed uint64, rec *bdtest.Recorder, fs *ext4.FS) *workload {
	w := &workload{rng: rand.New(rand.NewPCG(seed, 7)), rec: rec, fs: fs, nextID: 1}
	w.root = &node{id: 1, ino: ext4.RootIno, kind: 'd', nlink: 3, kids: map[string]*node{}} // lost+found
	w.states = []*state{capture(w.root, w.opened)}
	return w
}

// step is one operation; it says what it did.
type step func(w *workload) (string, error)

// mix is the workload: the longer a step's run in it, the likelier.
var mix = []struct {
	weight int
	do     step
}{
	{14, (*workload).create}, {14, (*workload).write}, {8, (*workload).overwrite}, {5, (*workload).truncate},
	{4, (*workload).fallocate}, {3, (*workload).punch}, {7, (*workload).rename}, {4, (*workload).renameOver},
	{6, (*workload).replace},
	{4, (*workload).link}, {9, (*workload).unlink}, {5, (*workload).mkdir}, {3, (*workload).rmdir},
	{3, (*workload).symlink}, {4, (*workload).xattr}, {9, (*workload).fsync}, {3, (*workload).fdatasync},
	{3, (*workload).fsyncdir}, {1, (*workload).sync}, {3, (*workload).unlinkOpen}, {2, (*workload).closeOrphan},
}

// run does n operations.
func (w *workload) run(n int) error {
	total := 0
	for _, m := range mix {
		total += m.weight
	}
	for range n {
		k := w.rng.IntN(total)
		i := 0
		for ; k >= mix[i].weight; i++ {
			k -= mix[i].weight
		}
		w.begin()
		what, err := mix[i].do(w)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("operation %d, %s: %w", w.op, what, err)
		}
		if err != nil {
			what += ": " + err.Error()
		}
		w.end(what)
	}
	return nil
}

// begin starts an operation.
func (w *workload) begin() {
	w.op++
	w.rec.Mark(started(w.op))
}

// end keeps the tree as it is after the operation.
func (w *workload) end(what string) {
	w.trace = append(w.trace, fmt.Sprintf("%d %s", w.op, what))
	w.states = append(w.states, capture(w.root, w.opened))
	w.done.Store(int64(w.op))
}

// halfway makes an operation of what a step has done so far, and begins another
// one: between two calls of the file system a transaction may commit, so the
// tree in between is one that a crash may show.
func (w *workload) halfway(what string) {
	w.end(what)
	w.begin()
}

// place is a name in a directory.
type place struct {
	dir  *node
	name string
}

// places lists every name whose node is of one of the kinds, in a fixed order.
func (w *workload) places(kinds string) []place {
	var out []place
	var walk func(n *node)
	walk = func(n *node) {
		for _, name := range slices.Sorted(maps.Keys(n.kids)) {
			k := n.kids[name]
			if strings.IndexByte(kinds, k.kind) >= 0 {
				out = append(out, place{n, name})
			}
			walk(k)
		}
	}
	walk(w.root)
	return out
}

func (w *workload) pick(kinds string) (place, *node) {
	all := w.places(kinds)
	if len(all) == 0 {
		return place{}, nil
	}
	p := all[w.rng.IntN(len(all))]
	return p, p.dir.kids[p.name]
}

func (w *workload) dir() *node {
	if _, d := w.pick("d"); d != nil && w.rng.IntN(3) > 0 {
		return d
	}
	return w.root
}

func (w *workload) newName() string {
	name := fmt.Sprintf("n%d", w.op)
	if w.rng.IntN(8) == 0 {
		name += strings.Repeat("x", w.rng.IntN(200))
	}
	return name
}

func (w *workload) id() uint32 { w.nextID++; return w.nextID }

// touched notes that names in d changed.
func (w *workload) touched(nodes ...*node) {
	for _, n := range nodes {
		n.lastMeta = w.op
	}
}

func (w *workload) create() (string, error) {
	d, name := w.dir(), w.newName()
	a, f, err := w.fs.Create(caller, d.ino, name, 0o644, syscall.O_RDWR)
	if err != nil {
		return "create", err
	}
	n := &node{id: w.id(), ino: a.Ino, kind: 'f', nlink: 1, open: f, lastData: w.op}
	d.kids[name] = n
	w.touched(d, n)
	defer w.closeFile(n)
	if w.rng.IntN(4) == 0 {
		return "create " + name, nil
	}
	w.halfway("create " + name)
	return "write to it", w.writeWords(n, 0, 1+w.rng.IntN(4000))
}

func (w *workload) openFile(n *node) error {
	if n.open != nil {
		return nil
	}
	f, err := w.fs.Open(n.ino, syscall.O_RDWR)
	n.open = f
	return err
}

func (w *workload) closeFile(n *node) {
	n.open.Release()
	n.open = nil
}

// writeWords writes count words of this operation at word index at.
func (w *workload) writeWords(n *node, at, count int) error {
	buf := make([]byte, count*wordSize)
	for i := range count {
		binary.LittleEndian.PutUint32(buf[i*wordSize:], n.id)
		binary.LittleEndian.PutUint32(buf[i*wordSize+4:], uint32(w.op))
	}
	done, err := n.open.WriteAt(buf, int64(at)*wordSize)
	if done%wordSize != 0 {
		return fmt.Errorf("a write took %d bytes", done)
	}
	if end := int64(at)*wordSize + int64(done); end > n.size {
		// fsync of a mere overwrite need not commit anything: mtime may be the
		// same as before.
		n.size, n.lastData, n.lastMeta = end, w.op, w.op
	}
	n.words = resized(n.words, n.size)
	for i := range done / wordSize {
		n.words[at+i] = uint32(w.op)
	}
	return err
}

// onFile opens a random file around fn.
func (w *workload) onFile(what string, fn func(n *node) error) (string, error) {
	p, n := w.pick("f")
	if n == nil {
		return what + ": no file", nil
	}
	if err := w.openFile(n); err != nil {
		return what, err
	}
	defer w.closeFile(n)
	return what + " " + p.name, fn(n)
}

func (w *workload) write() (string, error) {
	return w.onFile("write", func(n *node) error {
		at := int(n.size / wordSize)
		if w.rng.IntN(4) == 0 {
			at += w.rng.IntN(3000) // leaves a hole
		}
		return w.writeWords(n, at, 1+w.rng.IntN(3000))
	})
}

func (w *workload) overwrite() (string, error) {
	return w.onFile("overwrite", func(n *node) error {
		words := int(n.size / wordSize)
		if words == 0 {
			return nil
		}
		at := w.rng.IntN(words)
		return w.writeWords(n, at, 1+w.rng.IntN(min(words-at, 2000)))
	})
}

func (w *workload) truncate() (string, error) {
	return w.onFile("truncate", func(n *node) error {
		size := int64(0)
		if w.rng.IntN(3) > 0 {
			size = int64(w.rng.IntN(int(n.size/wordSize)+1000)) * wordSize
		}
		_, err := w.fs.SetAttr(caller, n.ino, &ext4.SetAttr{Valid: ext4.SetSize, Size: uint64(size)})
		if err == nil {
			n.words, n.size = resized(n.words, size), size
			n.lastMeta, n.lastData = w.op, w.op
		}
		return err
	})
}

func (w *workload) fallocate() (string, error) {
	return w.onFile("fallocate", func(n *node) error {
		off, length := int64(w.rng.IntN(3000))*wordSize, int64(1+w.rng.IntN(3000))*wordSize
		mode := uint32(0)
		if w.rng.IntN(2) == 0 {
			mode = 1 // FALLOC_FL_KEEP_SIZE
		}
		err := n.open.Allocate(off, length, mode)
		if err == nil && mode == 0 && off+length > n.size {
			n.size = off + length
			n.words = resized(n.words, n.size)
			n.lastData = w.op
		}
		n.lastMeta = w.op // but fdatasync need not commit what changed no mapping
		return err
	})
}

func (w *workload) punch() (string, error) {
	return w.onFile("punch", func(n *node) error {
		words := int(n.size / wordSize)
		if words == 0 {
			return nil
		}
		at := w.rng.IntN(words)
		count := 1 + w.rng.IntN(words-at)
		err := n.open.Allocate(int64(at)*wordSize, int64(count)*wordSize, 3) // PUNCH_HOLE|KEEP_SIZE
		if err == nil {
			n.words = slices.Clone(n.words)
			clear(n.words[at : at+count])
			n.lastMeta = w.op // as for fallocate: it may have been a hole already
		}
		return err
	})
}

// below tells whether d is n or lies below it.
func below(n, d *node) bool {
	if n == d {
		return true
	}
	for _, k := range n.kids {
		if below(k, d) {
			return true
		}
	}
	return false
}

func (w *workload) rename() (string, error) {
	p, n := w.pick("fdl")
	to := w.dir()
	if n == nil || below(n, to) {
		return "rename: nothing", nil
	}
	name := w.newName()
	err := w.fs.Rename(caller, p.dir.ino, p.name, to.ino, name, 0)
	if err == nil {
		w.moved(p, to, name, n)
	}
	return "rename " + p.name + " " + name, err
}

// renameOver renames a file or symlink over another one.
func (w *workload) renameOver() (string, error) {
	p, n := w.pick("fl")
	q, old := w.pick("fl")
	if n == nil || n == old { // two names of one file: rename(2) does nothing
		return "rename over: nothing", nil
	}
	err := w.fs.Rename(caller, p.dir.ino, p.name, q.dir.ino, q.name, 0)
	if err == nil {
		w.moved(p, q.dir, q.name, n)
		w.touched(old)
		w.dropLink(old)
	}
	return "rename " + p.name + " over " + q.name, err
}

// moved enters a rename in the model.
func (w *workload) moved(p place, to *node, name string, n *node) {
	delete(p.dir.kids, p.name)
	to.kids[name] = n
	if n.kind == 'd' && p.dir != to {
		p.dir.nlink--
		to.nlink++
	}
	w.touched(p.dir, to, n)
}

// replace writes a new file and renames it over an old one.
func (w *workload) replace() (string, error) {
	p, old := w.pick("f")
	if old == nil {
		return "replace: no file", nil
	}
	tmp := w.newName()
	a, f, err := w.fs.Create(caller, p.dir.ino, tmp, 0o644, syscall.O_RDWR)
	if err != nil {
		return "replace", err
	}
	n := &node{id: w.id(), ino: a.Ino, kind: 'f', nlink: 1, open: f}
	p.dir.kids[tmp] = n
	w.touched(p.dir, n)
	w.halfway("replace " + p.name + ", created")
	err = w.writeWords(n, 0, 500+w.rng.IntN(2000))
	safely := w.rng.IntN(2) == 0 // as careful programs do
	if safely && err == nil {
		err = n.open.Fsync(false)
	}
	w.closeFile(n)
	if safely && err == nil {
		w.rec.Mark(promise{tree: w.op, content: w.op, id: n.id})
	}
	w.halfway("replace " + p.name + ", written")
	if err != nil {
		return "replace", err
	}
	if err := w.fs.Rename(caller, p.dir.ino, tmp, p.dir.ino, p.name, 0); err != nil {
		return "replace", err
	}
	delete(p.dir.kids, tmp)
	p.dir.kids[p.name] = n
	w.touched(p.dir, n, old)
	w.dropLink(old)
	return "replace " + p.name, nil
}

// dropLink takes a link away, and the last reference when nobody has it open.
func (w *workload) dropLink(n *node) {
	n.nlink--
	if n.nlink == 0 && n.open == nil {
		w.fs.Forget(n.ino, 1)
	}
}

func (w *workload) link() (string, error) {
	p, n := w.pick("f")
	if n == nil {
		return "link: no file", nil
	}
	d, name := w.dir(), w.newName()
	a, err := w.fs.Link(n.ino, d.ino, name)
	if err != nil {
		return "link", err
	}
	w.fs.Forget(a.Ino, 1)
	d.kids[name] = n
	n.nlink++
	w.touched(d, n)
	return "link " + p.name + " " + name, nil
}

func (w *workload) unlink() (string, error) {
	p, n := w.pick("fl")
	if n == nil {
		return "unlink: no file", nil
	}
	if err := w.fs.Unlink(p.dir.ino, p.name); err != nil {
		return "unlink", err
	}
	delete(p.dir.kids, p.name)
	w.touched(p.dir, n)
	w.dropLink(n)
	return "unlink " + p.name, nil
}

// unlinkOpen unlinks a file that stays open, and writes to it.
func (w *workload) unlinkOpen() (string, error) {
	p, n := w.pick("f")
	if n == nil || n.nlink > 1 {
		return "unlink open: no file", nil
	}
	if err := w.openFile(n); err != nil {
		return "unlink open", err
	}
	if err := w.fs.Unlink(p.dir.ino, p.name); err != nil {
		return "unlink open", err
	}
	delete(p.dir.kids, p.name)
	w.touched(p.dir, n)
	n.nlink--
	w.opened = append(w.opened, n)
	w.halfway("unlink open " + p.name)
	return "write to it", w.writeWords(n, 0, 1000)
}

func (w *workload) closeOrphan() (string, error) {
	if len(w.opened) == 0 {
		return "close: none", nil
	}
	n := w.opened[0]
	w.opened = w.opened[1:]
	w.closeFile(n)
	w.fs.Forget(n.ino, 1)
	return fmt.Sprintf("close unlinked %d", n.id), nil
}

func (w *workload) mkdir() (string, error) {
	d, name := w.dir(), w.newName()
	a, err := w.fs.Mkdir(caller, d.ino, name, 0o755)
	if err != nil {
		return "mkdir", err
	}
	n := &node{id: w.id(), ino: a.Ino, kind: 'd', nlink: 2, kids: map[string]*node{}}
	d.kids[name] = n
	d.nlink++
	w.touched(d, n)
	return "mkdir " + name, nil
}

func (w *workload) rmdir() (string, error) {
	p, n := w.pick("d")
	if n == nil {
		return "rmdir: no directory", nil
	}
	err := w.fs.Rmdir(p.dir.ino, p.name)
	if len(n.kids) > 0 {
		if !errors.Is(err, syscall.ENOTEMPTY) {
			return "rmdir", fmt.Errorf("a full directory: %v", err)
		}
		return "rmdir: full", nil
	}
	if err != nil {
		return "rmdir", err
	}
	delete(p.dir.kids, p.name)
	p.dir.nlink--
	w.touched(p.dir, n)
	w.fs.Forget(n.ino, 1)
	return "rmdir " + p.name, nil
}

func (w *workload) symlink() (string, error) {
	d, name := w.dir(), w.newName()
	target := strings.Repeat("t", 1+w.rng.IntN(120))
	a, err := w.fs.Symlink(caller, d.ino, name, []byte(target))
	if err != nil {
		return "symlink", err
	}
	n := &node{id: w.id(), ino: a.Ino, kind: 'l', nlink: 1, target: target}
	d.kids[name] = n
	w.touched(d, n)
	return "symlink " + name, nil
}

func (w *workload) xattr() (string, error) {
	p, n := w.pick("fd")
	if n == nil {
		return "xattr: no file", nil
	}
	name := fmt.Sprintf("user.x%d", w.rng.IntN(3))
	if _, has := n.xattrs[name]; has && w.rng.IntN(3) == 0 {
		err := w.fs.RemoveXattr(caller, n.ino, name)
		if err == nil {
			n.xattrs = maps.Clone(n.xattrs)
			delete(n.xattrs, name)
			w.touched(n)
		}
		return "removexattr " + p.name, err
	}
	value := strings.Repeat("v", w.rng.IntN(300))
	if err := w.fs.SetXattr(caller, n.ino, name, []byte(value), 0); err != nil {
		return "setxattr", err
	}
	x := map[string]string{name: value}
	for k, v := range n.xattrs {
		if k != name {
			x[k] = v
		}
	}
	n.xattrs = x
	w.touched(n)
	return "setxattr " + p.name, nil
}

func (w *workload) fsync() (string, error) {
	return w.onFile("fsync", func(n *node) error {
		err := n.open.Fsync(false)
		if err == nil {
			w.rec.Mark(promise{tree: n.lastMeta, content: w.op, id: n.id})
		}
		return err
	})
}

func (w *workload) fdatasync() (string, error) {
	return w.onFile("fdatasync", func(n *node) error {
		err := n.open.Fsync(true)
		if err == nil {
			w.rec.Mark(promise{tree: n.lastData, content: w.op, id: n.id})
		}
		return err
	})
}

func (w *workload) fsyncdir() (string, error) {
	n := w.dir()
	d, err := w.fs.OpenDir(n.ino)
	if err != nil {
		return "fsyncdir", err
	}
	defer d.Release()
	err = d.Fsync(false)
	if err == nil {
		w.rec.Mark(promise{tree: n.lastMeta, id: n.id})
	}
	return "fsyncdir", err
}

func (w *workload) sync() (string, error) {
	err := w.fs.Sync()
	if err == nil {
		w.rec.Mark(promise{tree: w.op, content: w.op})
	}
	return "sync", err
}
