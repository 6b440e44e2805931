package ext4

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// A power cut at any moment: a workload is recorded once, with what it was
// promised; then the image of many moments, with unflushed writes kept, lost
// or torn, is mounted, checked against the promises, unmounted, and given to
// e2fsck. CRASH_STATES says how many moments; CRASH_SEED repeats a run.

// content is what a file of the workload holds: 8-byte words, each telling
// which file it belongs to and which write it came from, so that a foreign or
// stale word gives itself away. Word 0 is a hole.
type content []byte

func stamp(id, gen uint32) []byte {
	var w [8]byte
	binary.LittleEndian.PutUint32(w[0:], id)
	binary.LittleEndian.PutUint32(w[4:], gen)
	return w[:]
}

// promise says what path must hold for cuts in [from, until) of the log.
type promise struct {
	path        string
	want        []content // any of these; empty: the path must not exist
	from, until int
}

// crashFile is a file of the workload.
type crashFile struct {
	id   uint32
	ino  ondisk.InodeNumber
	path string
	now  content
	// renamed: not fsynced since; fdatasync does not promise the new name.
	renamed bool
	kept    *promise
}

type crashLoad struct {
	t        *testing.T
	fs       *FS
	rec      *bdtest.Recorder
	rnd      *rand.Rand
	dirs     map[string]ondisk.InodeNumber
	files    []*crashFile
	nextID   uint32
	gen      uint32
	promises []*promise
}

func (w *crashLoad) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// touch ends what was promised of a file, because it is about to change.
func (w *crashLoad) touch(f *crashFile) {
	if f.kept != nil {
		f.kept.until = w.rec.Len()
		f.kept = nil
	}
}

func (w *crashLoad) promise(f *crashFile, want ...content) {
	p := &promise{path: f.path, want: want, from: w.rec.Mark("promise " + f.path), until: 1 << 60}
	f.kept = p
	w.promises = append(w.promises, p)
}

func (w *crashLoad) split(path string) (ondisk.InodeNumber, string) {
	k := strings.LastIndexByte(path, '/')
	return w.dirs[path[:k]], path[k+1:]
}

func (w *crashLoad) create() {
	var dirs []string
	for d := range w.dirs {
		dirs = append(dirs, d)
	}
	sort.Strings(dirs)
	w.nextID++
	f := &crashFile{id: w.nextID}
	f.path = fmt.Sprintf("%s/f%d", dirs[w.rnd.Intn(len(dirs))], f.id)
	parent, name := w.split(f.path)
	a, file, err := w.fs.Create(&Caller{}, parent, name, ondisk.ModeReg|0o644, syscall.O_RDWR)
	w.must(err)
	file.Release()
	f.ino = a.Ino
	w.files = append(w.files, f)
	w.write(f)
}

// write appends or overwrites a random range of whole words.
func (w *crashLoad) write(f *crashFile) {
	w.touch(f)
	w.gen++
	n := 8 * (1 + w.rnd.Intn(3000))
	off := 8 * w.rnd.Intn(len(f.now)/8+1)
	if w.rnd.Intn(2) == 0 {
		off = len(f.now)
	}
	if w.rnd.Intn(8) == 0 {
		off += 8 * w.rnd.Intn(4000) // leaves a hole
	}
	p := make([]byte, n)
	for k := 0; k < n; k += 8 {
		copy(p[k:], stamp(f.id, w.gen))
	}
	file, err := w.fs.Open(f.ino, syscall.O_RDWR)
	w.must(err)
	_, err = file.WriteAt(p, int64(off))
	file.Release()
	w.must(err)
	if need := off + n; need > len(f.now) {
		f.now = append(f.now, make([]byte, need-len(f.now))...)
	}
	f.now = append(content(nil), f.now...)
	copy(f.now[off:], p)
}

func (w *crashLoad) fsync(f *crashFile) {
	file, err := w.fs.Open(f.ino, syscall.O_RDONLY)
	w.must(err)
	err = file.Fsync(!f.renamed && w.rnd.Intn(2) == 0)
	f.renamed = false
	file.Release()
	w.must(err)
	if f.kept == nil {
		w.promise(f, f.now)
	}
}

