package ext4

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

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
