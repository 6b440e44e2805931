package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// featureRow is an image that the twin is let loose on.
type featureRow struct {
	name string
	size int64
	args []string
	with string // a feature that debugfs switches on, since mke2fs does not
}

// make makes the row's image.
func (r *featureRow) make(t *testing.T) string {
	t.Helper()
	image := ext4test.Mke2fs(t, r.size, r.args...)
	if r.with != "" {
		ext4test.DebugfsW(t, image, "feature "+r.with)
	}
	return image
}

// run lets the twin work on the row's image; e2fsck and the kernel look at what
// comes of it.
func (r *featureRow) run(t *testing.T, seed int64, steps int) {
	t.Helper()
	m := mountImage(t, r.make(t), Options{})
	w := newTwin(t, m, *twinSeed+seed)
	w.noExtents = !m.extents
	for range 2 {
		w.run(steps / 2)
		w.quiet()
		w.compareTree(w.root, RootIno)
		m.remount()
		w.compareTree(w.root, RootIno)
	}
	m.unmount()
	compareKernel(t, m.path, w.root)
}

func TestFeatureRows(t *testing.T) {
	rows := []featureRow{
		{name: "csum_seed", size: 48 << 20, args: []string{"-O", "metadata_csum_seed"}},
		{name: "sparse_super2", size: 64 << 20, args: []string{"-b", "1024", "-O", "sparse_super2,^resize_inode"}},
		{name: "^sparse_super", size: 48 << 20, args: []string{"-b", "1024", "-O", "^sparse_super,^resize_inode"}},
		{name: "uninit_bg", size: 48 << 20, args: []string{"-b", "1024", "-O", "^metadata_csum,uninit_bg"}},
		{name: "^flex_bg", size: 48 << 20, args: []string{"-b", "1024", "-O", "^flex_bg"}},
		{name: "meta_bg", size: 64 << 20, args: []string{"-b", "1024", "-g", "512", "-O", "meta_bg,^resize_inode"}},
		{name: "rev0", size: 24 << 20, args: []string{"-t", "ext2", "-r", "0", "-b", "1024"}},
		{name: "inodes of 128", size: 48 << 20, args: []string{"-I", "128", "-O", "^extra_isize"}},
		{name: "inodes of 512", size: 48 << 20, args: []string{"-I", "512"}},
		{name: "inodes of 1024", size: 48 << 20, args: []string{"-b", "1024", "-I", "1024"}},
		{name: "stable_inodes", size: 32 << 20, with: "stable_inodes"},
		{name: "large_dir", size: 48 << 20, args: []string{"-b", "1024", "-O", "large_dir"}},
		{name: "groups of 256", size: 24 << 20, args: []string{"-b", "1024", "-g", "256", "-O", "^resize_inode"}},
		{name: "^filetype", size: 32 << 20, args: []string{"-O", "^filetype"}},
		{name: "^huge_file,^large_file,^dir_nlink", size: 32 << 20, args: []string{"-O", "^huge_file,^dir_nlink"}},
	}
	steps := 1200
	if testing.Short() {
		steps = 400
	}
	for k, r := range rows {
		t.Run(r.name, func(t *testing.T) { r.run(t, int64(100+k), steps) })
	}
}

// Every bit that nobody knows is refused, or mounted read-only, by its number.
func TestUnknownBits(t *testing.T) {
	good := ext4test.Load(t, ext4test.Mke2fs(t, 8<<20, "-O", "^has_journal"))
	for bit := range 32 {
		t.Run(fmt.Sprint(bit), func(t *testing.T) {
			dev := blockdev.NewOverlay(good)
			if f := ondisk.IncompatFeatures(1) << bit; f&ondisk.IncompatRead == 0 && f != ondisk.IncompatJournalDev {
				setIncompat(t, dev, f)
				for _, ro := range []bool{false, true} {
					_, err := Mount(dev, Options{ReadOnly: ro})
					if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), f.String()) {
						t.Errorf("incompat bit %d (%s), ro %v: %v", bit, f, ro, err)
					}
				}
			}
			dev = blockdev.NewOverlay(good)
			if f := ondisk.ROCompatFeatures(1) << bit; f&ondisk.ROCompatWrite == 0 && f != ondisk.ROCompatOrphanPresent && f != ondisk.ROCompatBigalloc {
				setROCompat(t, dev, f)
				if _, err := Mount(dev, Options{}); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), f.String()) {
					t.Errorf("ro_compat bit %d (%s): %v", bit, f, err)
				}
				mountReadOnly(t, dev)
			}
		})
	}
}