func (w *crashLoad) truncate(f *crashFile) {
	w.touch(f)
	n := 8 * w.rnd.Intn(len(f.now)/8+1)
	_, err := w.fs.SetAttr(&Caller{}, f.ino, &SetAttr{Valid: SetSize, Size: uint64(n)})
	w.must(err)
	f.now = append(content(nil), f.now[:n]...)
}

func (w *crashLoad) remove(k int) {
	f := w.files[k]
	w.touch(f)
	parent, name := w.split(f.path)
	w.must(w.fs.Unlink(parent, name))
	w.fs.Forget(f.ino, 1)
	w.files = append(w.files[:k], w.files[k+1:]...)
}

// replace renames one fsynced file over another: the name then holds the old
// or the new content, and nothing else, at every moment.
func (w *crashLoad) replace(from, to int) {
	a, b := w.files[from], w.files[to]
	if a == b {
		return
	}
	w.fsync(a)
	w.fsync(b)
	oldContent, newContent := b.now, a.now
	w.touch(a)
	w.touch(b)
	ap, an := w.split(a.path)
	bp, bn := w.split(b.path)
	a.path, a.renamed = b.path, true
	w.promise(a, oldContent, newContent)
	w.must(w.fs.Rename(&Caller{}, ap, an, bp, bn, 0))
	w.fs.Forget(b.ino, 1)
	w.files = append(w.files[:to], w.files[to+1:]...)
}

func (w *crashLoad) mkdir() {
	name := fmt.Sprintf("d%d", len(w.dirs))
	a, err := w.fs.Mkdir(&Caller{}, RootIno, name, 0o755)
	w.must(err)
	w.dirs["/"+name] = a.Ino
}

func (w *crashLoad) step() {
	k := -1
	if len(w.files) > 0 {
		k = w.rnd.Intn(len(w.files))
	}
	switch c := w.rnd.Intn(100); {
	case k < 0 || c < 25:
		w.create()
	case c < 45:
		w.write(w.files[k])
	case c < 60:
		w.fsync(w.files[k])
	case c < 70:
		w.truncate(w.files[k])
	case c < 85:
		w.remove(k)
	case c < 94:
		w.replace(k, w.rnd.Intn(len(w.files)))
	case c < 97 && len(w.dirs) < 10:
		w.mkdir()
	default:
		w.must(w.fs.Sync())
	}
}

func envInt(name string, def int64) int64 {
	if v, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return v
	}
	return def
}

func TestCrash(t *testing.T) {
	for _, v := range []struct {
		name string
		args []string
	}{
		{"default", []string{"-b", "4096", "-J", "size=4"}},
		{"1k blocks, smallest journal", []string{"-b", "1024", "-J", "size=1"}},
		{"no checksums", []string{"-b", "1024", "-O", "^metadata_csum,^64bit"}},
	} {
		t.Run(v.name, func(t *testing.T) { crashRun(t, v.args) })
	}
}

