package ext4

import (
	"bytes"
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

// withLoop calls fn with a loop device over a file: tools of e2fsprogs take an
// external journal as a block device only.
func withLoop(t *testing.T, path string, fn func(loop string)) {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", path).Output()
	if err != nil {
		t.Skipf("no loop device to be had: %v", err)
	}
	loop := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "-d", loop).Run()
	fn(loop)
}

// externalJournal makes an image whose journal is in a file of its own.
func externalJournal(t *testing.T) (image, log string) {
	t.Helper()
	log = ext4test.Mke2fs(t, 8<<20, "-O", "journal_dev", "-b", "4096")
	withLoop(t, log, func(loop string) {
		image = ext4test.Mke2fs(t, 32<<20, "-b", "4096", "-J", "device="+loop)
	})
	return image, log
}

func TestExternalJournal(t *testing.T) {
	image, log := externalJournal(t)
	open := func(path string) blockdev.Device {
		dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	dev, logDev := open(image), open(log)
	if _, err := Mount(dev, Options{}); !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), "journal_path") {
		t.Errorf("mounted without its journal: %v", err)
	}
	for _, crash := range []bool{true, false} {
		fs, err := Mount(dev, Options{JournalDev: logDev})
		if err != nil {
			t.Fatal(err)
		}
		m := &testFS{FS: fs, t: t}
		dir, err := fs.iget(RootIno)
		if err != nil {
			t.Fatal(err)
		}
		m.makeBare(dir, ondisk.ModeReg)
		fs.iput(dir)
		mode := ShutdownLogFlush
		if crash {
			if err := fs.Shutdown(mode); err != nil {
				t.Fatal(err)
			}
			fs.Unmount(context.Background())
			continue
		}
		if n := fs.orphans.cleaned.Load(); n != 1 {
			t.Errorf("%d orphans cleaned after the crash, want 1: the log was not replayed", n)
		}
		if err := fs.Unmount(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	withLoop(t, log, func(loop string) { ext4test.Fsck(t, image, "-j", loop) })
}

// A device that is no journal, or another file system's, is refused by name.
func TestExternalJournalIsChecked(t *testing.T) {
	image, _ := externalJournal(t)
	dev := ext4test.Load(t, image)
	for path, text := range map[string]string{
		ext4test.Mke2fs(t, 8<<20, "-O", "journal_dev", "-b", "4096"): "is another one",
		ext4test.Mke2fs(t, 8<<20, "-b", "4096"):                      "holds a file system",
	} {
		_, err := Mount(dev, Options{JournalDev: ext4test.Load(t, path)})
		if !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// The kernel replays what we left in an external journal, and we what it left.
func TestExternalJournalAndKernel(t *testing.T) {
	image, log := externalJournal(t)
	names := func(fs *FS) int { return len(readAll(t, fs, RootIno)) }
	mount := func() (*FS, func()) {
		dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{})
		mustOK(t, err)
		jdev, err := blockdev.OpenFile(log, blockdev.OpenOptions{})
		mustOK(t, err)
		fs, err := Mount(dev, Options{JournalDev: jdev, Commit: time.Hour})
		mustOK(t, err)
		return fs, func() { fs.Unmount(t.Context()); dev.Close(); jdev.Close() }
	}
	fs, closeFS := mount()
	for k := range 20 {
		mustOK(t, writeSynced(fs, fmt.Sprint("ours", k), magicData(5000, int64(k))))
	}
	want := names(fs)
	mustOK(t, fs.Shutdown(ShutdownNoLogFlush))
	closeFS()
	dirty, dirtyLog := filepath.Join(t.TempDir(), "fs"), filepath.Join(t.TempDir(), "log")
	withLoop(t, log, func(loop string) {
		ext4test.KernelMount(t, image, "commit=1000,journal_path="+loop, func(dir string) {
			for k := range 20 {
				b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("ours", k)))
				if err != nil || !bytes.Equal(b, magicData(5000, int64(k))) {
					t.Errorf("the kernel reads %d bytes of file %d (%v)", len(b), k, err)
				}
			}
			for k := range 20 {
				mustOK(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("theirs", k)), magicData(3000, int64(k)), 0o644))
			}
			syncFS(t, dir)
			ext4test.Copy(t, image, dirty)
			ext4test.Copy(t, log, dirtyLog)
		})
	})
	image, log = dirty, dirtyLog
	fs, closeFS = mount()
	if got := names(fs); got != want+20 {
		t.Errorf("%d names after replaying the kernel's log, want %d", got, want+20)
	}
	for k := range 20 {
		if b, err := readPath(fs, fmt.Sprint("theirs", k)); err != nil || !bytes.Equal(b, magicData(3000, int64(k))) {
			t.Errorf("file %d holds %d bytes (%v)", k, len(b), err)
		}
	}
	closeFS()
	withLoop(t, log, func(loop string) { ext4test.Fsck(t, image, "-j", loop) })
}
