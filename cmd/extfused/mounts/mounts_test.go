package mounts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	list, err := parse(strings.NewReader(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
39 22 0:38 / /mnt/with\040blank rw,nosuid shared:5 master:1 - fuse.extfused /images/a\134b rw,user_id=1000,group_id=7
`))
	if err != nil || len(list) != 2 {
		t.Fatalf("%d mounts, %v", len(list), err)
	}
	m := list[1]
	if m.ID != 39 || m.Dev != "0:38" || m.Point != "/mnt/with blank" || m.Source != `/images/a\b` || !m.Ours() || m.UserID() != 1000 {
		t.Errorf("got %+v", m)
	}
	if list[0].Ours() || list[0].UserID() != -1 {
		t.Errorf("got %+v", list[0])
	}
}

func TestParseRefusesNonsense(t *testing.T) {
	for _, line := range []string{"x", "a b c d e f - g h", "22 1 254:0 / / rw"} {
		if _, err := parse(strings.NewReader(line)); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}

func TestResolve(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(dir, "real")
	os.Mkdir(real, 0o755)
	os.Symlink("real", filepath.Join(dir, "link"))
	os.Symlink(dir, filepath.Join(dir, "self"))
	for _, path := range []string{"real", "link", "self/real", "self/link", "real/."} {
		if got, err := Resolve(filepath.Join(dir, path)); err != nil || got != real {
			t.Errorf("%s: %s, %v; want %s", path, got, err, real)
		}
	}
	if _, err := Resolve(filepath.Join(dir, "no/where")); err == nil {
		t.Error("a parent that does not exist was resolved")
	}
}
