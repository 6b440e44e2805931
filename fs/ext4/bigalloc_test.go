package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// The twin on clusters from two blocks to 64, and where most of a cluster stays
// unmapped.
func TestBigallocTwin(t *testing.T) {
	steps := 3000
	if testing.Short() {
		steps = 1200
	}
	for k, args := range [][]string{
		{"-b", "1024", "-C", "2048", "-O", "bigalloc"},
		{"-b", "4096", "-C", "65536", "-O", "bigalloc"},
		{"-b", "1024", "-C", "16384", "-O", "bigalloc,^has_journal,^metadata_csum,uninit_bg"},
		{"-b", "2048", "-C", "131072", "-O", "bigalloc,inline_data,ea_inode"},
		{"-b", "4096", "-C", "8192", "-O", "bigalloc,^64bit,meta_bg,^resize_inode"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			t.Parallel()
			m := mountNew(t, 256<<20, args...)
			w := newTwin(t, m, *twinSeed+int64(400+k))
			for range 3 {
				w.run(steps / 3)
				w.quiet()
				w.compareTree(w.root, RootIno)
				m.remount()
				w.compareTree(w.root, RootIno)
			}
			m.unmount()
			compareKernel(t, m.path, w.root)
		})
	}
}

// Blocks of a cluster come and go one by one: the cluster is allocated with the
// first and free with the last.
func TestBigallocClusterLife(t *testing.T) {
	m := mountNew(t, 64<<20, "-b", "1024", "-C", "8192", "-O", "bigalloc")
	f := m.mkfile("f")
	free := func() uint64 {
		mustOK(t, m.Sync())
		return m.Statfs().BlocksFree
	}
	start := free()
	sectors := func(clusters uint64) {
		t.Helper()
		a, err := m.GetAttr(f.Ino())
		mustOK(t, err)
		if a.Blocks != 16*clusters || start-free() != 8*clusters {
			t.Errorf("%d sectors and %d blocks are in use, want %d clusters", a.Blocks, start-free(), clusters)
		}
	}
	write := func(block int64) {
		t.Helper()
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(block)}, 1024), block<<10); err != nil {
			t.Fatal(err)
		}
	}
	punch := func(block, n int64) {
		t.Helper()
		mustOK(t, f.Allocate(block<<10, n<<10, FallocPunchHole|FallocKeepSize))
	}
	m.alloc.DiscardInode(&f.i.pa)
	write(10)
	sectors(1)
	write(8)
	write(15)
	sectors(1)
	write(7) // of the cluster before
	sectors(2)
	mustOK(t, f.Allocate(9<<10, 20<<10, 0)) // to block 29: two clusters more
	sectors(5)                              // and one for a node of the tree: seven extents
	punch(8, 2)
	sectors(5)
	punch(10, 5)
	punch(15, 1)
	sectors(3)
	punch(9, 22)
	sectors(1)
	p := make([]byte, 32<<10)
	n, err := f.ReadAt(p, 0)
	mustOK(t, err)
	for k := range p[:n] {
		if want := byte(0); k>>10 == 7 && p[k] != 7 || k>>10 != 7 && p[k] != want {
			t.Fatalf("byte %d is %d", k, p[k])
		}
	}
	_, err = m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetSize})
	mustOK(t, err)
	sectors(0)
}

// What the kernel wrote into clusters, changed by us and by the kernel.
func TestBigallocOfTheKernel(t *testing.T) {
	image := ext4test.Mke2fs(t, 128<<20, "-b", "1024", "-C", "16384", "-O", "bigalloc")
	want := map[string][]byte{}
	change := func(dir string, round int) {
		for k := range 30 {
			name := fmt.Sprint("f", k)
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
			mustOK(t, err)
			at, piece := int64((k*37+round*11)%90)<<10, bytes.Repeat([]byte{byte(k + round)}, 1+k*300)
			_, err = f.WriteAt(piece, at)
			mustOK(t, err)
			f.Close()
			want[name] = patched(want[name], piece, at)
		}
	}
	ext4test.KernelMount(t, image, "", func(dir string) { change(dir, 1) })
	m := mountImage(t, image, Options{})
	for k := range 30 {
		name := fmt.Sprint("f", k)
		f, err := m.Open(m.must(m.Lookup(RootIno, name)).Ino, 2)
		mustOK(t, err)
		b := make([]byte, 1<<20)
		if n, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b[:n], want[name]) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		piece := bytes.Repeat([]byte{byte(k + 100)}, 2000)
		if _, err := f.WriteAt(piece, int64(k*1500)); err != nil {
			t.Error(err)
		}
		want[name] = patched(want[name], piece, int64(k*1500))
		f.Release()
	}
	mustOK(t, m.Unlink(RootIno, "f3"))
	delete(want, "f3")
	m.unmount()
	ext4test.KernelMount(t, image, "", func(dir string) {
		for name, content := range want {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%s: the kernel reads %d bytes, %v, want %d", name, len(b), err, len(content))
			}
		}
		change(dir, 2)
	})
	ext4test.Fsck(t, image)
	m.mount()
}

func patched(content, piece []byte, at int64) []byte {
	if need := int(at) + len(piece); need > len(content) {
		content = append(content, make([]byte, need-len(content))...)
	}
	copy(content[at:], piece)
	return content
}

func TestBigallocNeedsExtents(t *testing.T) {
	dev := ext4test.Load(t, ext4test.Mke2fs(t, 32<<20, "-O", "bigalloc"))
	changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.SetIncompat(ondisk.IncompatExtents, false) })
	if _, err := Mount(dev, Options{ReadOnly: true}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "bigalloc without extent") {
		t.Error(err)
	}
}
