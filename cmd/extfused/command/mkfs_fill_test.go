package command

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// identity makes a run repeatable.
var identity = []string{"-U", "00112233-4455-6677-8899-aabbccddeeff", "-E", "hash_seed=01234567-89ab-cdef-0123-456789abcdef", "--timestamp", "1700000000"}

func dumpe2fs(t *testing.T, image string) string {
	t.Helper()
	out, err := exec.Command("dumpe2fs", "-h", image).Output()
	if err != nil {
		t.Skipf("dumpe2fs: %v", err)
	}
	return string(out)
}

// TestMkfsOptions: what is asked for is what dumpe2fs tells.
func TestMkfsOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"-t ext2 -s 32M", []string{"Filesystem features:      ext_attr resize_inode dir_index filetype sparse_super large_file\n"}},
		{"-t ext3 -s 32M -I 128", []string{"has_journal ext_attr", "Inode size:	          128\n", "Total journal blocks:     4096\n"}},
		{"-r 0 -s 32M", []string{"Filesystem revision #:    0 (original)\n", "Filesystem features:      (none)\n"}},
		{"-O none -s 32M", []string{"Filesystem features:      (none)\n", "(dynamic)"}},
		{"-O ^64bit,large_dir -O ^dir_nlink -s 32M", []string{"extent flex_bg large_dir sparse_super", "huge_file extra_isize"}},
		{"-s 300M -g 4096 -G 4 -b 4K -N 5000", []string{"Blocks per group:         4096\n", "Flex block group size:    4\n", "Inode count:              5168\n"}},
		{"-s 64M -b 4096 -E stride=16,stripe_width=64 -E root_owner=5:6", []string{"RAID stride:              16\n", "RAID stripe width:        64\n"}},
		{"-s 64M -b 65536 -I 512", []string{"Block size:               65536\n", "Inode size:	          512\n"}},
		{"-s 64M -O sparse_super2 -E num_backup_sb=1", []string{"sparse_super2"}},
		{"-s 64M -D --timestamp 1000000000", []string{"Filesystem created:       Sun Sep  9 01:46:40 2001\n"}},
		{"-s 64M -O fast_commit -J size=8,fast_commit_size=256", []string{"Fast commit length:       256\n", "Total journal blocks:     8448\n"}},
	} {
		image := filepath.Join(t.TempDir(), "img")
		t.Setenv("TZ", "UTC")
		mustRun(t, append([]string{"mkfs", image}, strings.Fields(c.args)...)...)
		fsck(t, image)
		out := dumpe2fs(t, image)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("mkfs %s: dumpe2fs does not say %q:\n%s", c.args, want, out)
			}
		}
	}
}

func TestMkfsOptionRefusals(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	for args, want := range map[string]string{
		"-t ext5":                      "know ext2, ext3 and ext4",
		"-O nonsense":                  `no feature "nonsense"`,
		"-O compression":               "does not write to file systems with compression",
		"-O journal_dev":               "does not write to file systems with journal_dev",
		"-O shared_blocks,replica":     "replica, shared_blocks",
		"-E nonsense=1":                `no extended option "nonsense"`,
		"-E stride=x":                  "want a number",
		"-r 2":                         "revisions 0 and 1",
		"-C 64K":                       "needs bigalloc",
		"-I 100":                       "inode size 100",
		"-G 3":                         "power of two",
		"-g 100":                       "100 blocks per group",
		"-O ^extent":                   "64bit needs extent",
		"-O ^sparse_super":             "resize_inode needs sparse_super",
		"-O meta_bg":                   "exclude each other",
		"--timestamp yesterday":        "want seconds",
		"-J fast_commit_size=0":        "want a number",
		"-d /does/not/exist":           "no such file",
		"-J size=8,device=/dev/loop99": "only size= and fast_commit_size=",
	} {
		mustFail(t, ExitUsage, want, append([]string{"mkfs", image, "-s", "64M"}, strings.Fields(args)...)...)
	}
	if _, err := os.Stat(image); err == nil {
		t.Error("an image is left")
	}
}

// TestMkfsFills from a directory, a tar archive and one from stdin, each twice.
func TestMkfsFills(t *testing.T) {
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "hello"), []byte("world\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "./hello", Mode: 0o644, Size: 6, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("world\n"))
	w.Close()
	archive := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{src, archive, "-"} {
		var images [2][]byte
		for i := range images {
			image := filepath.Join(t.TempDir(), "img")
			cmd := NewRoot()
			var out bytes.Buffer
			cmd.SetIn(bytes.NewReader(b.Bytes()))
			cmd.SetOut(&out)
			cmd.SetArgs(append([]string{"mkfs", image, "-s", "16M", "-d", source}, identity...))
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "filled with 1 files") {
				t.Error(out.String())
			}
			fsck(t, image)
			if got, err := exec.Command("debugfs", "-R", "cat /hello", image).Output(); err != nil || string(got) != "world\n" {
				t.Errorf("-d %s: %q, %v", source, got, err)
			}
			var err error
			if images[i], err = os.ReadFile(image); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(images[0], images[1]) {
			t.Errorf("-d %s: two runs differ", source)
		}
	}
}

// TestMkfsFillFails: no file system is left that has half of the content.
func TestMkfsFillFails(t *testing.T) {
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "large"), bytes.Repeat([]byte("x"), 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "img")
	mustFail(t, ExitFailure, "large: no space left", "mkfs", image, "-s", "4M", "-d", src)
	if _, err := os.Stat(image); err == nil {
		t.Error("the image is left")
	}
	mustRun(t, "mkfs", image, "-s", "4M")
	mustFail(t, ExitFailure, "large: no space left", "mkfs", "-F", image, "-d", src)
	mustFail(t, ExitNotExt4, "not an ext2", "info", image)
}

func TestBarText(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, 100, "x [" + strings.Repeat("-", 40) + "] 0% 0 B of 100 B"},
		{50, 100, "x [" + strings.Repeat("#", 20) + strings.Repeat("-", 20) + "] 50% 50 B of 100 B"},
		{200, 100, "x [" + strings.Repeat("#", 40) + "] 100% 100 B of 100 B"},
		{2048, 0, "x: 2 KiB"},
	} {
		if got := barText("x", c.done, c.total); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var b bytes.Buffer
	p := newProgress(&b, "x", false)
	p.set(1, 2)
	p.end()
	if b.Len() != 0 {
		t.Errorf("%q was drawn where there is no terminal", b.String())
	}
}

// TestInfoFeatures: the table needs no image, and has the same rows as JSON.
func TestInfoFeatures(t *testing.T) {
	out := mustRun(t, "info", "--features")
	if !strings.Contains(out, "| metadata_csum | ro_compat | yes") || strings.Count(out, "\n") < 40 {
		t.Error(out)
	}
	if n := strings.Count(mustRun(t, "info", "--features", "--json"), `"tested_by"`); n != strings.Count(out, "\n")-2 {
		t.Errorf("%d rows of JSON, and\n%s", n, out)
	}
	mustFail(t, ExitUsage, "takes no image", "info", "--features", "x")
}
