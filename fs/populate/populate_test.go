package populate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

// makeSource makes a tree with everything that is to be carried over.
func makeSource(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string, content []byte, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		must(os.MkdirAll(filepath.Dir(p), 0o755))
		must(os.WriteFile(p, content, 0o600))
		must(os.Chmod(p, mode))
		return p
	}
	big := bytes.Repeat([]byte("content of a file that takes more than one write\n"), 70000)
	file("a/b/big", big, 0o640)
	file("empty", nil, 0o444)
	file("a/setuid", []byte("x"), 0o755|fs.ModeSetuid|fs.ModeSetgid)
	for i := range 300 {
		file(fmt.Sprintf("many/%s-%03d", strings.Repeat("n", 40), i), []byte(fmt.Sprint(i)), 0o644)
	}
	file(strings.Repeat("l", 255), []byte("long"), 0o644)
	sparse := file("sparse", nil, 0o600)
	f, err := os.OpenFile(sparse, os.O_WRONLY, 0)
	must(err)
	_, err = f.WriteAt([]byte("in the middle"), 5<<20)
	must(err)
	must(f.Truncate(12<<20 + 5))
	must(f.Close())
	must(os.Link(filepath.Join(dir, "a/b/big"), filepath.Join(dir, "z-link")))
	for _, n := range []int{1, 59, 60, 4000} {
		must(os.Symlink(strings.Repeat("t", n), filepath.Join(dir, fmt.Sprintf("symlink%d", n))))
	}
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o622))
	must(os.Mkdir(filepath.Join(dir, "sticky"), 0o755))
	must(os.Chmod(filepath.Join(dir, "sticky"), 0o777|fs.ModeSticky))
	if os.Geteuid() == 0 {
		must(unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		must(unix.Mknod(filepath.Join(dir, "far"), unix.S_IFBLK|0o660, int(unix.Mkdev(300, 70000))))
		must(os.Lchown(filepath.Join(dir, "a/b/big"), 100000, 200000))
		must(os.Lchown(filepath.Join(dir, "symlink59"), 7, 8))
		must(os.Chown(filepath.Join(dir, "a/setuid"), 33, 44))
		must(os.Chmod(filepath.Join(dir, "a/setuid"), 0o755|fs.ModeSetuid|fs.ModeSetgid))
	}
	setXattr(t, filepath.Join(dir, "a/b/big"), "user.comment", []byte("hello"))
	setXattr(t, filepath.Join(dir, "empty"), "user.large", bytes.Repeat([]byte("v"), 600))
	setXattr(t, filepath.Join(dir, "a"), "user.dir", []byte("d"))
	when := time.Unix(1234567890, 123456789)
	must(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ts := unix.NsecToTimespec(when.UnixNano())
		when = when.Add(time.Hour + 17*time.Nanosecond)
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}))
	return dir
}

func setXattr(t *testing.T, p, name string, value []byte) {
	t.Helper()
	if err := unix.Lsetxattr(p, name, value, 0); err != nil {
		t.Logf("the host does not take %s: %v", name, err)
	}
}

func params(t *testing.T) mkfs.Params {
	t.Helper()
	p := mkfs.DefaultParams()
	for u, text := range map[*ondisk.UUID]string{&p.UUID: "00112233-4455-6677-8899-aabbccddeeff", &p.HashSeed: "01234567-89ab-cdef-0123-456789abcdef"} {
		var err error
		if *u, err = ondisk.ParseUUID(text); err != nil {
			t.Fatal(err)
		}
	}
	p.Time, p.Zeroed, p.BlockSize = time.Unix(1700000000, 0), true, 4096
	return p
}

