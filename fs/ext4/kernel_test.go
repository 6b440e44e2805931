package ext4

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// compareKernel mounts the image with the kernel's ext4, read-only, and
// compares the tree with the twin's. Where that is not possible the test is
// skipped; it comes last.
func compareKernel(t *testing.T, image string, root *tnode) {
	t.Helper()
	ext4test.KernelMount(t, image, "ro", func(dir string) { compareKernelDir(t, dir, root) })
}

func compareKernelDir(t *testing.T, path string, d *tnode) {
	t.Helper()
	ents, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(ents) != len(d.kids) {
		t.Fatalf("%s: the kernel sees %d entries, the twin has %d", path, len(ents), len(d.kids))
	}
	for _, e := range ents {
		n := d.kids[e.Name()]
		if n == nil {
			t.Fatalf("%s: the kernel sees %q", path, e.Name())
		}
		compareKernelNode(t, filepath.Join(path, e.Name()), n)
	}
}

func compareKernelNode(t *testing.T, path string, n *tnode) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != n.mode || uint32(st.Nlink) != n.nlink {
		t.Fatalf("%s: the kernel sees mode %o links %d, the twin has %o %d", path, st.Mode, st.Nlink, n.mode, n.nlink)
	}
	var got []byte
	var err error
	switch n.mode & ondisk.ModeFmt {
	case ondisk.ModeDir:
		compareKernelDir(t, path, n)
		return
	case ondisk.ModeReg:
		got, err = os.ReadFile(path)
	case ondisk.ModeLnk:
		var s string
		s, err = os.Readlink(path)
		got = []byte(s)
	default:
		return
	}
	if err != nil || !bytes.Equal(got, n.data) {
		t.Fatalf("%s: the kernel reads %d bytes, the twin has %d, and they differ (%v)", path, len(got), len(n.data), err)
	}
}
