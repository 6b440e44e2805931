package mkfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// A fixed identity, so that mke2fs's image and ours can be compared.
const (
	testUUID = "00112233-4455-6677-8899-aabbccddeeff"
	testSeed = "01234567-89ab-cdef-0123-456789abcdef"
	testTime = 1700000000
)

func testParams(t testing.TB) Params {
	t.Helper()
	p := DefaultParams()
	var err error
	if p.UUID, err = ondisk.ParseUUID(testUUID); err != nil {
		t.Fatal(err)
	}
	if p.HashSeed, err = ondisk.ParseUUID(testSeed); err != nil {
		t.Fatal(err)
	}
	p.Time = time.Unix(testTime, 0)
	p.Zeroed = true
	return p
}

// comparison is a size, options of mke2fs, and what says the same to us.
type comparison struct {
	size int64
	args string
	set  func(*Params)
}

func (c comparison) name() string {
	return strings.TrimSpace(fmt.Sprintf("%d%s %s", c.size>>10, "K", c.args))
}

const (
	kib = int64(1) << 10
	gib = int64(1) << 30
)

func blockSize(n int) func(*Params) { return func(p *Params) { p.BlockSize = n } }

// comparisons go over every default by size, every block size, and the places
// where a last group is kept or cut off.
func comparisons() []comparison {
	var cs []comparison
	for _, size := range []int64{2 * mib, 2*mib + 3*kib, 3*mib - 4*kib, 3 * mib, 5 * mib, 16 * mib, 40 * mib, 100 * mib, 256 * mib,
		511 * mib, 512 * mib, gib, 2 * gib, 2*gib + 50*mib, 33 * 128 * mib, 40 * gib, 300 * gib} {
		cs = append(cs, comparison{size: size})
	}
	for _, size := range []int64{8 * mib, 129 * mib, 300 * mib, 600 * mib, 5 * gib} {
		for _, bs := range []int{1024, 2048, 4096, 8192, 16384, 65536} {
			if size/int64(bs) >= 512 {
				cs = append(cs, comparison{size, fmt.Sprintf("-b %d", bs), blockSize(bs)})
			}
		}
	}
	for _, k := range []int64{1, 50, 256, 500, 1000, 1090, 1099, 1102, 1200} {
		cs = append(cs, comparison{128*mib + 4*k*kib, "-b 4096", blockSize(4096)})
		cs = append(cs, comparison{2*gib + 4*k*kib, "-b 4096", blockSize(4096)})
	}
	for _, k := range []int64{1, 49, 53, 300, 600, 1000} {
		cs = append(cs, comparison{(16*8192 + 1 + k*4) * kib, "-b 1024", blockSize(1024)})
	}
	return append(cs, optionComparisons()...)
}