// makeImage formats a file and fills it.
func makeImage(t *testing.T, size int64, p mkfs.Params, fill func(*ext4.FS) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{Create: true, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := mkfs.Format(dev, p); err != nil {
		t.Fatal(err)
	}
	if err := Image(dev, p.Time, fill); err != nil {
		t.Fatal(err)
	}
	return path
}

// tree lists what is below a directory: all that is to be carried over.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "lost+found" {
			return fs.SkipDir
		}
		line, err := treeLine(p, strings.TrimPrefix(p, root))
		lines = append(lines, line)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func treeLine(p, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return "", err
	}
	content, size, links := "", st.Size, uint64(st.Nlink)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(p)
		if err != nil {
			return "", err
		}
		content = fmt.Sprintf("%x", sha256.Sum256(b))
	case unix.S_IFLNK:
		content, _ = os.Readlink(p)
	case unix.S_IFDIR:
		size, links = 0, 0
	}
	attrs, err := readXattrs(p)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q mode %o links %d uid %d gid %d rdev %x size %d mtime %d.%09d attrs %q %s",
		name, st.Mode, links, st.Uid, st.Gid, st.Rdev, size, st.Mtim.Sec, st.Mtim.Nsec, attrs, content), nil
}

func compareTrees(t *testing.T, got, want []string) {
	t.Helper()
	if len(want) < 20 {
		t.Fatalf("only %d lines to compare", len(want))
	}
	shown := 0
	for _, l := range got {
		if _, ok := slices.BinarySearch(want, l); !ok && shown < 5 {
			t.Errorf("only in the image: %s", l)
			shown++
		}
	}
	for _, l := range want {
		if _, ok := slices.BinarySearch(got, l); !ok && shown < 10 {
			t.Errorf("not in the image: %s", l)
			shown++
		}
	}
}

// holes tells how much of the sparse file the image holds.
func holes(t *testing.T, dir string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "sparse"), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("the sparse file takes %d bytes (%v)", st.Blocks*512, err)
	}
}

// TestDir: the kernel sees in the image what is in the directory, with every
// type of file system.
func TestDir(t *testing.T) {
	src := makeSource(t)
	want := tree(t, src)
	for _, c := range []struct{ kind, features string }{
		{"ext4", ""}, {"ext3", ""}, {"ext2", ""}, {"ext4", "inline_data,ea_inode"}, {"ext4", "bigalloc"}, {"ext4", "quota,project"}, {"ext4", "fast_commit,orphan_file,mmp,metadata_csum_seed"},
	} {
		t.Run(c.kind+" "+c.features, func(t *testing.T) {
			p := params(t)
			if err := p.SetType(c.kind); err != nil {
				t.Fatal(err)
			}
			if err := p.EditFeatures(c.features); err != nil {
				t.Fatal(err)
			}
			var st Stats
			image := makeImage(t, 64<<20, p, func(m *ext4.FS) (err error) {
				st, err = Dir(m, src, Options{})
				return err
			})
			ext4test.Fsck(t, image)
			if st.Files < 300 || st.Links != 1 || st.Bytes < 3<<20 || st.Bytes > 4<<20 {
				t.Errorf("%+v", st)
			}
			ext4test.KernelMount(t, image, "ro", func(dir string) {
				compareTrees(t, tree(t, dir), want)
				holes(t, dir)
			})
		})
	}
}

// makeTar packs a tree with GNU tar.
func makeTar(t *testing.T, src string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command("tar", append(args, "-c", "-f", "-", "--xattrs", "--sort=name", "--format=pax", "-C", src, ".")...).Output()
	if err != nil {
		t.Skipf("tar: %v", err)
	}
	return out
}

// TestTar: the same through archives, plain, sparse, and compressed.
func TestTar(t *testing.T) {
	src := makeSource(t)
	want := tree(t, src)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(makeTar(t, src))
	z.Close()
	for name, archive := range map[string][]byte{"plain": makeTar(t, src), "sparse": makeTar(t, src, "-S"), "gzip": zipped.Bytes()} {
		t.Run(name, func(t *testing.T) {
			image := makeImage(t, 64<<20, params(t), func(m *ext4.FS) error {
				_, err := Tar(m, bytes.NewReader(archive), int64(len(archive)), Options{})
				return err
			})
			ext4test.Fsck(t, image)
			ext4test.KernelMount(t, image, "ro", func(dir string) {
				compareTrees(t, tree(t, dir), want)
				holes(t, dir)
			})
		})
	}
}

