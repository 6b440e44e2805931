package ext4

import (
	"bytes"
	"fmt"
	"math/rand"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

var eaSizes = []int{3, 200, 900, 1500, 5000, 20_000, xattr.MaxValue}

// eaWorker sets and removes attributes with values of all sizes beside a map.
func eaWorker(t *testing.T, m *testFS, seed int64, steps int, inos []ondisk.InodeNumber, twins []map[string][]byte) {
	rng := rand.New(rand.NewSource(seed))
	for step := range steps {
		k, name := rng.Intn(len(inos)), fmt.Sprint("user.name", rng.Intn(5))
		if rng.Intn(3) == 0 {
			want := error(syscall.ENODATA)
			if _, ok := twins[k][name]; ok {
				want = nil
			}
			if err := m.RemoveXattr(nil, inos[k], name); err != want {
				t.Errorf("seed %d step %d: remove: %v, want %v", seed, step, err, want)
			}
			delete(twins[k], name)
			continue
		}
		value := bytes.Repeat([]byte{byte('a' + rng.Intn(2))}, eaSizes[rng.Intn(len(eaSizes))])
		err := m.SetXattr(nil, inos[k], name, value, 0)
		if err != nil && err != syscall.ENOSPC {
			t.Errorf("seed %d step %d: set %s to %d bytes: %v", seed, step, name, len(value), err)
		}
		if err == nil {
			twins[k][name] = value
		}
		if step%40 == 0 {
			compareXattrs(t, m, inos[k], twins[k])
		}
	}
}

// Large values, ours: nothing is lost, nothing leaks, and the kernel reads them.
func TestEAInodes(t *testing.T) {
	for _, args := range [][]string{
		{"-O", "ea_inode"},
		{"-b", "1024", "-O", "ea_inode,^metadata_csum", "-I", "128"},
		{"-O", "ea_inode,^has_journal,metadata_csum_seed", "-I", "1024"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 64<<20, args...)
			const workers, files = 3, 5
			var inos [workers][]ondisk.InodeNumber
			var twins [workers][]map[string][]byte
			free := m.Statfs()
			for g := range workers {
				for k := range files {
					inos[g] = append(inos[g], m.mkfile(fmt.Sprintf("f%d-%d", g, k)).i.ino)
					twins[g] = append(twins[g], map[string][]byte{})
				}
			}
			for round := range 2 {
				var wg sync.WaitGroup
				for g := range workers {
					wg.Add(1)
					go func() { defer wg.Done(); eaWorker(t, m, int64(10*round+g), 400, inos[g], twins[g]) }()
				}
				wg.Wait()
				m.remount()
				for g := range workers {
					for k, ino := range inos[g] {
						compareXattrs(t, m, ino, twins[g][k])
					}
				}
			}
			m.unmount()
			ext4test.KernelMount(t, m.path, "ro", func(dir string) {
				for g := range workers {
					for k := range files {
						kernelHasXattrs(t, filepath.Join(dir, fmt.Sprintf("f%d-%d", g, k)), twins[g][k])
					}
				}
			})
			m.mount()
			for g := range workers {
				for k := range files {
					mustOK(t, m.Unlink(RootIno, fmt.Sprintf("f%d-%d", g, k)))
				}
			}
			mustOK(t, m.Sync())
			if now := m.Statfs(); now.FilesFree != free.FilesFree || now.BlocksFree != free.BlocksFree {
				t.Errorf("%d files and %d blocks leaked", free.FilesFree-now.FilesFree, free.BlocksFree-now.BlocksFree)
			}
		})
	}
}

func kernelHasXattrs(t *testing.T, path string, want map[string][]byte) {
	t.Helper()
	buf := make([]byte, xattr.MaxValue)
	for name, value := range want {
		n, err := unix.Lgetxattr(path, name, buf)
		if err != nil || !bytes.Equal(buf[:max(n, 0)], value) {
			t.Errorf("the kernel reads %s as %d bytes, %v; want %d", name, n, err, len(value))
		}
	}
}