func mountReadOnly(t *testing.T, dev blockdev.Device) {
	t.Helper()
	fs, err := Mount(dev, Options{ReadOnly: true})
	if err != nil {
		t.Errorf("read-only: %v", err)
		return
	}
	readAll(t, fs, RootIno)
	if err := fs.Unmount(context.Background()); err != nil {
		t.Error(err)
	}
}

// With the primary superblock and its descriptors gone, sb= takes a backup of
// both.
func TestBackupSuperblock(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		sb   uint64 // in KiB
		wipe int64  // bytes
	}{
		{"4k", []string{"-b", "4096", "-g", "2048"}, 2048 * 4, 3 * 4096},
		{"1k", []string{"-b", "1024"}, 8193, 3 * 1024},
		{"sparse_super2", []string{"-b", "1024", "-O", "sparse_super2,^resize_inode"}, 8193, 3 * 1024},
		{"meta_bg", []string{"-b", "1024", "-O", "meta_bg,^resize_inode"}, 8193, 3 * 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := ext4test.Mke2fs(t, 64<<20, append(c.args, "-O", "^has_journal")...)
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, block(100_000, 7), 0o600); err != nil {
				t.Fatal(err)
			}
			ext4test.DebugfsW(t, image, "write "+file+" file")
			dev := ext4test.Load(t, image)
			if err := dev.Zero(0, c.wipe); err != nil {
				t.Fatal(err)
			}
			if _, err := Mount(dev, Options{ReadOnly: true}); !errors.Is(err, ErrNotExt4) {
				t.Errorf("without a superblock: %v", err)
			}
			if _, err := Mount(dev, Options{SBBlock: c.sb}); !errors.Is(err, ErrBadOption) {
				t.Errorf("for writing: %v", err)
			}
			fs, err := Mount(dev, Options{ReadOnly: true, SBBlock: c.sb})
			if err != nil {
				t.Fatal(err)
			}
			defer fs.Unmount(context.Background())
			a, err := fs.Lookup(RootIno, "file")
			if err != nil || a.Size != 100_000 {
				t.Errorf("the file: %+v, %v", a, err)
			}
		})
	}
}

// warnings mounts and unmounts an image, and returns what was said.
func warnings(t *testing.T, image string, o Options) string {
	t.Helper()
	said := ""
	o.Logf = func(l Level, format string, args ...any) {
		if l >= LevelWarn {
			said += fmt.Sprintf(format, args...) + "\n"
		}
	}
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	fs, err := Mount(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	return said
}

// Recorded errors, and a file system that was in use, are told and mounted, and
// stay recorded: only e2fsck takes that back.
func TestStateIsTold(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20)
	if said := warnings(t, image, Options{}); said != "" {
		t.Errorf("of a new image: %q", said)
	}
	ext4test.DebugfsW(t, image, "ssv state 3")
	ext4test.DebugfsW(t, image, "ssv error_count 5")
	ext4test.DebugfsW(t, image, "ssv last_error_ino 77")
	for range 2 {
		if said := warnings(t, image, Options{}); !strings.Contains(said, "has errors (5 recorded)") || !strings.Contains(said, "inode 77") {
			t.Errorf("of an image with errors: %q", said)
		}
	}
	if got := ext4test.Dumpe2fs(t, image, "Filesystem state"); got != "clean with errors" {
		t.Errorf("state is %q afterwards", got)
	}
	image = ext4test.Mke2fs(t, 16<<20, "-O", "^has_journal")
	ext4test.DebugfsW(t, image, "ssv state 0")
	for range 2 {
		if said := warnings(t, image, Options{}); !strings.Contains(said, "not cleanly unmounted") {
			t.Errorf("of an unclean image: %q", said)
		}
	}
	if got := ext4test.Dumpe2fs(t, image, "Filesystem state"); got != "not clean" {
		t.Errorf("state is %q afterwards", got)
	}
	image = ext4test.Mke2fs(t, 16<<20)
	tune2fs := ext4test.Tool(t, "tune2fs")
	if out, err := exec.Command(tune2fs, "-c", "3", "-C", "3", "-i", "1d", image).CombinedOutput(); err != nil {
		t.Fatalf("tune2fs: %s", out)
	}
	if said := warnings(t, image, Options{}); !strings.Contains(said, "mounted 3 times") {
		t.Errorf("of an image that is due by mounts: %q", said)
	}
	if out, err := exec.Command(tune2fs, "-c", "-1", image).CombinedOutput(); err != nil {
		t.Fatalf("tune2fs: %s", out)
	}
	later := func() time.Time { return time.Now().Add(100 * time.Hour) }
	if said := warnings(t, image, Options{Now: later}); !strings.Contains(said, "last checked") {
		t.Errorf("of an image that is due by time: %q", said)
	}
}

