package fusefs

import (
	"context"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// newFile mounts dev and creates a file; it returns the request that writes to it.
func newFile(t *testing.T, dev blockdev.Device) (*FileSystem, *fuse.WriteIn) {
	t.Helper()
	fs, err := ext4.Mount(dev, ext4.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Unmount(context.Background()) })
	_, file, err := fs.Create(&ext4.Caller{}, ext4.RootIno, "f", ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Release() })
	f := New(fs, Options{})
	return f, &fuse.WriteIn{Fh: f.handles.add(&openFile{File: file})}
}

// leaveClusters allocates all but n clusters of the given size to another file.
func leaveClusters(t *testing.T, f *FileSystem, n, size int64) {
	t.Helper()
	_, fill, err := f.fs.Create(&ext4.Caller{}, ext4.RootIno, "fill", ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Release()
	st := f.fs.Statfs()
	free := int64(st.BlocksAvail) * int64(st.BlockSize)
	if err := fill.Allocate(0, (free/size-n)*size, 0); err != nil {
		t.Fatal(err)
	}
}

// When only the start of what the kernel writes back finds room, it must hear an
// error; a program's own write is told how much was written.
func TestWriteThatFindsRoomForAPart(t *testing.T) {
	const cluster = 16 << 10
	for _, c := range []struct {
		name   string
		flags  uint32
		pieces int
		n      uint32
		st     fuse.Status
	}{
		{"written back", fuse.WRITE_CACHE, 1, 0, fuse.Status(syscall.ENOSPC)},
		{"written back in pieces", fuse.WRITE_CACHE, 2, 0, fuse.Status(syscall.ENOSPC)},
		{"direct", 0, 1, cluster, fuse.OK},
		{"direct in pieces", 0, 2, cluster, fuse.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := ext4test.Mke2fs(t, 16<<20, "-b", "4096", "-O", "bigalloc", "-C", "16384", "-m", "0")
			f, in := newFile(t, ext4test.Load(t, image))
			leaveClusters(t, f, 1, cluster)
			in.WriteFlags = c.flags
			data := [][]byte{make([]byte, 2*cluster)}
			if c.pieces == 2 {
				data = [][]byte{data[0][:cluster], data[0][cluster:]}
			}
			if n, st := f.Writev(nil, in, data); n != c.n || st != c.st {
				t.Errorf("%d bytes, %v; want %d, %v", n, st, c.n, c.st)
			}
		})
	}
}

// A device that fails while written blocks are overwritten is no success.
func TestOverwriteThatFails(t *testing.T) {
	for _, flags := range []uint32{fuse.WRITE_CACHE, 0} {
		fault := bdtest.NewFault(ext4test.Load(t, ext4test.Mke2fs(t, 16<<20)))
		f, in := newFile(t, fault)
		data := make([]byte, 64<<10)
		if n, st := f.Write(nil, in, data); int(n) != len(data) || !st.Ok() {
			t.Fatalf("%d bytes, %v", n, st)
		}
		fault.Add(bdtest.Rule{Ops: bdtest.OpWrite})
		in.WriteFlags = flags
		if n, st := f.Write(nil, in, data); n != 0 || st != fuse.EIO {
			t.Errorf("flags %d: %d bytes, %v; want EIO", flags, n, st)
		}
		fault.Heal()
	}
}
