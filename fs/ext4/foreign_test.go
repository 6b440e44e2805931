package ext4

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/journal"
)

// kernelTree lists what the kernel sees in an image: a line for each path, with
// all that stat tells but atime and blocks, and the content's hash.
func kernelTree(t *testing.T, image string) []string {
	t.Helper()
	var lines []string
	ext4test.KernelMount(t, image, "", func(root string) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			line, err := treeLine(path, strings.TrimPrefix(path, root))
			lines = append(lines, line)
			if d.Name() == "lost+found" {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	slices.Sort(lines)
	return lines
}

func treeLine(path, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	size, content := st.Size, ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		content = fmt.Sprintf("%x", sha256.Sum256(b))
	case unix.S_IFLNK:
		content, _ = os.Readlink(path)
	case unix.S_IFDIR:
		// How full its blocks are is a matter of the replay's order, and the
		// kernel's replay of a fast commit takes its own time for that of the change.
		size, st.Mtim, st.Ctim = 0, unix.Timespec{}, unix.Timespec{}
	}
	return fmt.Sprintf("%q inode %d mode %o links %d uid %d rdev %x size %d mtime %d.%09d ctime %d.%09d %s",
		name, st.Ino, st.Mode, st.Nlink, st.Uid, st.Rdev, size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec, content), nil
}

// kernelReplays lets the kernel replay the image. It refuses its own fast
// commits when one tells of an inode that was unlinked and is still open.
func kernelReplays(t *testing.T, image string) bool {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", image, dir).CombinedOutput()
	if err != nil {
		t.Logf("the kernel does not replay what it left: %s", out)
		return false
	}
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Fatalf("umount: %s", out)
	}
	return true
}

