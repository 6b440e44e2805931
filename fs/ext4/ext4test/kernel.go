package ext4test

import (
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// KernelMount mounts an image by the kernel's ext4 over a loop device and
// calls fn with the mountpoint, which is unmounted when fn returns. Where that
// is not allowed the test is skipped.
func KernelMount(t TB, image, options string, fn func(dir string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting by the kernel needs root")
	}
	dir := t.TempDir()
	opts := "loop"
	if options != "" {
		opts += "," + options
	}
	if out, err := exec.Command("mount", "-t", "ext4", "-o", opts, image, dir).CombinedOutput(); err != nil {
		t.Skipf("the kernel does not mount the image here: %v: %s", err, out)
	}
	defer kernelUmount(t, image, dir)
	fn(dir)
}

// kernelUmount unmounts and waits for the loop device to let go of the image.
// A child of this process that is between fork and exec holds what is open
// here, so that the first attempts may find the mount busy.
func kernelUmount(t TB, image, dir string) {
	t.Helper()
	var out []byte
	var err error
	for range 20 {
		if out, err = exec.Command("umount", dir).CombinedOutput(); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		exec.Command("umount", "-l", dir).Run()
		t.Errorf("umount: %v: %s", err, out)
	}
	for range 40 {
		if out, err := exec.Command("losetup", "-j", image).Output(); err != nil || len(out) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// KernelCrash lets the kernel mount an image, runs fn on it, and copies the
// image file as it is while still mounted, after a sync of the file: as if the
// power had gone. It returns the copy's path.
func KernelCrash(t TB, image, options string, fn func(dir string)) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "crashed")
	KernelMount(t, image, options, func(dir string) {
		fn(dir)
		Copy(t, image, copied)
	})
	return copied
}

// Copy copies a file, keeping holes.
func Copy(t TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

// Sum is the SHA-256 of a file.
func Sum(t TB, path string) [32]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

var _ TB = (*testing.B)(nil)
