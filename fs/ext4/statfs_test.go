package ext4

import (
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
)

// statfs says what the kernel says of the same image.
func TestStatfsAgrees(t *testing.T) {
	for _, args := range [][]string{
		nil, {"-b", "1024"}, {"-b", "4096", "-m", "0"}, {"-O", "^has_journal"}, {"-t", "ext3"}, {"-O", "^flex_bg,^sparse_super,^resize_inode"},
		{"-O", "meta_bg,^resize_inode"},
	} {
		for _, overhead := range []bool{true, false} {
			t.Run(joinNames(args), func(t *testing.T) {
				path := ext4test.Mke2fs(t, 200<<20, args...)
				if !overhead {
					ext4test.DebugfsW(t, path, "ssv overhead_clusters 0")
				}
				m := mountImage(t, path, Options{ReadOnly: true})
				if sb := m.Super(); (sb.OverheadClusters != 0) != overhead {
					t.Fatalf("s_overhead_clusters is %d", sb.OverheadClusters)
				}
				got := m.Statfs()
				ext4test.KernelMount(t, path, "ro", func(dir string) {
					var k syscall.Statfs_t
					if err := syscall.Statfs(dir, &k); err != nil {
						t.Fatal(err)
					}
					want := StatFS{
						BlockSize: uint32(k.Bsize), Blocks: k.Blocks, BlocksFree: k.Bfree, BlocksAvail: k.Bavail,
						Files: k.Files, FilesFree: k.Ffree, NameLen: uint32(k.Namelen),
						FSID: uint64(uint32(k.Fsid.X__val[0])) | uint64(uint32(k.Fsid.X__val[1]))<<32,
					}
					if got != want {
						t.Errorf("ours %+v\nkernel %+v", got, want)
					}
				})
			})
		}
	}
}
