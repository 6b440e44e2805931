package command

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"extfused/blockdev"
)

// extfused runs the real root command.
func extfused(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(append([]string{"extfused"}, args...), &out, &err)
	return code, out.String(), err.String()
}

// mustFail runs a command that must end with code and one line on stderr with
// text in it.
func mustFail(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	got, _, stderr := extfused(args...)
	if got != code || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, text) {
		t.Errorf("extfused %s: exit code %d (want %d), stderr %q (want %q)", strings.Join(args, " "), got, code, stderr, text)
	}
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := extfused(args...)
	if code != 0 || stderr != "" {
		t.Fatalf("extfused %s: exit code %d, %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func fsck(t *testing.T, image string) {
	t.Helper()
	if _, err := exec.LookPath("e2fsck"); err != nil {
		t.Skip("e2fsck is not installed (package e2fsprogs)")
	}
	if out, err := exec.Command("e2fsck", "-fn", image).CombinedOutput(); err != nil {
		t.Errorf("e2fsck -fn: %v\n%s", err, out)
	}
}

func TestMkfsMakesAFile(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	out := mustRun(t, "mkfs", image, "-s", "64M", "-L", "a label", "-U", "00112233-4455-6677-8899-aabbccddeeff", "-m", "1", "-i", "8K", "-J", "size=8", "-b", "2K")
	if !strings.Contains(out, "32768 blocks of 2048 bytes, 327 reserved") || !strings.Contains(out, "journal of 4096 blocks") {
		t.Error(out)
	}
	st, err := os.Stat(image)
	if err != nil || st.Size() != 64<<20 {
		t.Fatalf("%v, %v", st, err)
	}
	fsck(t, image)
	var made struct {
		Superblock map[string]any
	}
	if err := json.Unmarshal([]byte(mustRun(t, "info", "--json", image)), &made); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"filesystem_volume_name": "a label", "filesystem_uuid": "00112233-4455-6677-8899-aabbccddeeff",
		"block_size": 2048.0, "inode_count": 8192.0, "total_journal_size": 8388608.0} {
		if got := made.Superblock[key]; got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}

func TestMkfsKeepsWhatIsThere(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	mustRun(t, "mkfs", image, "-s", "8M", "-L", "precious")
	before, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	mustFail(t, ExitHasContents, `holds an ext4 file system labelled "precious"`, "mkfs", image)
	mustFail(t, ExitUsage, "block size 5000", "mkfs", "-F", "-b", "5000", image)
	mustFail(t, ExitUsage, "too big", "mkfs", "-F", "-J", "size=100", image)
	mustRun(t, "mkfs", "-n", "-F", image)
	after, err := os.ReadFile(image)
	if err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the image has changed (%v)", err)
	}
	mustRun(t, "mkfs", "-F", image)
	fsck(t, image)
}

func TestMkfsOfAnImageInUse(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	mustRun(t, "mkfs", image, "-s", "8M")
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	mustFail(t, ExitInUse, "in use", "mkfs", "-F", image)
	mustRun(t, "info", image) // which needs no lock
}

func TestMkfsGrowsAFile(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(image, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFail(t, ExitUsage, "too small", "mkfs", image)
	mustRun(t, "mkfs", image, "-s", "4M")
	fsck(t, image)
}

func TestMkfsRefusals(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "img")
	mustFail(t, ExitUsage, "give its size with -s", "mkfs", image)
	mustFail(t, ExitUsage, `"12Q" is no size`, "mkfs", image, "-s", "12Q")
	mustFail(t, ExitUsage, "too small", "mkfs", image, "-s", "10K")
	mustFail(t, ExitUsage, "no UUID", "mkfs", image, "-s", "10M", "-U", "random")
	mustFail(t, ExitUsage, "only size=", "mkfs", image, "-s", "10M", "-J", "device=/dev/sda")
	mustFail(t, ExitUsage, "at most 16 bytes", "mkfs", image, "-s", "10M", "-L", "seventeen letters")
	mustFail(t, ExitUsage, "expected IMAGE", "mkfs")
	mustFail(t, ExitImage, "directory", "mkfs", dir)
	mustFail(t, ExitImage, "no such file", "mkfs", filepath.Join(dir, "no", "such"), "-s", "10M")
	mustRun(t, "mkfs", "-n", image, "-s", "16T")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInfo(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	mustRun(t, "mkfs", image, "-s", "64M")
	before, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	out := mustRun(t, "info", image)
	if !strings.Contains(out, "Block count:              65536\n") || strings.Count(out, "INODE_UNINIT") != 7 {
		t.Error(out)
	}
	if short := mustRun(t, "info", "--no-groups", image); strings.Contains(short, "INODE_UNINIT") || !strings.HasPrefix(out, short) {
		t.Error(short)
	}
	after, err := os.ReadFile(image)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the image has changed (%v)", err)
	}
}

func TestInfoRefusals(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "img")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFail(t, ExitNotExt4, "not an ext2, ext3 or ext4", "info", image)
	mustFail(t, ExitImage, "no such file", "info", filepath.Join(dir, "no"))
	mustFail(t, ExitUsage, "the image has", "info", "--offset", "2M", image)
	mustRun(t, "mkfs", "-F", image)
	if err := os.Truncate(image, 600<<10); err != nil {
		t.Fatal(err)
	}
	mustFail(t, ExitNotExt4, "shorter than its superblock says", "info", image)
}

func TestInfoAtAnOffset(t *testing.T) {
	image := filepath.Join(t.TempDir(), "img")
	mustRun(t, "mkfs", image, "-s", "4M", "-L", "inner")
	b, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, append(make([]byte, 1<<20), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, "info", "--offset", "1M", image); !strings.Contains(out, "inner") {
		t.Error(out)
	}
}
