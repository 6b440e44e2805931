package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestUntar unpacks a real source tree and compares it with the host's copy
// through our mount and through the kernel's; then removes it through ours.
func TestUntar(t *testing.T) {
	needMount(t)
	needLoop(t)
	tar := sourceTar(t)
	want := hostTree(t, tar)
	kernelGroups := kernelUntar(t, tar)
	for _, c := range []struct {
		name string
		make func(t *testing.T) string
	}{
		{"our image in a file", func(t *testing.T) string { return image(t, "6G") }},
		{"image of mkfs.ext4 on a loop device", func(t *testing.T) string { return loopDevice(t, mkfsImage(t, "6G")) }},
	} {
		t.Run(c.name, func(t *testing.T) { untarRoundTrip(t, c.make(t), tar, want, kernelGroups) })
	}
}

func untarRoundTrip(t *testing.T, img, tar string, want map[string]entry, kernelGroups int) {
	before := freeBlocks(t, img)
	m := mountImage(t, img)
	run(t, "tar", "-xf", tar, "-C", m.dir)
	ours := snapshot(t, m.dir)
	sameTree(t, "before the unmount", want, ours)
	m.umount()

	groups := groupsTouched(before, freeBlocks(t, img))
	if groups > kernelGroups {
		t.Errorf("the tree touches %d groups, with the kernel %d", groups, kernelGroups)
	}
	if p := nonContiguous(t, img); p != "0.0" {
		t.Errorf("%s%% of the files are not contiguous, want 0.0", p)
	}
	dir, umount := kernelMount(t, img, "ro")
	sameTree(t, "through the kernel", ours, snapshot(t, dir))
	umount()

	m = mountImage(t, img)
	sameTree(t, "after a remount", ours, snapshot(t, m.dir))
	names, err := os.ReadDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if n.Name() != "lost+found" {
			run(t, "rm", "-rf", filepath.Join(m.dir, n.Name()))
		}
	}
	m.umount()
	for g, free := range freeBlocks(t, img) {
		if free != before[g] {
			t.Errorf("group %d: %+v free after the removal, %+v at the start", g, free, before[g])
		}
	}
}

// kernelUntar is the reference: how many groups the kernel's ext4 touches.
func kernelUntar(t *testing.T, tar string) int {
	img := mkfsImage(t, "6G")
	defer os.Remove(img)
	before := freeBlocks(t, img)
	dir, umount := kernelMount(t, img, "")
	run(t, "tar", "-xf", tar, "-C", dir)
	umount()
	return groupsTouched(before, freeBlocks(t, img))
}

// free is what dumpe2fs says of a group.
type free struct{ blocks, inodes int }

var freeLine = regexp.MustCompile(`(?m)^  (\d+) free blocks, (\d+) free inodes`)

func freeBlocks(t *testing.T, img string) []free {
	t.Helper()
	var out []free
	for _, f := range freeLine.FindAllStringSubmatch(run(t, "dumpe2fs", img), -1) {
		blocks, _ := strconv.Atoi(f[1])
		inodes, _ := strconv.Atoi(f[2])
		out = append(out, free{blocks, inodes})
	}
	if len(out) == 0 {
		t.Fatal("dumpe2fs names no groups")
	}
	return out
}

func groupsTouched(before, after []free) int {
	n := 0
	for g := range before {
		if after[g].blocks < before[g].blocks {
			n++
		}
	}
	return n
}

var contiguousLine = regexp.MustCompile(`\((\d+\.\d+)% non-contiguous\)`)

func nonContiguous(t *testing.T, img string) string {
	t.Helper()
	m := contiguousLine.FindStringSubmatch(run(t, "e2fsck", "-fn", img))
	if m == nil {
		t.Fatal("e2fsck names no share of non-contiguous files")
	}
	return m[1]
}

// TestBothWays changes one image in turn with the kernel and with extfused.
func TestBothWays(t *testing.T) {
	needMount(t)
	needLoop(t)
	img := mkfsImage(t, "512M")
	want := map[string]entry{}
	change := func(dir, name string) {
		t.Helper()
		makeTree(t, filepath.Join(dir, name))
		if name != "a" { // and change what the station before left
			if err := os.RemoveAll(filepath.Join(dir, string(rune(name[0]-1)), "d3")); err != nil {
				t.Fatal(err)
			}
		}
		want = snapshot(t, dir)
	}
	kernel := func(name string) {
		dir, umount := kernelMount(t, img, "")
		if name != "a" {
			sameTree(t, "the kernel sees", want, snapshot(t, dir))
		}
		change(dir, name)
		umount()
		fsck(t, img)
	}
	ours := func(name string) {
		m := mountImage(t, img)
		sameTree(t, "extfused sees", want, snapshot(t, m.dir))
		change(m.dir, name)
		m.umount()
	}
	kernel("a")
	ours("b")
	kernel("c")
	ours("d")
	dir, _ := kernelMount(t, img, "ro")
	sameTree(t, "the kernel sees at the end", want, snapshot(t, dir))
}

// makeTree makes a tree with something of everything.
func makeTree(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"d1", "d2/deep/er", "d3"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o750))
	}
	for i := range 300 {
		body := make([]byte, i*37)
		for k := range body {
			body[k] = byte(i + k)
		}
		must(os.WriteFile(filepath.Join(dir, "d1", "f"+strconv.Itoa(i)), body, os.FileMode(0o600+i%64)))
		must(os.WriteFile(filepath.Join(dir, "d3", "g"+strconv.Itoa(i)), body, 0o644))
	}
	big, err := os.Create(filepath.Join(dir, "d2", "sparse"))
	must(err)
	for _, off := range []int64{0, 1 << 20, 5<<20 + 123, 1 << 26} {
		_, err := big.WriteAt([]byte("data at an offset"), off)
		must(err)
	}
	must(big.Truncate(1<<27 + 7))
	must(big.Close())
	must(os.Link(filepath.Join(dir, "d1", "f7"), filepath.Join(dir, "d2", "hard")))
	must(os.Symlink("../d1/f7", filepath.Join(dir, "d2", "short")))
	long := make([]byte, 400)
	for i := range long {
		long[i] = 'x'
	}
	must(os.Symlink(string(long), filepath.Join(dir, "d2", "long")))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(syscall.Mknod(filepath.Join(dir, "dev"), syscall.S_IFBLK|0o600, 0x1234))
	must(os.Lchown(filepath.Join(dir, "d1", "f8"), 70000, 80000))
	must(os.Chtimes(filepath.Join(dir, "d1", "f9"), time.Unix(1, 2), time.Unix(1e9, 123456789)))
	must(os.Rename(filepath.Join(dir, "d1", "f10"), filepath.Join(dir, "d2", "deep", "er", "f11")))
	must(os.Rename(filepath.Join(dir, "d1", "f12"), filepath.Join(dir, "d1", "f13")))
}
