package ext4

import (
	"bytes"
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

// A sparse image on a host file system that runs full: the writer is told,
// nothing that was promised is lost, and when there is space again a mount
// finds a clean file system.
func TestHostRunsFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	for _, room := range []string{"3m", "6m", "11m"} {
		t.Run(room, func(t *testing.T) { hostRunsFull(t, room) })
	}
}

func hostRunsFull(t *testing.T, room string) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	img := filepath.Join(dir, "image")
	ext4test.Copy(t, ext4test.Mke2fs(t, 48<<20, "-b", "4096", "-J", "size=4"), img)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size="+room); err != nil {
		t.Skipf("the image alone takes more than %s: %v", room, err)
	}
	synced := fillHost(t, img)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	m := mountImage(t, img, Options{})
	for name, want := range synced {
		if got, err := readPath(m.FS, name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was promised, and is %d bytes of %d: %v", name, len(got), len(want), err)
		}
	}
	if _, _, err := m.Create(&Caller{}, RootIno, "after", ondisk.ModeReg|0o644, syscall.O_RDWR); err != nil {
		t.Errorf("create after there was space again: %v", err)
	}
}

// fillHost writes files until the host is full and some more, and returns
// those whose fsync succeeded.
func fillHost(t *testing.T, img string) map[string][]byte {
	t.Helper()
	dev, err := blockdev.OpenFile(img, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	fs, err := Mount(dev, Options{})
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO) {
		return nil // not even the mount had room
	}
	if err != nil {
		t.Fatal(err)
	}
	synced, told := map[string][]byte{}, 0
	for k := range 60 {
		name := fmt.Sprintf("f%d", k)
		data := bytes.Repeat([]byte{byte(k + 1)}, 200_000+k)
		err := writeSynced(fs, name, data)
		switch err {
		case nil:
			synced[name] = data
		case syscall.ENOSPC, syscall.EIO, syscall.EROFS:
			told++
		default:
			t.Errorf("file %d: %v", k, err)
		}
	}
	if told == 0 {
		t.Error("12 MB fitted, and nobody was told that the host is full")
	}
	t.Logf("%d files fsynced, %d writers told, read-only %v", len(synced), told, fs.ReadOnly())
	fs.Unmount(context.Background()) // may fail
	return synced
}

func writeSynced(fs *FS, name string, data []byte) error {
	_, f, err := fs.Create(&Caller{}, RootIno, name, ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Release()
	if n, err := f.WriteAt(data, 0); err != nil || n < len(data) {
		if err == nil {
			err = syscall.ENOSPC
		}
		return err
	}
	return f.Fsync(false)
}