func optionComparisons() []comparison {
	without := func(f ondisk.Features) func(*Params) {
		return func(p *Params) {
			p.Features.Compat &^= f.Compat
			p.Features.Incompat &^= f.Incompat
			p.Features.ROCompat &^= f.ROCompat
		}
	}
	return []comparison{
		{64 * mib, "-m 0", func(p *Params) { p.ReservedPercent = 0 }},
		{64 * mib, "-m 12.5", func(p *Params) { p.ReservedPercent = 12.5 }},
		{64 * mib, "-L a-label", func(p *Params) { p.Label = "a-label" }},
		{64 * mib, "-i 1024", func(p *Params) { p.BytesPerInode = 1024 }},
		{64 * mib, "-i 65536", func(p *Params) { p.BytesPerInode = 65536 }},
		{64 * mib, "-b 4096 -N 12", func(p *Params) { p.BlockSize, p.Inodes = 4096, 12 }},
		{64 * mib, "-N 100000", func(p *Params) { p.Inodes = 100000 }},
		{64 * mib, "-N 16", func(p *Params) { p.Inodes = 16 }},
		{64 * mib, "-I 128", func(p *Params) { p.InodeSize = 128 }},
		{64 * mib, "-I 512", func(p *Params) { p.InodeSize = 512 }},
		{64 * mib, "-J size=8", func(p *Params) { p.JournalBytes = 8 * mib }},
		{gib, "-J size=64", func(p *Params) { p.JournalBytes = 64 * mib }},
		{gib, "-b 1024 -J size=64", func(p *Params) { p.BlockSize, p.JournalBytes = 1024, 64*mib }},
		{gib, "-g 8192", func(p *Params) { p.BlocksPerGroup = 8192 }},
		{gib, "-g 1024 -G 4", func(p *Params) { p.BlocksPerGroup, p.FlexGroups = 1024, 4 }},
		{gib, "-g 256 -b 4096", func(p *Params) { p.BlocksPerGroup = 256 }},
		{gib, "-g 1024 -b 1024 -N 3000", func(p *Params) { p.BlocksPerGroup, p.BlockSize, p.Inodes = 1024, 1024, 3000 }},
		{gib, "-O meta_bg,^resize_inode -b 1024", func(p *Params) {
			p.BlockSize = 1024
			p.Features.Compat &^= ondisk.CompatResizeInode
			p.Features.Incompat |= ondisk.IncompatMetaBG
		}},
		{gib, "-G 2", func(p *Params) { p.FlexGroups = 2 }},
		{gib, "-G 64", func(p *Params) { p.FlexGroups = 64 }},
		{300 * mib, "-O ^flex_bg", without(ondisk.Features{Incompat: ondisk.IncompatFlexBG})},
		{300 * mib, "-O ^has_journal", without(ondisk.Features{Compat: ondisk.CompatHasJournal})},
		{300 * mib, "-O ^64bit", without(ondisk.Features{Incompat: ondisk.Incompat64Bit})},
		{300 * mib, "-O ^resize_inode", without(ondisk.Features{Compat: ondisk.CompatResizeInode})},
		{300 * mib, "-O ^metadata_csum,^64bit", without(ondisk.Features{Incompat: ondisk.Incompat64Bit, ROCompat: ondisk.ROCompatMetadataCsum})},
		{300 * mib, "-O ^metadata_csum,uninit_bg", func(p *Params) {
			p.Features.ROCompat ^= ondisk.ROCompatMetadataCsum | ondisk.ROCompatGDTCsum
		}},
		{300 * mib, "-O metadata_csum_seed", func(p *Params) { p.Features.Incompat |= ondisk.IncompatCsumSeed }},
		{300 * mib, "-O ^resize_inode,^sparse_super", without(ondisk.Features{Compat: ondisk.CompatResizeInode, ROCompat: ondisk.ROCompatSparseSuper})},
	}
}

func needTool(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed (package e2fsprogs)", name)
	}
}