// compareReplays lets the kernel and us replay copies of a dirty image, and
// compares what the kernel then sees; e2fsck has nothing to say of ours.
func compareReplays(t *testing.T, dirty string) {
	t.Helper()
	theirs, ours := filepath.Join(t.TempDir(), "theirs"), filepath.Join(t.TempDir(), "ours")
	ext4test.Copy(t, dirty, theirs)
	ext4test.Copy(t, dirty, ours)
	var want []string
	if kernelReplays(t, theirs) {
		want = kernelTree(t, theirs)
	}
	dev, err := blockdev.OpenFile(ours, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := Mount(dev, Options{Logf: func(l Level, format string, args ...any) { t.Logf(format, args...) }})
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	if err := m.Unmount(context.Background()); err != nil {
		t.Fatalf("unmount: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	ext4test.Fsck(t, ours)
	got := kernelTree(t, ours)
	if want == nil { // e2fsck and the kernel take what we made of it, at least
		return
	}
	if len(want) < 10 {
		t.Errorf("a tree of %d paths", len(want))
	}
	if slices.Equal(got, want) {
		return
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("the kernel's replay gives\n%s", l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("ours gives\n%s", l)
		}
	}
}

// shutDown is EXT4_IOC_SHUTDOWN without a flush of the log: to the image it is
// a power cut.
func shutDown(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const ioctlShutdown, noLogFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ioctlShutdown, noLogFlush); err != nil {
		t.Skipf("no shutdown ioctl: %v", err)
	}
}

var foreignVariants = [][]string{
	{"-b", "4096"},
	{"-b", "1024"},
	{"-b", "4096", "-O", "^64bit"},
	{"-b", "1024", "-O", "^64bit,^metadata_csum"},
	{"-b", "4096", "-O", "^metadata_csum"},
	{"-b", "4096", "-O", "orphan_file"},
	{"-b", "1024", "-O", "fast_commit"},
	{"-b", "4096", "-O", "fast_commit"},
	{"-b", "4096", "-O", "fast_commit,^metadata_csum,^64bit"},
	{"-b", "4096", "-O", "fast_commit,orphan_file"},
}

// fastVariants are tried with what fast commits can tell.
var fastVariants = [][]string{
	{"-b", "1024", "-O", "fast_commit"},
	{"-b", "4096", "-O", "fast_commit"},
	{"-b", "1024", "-O", "fast_commit,^metadata_csum,^64bit"},
}

// Long chains of fast commits, of all kinds of record.
func TestFastCommitsAsTheKernel(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	kinds := map[journal.FastCommitTag]int{}
	for _, args := range fastVariants {
		for seed := range seeds {
			t.Run(fmt.Sprint(strings.Join(args, " "), " ", seed), func(t *testing.T) {
				image := ext4test.Mke2fs(t, 48<<20, args...)
				dirty := ext4test.KernelCrash(t, image, "commit=1000", func(dir string) {
					w := &kernelLoad{t: t, dir: dir, rnd: rand.New(rand.NewSource(int64(seed)))}
					w.run(50)
					w.close()
					syncFS(t, dir)
					w.fsyncAll, w.fast = true, true
					w.run(20 + 20*seed)
				})
				countRecords(t, dirty, kinds)
				compareReplays(t, dirty)
			})
		}
	}
	t.Logf("records: %v", kinds)
	for k := journal.FcAddRange; k <= journal.FcInode && !t.Failed(); k++ {
		if kinds[k] == 0 {
			t.Errorf("no %v record was among them", k)
		}
	}
}

func countRecords(t *testing.T, image string, kinds map[journal.FastCommitTag]int) {
	t.Helper()
	for _, r := range inspect(t, image, nil).FastCommits.Tags {
		kinds[r.Tag]++
	}
}

func countRevokes(t *testing.T, image string) (n int) {
	t.Helper()
	inspect(t, image, func(x journal.TransactionInfo) error {
		n += len(x.Revokes)
		return nil
	})
	return n
}

func inspect(t *testing.T, image string, fn func(journal.TransactionInfo) error) journal.LogInfo {
	t.Helper()
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	p, err := JournalParams(dev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := journal.Inspect(p, journal.InspectOptions{}, fn)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// What the kernel leaves after a power cut: our replay gives the tree that the
// kernel's gives, revokes, orphans and fast commits included.
func TestReplayAsTheKernel(t *testing.T) {
	seeds := 2
	if testing.Short() {
		seeds = 1
	}
	revokes := 0
	for _, args := range foreignVariants {
		for seed := range seeds {
			t.Run(fmt.Sprint(strings.Join(args, " "), " ", seed), func(t *testing.T) {
				image := ext4test.Mke2fs(t, 48<<20, args...)
				dirty := filepath.Join(t.TempDir(), "dirty")
				ext4test.KernelMount(t, image, "commit=1000", func(dir string) {
					w := &kernelLoad{t: t, dir: dir, rnd: rand.New(rand.NewSource(int64(seed)))}
					w.run(60)
					syncFS(t, dir)
					w.removeTree()
					w.run(5)
					syncFS(t, dir)
					w.fsyncAll = true
					w.run(40)
					if seed%2 == 0 {
						ext4test.Copy(t, image, dirty)
					} else {
						shutDown(t, dir)
					}
					w.close()
				})
				if seed%2 != 0 {
					dirty = image
				}
				revokes += countRevokes(t, dirty)
				compareReplays(t, dirty)
			})
		}
	}
	if revokes == 0 {
		t.Error("there was no revoke record")
	}
}

// kernelLoad is a random load on a mount of the kernel's.
type kernelLoad struct {
	t        *testing.T
	dir      string
	rnd      *rand.Rand
	files    []string
	dirs     []string
	open     []*os.File // unlinked
	n        int
	fsyncAll bool // after each operation: with fast_commit, a fast commit
	fast     bool // only operations that a fast commit can tell
}

func (w *kernelLoad) run(n int) {
	w.t.Helper()
	for range n {
		if err := w.step(); err != nil {
			w.t.Fatalf("operation %d: %v", w.n, err)
		}
	}
}

func (w *kernelLoad) newName() string {
	w.n++
	dir := w.dir
	if len(w.dirs) > 0 && w.rnd.Intn(3) > 0 {
		dir = w.dirs[w.rnd.Intn(len(w.dirs))]
	}
	return filepath.Join(dir, fmt.Sprintf("n%d%s", w.n, strings.Repeat("x", w.rnd.Intn(30))))
}

func (w *kernelLoad) step() error {
	if len(w.files) < 3 {
		return w.create()
	}
	k := w.rnd.Intn(len(w.files))
	kind := w.rnd.Intn(16)
	if w.fast && (kind == 7 || kind > 13) { // fallocate, an orphan, a fifo: full commits
		kind = 6
	}
	switch kind {
	case 0, 1, 2, 3:
		return w.create()
	case 4, 5:
		return w.onFile(k, func(f *os.File) error {
			_, err := f.WriteAt(w.bytes(), w.rnd.Int63n(200_000))
			return err
		})
	case 6:
		return w.onFile(k, func(f *os.File) error { return f.Truncate(w.rnd.Int63n(100_000)) })
	case 7:
		return w.onFile(k, func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), uint32(w.rnd.Intn(2)), w.rnd.Int63n(100_000), 1+w.rnd.Int63n(200_000))
		})
	case 8:
		return w.onFile(k, func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, w.rnd.Int63n(50_000), 1+w.rnd.Int63n(50_000))
		})
	case 9:
		return w.rename(k, w.newName())
	case 10:
		return w.replace(k)
	case 11:
		name := w.newName()
		err := os.Link(w.files[k], name)
		w.files = append(w.files, name)
		return errors.Join(err, w.sync(name))
	case 12:
		return w.remove(k)
	case 13:
		name := w.newName()
		w.dirs = append(w.dirs, name)
		return errors.Join(os.Mkdir(name, 0o755), w.sync(name))
	case 14:
		return w.removeOpen(k)
	}
	name := w.newName() // its directory's entries are synced with the next file
	return errors.Join(syscall.Mkfifo(name, 0o600), w.sync(name))
}