// What the kernel made, with values that inodes share: changed and deleted by us.
func TestEAInodesOfTheKernel(t *testing.T) {
	image := ext4test.Mke2fs(t, 64<<20, "-O", "ea_inode")
	const files = 12
	twins := make([]map[string][]byte, files)
	ext4test.KernelMount(t, image, "", func(dir string) {
		for k := range files {
			path := filepath.Join(dir, fmt.Sprint("f", k))
			fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o644)
			mustOK(t, err)
			unix.Close(fd)
			// A block that is no other's: where the kernel (6.18) shares one with a
			// value inode in it, it counts that inode once too often.
			own := bytes.Repeat([]byte{byte(k)}, 120)
			mustOK(t, unix.Setxattr(path, "user.own", own, 0))
			twins[k] = map[string][]byte{"user.own": own}
			for j := range 4 { // the same for all: one inode a value
				name, value := fmt.Sprint("user.name", j), bytes.Repeat([]byte{byte('k' + j)}, eaSizes[3+j])
				mustOK(t, unix.Setxattr(path, name, value, 0))
				twins[k][name] = value
			}
		}
	})
	ext4test.Fsck(t, image)
	m := mountImage(t, image, Options{})
	var inos []ondisk.InodeNumber
	for k := range files {
		a, err := m.Lookup(RootIno, fmt.Sprint("f", k))
		mustOK(t, err)
		inos = append(inos, a.Ino)
		compareXattrs(t, m, a.Ino, twins[k])
	}
	eaWorker(t, m, 5, 60, inos, twins)
	for _, k := range []int{0, 3, 4} {
		mustOK(t, m.Unlink(RootIno, fmt.Sprint("f", k)))
		m.Forget(inos[k], 1)
	}
	m.remount()
	for _, k := range []int{1, 2, 5, 11} {
		compareXattrs(t, m, inos[k], twins[k])
	}
	eaWorker(t, m, 6, 300, inos[5:], twins[5:])
	m.unmount()
	ext4test.KernelMount(t, image, "", func(dir string) {
		for _, k := range []int{1, 2, 5, 11} {
			kernelHasXattrs(t, filepath.Join(dir, fmt.Sprint("f", k)), twins[k])
		}
		mustOK(t, unix.Unlink(filepath.Join(dir, "f1")))
	})
	m.mount()
	for k := range files {
		if k != 0 && k != 3 && k != 4 && k != 1 {
			mustOK(t, m.Unlink(RootIno, fmt.Sprint("f", k)))
		}
	}
}

// Files with the same value share its inode, which goes with the last of them, and
// whose count the kernel agrees with.
func TestEAInodesShared(t *testing.T) {
	for _, args := range [][]string{{"-O", "ea_inode"}, {"-b", "1024", "-I", "128", "-O", "ea_inode,^metadata_csum"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 32<<20, args...)
			const files = 6
			free := m.Statfs()
			value := bytes.Repeat([]byte("v"), 30_000)
			inos := make([]ondisk.InodeNumber, files)
			for k := range files {
				inos[k] = m.mkfile(fmt.Sprint("f", k)).Ino()
				// What is each file's own keeps the kernel from sharing blocks.
				mustOK(t, m.SetXattr(nil, inos[k], "user.own", bytes.Repeat([]byte{byte(k)}, 120), 0))
				mustOK(t, m.SetXattr(nil, inos[k], "user.large", value, 0))
			}
			used := func() uint64 { mustOK(t, m.Sync()); return free.FilesFree - m.Statfs().FilesFree }
			if n := used(); n != files+1 {
				t.Errorf("%d inodes for %d files and a value", n, files)
			}
			mustOK(t, m.SetXattr(nil, inos[0], "user.again", value, 0)) // of the same file: its own
			mustOK(t, m.SetXattr(nil, inos[0], "user.large", value, 0)) // the same again
			mustOK(t, m.RemoveXattr(nil, inos[0], "user.again"))
			mustOK(t, m.SetXattr(nil, inos[1], "user.large", []byte("short"), 0))
			mustOK(t, m.RemoveXattr(nil, inos[2], "user.large"))
			m.remount()
			for _, k := range []int{0, 3, 4, 5} {
				compareXattrs(t, m, inos[k], map[string][]byte{"user.own": bytes.Repeat([]byte{byte(k)}, 120), "user.large": value})
			}
			mustOK(t, m.SetXattr(nil, inos[2], "user.large", value, 0)) // found, since it was read
			if n := used(); n > files+2 {
				t.Errorf("%d inodes for %d files and a value or two", n, files)
			}
			m.unmount()
			ext4test.KernelMount(t, m.path, "", func(dir string) {
				for _, k := range []int{0, 2, 3, 4, 5} {
					kernelHasXattrs(t, filepath.Join(dir, fmt.Sprint("f", k)), map[string][]byte{"user.large": value})
				}
				mustOK(t, unix.Unlink(filepath.Join(dir, "f4")))
				mustOK(t, unix.Removexattr(filepath.Join(dir, "f5"), "user.large"))
			})
			ext4test.Fsck(t, m.path)
			m.mount()
			for _, k := range []int{0, 1, 2, 3, 5} {
				mustOK(t, m.Unlink(RootIno, fmt.Sprint("f", k)))
			}
			if n := used(); n != 0 {
				t.Errorf("%d inodes leaked", n)
			}
		})
	}
}