func sparseFile(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func formatFile(t testing.TB, path string, size int64, p Params) Report {
	t.Helper()
	sparseFile(t, path, size)
	dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r, err := Format(dev, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func e2fsck(t testing.TB, path string) {
	t.Helper()
	out, err := exec.Command("e2fsck", "-fn", path).CombinedOutput()
	if err != nil {
		t.Errorf("e2fsck -fn: %v\n%s", err, out)
	}
}

// TestSameAsMke2fsHuge does the same for sizes whose descriptors alone take
// hundreds of megabytes of the host's disk. Most host file systems have no
// files so long; a tmpfs has:
//
//	EXTFUSED_TEST_HUGE=1 TMPDIR=/dev/shm go test ./fs/mkfs -run Huge
func TestSameAsMke2fsHuge(t *testing.T) {
	if os.Getenv("EXTFUSED_TEST_HUGE") == "" {
		t.Skip("takes a minute and a gigabyte; set EXTFUSED_TEST_HUGE")
	}
	for _, c := range []comparison{{size: 16*tib - 4*mib}, {size: 16 * tib}, {size: 20 * tib}, {2 * tib, "-b 1024", blockSize(1024)}} {
		t.Run(c.name(), func(t *testing.T) {
			probe := filepath.Join(t.TempDir(), "probe")
			if f, err := os.Create(probe); err != nil {
				t.Fatal(err)
			} else if err := f.Truncate(c.size); err != nil {
				t.Skipf("the host has no files of %d bytes: %v", c.size, err)
			} else {
				f.Close()
				os.Remove(probe)
			}
			compareWithMke2fs(t, c)
		})
	}
}

// TestSameAsMke2fs compares our image with that of mke2fs, byte for byte. What
// may differ is the count of bytes written in the superblock's copies, and
// their checksums.
func TestSameAsMke2fs(t *testing.T) {
	for _, c := range comparisons() {
		t.Run(c.name(), func(t *testing.T) { compareWithMke2fs(t, c) })
	}
}

func compareWithMke2fs(t *testing.T, c comparison) {
	t.Helper()
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "mke2fs.img"), filepath.Join(dir, "extfused.img")
	runMke2fs(t, theirs, c)
	p := testParams(t)
	if c.set != nil {
		c.set(&p)
	}
	r := formatFile(t, ours, c.size, p)
	compareImages(t, theirs, ours, r)
	if c.size > tib {
		return // e2fsck takes minutes, to say what it says of mke2fs's image
	}
	e2fsck(t, ours)
	if t.Failed() && c.size < tib {
		t.Log("dumpe2fs (- mke2fs, + ours):\n" + dumpDiff(t, theirs, ours))
	}
}

func runMke2fs(t *testing.T, path string, c comparison) {
	t.Helper()
	needTool(t, "mke2fs")
	sparseFile(t, path, c.size)
	args := append([]string{"-q", "-F", "-t", "ext4", "-U", testUUID, "-E", "hash_seed=" + testSeed}, strings.Fields(c.args)...)
	cmd := exec.Command("mke2fs", append(args, path)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("E2FSPROGS_FAKE_TIME=%d", testTime))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mke2fs %s: %v\n%s", c.args, err, out)
	}
}

func compareImages(t *testing.T, theirs, ours string, r Report) {
	t.Helper()
	differ := map[int64]bool{}
	supers := map[int64]bool{ondisk.SuperBlockOffset: true}
	for _, b := range r.Backups {
		supers[int64(b)*int64(r.BlockSize)] = true
	}
	a, b := openSparse(t, theirs), openSparse(t, ours)
	for _, seg := range append(a.data(t), b.data(t)...) {
		for off := seg[0]; off < seg[1]; off += ondisk.SuperBlockSize {
			x, y := a.at(t, off), b.at(t, off)
			if supers[off] {
				maskSuper(x)
				maskSuper(y)
			}
			if !bytes.Equal(x, y) && !differ[off] && len(differ) < 10 {
				differ[off] = true
				i := 0
				for x[i] == y[i] {
					i++
				}
				t.Errorf("block %d byte %#x: mke2fs %x, ours %x", off/int64(r.BlockSize), off%int64(r.BlockSize)+int64(i), x[i:min(i+16, 1024)], y[i:min(i+16, 1024)])
			}
		}
	}
}

// maskSuper clears the fields that depend on how often blocks were written.
func maskSuper(b []byte) {
	clear(b[0x178:0x180]) // s_kbytes_written
	clear(b[0x3fc:0x400]) // s_checksum
}

type sparse struct{ f *os.File }

func openSparse(t *testing.T, path string) sparse {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return sparse{f}
}

// data lists the parts of the file that are no holes.
func (s sparse) data(t *testing.T) (segs [][2]int64) {
	t.Helper()
	const seekData, seekHole = 3, 4
	for off := int64(0); ; {
		from, err := s.f.Seek(off, seekData)
		if err != nil { // ENXIO: no more data
			return segs
		}
		to, err := s.f.Seek(from, seekHole)
		if err != nil {
			t.Fatal(err)
		}
		segs = append(segs, [2]int64{from &^ 1023, to})
		off = to
	}
}

func (s sparse) at(t *testing.T, off int64) []byte {
	t.Helper()
	b := make([]byte, 1024)
	if _, err := s.f.ReadAt(b, off); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

func dumpDiff(t *testing.T, theirs, ours string) string {
	dump := func(path string) map[string]bool {
		out, _ := exec.Command("dumpe2fs", path).Output()
		lines := map[string]bool{}
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			lines[s.Text()] = true
		}
		return lines
	}
	a, b := dump(theirs), dump(ours)
	var diff []string
	for l := range a {
		if !b[l] {
			diff = append(diff, "- "+l)
		}
	}
	for l := range b {
		if !a[l] {
			diff = append(diff, "+ "+l)
		}
	}
	return strings.Join(diff[:min(len(diff), 20)], "\n")
}