func (w *kernelLoad) bytes() []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%08d", w.n), 1+w.rnd.Intn(5000)))
}

func (w *kernelLoad) create() error {
	name := w.newName()
	w.files = append(w.files, name)
	return errors.Join(os.WriteFile(name, w.bytes(), 0o644), w.sync(name))
}

func (w *kernelLoad) onFile(k int, fn func(f *os.File) error) error {
	w.n++
	f, err := os.OpenFile(w.files[k], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(fn(f), w.syncFile(f))
}

func (w *kernelLoad) rename(k int, to string) error {
	err := os.Rename(w.files[k], to)
	w.files[k] = to
	return errors.Join(err, w.sync(to))
}

func (w *kernelLoad) replace(k int) error {
	if err := w.create(); err != nil {
		return err
	}
	last := len(w.files) - 1
	err := os.Rename(w.files[last], w.files[k])
	w.files = w.files[:last]
	return errors.Join(err, w.sync(w.files[min(k, last-1)]))
}

func (w *kernelLoad) remove(k int) error {
	err := os.Remove(w.files[k])
	w.files = slices.Delete(w.files, k, k+1)
	return errors.Join(err, w.sync(w.files[0]))
}

// removeOpen leaves an orphan.
func (w *kernelLoad) removeOpen(k int) error {
	f, err := os.OpenFile(w.files[k], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	w.open = append(w.open, f)
	return w.remove(k)
}

// removeTree makes a directory, commits it, and removes it: its block is revoked.
func (w *kernelLoad) removeTree() {
	w.t.Helper()
	dir := filepath.Join(w.dir, "gone")
	err := os.Mkdir(dir, 0o755)
	for k := range 5 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(k)), w.bytes(), 0o644))
	}
	syncFS(w.t, w.dir)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		w.t.Error(err)
	}
}

func (w *kernelLoad) sync(name string) error {
	if !w.fsyncAll {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.syncFile(f)
}

func (w *kernelLoad) syncFile(f *os.File) error {
	if !w.fsyncAll {
		return nil
	}
	if st, err := f.Stat(); err != nil || st.Mode()&fs.ModeNamedPipe != 0 {
		return err
	}
	return f.Sync()
}

func (w *kernelLoad) close() {
	for _, f := range w.open {
		f.Close()
	}
}
