package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/command"
)

// TestBadInput: each mistake has an exit code and one line on stderr that
// names it; the image and the mountpoint are as before.
func TestBadInput(t *testing.T) {
	b := newBox(t, "16M")
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	zeroes := file("zeroes", strings.Repeat("\x00", 1<<20))
	xfs := file("xfs", "XFSB"+strings.Repeat("\x00", 1<<20))
	short := filepath.Join(dir, "short")
	must(t, "cp", "--sparse=always", b.img, short)
	os.Truncate(short, 8<<20)
	future := filepath.Join(dir, "future")
	must(t, "mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum", future, "8M")
	poke(t, future, 1024+0x62, 0x80) // a high bit of s_feature_incompat that nobody knows
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := filepath.Join(dir, "taken")
	os.Mkdir(taken, 0o755)
	if err := unix.Mount("tmpfs", taken, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(taken, unix.MNT_DETACH)

	for _, c := range []struct {
		name string
		code int
		says []string
		args []string
	}{
		{"no arguments", command.ExitUsage, []string{"IMAGE MOUNTPOINT"}, []string{"mount"}},
		{"unknown flag", command.ExitUsage, []string{"--frob"}, []string{"mount", "--frob", b.img, b.mnt}},
		{"unknown command", command.ExitUsage, []string{"frob"}, []string{"frob"}},
		{"unknown option", command.ExitUsage, []string{`"frob=1"`}, []string{"mount", "-o", "rw,frob=1", b.img, b.mnt}},
		{"option without value", command.ExitUsage, []string{"commit"}, []string{"mount", "-o", "commit", b.img, b.mnt}},
		{"option with a bad value", command.ExitUsage, []string{"errors=explode"}, []string{"mount", "-o", "errors=explode", b.img, b.mnt}},
		{"option that takes no value", command.ExitUsage, []string{"discard"}, []string{"mount", "-o", "discard=7", b.img, b.mnt}},
		{"unknown tunable", command.ExitUsage, []string{"mb_frob"}, []string{"mount", "-o", "mb_frob=1", b.img, b.mnt}},
		{"noload without ro", command.ExitUsage, []string{"noload", "ro"}, []string{"mount", "-o", "noload", b.img, b.mnt}},
		{"bad log level", command.ExitUsage, []string{"loud"}, []string{"mount", "--log-level", "loud", b.img, b.mnt}},
		{"no image", command.ExitImage, []string{"nowhere does not exist"}, []string{"mount", filepath.Join(dir, "nowhere"), b.mnt}},
		{"image is a character device", command.ExitImage, []string{"/dev/null"}, []string{"mount", "/dev/null", b.mnt}},
		{"image is a directory", command.ExitImage, []string{dir}, []string{"mount", dir, b.mnt}},
		{"zeroes", command.ExitNotExt4, []string{zeroes, "mkfs"}, []string{"mount", zeroes, b.mnt}},
		{"another file system", command.ExitNotExt4, []string{xfs, "XFS"}, []string{"mount", xfs, b.mnt}},
		{"short image", command.ExitNotExt4, []string{short, "short"}, []string{"mount", short, b.mnt}},
		{"unknown feature", command.ExitFeature, []string{future, "feature"}, []string{"mount", future, b.mnt}},
		{"offset beyond the end", command.ExitUsage, []string{"offset"}, []string{"mount", "-o", "offset=1G", b.img, b.mnt}},
		{"no mountpoint", command.ExitMountpoint, []string{"nowhere", "does not exist"}, []string{"mount", b.img, filepath.Join(dir, "nowhere")}},
		{"mountpoint is a file", command.ExitMountpoint, []string{zeroes, "directory"}, []string{"mount", b.img, zeroes}},
		{"mountpoint in use", command.ExitBusy, []string{taken, "busy"}, []string{"mount", b.img, taken}},
		{"address in use", command.ExitAddress, []string{busy.Addr().String(), "in use"}, []string{"mount", "--metrics", busy.Addr().String(), b.img, b.mnt}},
		{"umount of nothing", command.ExitNotMounted, []string{b.mnt}, []string{"umount", b.mnt}},
		{"sync of nothing", command.ExitNotMounted, []string{b.mnt}, []string{"sync", b.mnt}},
		{"stats of nothing", command.ExitNotMounted, []string{b.mnt}, []string{"stats", b.mnt}},
	} {
		t.Run(c.name, func(t *testing.T) {
			images := []string{b.img, zeroes, xfs, short, future}
			var before []string
			for _, img := range images {
				before = append(before, sum(t, img))
			}
			r := extfused(t, c.args...)
			if r.code != c.code {
				t.Errorf("exit %d, want %d", r.code, c.code)
			}
			if strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "\n") {
				t.Errorf("stderr is not one line: %q", r.stderr)
			}
			for _, word := range c.says {
				if !strings.Contains(r.stderr, word) {
					t.Errorf("stderr %q does not mention %q", r.stderr, word)
				}
			}
			for i, img := range images {
				if after := sum(t, img); after != before[i] {
					t.Errorf("%s was changed", img)
				}
			}
			if b.mounted() != nil {
				t.Error("something is mounted")
			}
			t.Log(strings.TrimSpace(r.stderr))
		})
	}
}

// poke changes one byte of a file.
func poke(t *testing.T, path string, off int64, value byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{value}, off); err != nil {
		t.Fatal(err)
	}
}