func crashRun(t *testing.T, args []string) {
	seed := envInt("CRASH_SEED", 1)
	t.Logf("CRASH_SEED=%d", seed)
	base := ext4test.Load(t, ext4test.Mke2fs(t, 24<<20, args...))
	rec := bdtest.NewRecorder(base)
	fs, err := Mount(rec, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &crashLoad{t: t, fs: fs, rec: rec, rnd: rand.New(rand.NewSource(seed)), dirs: map[string]ondisk.InodeNumber{"": RootIno}}
	for k := int64(0); k < envInt("CRASH_STEPS", 300); k++ {
		w.step()
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	states := int(envInt("CRASH_STATES", 25))
	p := rec.NewPlayer()
	t.Logf("%d operations, %d promises", p.Len(), len(w.promises))
	rnd := rand.New(rand.NewSource(seed))
	cuts := make([]int, states)
	for k := range cuts {
		cuts[k] = rnd.Intn(p.Len() + 1)
	}
	sort.Ints(cuts)
	for _, cut := range cuts {
		if err := p.Advance(cut); err != nil {
			t.Fatal(err)
		}
		loss := bdtest.RandomLoss(rnd.Uint64())
		dev, err := p.State(loss)
		if err != nil {
			t.Fatal(err)
		}
		w.check(t, dev, fmt.Sprintf("cut %d of %d, %v", cut, p.Len(), loss), cut)
		if t.Failed() {
			return
		}
	}
}

// check mounts a state and compares it with what was promised.
func (w *crashLoad) check(t *testing.T, dev blockdev.Device, what string, cut int) {
	t.Helper()
	fs, err := Mount(dev, Options{})
	if err != nil {
		t.Errorf("%s: mount: %v", what, err)
		return
	}
	for _, p := range w.promises {
		if cut >= p.from && cut < p.until {
			checkPromise(t, fs, p, what)
		}
	}
	checkOwnership(t, fs, what)
	if err := fs.Unmount(context.Background()); err != nil {
		t.Errorf("%s: unmount: %v", what, err)
	}
	ext4test.Fsck(t, ext4test.Save(t, dev))
	if t.Failed() {
		t.Logf("state: %s", what)
	}
}

func walkPath(fs *FS, path string) (Attr, error) {
	a := Attr{Ino: RootIno}
	for _, name := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		var err error
		if a, err = fs.Lookup(a.Ino, name); err != nil {
			return a, err
		}
	}
	return a, nil
}

func readWhole(fs *FS, a Attr) (content, error) {
	f, err := fs.Open(a.Ino, syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	b := make(content, a.Size)
	_, err = f.ReadAt(b, 0)
	return b, err
}

func checkPromise(t *testing.T, fs *FS, p *promise, what string) {
	t.Helper()
	a, err := walkPath(fs, p.path)
	if err != nil {
		t.Errorf("%s: %s was promised: %v", what, p.path, err)
		return
	}
	got, err := readWhole(fs, a)
	if err != nil {
		t.Errorf("%s: %s: %v", what, p.path, err)
		return
	}
	for _, want := range p.want {
		if string(got) == string(want) {
			return
		}
	}
	t.Errorf("%s: %s has %d bytes that nobody promised (%d)", what, p.path, len(got), len(p.want[0]))
}

// checkOwnership reads every file: each word must be a hole or its file's own.
// A file is known by its name, or by its first word once it was renamed.
func checkOwnership(t *testing.T, fs *FS, what string) {
	t.Helper()
	var walk func(ino ondisk.InodeNumber, path string)
	walk = func(ino ondisk.InodeNumber, path string) {
		d, err := fs.OpenDir(ino)
		if err != nil {
			t.Errorf("%s: %s: %v", what, path, err)
			return
		}
		defer d.Release()
		var names []string
		err = d.ReadDir(0, func(e DirEnt) bool {
			if n := string(e.Name); n != "." && n != ".." && n != "lost+found" {
				names = append(names, n)
			}
			return true
		})
		if err != nil {
			t.Errorf("%s: %s: %v", what, path, err)
		}
		for _, n := range names {
			a, err := fs.Lookup(ino, n)
			if err != nil {
				t.Errorf("%s: %s/%s: %v", what, path, n, err)
				continue
			}
			if a.Mode&ondisk.ModeFmt == ondisk.ModeDir {
				walk(a.Ino, path+"/"+n)
				continue
			}
			b, err := readWhole(fs, a)
			if err != nil {
				t.Errorf("%s: %s/%s: %v", what, path, n, err)
			}
			owner := uint32(0)
			for k := 0; k+8 <= len(b); k += 8 {
				id := binary.LittleEndian.Uint32(b[k:])
				if owner == 0 {
					owner = id
				}
				if id != 0 && id != owner {
					t.Errorf("%s: %s/%s: word %d belongs to file %d, not to %d", what, path, n, k/8, id, owner)
					break
				}
			}
		}
	}
	walk(RootIno, "")
}