// TestReproducible: two runs give the same bytes, though reading the source
// changes it (atime).
func TestReproducible(t *testing.T) {
	src := makeSource(t)
	archive := makeTar(t, src)
	for name, fill := range map[string]func(m *ext4.FS, o Options) (Stats, error){
		"dir": func(m *ext4.FS, o Options) (Stats, error) { return Dir(m, src, o) },
		"tar": func(m *ext4.FS, o Options) (Stats, error) { return Tar(m, bytes.NewReader(archive), 0, o) },
	} {
		var sums [3][32]byte
		for i := range sums {
			p := params(t)
			sums[i] = ext4test.Sum(t, makeImage(t, 64<<20, p, func(m *ext4.FS) error {
				_, err := fill(m, Options{Time: p.Time})
				return err
			}))
		}
		if sums[0] != sums[1] || sums[0] != sums[2] {
			t.Errorf("%s: the images differ", name)
		}
	}
}

// TestNoXattrs, and the root's owner that stays.
func TestOptions(t *testing.T) {
	src := makeSource(t)
	p := params(t)
	p.RootUID, p.RootGID = 11, 12
	calls := 0
	image := makeImage(t, 64<<20, p, func(m *ext4.FS) error {
		var done, total int64
		_, err := Dir(m, src, Options{NoXattrs: true, KeepRootOwner: true, Progress: func(d, n int64) { done, total, calls = d, n, calls+1 }})
		if done != total || total < 12<<20 {
			t.Errorf("progress ended at %d of %d", done, total)
		}
		if a, err := m.GetAttr(ext4.RootIno); err != nil || a.UID != 11 || a.GID != 12 {
			t.Errorf("root: %+v, %v", a, err)
		}
		a, err2 := m.Lookup(ext4.RootIno, "empty")
		if n, _ := m.ListXattr(nil, a.Ino, nil); err2 != nil || n != 0 {
			t.Errorf("%d bytes of attributes, %v", n, err2)
		}
		m.Forget(a.Ino, 1)
		return err
	})
	ext4test.Fsck(t, image)
	if calls < 300 {
		t.Errorf("progress was told %d times", calls)
	}
}

// TestBadArchives: what cannot be unpacked is an error that names it.
func TestBadArchives(t *testing.T) {
	pack := func(hs ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			h.ModTime = time.Unix(1, 0)
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		return b.Bytes()
	}
	for want, archive := range map[string][]byte{
		"leads out":            pack(tar.Header{Name: "../x", Typeflag: tar.TypeDir}),
		"comes nowhere before": pack(tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "y"}),
		"tar archive":          []byte(strings.Repeat("no archive", 100)),
		"xz":                   []byte("\xfd7zXZ\x00 and more"),
		"not a directory":      pack(tar.Header{Name: "x", Typeflag: tar.TypeFifo}, tar.Header{Name: "x/y", Typeflag: tar.TypeDir}),
		"file exists":          pack(tar.Header{Name: "x", Typeflag: tar.TypeFifo}, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "z"}),
		"name too long":        pack(tar.Header{Name: strings.Repeat("n", 256), Typeflag: tar.TypeDir, Format: tar.FormatPAX}),
	} {
		dev := blockdev.NewMem(16 << 20)
		if _, err := mkfs.Format(dev, params(t)); err != nil {
			t.Fatal(err)
		}
		err := Image(dev, time.Time{}, func(m *ext4.FS) error {
			_, err := Tar(m, bytes.NewReader(archive), 0, Options{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// Directories that the archive leaves out are made.
	image := makeImage(t, 16<<20, params(t), func(m *ext4.FS) error {
		_, err := Tar(m, bytes.NewReader(pack(tar.Header{Name: "/p/q/r", Typeflag: tar.TypeFifo, Mode: 0o644})), 0, Options{})
		return err
	})
	ext4test.Fsck(t, image)
	if out := ext4test.Debugfs(t, image, "ls -p /p/q"); !strings.Contains(out, "/010644/0/0/r/") {
		t.Error(out)
	}
}

// TestFull: an image that is too small is told so, as ENOSPC.
func TestFull(t *testing.T) {
	src := makeSource(t)
	dev := blockdev.NewMem(4 << 20)
	if _, err := mkfs.Format(dev, params(t)); err != nil {
		t.Fatal(err)
	}
	err := Image(dev, time.Time{}, func(m *ext4.FS) error {
		_, err := Dir(m, src, Options{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("%v", err)
	}
}
