package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// An external journal is found by the number that the superblock has for its
// device, and by UUID when the device has another number by now; journal_dev= and
// journal_path= name it.
func TestExternalJournal(t *testing.T) {
	needMount(t)
	needLoop(t)
	log := filepath.Join(t.TempDir(), "log")
	run(t, "mke2fs", "-q", "-F", "-O", "journal_dev", "-b", "4096", log, "16M")
	first := loopDevice(t, log)
	img := mkfsImage(t, "64M", "-J", "device="+first)
	mountWith := func(jdev string, opts ...string) {
		t.Helper()
		m := startMount(t, img, t.TempDir(), opts...)
		defer m.cleanup()
		if err := os.WriteFile(filepath.Join(m.dir, "f"), []byte("x"), 0o644); err != nil {
			t.Error(err)
		}
		run(t, bin, "umount", m.dir)
		m.wait()
		run(t, "e2fsck", "-fn", "-j", jdev, img)
	}
	mountWith(first)
	var st syscall.Stat_t
	if err := syscall.Stat(first, &st); err != nil {
		t.Fatal(err)
	}
	mountWith(first, "journal_dev="+strconv.FormatUint(st.Rdev, 10))
	mountWith(first, "journal_path="+first)

	// The old number is another device's now.
	other := filepath.Join(t.TempDir(), "other")
	run(t, "mke2fs", "-q", "-F", "-O", "journal_dev", "-b", "4096", other, "16M")
	run(t, "losetup", "-d", first)
	run(t, "losetup", first, other)
	second := strings.TrimSpace(run(t, "losetup", "-f", "--show", log))
	defer run(t, "losetup", "-d", second)
	mountWith(second)
}
