package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that finds room for its start only, while the kernel writes it back: as
// fsync(2) is what promises, it must not succeed with the rest of it lost.
func TestFsyncOfWhatFindsNoRoom(t *testing.T) {
	needMount(t)
	const cluster, size = 16 << 10, 20_000
	img := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-m", "0", img, "8M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v: %s", err, out)
	}
	m := mountImage(t, img)
	fill, err := os.Create(filepath.Join(m.dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	var st unix.Statfs_t
	if err := unix.Statfs(m.dir, &st); err != nil {
		t.Fatal(err)
	}
	room := int64(st.Bavail) * st.Bsize / cluster
	if err := unix.Fallocate(int(fill.Fd()), 0, 0, (room-1)*cluster); err != nil {
		t.Fatal(err)
	}
	fill.Close()
	path := filepath.Join(m.dir, "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, werr := f.Write(make([]byte, size))
	serr := f.Sync()
	cerr := f.Close()
	t.Logf("write %v, fsync %v, close %v", werr, serr, cerr)
	m.umount()
	m = mountImage(t, img, "ro")
	fi, err := os.Stat(filepath.Join(m.dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if werr == nil && serr == nil && fi.Size() != size {
		t.Errorf("fsync succeeded, and %d of %d bytes are there", fi.Size(), size)
	}
	if werr == nil && serr == nil {
		t.Errorf("one cluster of %d bytes is free, and %d bytes were promised", cluster, size)
	}
	m.umount()
}
