package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"extfused/fs/frag"
)

// brokenUp fills dir with files that the allocator of whoever serves it had to
// break up: holes, files that grew by turns, unwritten space, a directory that
// grew, links and a device beside them.
func brokenUp(t *testing.T, dir string) (files []string) {
	t.Helper()
	put := func(name string, off int64, n int) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteAt(make([]byte, n), off)
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for k := range int64(12) {
		put("turn1", k*8192, 8192)
		put("turn2", k*8192, 8192)
		put("holes", k*90000, 5000)
		put("backwards", (12-k)*65536, 4096)
	}
	put("large", 0, 20<<20)
	put("one", 0, 1)
	put("none", 0, 0)
	must(t, "truncate", "-s", "100000", filepath.Join(dir, "one"))
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for k := range 300 {
		put(fmt.Sprintf("d/a-rather-long-name-to-make-the-directory-grow-%d", k), 0, 10)
	}
	for name, target := range map[string]string{"fast": "one", "slow": strings.Repeat("x/", 100)} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"turn1", "turn2", "holes", "backwards", "large", "one", "none", "d"}
}

// onLoop lets fn work on the image mounted by the kernel.
func onLoop(t *testing.T, img string, fn func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if r := finish(t, exec.Command("mount", "-o", "loop", img, dir)); r.code != 0 {
		t.Skipf("the kernel cannot mount here: %s", r.stderr)
	}
	defer must(t, "umount", dir)
	fn(dir)
}

// survey asks for the report.
func survey(t *testing.T, target string) frag.Report {
	t.Helper()
	var rep frag.Report
	r := extfused(t, "frag", target, "--json")
	if err := json.Unmarshal([]byte(r.stdout), &rep); err != nil || r.code != 0 {
		t.Fatalf("frag: exit %d, %v: %s", r.code, err, r.stderr)
	}
	return rep
}

