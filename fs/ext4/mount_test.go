package ext4

import (
	"testing"
	"time"

	"extfused/fs/ext4/ext4test"
)

func TestMountUnmount(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"-O", "^has_journal"},
		{"-b", "1024"},
		{"-b", "2048", "-O", "^metadata_csum"},
		{"-O", "^64bit,^metadata_csum,uninit_bg"},
		{"-O", "^flex_bg"},
		{"-O", "meta_bg,^resize_inode"},
		{"-t", "ext3"},
		{"-t", "ext2"},
		{"-O", "metadata_csum_seed,orphan_file"},
		{"-I", "128", "-O", "^extra_isize"},
	} {
		t.Run(joinNames(args), func(t *testing.T) {
			m := mountNew(t, 64<<20, args...)
			before := m.Statfs()
			if before.BlocksFree == 0 || before.FilesFree == 0 {
				t.Errorf("statfs %+v", before)
			}
			m.remount()
			if after := m.Statfs(); after != before {
				t.Errorf("statfs changed from %+v to %+v", before, after)
			}
			if got := ext4test.Dumpe2fs(t, m.path, "Mount count"); got != "2" {
				t.Errorf("mount count %s", got)
			}
		})
	}
}

// A fresh 1 TiB image is mounted without reading its bitmaps.
func TestMountHuge(t *testing.T) {
	path := ext4test.Mke2fs(t, 1<<40)
	start := time.Now()
	m := mountImage(t, path, Options{})
	t.Logf("mounted in %v, %d bytes read", time.Since(start), m.Stats().Device.ReadBytes)
	if n := m.Stats().Device.ReadBytes; n > 4<<20 {
		t.Errorf("the mount read %d bytes", n)
	}
}
