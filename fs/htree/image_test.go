package htree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"extfused/fs/ondisk"
)

// image is a file system with a directory /d, and the files /f and /g to link
// to from it. The image's own tools, and the kernel if it may mount it, say
// whether our bytes are a directory.
type image struct {
	t    *testing.T
	path string
	sb   ondisk.SuperBlock
	f, g ondisk.InodeNumber
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// newImage formats an image with mke2fs and args; e2fsck has the last word on
// it when the test ends.
func newImage(t *testing.T, args ...string) *image {
	for _, tool := range []string{"mke2fs", "debugfs", "e2fsck", "tune2fs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	im := &image{t: t, path: filepath.Join(t.TempDir(), "img")}
	run(t, "truncate", "-s", "64M", im.path)
	run(t, "mke2fs", append([]string{"-q", "-F", "-t", "ext4"}, append(args, im.path)...)...)
	im.debugfs("mkdir d", "write /dev/null f", "write /dev/null g")
	im.f, im.g = im.stat("/f").ino, im.stat("/g").ino
	t.Cleanup(func() {
		if !t.Failed() {
			im.fsck()
		}
	})
	return im
}

// debugfs runs commands for writing.
func (im *image) debugfs(cmds ...string) string {
	im.t.Helper()
	cmd := exec.Command("debugfs", "-w", "-f", "-", im.path)
	cmd.Stdin = strings.NewReader(strings.Join(cmds, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		im.t.Fatalf("debugfs: %v\n%s", err, out)
	}
	return string(out)
}

func (im *image) fsck() {
	im.t.Helper()
	run(im.t, "e2fsck", "-fn", im.path)
}

type inodeStat struct {
	ino         ondisk.InodeNumber
	gen, flags  uint32
	size        int64
	blockNumber []int64
}

var statFields = regexp.MustCompile(`(?s)Inode: (\d+) .*Flags: 0x([0-9a-f]+).*Generation: (\d+).*?Size: (\d+)`)

func (im *image) stat(path string) inodeStat {
	im.t.Helper()
	m := statFields.FindStringSubmatch(im.debugfs("stat " + path))
	if m == nil {
		im.t.Fatalf("debugfs stat %s: not understood", path)
	}
	num := func(s string, base int) int64 {
		n, err := strconv.ParseInt(s, base, 64)
		if err != nil {
			im.t.Fatal(err)
		}
		return n
	}
	st := inodeStat{ino: ondisk.InodeNumber(num(m[1], 10)), flags: uint32(num(m[2], 16)), gen: uint32(num(m[3], 10)), size: num(m[4], 10)}
	lines := strings.Split(im.debugfs("blocks "+path), "\n")
	for _, w := range strings.Fields(lines[1]) {
		st.blockNumber = append(st.blockNumber, num(w, 10))
	}
	return st
}

// load reads the directory /d out of the image and verifies its checksums.
func (im *image) load() (*Dir, *memStore) {
	t := im.t
	t.Helper()
	raw, err := os.ReadFile(im.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.sb.Decode(raw[1024:2048]); err != nil {
		t.Fatal(err)
	}
	sb, st := &im.sb, im.stat("/d")
	bs := sb.BlockSize()
	if int64(len(st.blockNumber)*bs) != st.size {
		t.Fatalf("/d has %d bytes and blocks %v", st.size, st.blockNumber)
	}
	csum := sb.Csum()
	m := newMemStore(t, bs)
	m.csum, m.seed = &csum, csum.InodeSeed(st.ino, st.gen)
	for l, blk := range st.blockNumber {
		b := bytes.Clone(raw[blk*int64(bs):][:bs])
		if csum.Metadata() && !csum.VerifyDir(m.seed, b) {
			t.Fatalf("block %d of /d: wrong checksum", l)
		}
		m.blocks = append(m.blocks, b)
		m.shadow = append(m.shadow, bytes.Clone(b))
	}
	return &Dir{
		Params: &Params{
			BlockSize:   bs,
			MaxInode:    ondisk.InodeNumber(sb.InodesCount),
			HasCsum:     csum.Metadata(),
			FileType:    sb.HasIncompat(ondisk.IncompatFiletype),
			DirIndex:    sb.HasCompat(ondisk.CompatDirIndex),
			LargeDir:    sb.HasIncompat(ondisk.IncompatLargeDir),
			HashVersion: sb.DefHashVersion,
			Unsigned:    sb.Flags&ondisk.FlagUnsignedHash != 0,
			HashSeed:    sb.HashSeed,
		},
		Store: m, Ino: st.ino, NBlocks: ondisk.LBlock(len(m.blocks)), Indexed: st.flags&ondisk.InodeIndex != 0,
	}, m
}

// save puts the directory back, growing it with debugfs, and sets the link
// counts of /f and /g.
func (im *image) save(d *Dir, m *memStore, names map[string]ondisk.InodeNumber) {
	t := im.t
	t.Helper()
	var cmds []string
	for range len(m.blocks) - len(im.stat("/d").blockNumber) {
		cmds = append(cmds, "expand_dir d")
	}
	links := map[ondisk.InodeNumber]int{im.f: 1, im.g: 1}
	for _, ino := range names {
		links[ino]++
	}
	flags := uint32(ondisk.InodeExtents)
	if d.Indexed {
		flags |= ondisk.InodeIndex
	}
	cmds = append(cmds, fmt.Sprintf("sif f links_count %d", links[im.f]), fmt.Sprintf("sif g links_count %d", links[im.g]),
		fmt.Sprintf("sif d flags %#x", flags))
	im.debugfs(cmds...)
	st := im.stat("/d")
	if len(st.blockNumber) != len(m.blocks) {
		t.Fatalf("/d has blocks %v, want %d", st.blockNumber, len(m.blocks))
	}
	file, err := os.OpenFile(im.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for l, b := range m.blocks {
		if _, err := file.WriteAt(b, st.blockNumber[l]*int64(len(b))); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	im.fsck()
}

// mounted runs fn with the kernel's mount of the image; false if the kernel
// may not, or cannot, mount it.
func (im *image) mounted(fn func(dir string)) bool {
	t := im.t
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("without the kernel: mounting needs root")
		return false
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", im.path, dir).CombinedOutput(); err != nil {
		t.Logf("without the kernel: %v: %s", err, bytes.TrimSpace(out))
		return false
	}
	defer run(t, "umount", dir)
	fn(dir)
	return true
}

// readNames lists a directory in the kernel's order.
func readNames(t *testing.T, dir string) []string {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// compare checks that the image's /d, as we read it, has exactly these names.
func (im *image) compare(names map[string]ondisk.InodeNumber) {
	im.t.Helper()
	d, m := im.load()
	got := checkTree(im.t, d, m)
	delete(got, ".")
	delete(got, "..")
	if len(got) != len(names) {
		im.t.Fatalf("%d names in the image, want %d", len(got), len(names))
	}
	for name, ino := range names {
		if got[name] != ino {
			im.t.Fatalf("%q is inode %d, want %d", name, got[name], ino)
		}
		if found, _, err := d.Lookup(name); err != nil || found != ino {
			im.t.Fatalf("Lookup(%q) = %d, %v, want %d", name, found, err, ino)
		}
	}
}

// order is ReadDir's order without "." and "..".
func (im *image) order() []string {
	im.t.Helper()
	d, _ := im.load()
	return list(im.t, d, 50)[2:]
}

type travel struct {
	name  string
	mke2  []string
	prep  func(im *image)
	names func(i int) string
	n     int
}

func plainNames(i int) string {
	return fmt.Sprintf("name-%d-%s", i, strings.Repeat("x", i%40))
}

func longNames(i int) string { return fmt.Sprintf("%0240d", i) }

func accentNames(i int) string {
	return fmt.Sprintf("né-%d-日本-\xff-%s", i, strings.Repeat("\xe9", i%50))
}

func travels(t *testing.T) []travel {
	same := collisions(t)
	collide := func(i int) string {
		if i%2 == 0 && i/2 < len(same) {
			return same[i/2]
		}
		return plainNames(i)
	}
	tune := func(args ...string) func(im *image) {
		return func(im *image) { run(im.t, "tune2fs", append(args, im.path)...) }
	}
	unsigned := func(im *image) { im.debugfs("ssv flags 2") }
	return []travel{
		{"4k", []string{"-b", "4096"}, nil, plainNames, 3000},
		{"1k", []string{"-b", "1024"}, nil, plainNames, 6000},
		{"2k,tea", []string{"-b", "2048"}, tune("-E", "hash_alg=tea"), accentNames, 2000},
		{"1k,signed", []string{"-b", "1024"}, nil, accentNames, 2000},
		{"1k,unsigned", []string{"-b", "1024"}, unsigned, accentNames, 2000},
		{"1k,legacy", []string{"-b", "1024"}, tune("-E", "hash_alg=legacy"), collide, 1600},
		{"4k,legacy", []string{"-b", "4096"}, tune("-E", "hash_alg=legacy"), collide, 1600},
		{"4k,no csum", []string{"-b", "4096", "-O", "^metadata_csum"}, nil, plainNames, 2000},
		{"1k,linear", []string{"-b", "1024", "-O", "^dir_index"}, nil, plainNames, 800},
		{"1k,no filetype", []string{"-b", "1024", "-O", "^filetype"}, nil, plainNames, 800},
		{"1k,large_dir", []string{"-b", "1024", "-O", "large_dir"}, nil, longNames, 40000},
		{"64k", []string{"-b", "65536"}, nil, plainNames, 5000},
	}
}

// TestTravel sends a directory back and forth: written by the kernel, changed
// by us, changed by the kernel, read by us; e2fsck agrees at each station.
func TestTravel(t *testing.T) {
	for _, tr := range travels(t) {
		t.Run(tr.name, func(t *testing.T) {
			if testing.Short() && tr.n > 10000 {
				t.Skip("many names: not with -short")
			}
			tr.run(t)
		})
	}
}

func (tr *travel) run(t *testing.T) {
	im := newImage(t, tr.mke2...)
	if tr.prep != nil {
		tr.prep(im)
	}
	names := map[string]ondisk.InodeNumber{}
	im.mounted(func(dir string) { tr.kernelLinks(t, dir, 0, tr.n/3, im, names) })
	im.compare(names)

	d, m := im.load()
	tr.ours(t, d, m, im, names)
	if levels := m.blocks[0][30] + 1; tr.n > 30000 && levels != 3 {
		t.Errorf("the index has %d levels, want 3", levels)
	}
	im.save(d, m, names)
	im.compare(names)

	order := im.order()
	im.mounted(func(dir string) {
		got := readNames(t, filepath.Join(dir, "d"))
		if im.sb.DefHashVersion == ondisk.HashLegacy { // the kernel has no rule among equal hashes
			slices.Sort(got)
			slices.Sort(order)
		}
		if !slices.Equal(got, order) {
			t.Errorf("the kernel lists %d names, we %d, or in another order", len(got), len(order))
		}
		tr.kernelUnlinks(t, dir, names)
		tr.kernelLinks(t, dir, tr.n, tr.n+tr.n/4, im, names)
	})
	im.fsck()
	im.compare(names)
}

func (tr *travel) kernelLinks(t *testing.T, dir string, from, to int, im *image, names map[string]ondisk.InodeNumber) {
	for i := from; i < to; i++ {
		name := tr.names(i)
		if err := os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "d", name)); err != nil {
			t.Fatal(err)
		}
		names[name] = im.f
	}
}

// kernelUnlinks looks every name up, and removes every second one.
func (tr *travel) kernelUnlinks(t *testing.T, dir string, names map[string]ondisk.InodeNumber) {
	i := 0
	for name := range names {
		path := filepath.Join(dir, "d", name)
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
		if i++; i%2 == 0 {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			delete(names, name)
		}
	}
}

func (tr *travel) ours(t *testing.T, d *Dir, m *memStore, im *image, names map[string]ondisk.InodeNumber) {
	for i := range tr.n {
		name := tr.names(i)
		var err error
		switch _, there := names[name]; {
		case there && i%3 == 0:
			err = d.Delete(name)
			delete(names, name)
		case there && i%3 == 1:
			err = d.Set(name, im.g, ondisk.FtRegFile)
			names[name] = im.g
		case !there:
			err = d.Insert(name, im.f, ondisk.FtRegFile)
			names[name] = im.f
		}
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		m.end()
	}
}

var dumpLine = regexp.MustCompile(`(\d+) 0x([0-9a-f]{8})-([0-9a-f]{8}) \(\d+\) (\S+) `)

// TestHtreeDump compares both hashes of every name with debugfs htree_dump.
func TestHtreeDump(t *testing.T) {
	im := newImage(t, "-b", "1024")
	d, m := im.load()
	names := map[string]ondisk.InodeNumber{}
	for i := range 1500 {
		name := plainNames(i)
		if err := d.Insert(name, im.f, ondisk.FtRegFile); err != nil {
			t.Fatal(err)
		}
		names[name] = im.f
	}
	m.end()
	im.save(d, m, names)
	seen := 0
	for _, l := range dumpLine.FindAllStringSubmatch(im.debugfs("htree_dump /d"), -1) {
		major, minor := d.Hash(d.HashVersion, []byte(l[4]))
		if got := fmt.Sprintf("%08x-%08x", major, minor); got != l[2]+"-"+l[3] {
			t.Errorf("%s: %s, debugfs says %s-%s", l[4], got, l[2], l[3])
		}
		seen++
	}
	if seen != len(names) {
		t.Errorf("debugfs dumped %d names, want %d", seen, len(names))
	}
}
