package ext4

import (
	"fmt"
	"strings"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// unlinkedOpen makes n files that are open and have no name any more.
func (m *testFS) unlinkedOpen(n int) []*File {
	m.t.Helper()
	files := make([]*File, n)
	for k := range files {
		name := fmt.Sprint("gone", k)
		files[k] = m.mkfile(name)
		if err := m.Unlink(RootIno, name); err != nil {
			m.t.Fatal(err)
		}
	}
	return files
}

// orphanFeature is orphan_present as the image's superblock has it.
func orphanFeature(t *testing.T, path string) bool {
	t.Helper()
	sb, err := readSuper(ext4test.Load(t, path), ondisk.SuperBlockOffset)
	if err != nil {
		t.Fatal(err)
	}
	return sb.HasROCompat(ondisk.ROCompatOrphanPresent)
}

// Orphans go into the orphan file, not on the list; a crash leaves them to the
// kernel, to e2fsck and to us; a clean unmount leaves neither entries nor the
// feature orphan_present.
func TestOrphanFile(t *testing.T) {
	for _, args := range [][]string{{"-O", "orphan_file", "-b", "1024"}, {"-O", "orphan_file,^metadata_csum"}, {"-O", "orphan_file"}} {
		path := ext4test.Mke2fs(t, 64<<20, args...)
		m := mountImage(t, path, Options{})
		if !orphanFeature(t, path) {
			t.Errorf("%v: mounted, and orphan_present is not set", args)
		}
		const n = 40
		files := m.unlinkedOpen(n)
		if sb := m.Super(); sb.LastOrphan != 0 || m.orphans.file.entries() != n {
			t.Errorf("%v: %d entries, want %d; the list begins with %d", args, m.orphans.file.entries(), n, sb.LastOrphan)
		}
		for _, f := range files[:n/4] { // closed, and so freed
			f.Release()
			m.Forget(f.Ino(), 1)
		}
		if got := m.orphans.file.entries(); got != n*3/4 {
			t.Errorf("%v: %d entries after %d were freed, want %d", args, got, n/4, n*3/4)
		}
		mustOK(t, m.Shutdown(ShutdownLogFlush))
		m.FS.Unmount(t.Context())
		mustOK(t, m.dev.Close())
		m.FS = nil
		for _, who := range []string{"we", "the kernel"} {
			image := ext4test.Save(t, ext4test.Load(t, path))
			if who == "we" {
				again := mountImage(t, image, Options{})
				if got := again.orphans.cleaned.Load(); got != n*3/4 {
					t.Errorf("%v: %d orphans cleaned, want %d", args, got, n*3/4)
				}
				again.unmount()
			} else {
				ext4test.KernelMount(t, image, "", func(string) {})
				ext4test.Fsck(t, image)
			}
			if orphanFeature(t, image) {
				t.Errorf("%v: unmounted by %s, and orphan_present is set", args, who)
			}
			free := ext4test.Dumpe2fs(t, image, "Free inodes")
			if want := ext4test.Dumpe2fs(t, ext4test.Mke2fs(t, 64<<20, args...), "Free inodes"); strings.TrimSpace(free) != strings.TrimSpace(want) {
				t.Errorf("%v: %s free inodes after %s cleaned up, want %s", args, free, who, want)
			}
		}
	}
}

// What the orphan file has no room for goes on the list.
func TestOrphanFileFull(t *testing.T) {
	path := ext4test.Mke2fs(t, 64<<20, "-O", "orphan_file", "-b", "1024", "-N", "12000")
	m := mountImage(t, path, Options{})
	f := &m.orphans.file
	room := len(f.blocks) * ondisk.OrphanBlock(f.blocks[0].buf.Data()).Slots()
	files := m.unlinkedOpen(room + 10)
	if sb := m.Super(); sb.LastOrphan == 0 || f.entries() != room {
		t.Errorf("%d entries of %d, and the list begins with %d", f.entries(), room, sb.LastOrphan)
	}
	mustOK(t, m.Shutdown(ShutdownLogFlush))
	for _, f := range files {
		f.Release()
	}
	m.FS.Unmount(t.Context())
	mustOK(t, m.dev.Close())
	m.mount()
	if got := m.orphans.cleaned.Load(); got != int64(room+10) {
		t.Errorf("%d orphans cleaned, want %d", got, room+10)
	}
}

// A slot that names an inode that cannot be is damage; one whose inode is gone
// already is emptied.
func TestOrphanFileDamage(t *testing.T) {
	path := ext4test.Mke2fs(t, 16<<20, "-O", "orphan_file", "-b", "1024")
	m := mountImage(t, path, Options{})
	blk, seed, csum := m.orphans.file.blocks[0].buf.Block(), m.orphans.file.seed, m.csum
	m.unmount()
	for _, c := range []struct {
		ino  ondisk.InodeNumber
		text string
	}{{ino: 100}, {ino: 3, text: "orphan file: bad inode number"}, {ino: 1 << 30, text: "orphan file: bad inode number"}} {
		dev := ext4test.Load(t, path)
		b := make([]byte, 1024)
		_, err := dev.ReadAt(b, int64(blk)<<10)
		mustOK(t, err)
		ondisk.OrphanBlock(b).SetInode(7, c.ino)
		csum.SetOrphanBlock(seed, ondisk.FsBlock(blk), b)
		_, err = dev.WriteAt(b, int64(blk)<<10)
		mustOK(t, err)
		changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.SetROCompat(ondisk.ROCompatOrphanPresent, true) })
		fs, err := Mount(blockdev.Device(dev), Options{})
		if c.text != "" {
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("inode %d: %v, want %q", c.ino, err, c.text)
			}
			continue
		}
		mustOK(t, err)
		if n := fs.orphans.file.entries(); n != 0 {
			t.Errorf("inode %d: %d entries are left", c.ino, n)
		}
		mustOK(t, fs.Unmount(t.Context()))
		ext4test.Fsck(t, ext4test.Save(t, dev))
	}
}
