package ext4

import (
	"fmt"
	"strings"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// TestLargeDir fills a directory past the two index levels that every kernel
// knows, into the third of large_dir, and empties it again.
func TestLargeDir(t *testing.T) {
	m := mountNew(t, 64<<20, "-b", "1024", "-O", "large_dir")
	c := &Caller{}
	dir, err := m.Mkdir(c, RootIno, "dir", 0o755)
	if err != nil {
		t.Fatal(err)
	}
	file, err := m.Mknod(c, RootIno, "file", ondisk.ModeReg|0o644, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 34000
	for i := range n {
		if _, err := m.Link(file.Ino, dir.Ino, fmt.Sprintf("%0240d", i)); err != nil {
			t.Fatalf("name %d: %v", i, err)
		}
	}
	m.remount()
	dump := ext4test.Debugfs(t, m.path, "htree_dump /dir")
	if !strings.Contains(dump, "Indirect levels: 2") {
		t.Errorf("debugfs sees no third level: %.300s", dump)
	}
	if got := len(readAll(t, m.FS, dir.Ino)); got != n+2 {
		t.Errorf("%d names, want %d", got, n+2)
	}
	for i := range n {
		if err := m.Unlink(dir.Ino, fmt.Sprintf("%0240d", i)); err != nil {
			t.Fatalf("unlink %d: %v", i, err)
		}
	}
	if err := m.Rmdir(RootIno, "dir"); err != nil {
		t.Error(err)
	}
}
