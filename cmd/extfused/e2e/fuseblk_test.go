package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountType is the type of the mount at dir.
func mountType(t *testing.T, dir string) string {
	t.Helper()
	for _, line := range strings.Split(string(readFile(t, "/proc/self/mounts")), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[1] == dir {
			return f[2]
		}
	}
	t.Fatalf("nothing is mounted at %s", dir)
	return ""
}

// needBlockMount skips where the kernel has no fuseblk.
func needBlockMount(t *testing.T) {
	t.Helper()
	needMount(t)
	needLoop(t)
	if !strings.Contains(string(readFile(t, "/proc/filesystems")), "fuseblk") {
		t.Skip("this kernel has no fuseblk")
	}
}

// TestBlockSync: on a block device syncfs(2) commits, which a crash shows.
func TestBlockSync(t *testing.T) {
	needBlockMount(t)
	dev := loopDevice(t, mkfsImage(t, "256M"))
	for name, sync := range map[string]func(dir string) error{
		"syncfs": func(dir string) error {
			d, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer d.Close()
			return unix.Syncfs(int(d.Fd()))
		},
		"sync":       func(string) error { unix.Sync(); return nil },
		"remount,ro": func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
	} {
		t.Run(name, func(t *testing.T) {
			m := mountImage(t, dev, "commit=300")
			if got := mountType(t, m.dir); got != "fuseblk.extfused" {
				t.Fatalf("the mount's type is %s", got)
			}
			file := filepath.Join(m.dir, name)
			if err := os.WriteFile(file, []byte("what sync(2) promised"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := sync(m.dir); err != nil {
				t.Fatal(err)
			}
			m.kill()
			m = mountImage(t, dev)
			if got := string(readFile(t, filepath.Join(m.dir, name))); got != "what sync(2) promised" {
				t.Errorf("after the crash: %q", got)
			}
			m.umount()
		})
	}
}

// TestBlockUmount: umount(8) returns when the image is clean and free.
func TestBlockUmount(t *testing.T) {
	needBlockMount(t)
	dev := loopDevice(t, mkfsImage(t, "256M"))
	m := mountImage(t, dev, "commit=300")
	makeTree(t, filepath.Join(m.dir, "tree"))
	want := snapshot(t, m.dir)
	run(t, "umount", m.dir)
	fsck(t, dev) // at once
	f, err := os.OpenFile(dev, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		t.Errorf("the device is not free after umount(8): %v", err)
	} else {
		f.Close()
	}
	m.wait()
	dir, _ := kernelMount(t, dev, "ro")
	sameTree(t, "through the kernel", want, snapshot(t, dir))
}
