package ext4

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// The first file past 2 GiB sets the feature large_file, with which a superblock
// of revision 0 becomes one of revision 1; the kernel does the same.
func TestLargeFileFeature(t *testing.T) {
	const far = 3 << 30
	ways := []struct {
		name string
		ours func(f *File, m *testFS) error
		them func(f *os.File) error
	}{
		{"write", func(f *File, _ *testFS) error { return ignore(f.WriteAt([]byte("x"), far)) },
			func(f *os.File) error { return ignore(f.WriteAt([]byte("x"), far)) }},
		{"truncate", func(f *File, m *testFS) error {
			return ignore(m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetSize, Size: far}))
		}, func(f *os.File) error { return f.Truncate(far) }},
		{"fallocate", func(f *File, _ *testFS) error { return f.Allocate(far, 5000, 0) },
			func(f *os.File) error { return syscall.Fallocate(int(f.Fd()), 0, far, 5000) }},
		{"no more than 2 GiB less one", func(f *File, m *testFS) error {
			return ignore(m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetSize, Size: ondisk.MaxSmallFile}))
		}, func(f *os.File) error { return f.Truncate(ondisk.MaxSmallFile) }},
	}
	for _, row := range []string{"-t ext2 -r 0", "-t ext2 -O ^large_file", "-t ext3 -O ^large_file", "-t ext4 -b 4096 -O ^large_file,^resize_inode"} {
		for _, w := range ways {
			t.Run(row+" "+w.name, func(t *testing.T) {
				image := ext4test.Mke2fs(t, 8<<20, strings.Fields(row)...)
				theirs := filepath.Join(t.TempDir(), "theirs")
				ext4test.Copy(t, image, theirs)
				m := mountImage(t, image, Options{})
				f := m.mkfile("f")
				if sb := m.Super(); sb.HasROCompat(ondisk.ROCompatLargeFile) {
					t.Error("set before there is such a file")
				}
				err := w.ours(f, m)
				mustOK(t, m.Sync())
				f.Release()
				m.unmount()
				ext4test.KernelMount(t, theirs, "", func(dir string) {
					f, e := os.Create(filepath.Join(dir, "f"))
					mustOK(t, e)
					defer f.Close()
					if e = w.them(f); (e == nil) != (err == nil) {
						t.Errorf("ours: %v, the kernel: %v", err, e)
					}
				})
				for _, label := range []string{"Filesystem revision #", "Filesystem features"} {
					if got, want := ext4test.Dumpe2fs(t, image, label), ext4test.Dumpe2fs(t, theirs, label); got != want {
						t.Errorf("%s: %s, the kernel: %s", label, got, want)
					}
				}
				ext4test.KernelMount(t, image, "ro", func(dir string) {
					st, serr := os.Stat(filepath.Join(dir, "f"))
					mustOK(t, serr)
					if err == nil && st.Size() < ondisk.MaxSmallFile {
						t.Errorf("the kernel sees %d bytes", st.Size())
					}
				})
			})
		}
	}
}