// Inode tables that mkfs left as they were hold anything at all.
func TestLazyInodeTables(t *testing.T) {
	for _, features := range []string{"metadata_csum", "^metadata_csum,uninit_bg"} {
		t.Run(features, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			junk := block(1<<20, 0xdeadbeefdeadbeef)
			f, err := os.Create(image)
			if err != nil {
				t.Fatal(err)
			}
			for range 32 {
				if _, err := f.Write(junk); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(ext4test.Tool(t, "mke2fs"), "-q", "-F", "-t", "ext4", "-b", "1024", "-O", features,
				"-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", image).CombinedOutput()
			if err != nil {
				t.Fatalf("mke2fs: %s", out)
			}
			m := mountImage(t, image, Options{})
			w := newTwin(t, m, 4)
			w.run(1500)
			for k := range 3000 {
				a, err := m.Mknod(nil, RootIno, fmt.Sprintf("file %d", k), ondisk.ModeReg|0o644, 0)
				mustOK(t, err)
				w.root.kids[fmt.Sprintf("file %d", k)] = &tnode{mode: a.Mode, nlink: 1, ino: a.Ino}
				m.Forget(a.Ino, 1)
			}
			w.quiet()
			m.remount()
			w.compareTree(w.root, RootIno)
			m.unmount()
			compareKernel(t, image, w.root)
		})
	}
}

// Blocks that several files share: to be read, by name, and not written.
func TestSharedBlocks(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20)
	ext4test.DebugfsW(t, image, "feature shared_blocks")
	dev := ext4test.Load(t, image)
	if _, err := Mount(dev, Options{}); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "shared_blocks") {
		t.Errorf("for writing: %v", err)
	}
	mountReadOnly(t, dev)
}

// The ends of what an inode can tell of time: clamped, never wrapped, and the
// kernel reads the same.
func TestTimestampEnds(t *testing.T) {
	for _, c := range []struct {
		args []string
		top  int64
	}{{[]string{"-I", "128", "-O", "^extra_isize"}, 1<<31 - 1}, {[]string{"-I", "256"}, 3<<32 + 1<<31 - 1}} {
		m := mountNew(t, 16<<20, c.args...)
		want := map[string]int64{}
		for k, sec := range []int64{-1 << 40, -1<<31 - 1, -1 << 31, -1, 0, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, c.top - 1, c.top, c.top + 1, 1 << 50} {
			name := fmt.Sprint("f", k)
			f := m.mkfile(name)
			at := Time{Sec: sec}
			a, err := m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetMtime | SetAtime | SetCtime, Mtime: at, Atime: at, Ctime: at})
			mustOK(t, err)
			want[name] = min(max(sec, -1<<31), c.top)
			if a.Mtime.Sec != want[name] || a.Atime.Sec != want[name] || a.Ctime.Sec != want[name] {
				t.Errorf("%d is %d, want %d", sec, a.Mtime.Sec, want[name])
			}
			f.Release()
		}
		m.unmount()
		ext4test.KernelMount(t, m.path, "ro", func(dir string) {
			for name, sec := range want {
				st, err := os.Stat(filepath.Join(dir, name))
				if err != nil || st.ModTime().Unix() != sec {
					t.Errorf("%s: the kernel says %v, want %d", name, st.ModTime().Unix(), sec)
				}
			}
		})
	}
}
