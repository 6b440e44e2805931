package ext4

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
)

// deepOrder lists the logical blocks of single-block extents in an order that
// leaves two of them to a leaf: the first leaf is full at all times, and each
// pair comes between it and the next one, which splits it.
func deepOrder(pairs int64) (order []int64) {
	for k := range int64(83) {
		order = append(order, 2*k)
	}
	for k := range pairs {
		at := 1000 + 4*(pairs-k)
		order = append(order, at, at+2)
	}
	return order
}

// The extent tree of a file grows to depth 4: e2fsck is silent, the kernel reads
// the file, and it can be cut and deleted.
func TestExtentTreeDepth(t *testing.T) {
	const want, pairs, size = 4, int64(9000), 64 << 20
	m := mountNew(t, size, "-b", "1024", "-N", "64")
	f := m.mkfile("deep")
	free := m.Statfs().BlocksFree
	order := deepOrder(pairs)
	for _, l := range order {
		if n, err := f.WriteAt(block(1024, uint64(l)), l<<10); n < 1024 || err != nil {
			t.Fatalf("block %d: %d, %v", l, n, err)
		}
	}
	if depth := f.i.treeDepth(); depth != want {
		t.Fatalf("depth %d, want %d", depth, want)
	}
	ino := f.Ino()
	f.Release()
	m.unmount()
	if dump := ext4test.Debugfs(t, m.path, "stat /deep"); !strings.Contains(dump, "EXTENTS") {
		t.Errorf("debugfs: %.300s", dump)
	}
	ext4test.KernelMount(t, m.path, "ro", func(dir string) {
		f, err := os.Open(filepath.Join(dir, "deep"))
		mustOK(t, err)
		defer f.Close()
		p := make([]byte, 1024)
		for k := 0; k < len(order); k += 1 + len(order)/20_000 {
			l := order[k]
			if n, err := f.ReadAt(p, l<<10); n < 1024 || err != nil || !bytes.Equal(p, block(1024, uint64(l))) {
				t.Fatalf("the kernel reads block %d: %d, %v", l, n, err)
			}
		}
	})
	m.mount()
	f, err := m.Open(ino, syscall.O_RDWR)
	mustOK(t, err)
	p := make([]byte, 1024)
	for k := 0; k < len(order); k += 1 + len(order)/20_000 {
		if n, err := f.ReadAt(p, order[k]<<10); n < 1024 || err != nil || !bytes.Equal(p, block(1024, uint64(order[k]))) {
			t.Fatalf("block %d: %d, %v", order[k], n, err)
		}
	}
	mustOK(t, f.Allocate(2000<<10, pairs<<10, FallocPunchHole|FallocKeepSize))
	f.Release()
	m.remount()
	mustOK(t, m.Unlink(RootIno, "deep"))
	m.remount()
	if now := m.Statfs().BlocksFree; now < free {
		t.Errorf("%d blocks are lost", free-now)
	}
}

// Both ends of what a file of 4 KiB blocks can be: 16 TiB less a block.
func TestLastLogicalBlock(t *testing.T) {
	m := mountNew(t, 16<<20, "-b", "4096")
	f := m.mkfile("f")
	const last = 1<<32 - 2 // logical block
	for _, l := range []int64{0, last - 1, last} {
		if n, err := f.WriteAt(block(4096, uint64(l)), l<<12); n < 4096 || err != nil {
			t.Errorf("block %d: %d, %v", l, n, err)
		}
	}
	mustErr(t, "a block further", ignore(f.WriteAt([]byte("x"), (last+1)<<12)), syscall.EFBIG)
	mustErr(t, "fallocate a block further", f.Allocate((last+1)<<12, 1, 0), syscall.EFBIG)
	mustErr(t, "truncate to a byte more", ignore(m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetSize, Size: (last+1)<<12 + 1})), syscall.EFBIG)
	f.Release()
	m.unmount()
	ext4test.KernelMount(t, m.path, "", func(dir string) {
		f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
		mustOK(t, err)
		defer f.Close()
		p := make([]byte, 4096)
		for _, l := range []int64{0, last - 1, last} {
			if n, err := f.ReadAt(p, l<<12); n < 4096 || err != nil && l != last || !bytes.Equal(p, block(4096, uint64(l))) {
				t.Errorf("the kernel reads block %d: %d, %v", l, n, err)
			}
		}
		if err := f.Truncate((last+1)<<12 + 1); err == nil {
			t.Error("the kernel's files may be longer")
		}
	})
	m.mount()
	mustOK(t, m.Unlink(RootIno, "f"))
}
