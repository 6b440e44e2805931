package ext4

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// dirtyTree makes a few hundred files, renames and removes some, and leaves
// two unlinked ones open, whose closing func it returns.
func dirtyTree(t *testing.T, dir string) (closeAll func()) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for k := 0; k < 300; k++ {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", k%7))
		must(os.MkdirAll(sub, 0o755))
		must(os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d", k)), make([]byte, k*100), 0o644))
	}
	for k := 0; k < 300; k += 3 {
		must(os.Remove(filepath.Join(dir, fmt.Sprintf("d%d/f%d", k%7, k))))
	}
	var open []*os.File
	for k := 0; k < 2; k++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("gone%d", k)))
		must(err)
		_, err = f.Write(make([]byte, 200000))
		must(err)
		must(f.Sync())
		must(os.Remove(f.Name()))
		open = append(open, f)
	}
	syncFS(t, dir)
	return func() {
		for _, f := range open {
			f.Close()
		}
	}
}

// syncFS commits the kernel's file system that dir is on.
func syncFS(t *testing.T, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const sysSyncfs = 306 // x86-64
	if _, _, no := syscall.Syscall(sysSyncfs, d.Fd(), 0, 0); no != 0 {
		t.Fatal(no)
	}
}

var journalVariants = [][]string{
	nil,
	{"-b", "1024"},
	{"-O", "^64bit,^metadata_csum"},
	{"-O", "^metadata_csum,uninit_bg"},
	{"-O", "orphan_file"},
	{"-O", "metadata_csum_seed"},
	{"-t", "ext3"},
	{"-J", "size=1"},
}

// An image that the kernel left dirty is replayed and its orphans are cleaned;
// e2fsck has nothing to say afterwards.
func TestRecoverKernelImage(t *testing.T) {
	for _, args := range journalVariants {
		t.Run(joinNames(args), func(t *testing.T) {
			path := crashedImage(t, args...)
			m := mountImage(t, path, Options{})
			if n := m.orphans.cleaned.Load(); n != 2 {
				t.Errorf("%d orphans cleaned, want 2", n)
			}
			if sb := m.Super(); sb.LastOrphan != 0 || m.orphans.file.entries() != 0 {
				t.Errorf("orphans left: %d on the list, %d in the file", sb.LastOrphan, m.orphans.file.entries())
			}
		})
	}
}

// A read-only mount of a dirty image replays in memory and changes nothing,
// even where the image cannot be written.
func TestReadOnlyLeavesImage(t *testing.T) {
	dirty := crashedImage(t)
	clean := ext4test.Mke2fs(t, 16<<20)
	for _, c := range []struct {
		name, path string
		o          Options
	}{
		{"dirty", dirty, Options{ReadOnly: true}},
		{"dirty, norecovery", dirty, Options{ReadOnly: true, NoLoad: true}},
		{"clean", clean, Options{ReadOnly: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ext4test.Sum(t, c.path)
			dev, err := blockdev.OpenFile(c.path, blockdev.OpenOptions{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			fs, err := Mount(dev, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fs.begin(1); err != syscall.EROFS {
				t.Errorf("a handle on a read-only mount: %v", err)
			}
			if err := fs.Sync(); err != nil {
				t.Error(err)
			}
			if err := fs.Unmount(context.Background()); err != nil {
				t.Error(err)
			}
			if ext4test.Sum(t, c.path) != before {
				t.Error("the image has changed")
			}
		})
	}
}

// A write-protected image is not mounted read-write.
func TestWriteProtected(t *testing.T) {
	dev := blockdev.NewReadOnly(ext4test.Load(t, ext4test.Mke2fs(t, 4<<20)))
	if _, err := Mount(dev, Options{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("mount: %v", err)
	}
}

// After a shutdown without log flush the image is as after a power cut: the
// next mount finds it consistent, and the inodes that had no name are freed.
func TestShutdown(t *testing.T) {
	for _, mode := range []ShutdownMode{ShutdownDefault, ShutdownLogFlush, ShutdownNoLogFlush} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			m := mountNew(t, 64<<20)
			before := m.Statfs()
			dir, err := m.iget(RootIno)
			if err != nil {
				t.Fatal(err)
			}
			for k := 0; k < 50; k++ {
				m.makeBare(dir, ondisk.ModeReg)
				if k == 20 {
					if err := m.Sync(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := m.Shutdown(mode); err != nil {
				t.Fatal(err)
			}
			if _, err := m.begin(1); err != ErrShutdown {
				t.Errorf("a handle after shutdown: %v", err)
			}
			m.FS.Unmount(context.Background())
			if err := m.dev.Close(); err != nil {
				t.Fatal(err)
			}
			m.mount()
			want := int64(50)
			if mode == ShutdownNoLogFlush {
				want = 21
			}
			if n := m.orphans.cleaned.Load(); n < 21 || n > 50 || (mode != ShutdownNoLogFlush && n != want) {
				t.Errorf("%d orphans cleaned, want %d", n, want)
			}
			if after := m.Statfs(); after != before {
				t.Errorf("statfs changed from %+v to %+v", before, after)
			}
		})
	}
}

func crashedImage(t *testing.T, args ...string) string {
	t.Helper()
	image := ext4test.Mke2fs(t, 64<<20, args...)
	copied := filepath.Join(t.TempDir(), "crashed")
	ext4test.KernelMount(t, image, "", func(dir string) {
		closeAll := dirtyTree(t, dir)
		ext4test.Copy(t, image, copied)
		closeAll()
	})
	return copied
}
