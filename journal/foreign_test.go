package journal

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"extfused/blockdev/bcache"
)

// Other implementations as oracles: the kernel and e2fsprogs write logs that
// we replay, and replay logs that we write.

func needTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// run returns the command's output; an exit code other than 0 and ok fails.
func run(t *testing.T, ok int, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DEBUGFS_PAGER=cat", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != ok {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// foreignImage is an ext4 image of other programs' making.
type foreignImage struct {
	path      string
	blockSize int
	blocks    uint64
	runs      []Run
}

func makeImage(t *testing.T, blockSize int, size, features string, extra ...string) *foreignImage {
	t.Helper()
	needTools(t, "mke2fs", "debugfs", "e2fsck")
	img := &foreignImage{path: filepath.Join(t.TempDir(), "image"), blockSize: blockSize}
	args := []string{"-q", "-F", "-t", "ext4", "-b", strconv.Itoa(blockSize), "-O", features, "-E", "lazy_itable_init=0"}
	run(t, 0, "mke2fs", append(append(args, extra...), img.path, size)...)
	img.findLog(t)
	return img
}

var extentLine = regexp.MustCompile(`\((\d+)(?:-\d+)?\):(\d+)(?:-(\d+))?`)

// findLog asks debugfs where inode 8 has its blocks.
func (img *foreignImage) findLog(t *testing.T) {
	t.Helper()
	fi, err := os.Stat(img.path)
	if err != nil {
		t.Fatal(err)
	}
	img.blocks = uint64(fi.Size()) / uint64(img.blockSize)
	out := run(t, 0, "debugfs", "-R", "stat <8>", img.path)
	_, list, ok := strings.Cut(out, "EXTENTS:")
	if !ok {
		_, list, _ = strings.Cut(out, "BLOCKS:")
	}
	for _, m := range extentLine.FindAllStringSubmatch(list, -1) {
		from, _ := strconv.ParseUint(m[2], 10, 64)
		to := from
		if m[3] != "" {
			to, _ = strconv.ParseUint(m[3], 10, 64)
		}
		img.runs = append(img.runs, Run{Block: from, Len: uint32(to - from + 1)})
	}
	if len(img.runs) == 0 {
		t.Fatalf("no log in %s", out)
	}
}

func (img *foreignImage) params(dev ram) Params {
	return Params{FsDev: dev, FsBlocks: img.blocks, BlockSize: img.blockSize, Runs: img.runs}
}

func (img *foreignImage) load(t *testing.T) ram {
	t.Helper()
	b, err := os.ReadFile(img.path)
	if err != nil {
		t.Fatal(err)
	}
	return ram(b)
}

// copyOf writes dev to another file.
func (img *foreignImage) copyOf(t *testing.T, dev ram, name string) *foreignImage {
	t.Helper()
	c := *img
	c.path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(c.path, dev, 0o600); err != nil {
		t.Fatal(err)
	}
	return &c
}

// diff compares all blocks but the log's and the ext4 superblock's, in which
// every program leaves its traces.
func (img *foreignImage) diff(a, b ram) error {
	log := logMap{runs: img.runs}
	for blk := uint64(0); blk < img.blocks; blk++ {
		at := int(blk) * img.blockSize
		x, y := a[at:at+img.blockSize], b[at:at+img.blockSize]
		if at <= 1024 && 1024 < at+img.blockSize || log.contains(blk) || bytes.Equal(x, y) {
			continue
		}
		return fmt.Errorf("block %d differs", blk)
	}
	return nil
}

// loopMount mounts path and returns the mountpoint.
func loopMount(t *testing.T, path string, opts string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "ext4", "-o", "loop,"+opts, path, dir).CombinedOutput()
	if err != nil {
		t.Skipf("no loop mounts here: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	return dir
}

func umount(t *testing.T, dir string) {
	t.Helper()
	run(t, 0, "umount", dir)
}

// busyTree makes files and directories and removes some, so that the log has
// updates of all kinds, and revokes. The last thing it does is an fsync.
func busyTree(t *testing.T, dir string) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for round := range 3 {
		for i := range 40 {
			d := filepath.Join(dir, fmt.Sprintf("dir%d", i))
			check(os.MkdirAll(filepath.Join(d, "sub"), 0o755))
			check(os.WriteFile(filepath.Join(d, "file"), bytes.Repeat([]byte{byte(i)}, 100*i), 0o644))
			check(os.Symlink(strings.Repeat("x", 200), filepath.Join(d, "link")))
		}
		syncFile(t, filepath.Join(dir, fmt.Sprintf("sync%d", round)))
		for i := round; i < 40; i += 3 {
			check(os.RemoveAll(filepath.Join(dir, fmt.Sprintf("dir%d", i))))
		}
		for i := 100; i < 110; i++ {
			check(os.WriteFile(filepath.Join(dir, fmt.Sprintf("new%d-%d", round, i)), make([]byte, 9000), 0o644))
		}
		syncFile(t, filepath.Join(dir, "last"))
		for i := range 40 {
			check(os.RemoveAll(filepath.Join(dir, fmt.Sprintf("dir%d", i), "link")))
		}
	}
	syncFile(t, filepath.Join(dir, "last"))
}

func syncFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(time.Now().String()); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

type foreignVariant struct {
	name, size, features string
	blockSize            int
	csumV3               bool
}

// eachVariant runs fn over all kinds of image, the two most different ones
// with -short.
func eachVariant(t *testing.T, fn func(t *testing.T, v foreignVariant)) {
	for _, v := range foreignVariants {
		if testing.Short() && v.name != "4k" && v.name != "1k no extents" {
			continue
		}
		t.Run(v.name, func(t *testing.T) { fn(t, v) })
	}
}

var foreignVariants = []foreignVariant{
	{"4k", "64M", "64bit,metadata_csum", 4096, true},
	{"4k no 64bit", "64M", "^64bit,metadata_csum", 4096, true},
	{"4k no csum", "64M", "64bit,^metadata_csum", 4096, false},
	{"1k", "24M", "64bit,metadata_csum", 1024, true},
	{"1k plain", "24M", "^64bit,^metadata_csum", 1024, false},
	{"1k no extents", "24M", "^64bit,^metadata_csum,^extent", 1024, false},
}

// What the kernel logged, we and e2fsck replay to the same blocks.
func TestKernelLog(t *testing.T) {
	eachVariant(t, func(t *testing.T, v foreignVariant) {
		img := makeImage(t, v.blockSize, v.size, v.features)
		dir := loopMount(t, img.path, "commit=1000")
		busyTree(t, dir)
		dirty := img.load(t)
		umount(t, dir)

		ours := bytes.Clone(dirty)
		st := recoverForeign(t, img, ours)
		t.Logf("%+v", st)
		if st.Transactions == 0 || st.Replayed == 0 || st.Revokes == 0 {
			t.Fatal("the log has nothing to replay: the test shows nothing")
		}
		if bytes.Equal(ours, dirty) || img.diff(ours, dirty) == nil {
			t.Fatal("replay changed nothing: the test shows nothing")
		}
		theirs := img.copyOf(t, dirty, "theirs")
		run(t, 1, "e2fsck", "-E", "journal_only", "-y", theirs.path)
		if err := img.diff(ours, theirs.load(t)); err != nil {
			t.Errorf("e2fsck replays something else: %v", err)
		}
		mountAndCheck(t, img.copyOf(t, ours, "ours"))
	})
}

func recoverForeign(t *testing.T, img *foreignImage, dev ram) RecoveryStats {
	t.Helper()
	j, err := Open(img.params(dev))
	if err != nil {
		t.Fatal(err)
	}
	st, err := j.Recover()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// mountAndCheck has the kernel mount what we replayed, and e2fsck look at it.
func mountAndCheck(t *testing.T, img *foreignImage) {
	t.Helper()
	dir := loopMount(t, img.path, "defaults")
	if _, err := os.Stat(filepath.Join(dir, "last")); err != nil {
		t.Error(err)
	}
	umount(t, dir)
	run(t, 0, "e2fsck", "-fn", img.path)
}

// A log that debugfs wrote: transactions with blocks, with revokes, with and
// without their commit blocks.
func TestDebugfsLog(t *testing.T) {
	eachVariant(t, func(t *testing.T, v foreignVariant) {
		img := makeImage(t, v.blockSize, v.size, v.features)
		content := filepath.Join(t.TempDir(), "content")
		blocks := make([]byte, 2*v.blockSize) // debugfs takes whole blocks only
		for i := range 2 {
			copy(blocks[i*v.blockSize:], []byte{0xC0, 0x3B, 0x39, 0x98, 1, 2, 3})
		}
		if err := os.WriteFile(content, blocks, 0o600); err != nil {
			t.Fatal(err)
		}
		a, b := img.blocks-10, img.blocks-20
		cmds := filepath.Join(t.TempDir(), "cmds")
		open := "jo"
		if v.csumV3 {
			open = "jo -c"
		}
		script := fmt.Sprintf("%s\njw -b %d,%d %s\njw -r %d\njw -b %d %s\njc\n", open, a, b, content, a, a-1, content)
		if err := os.WriteFile(cmds, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, 0, "debugfs", "-w", "-f", cmds, img.path)
		dirty := img.load(t)
		ours := bytes.Clone(dirty)
		st := recoverForeign(t, img, ours)
		if st.Transactions != 3 || st.Revokes != 1 || st.RevokeHits != 1 || st.Replayed != 2 {
			t.Errorf("%+v", st)
		}
		if got := ours[int(b)*v.blockSize:][:4]; !bytes.Equal(got, []byte{0xC0, 0x3B, 0x39, 0x98}) {
			t.Errorf("escaped block begins with %x", got)
		}
		theirs := img.copyOf(t, dirty, "theirs")
		run(t, 1, "e2fsck", "-E", "journal_only", "-y", theirs.path)
		if err := img.diff(ours, theirs.load(t)); err != nil {
			t.Errorf("e2fsck replays something else: %v", err)
		}
	})
}

// A log that we wrote, with updates, revokes, escapes, and a wrap, is read by
// debugfs and replayed by e2fsck and the kernel.
func TestOurLog(t *testing.T) {
	eachVariant(t, func(t *testing.T, v foreignVariant) {
		img := makeImage(t, v.blockSize, v.size, v.features, "-J", "size="+map[int]string{1024: "1", 4096: "4"}[v.blockSize])
		run(t, 0, "debugfs", "-w", "-R", "feature needs_recovery", img.path)
		before := img.load(t)
		dev := bytes.Clone(before)
		want := writeOurLog(t, img, dev, v.csumV3)
		dirty := img.copyOf(t, dev, "dirty")

		info, err := Inspect(img.params(dev), InspectOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		dump := run(t, 0, "debugfs", "-R", "logdump -a", dirty.path)
		if n := strings.Count(dump, "(commit block)"); n != want.commits {
			t.Errorf("debugfs finds %d commits, want %d (%+v)\n%s", n, want.commits, info, dump)
		}
		run(t, 1, "e2fsck", "-E", "journal_only", "-y", dirty.path)
		want.check(t, "e2fsck", img, dirty.load(t))

		kernel := img.copyOf(t, dev, "kernel")
		umount(t, loopMount(t, kernel.path, "defaults"))
		want.check(t, "kernel", img, kernel.load(t))
		run(t, 0, "e2fsck", "-fn", kernel.path)
	})
}

// expectation is what a replay must leave, and what it must not touch.
type expectation struct {
	commits int
	content map[uint64][]byte
}

func (x *expectation) check(t *testing.T, who string, img *foreignImage, dev ram) {
	t.Helper()
	for blk, want := range x.content {
		if got := dev[int(blk)*img.blockSize:][:img.blockSize]; !bytes.Equal(got, want) {
			t.Errorf("%s: block %d begins with %x, want %x", who, blk, got[:16], want[:16])
		}
	}
}

// writeOurLog runs transactions over free blocks at the end of the file system.
func writeOurLog(t *testing.T, img *foreignImage, dev ram, csumV3 bool) *expectation {
	j, err := Open(img.params(dev))
	if err != nil {
		t.Fatal(err)
	}
	features := IncompatRevoke | Incompat64Bit
	if csumV3 {
		features |= IncompatCsumV3
	}
	r := &rig{t: t, p: rigParams{blockSize: img.blockSize}, j: j}
	r.must(j.SetFeatures(0, features))
	r.c = bcache.New(dev, img.blockSize, bcache.Options{})
	j.SetCache(r.c)
	r.must(j.prepare())

	base := img.blocks - 300
	x := &expectation{content: map[uint64][]byte{}}
	lap := func(v uint64, n uint64) {
		h := r.begin(int(n))
		for i := range n {
			r.set(h, base+i, v)
		}
		r.stop(h)
		r.commit()
	}
	for v := range uint64(12) { // around the log more than once
		lap(v, 120)
	}
	_, err = j.CheckpointOnce()
	r.must(err)
	lap(77, 100)
	h := r.begin(2)
	r.forget(h, base+1)
	r.setMagic(h, base+200)
	r.stop(h)
	r.commit()
	x.commits = 2
	for i := range uint64(100) {
		b := make([]byte, img.blockSize)
		fill(b, base+i, 77)
		x.content[base+i] = b
	}
	x.content[base+1] = bytes.Clone(dev[int(base+1)*img.blockSize:][:img.blockSize])
	magic := make([]byte, img.blockSize)
	copy(magic, []byte{0xC0, 0x3B, 0x39, 0x98, 5})
	x.content[base+200] = magic
	return x
}