// figure finds a number in a tool's output.
func figure(t *testing.T, out, form string) uint64 {
	t.Helper()
	m := regexp.MustCompile(form).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %q in\n%s", form, out)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// expectAsTools compares a report on an unmounted image with e2fsck and
// e2freefrag.
func expectAsTools(t *testing.T, img string, r frag.Report) {
	t.Helper()
	fsck := finish(t, exec.Command("e2fsck", "-fnv", img)).stdout
	for form, got := range map[string]uint64{
		`(\d+) inodes used`: r.InodesUsed, `(\d+) non-contiguous files`: r.NonContiguousFiles,
		`(\d+) non-contiguous director`: r.NonContiguousDirs,
		`(\d+) regular files?`:          r.Files, `(\d+) director(?:y|ies)\n`: r.Directories,
	} {
		if want := figure(t, fsck, form); got != want {
			t.Errorf("%s: %d, we say %d", form, want, got)
		}
	}
	free := must(t, "e2freefrag", img)
	if want := figure(t, free, `Free blocks: (\d+)`); want != r.FreeBlocks {
		t.Errorf("%d blocks are free, we say %d", want, r.FreeBlocks)
	}
	if want := figure(t, free, `Max. free extent: (\d+) KB`); want != r.LongRun*uint64(r.BlockSize)/1024 {
		t.Errorf("the longest run is of %d KB, we say %d blocks", want, r.LongRun)
	}
	var want []frag.Bucket
	unit := map[string]uint64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\d+)([KMG])\.\.\..* :\s+(\d+)\s+(\d+)\s`).FindAllStringSubmatch(free, -1) {
		size := figure(t, m[1], `(\d+)`) * unit[m[2]] / uint64(r.BlockSize)
		order := 0
		for ; size > 1; size /= 2 {
			order++
		}
		want = append(want, frag.Bucket{Order: order, Count: figure(t, m[3], `(\d+)`), Blocks: figure(t, m[4], `(\d+)`)})
	}
	var got []frag.Bucket
	for _, b := range r.Free {
		if b.Count > 0 {
			got = append(got, b)
		}
	}
	if len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("free runs %v, e2freefrag says %v\n%s", got, want, free)
	}
}

// TestFragAgainstTheTools: what frag says of an image that the kernel wrote is
// what e2fsck, e2freefrag and filefrag say; and the image stays as it was.
func TestFragAgainstTheTools(t *testing.T) {
	need(t, "mke2fs", "e2fsck", "e2freefrag", "filefrag")
	if os.Geteuid() != 0 {
		t.Skip("needs a loop device")
	}
	for name, mkfs := range map[string][]string{
		"1k": {"-t", "ext4", "-b", "1024"}, "4k": {"-t", "ext4", "-b", "4096"}, "ext3": {"-t", "ext3", "-b", "1024"}, "ext2": {"-t", "ext2", "-b", "4096"},
	} {
		t.Run(name, func(t *testing.T) {
			img := filepath.Join(t.TempDir(), "img")
			must(t, "truncate", "-s", "120M", img)
			must(t, "mke2fs", append(append([]string{"-q", "-F"}, mkfs...), img)...)
			var files, kernel []string
			onLoop(t, img, func(dir string) {
				files = brokenUp(t, dir)
				for _, f := range files {
					kernel = append(kernel, must(t, "filefrag", "-v", filepath.Join(dir, f)))
				}
			})
			before := sum(t, img)
			r := survey(t, img)
			if r.NonContiguousFiles < 2 || r.MostExtents < 4 || r.GroupsInUse == 0 || r.GroupsInUse > r.Groups {
				t.Errorf("%+v", r)
			}
			expectAsTools(t, img, r)
			for k, f := range files {
				got := extfused(t, "frag", img, f)
				if got.code != 0 {
					t.Errorf("%s: exit %d: %s", f, got.code, got.stderr)
				}
				if a, b := extentLines(got.stdout), extentLines(kernel[k]); name != "ext2" && name != "ext3" && a != b {
					t.Errorf("%s: we say\n%s\nfilefrag says\n%s", f, a, b)
				}
			}
			if text := extfused(t, "frag", img); text.code != 0 || !strings.Contains(text.stdout, "####") || !strings.Contains(text.stdout, "non-contiguous files") {
				t.Errorf("exit %d\n%s%s", text.code, text.stdout, text.stderr)
			}
			if after := sum(t, img); after != before {
				t.Error("frag changed the image")
			}
		})
	}
}

// extentLines are the lines of extents, and how many extents there are, of
// output in filefrag's form; blanks do not count.
func extentLines(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, ": "); ok && (strings.Contains(line, "..") || strings.HasSuffix(line, "found\n")) {
			b.WriteString(strings.ReplaceAll(strings.Join(strings.Fields(rest), " "), ":,", ": ") + "\n")
		}
	}
	return b.String()
}

// TestFragOfAMount: the daemon says of its mount what the image says
// afterwards.
func TestFragOfAMount(t *testing.T) {
	b := newBox(t, "120M", "-b", "1024")
	b.mount()
	files := brokenUp(t, b.mnt)
	args := []string{}
	for _, f := range files {
		args = append(args, b.path(f))
	}
	if r := extfused(t, "sync", b.mnt); r.code != 0 {
		t.Fatal(r.stderr)
	}
	live := survey(t, b.mnt)
	layouts := extfused(t, append([]string{"frag", b.mnt}, args...)...)
	if layouts.code != 0 {
		t.Fatalf("frag: exit %d: %s", layouts.code, layouts.stderr)
	}
	if r := extfused(t, "frag", b.img); r.code != 6 {
		t.Errorf("an image in use: exit %d: %s", r.code, r.stderr)
	}
	if r := extfused(t, "frag", b.mnt, "nothing", "one"); r.code != 1 || !strings.Contains(r.stderr, "nothing: no such file") || !strings.Contains(r.stdout, "one: 1 extent found") {
		t.Errorf("a missing file: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	b.umount()
	image := survey(t, b.img)
	if fmt.Sprint(live) != fmt.Sprint(image) {
		t.Errorf("mounted: %+v\nthe image: %+v", live, image)
	}
	expectAsTools(t, b.img, image)
	for k := range args {
		args[k] = "/" + files[k]
	}
	again := extfused(t, append([]string{"frag", b.img}, args...)...)
	if strings.ReplaceAll(layouts.stdout, b.mnt, "") != again.stdout {
		t.Errorf("mounted:\n%s\nthe image:\n%s", layouts.stdout, again.stdout)
	}
}

// TestFragOfNoImage: mistakes have their exit codes.
func TestFragOfNoImage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for code, args := range map[int][]string{2: {"frag"}, 3: {"frag", empty + "x"}, 4: {"frag", empty}, 12: {"frag", t.TempDir()}} {
		if r := extfused(t, args...); r.code != code || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, want %d: %s", args, r.code, code, r.stderr)
		}
	}
}
