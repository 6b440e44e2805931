package ext4

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4/ext4test"
)

// A hole at or past the end of a file leaves as many blocks as the kernel's.
func TestPunchPastEnd(t *testing.T) {
	const size, room = 42669, 200_000
	holes := [][2]int64{{2020, 41962}, {42000, 5000}, {43000, 100_000}, {size, 10}, {size - 1, 1}, {0, 1 << 20}, {4096, size - 4096}}
	for _, bs := range []string{"1024", "4096"} {
		img := ext4test.Mke2fs(t, 32<<20, "-b", bs)
		var want []uint64
		ext4test.KernelMount(t, img, "", func(dir string) {
			for k, hole := range holes {
				want = append(want, kernelPunched(t, filepath.Join(dir, fmt.Sprint("k", k)), size, room, hole))
			}
		})
		m := mountNew(t, 32<<20, "-b", bs)
		for k, hole := range holes {
			f := m.mkfileIn(RootIno, fmt.Sprint("f", k))
			_, err := f.WriteAt(make([]byte, size), 0)
			mustOK(t, err)
			mustOK(t, f.Allocate(0, room, FallocKeepSize))
			mustOK(t, f.Allocate(hole[0], hole[1], FallocPunchHole|FallocKeepSize))
			a, err := m.GetAttr(f.Ino())
			mustOK(t, err)
			if got := a.Blocks; got != want[k] {
				t.Errorf("blocks of %s bytes, hole %v: %d sectors, the kernel has %d", bs, hole, got, want[k])
			}
			f.Release()
		}
	}
}

func kernelPunched(t *testing.T, path string, size, room int64, hole [2]int64) uint64 {
	f, err := os.Create(path)
	mustOK(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, size))
	mustOK(t, err)
	fd := int(f.Fd())
	mustOK(t, f.Sync())
	mustOK(t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, room))
	mustOK(t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, hole[0], hole[1]))
	mustOK(t, f.Sync())
	var st syscall.Stat_t
	mustOK(t, syscall.Fstat(fd, &st))
	return uint64(st.Blocks)
}
