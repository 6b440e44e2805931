package mkfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/matrix"
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

// comparison is a size and options of mke2fs, which paramsOf tells us.
type comparison struct {
	size int64
	args string
}

func (c comparison) name() string {
	return strings.TrimSpace(fmt.Sprintf("%d%s %s", c.size>>10, "K", c.args))
}

const (
	kib = int64(1) << 10
	gib = int64(1) << 30
)

// paramsOf turns options of mke2fs into ours.
func paramsOf(t testing.TB, args string) Params {
	t.Helper()
	p := testParams(t)
	number := func(text string) int64 {
		n, err := ParseBytes(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	fields := strings.Fields(args)
	var err error
	for pass := range 2 { // features count before what depends on them, and sizes before options in blocks
		for i := 0; i < len(fields); i += 2 {
			if v := fields[i+1]; pass == 0 {
				err = setBasic(&p, fields[i], v, number)
			} else if fields[i] == "-E" {
				err = p.EditExtended(v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return p
}

func setBasic(p *Params, flag, v string, number func(string) int64) (err error) {
	switch flag {
	case "-t":
		return p.SetType(v)
	case "-O":
		return p.EditFeatures(v)
	case "-r":
		p.SetRevision0()
	case "-L":
		p.Label = v
	case "-m":
		p.ReservedPercent, err = strconv.ParseFloat(v, 64)
	case "-J":
		for _, o := range strings.Split(v, ",") {
			if size, ok := strings.CutPrefix(o, "size="); ok {
				p.JournalBytes = number(size) * mib
			} else if size, ok := strings.CutPrefix(o, "fast_commit_size="); ok {
				p.FastCommitBytes = number(size) * kib
			}
		}
	case "-b":
		p.BlockSize = int(number(v))
	case "-C":
		p.ClusterSize = int(number(v))
	case "-I":
		p.InodeSize = int(number(v))
	case "-N":
		p.Inodes = uint64(number(v))
	case "-i":
		p.BytesPerInode = number(v)
	case "-g":
		p.BlocksPerGroup = uint32(number(v))
	case "-G":
		p.FlexGroups = uint32(number(v))
	case "-E":
	default:
		err = fmt.Errorf("the test does not know %s", flag)
	}
	return err
}

// comparisons go over every default by size, every block size, the places where
// a last group is kept or cut off, and the rows of the image matrix.
func comparisons() []comparison {
	var cs []comparison
	for _, size := range []int64{2 * mib, 2*mib + 3*kib, 3*mib - 4*kib, 3 * mib, 5 * mib, 16 * mib, 40 * mib, 100 * mib, 256 * mib,
		511 * mib, 512 * mib, gib, 2 * gib, 2*gib + 50*mib, 33 * 128 * mib, 40 * gib, 300 * gib} {
		cs = append(cs, comparison{size: size})
	}
	for _, size := range []int64{8 * mib, 129 * mib, 300 * mib, 600 * mib, 5 * gib} {
		for _, bs := range []int{1024, 2048, 4096, 8192, 16384, 32768, 65536} {
			if size/int64(bs) >= 512 {
				cs = append(cs, comparison{size, fmt.Sprintf("-b %d", bs)})
			}
		}
	}
	for _, k := range []int64{1, 50, 256, 500, 1000, 1090, 1099, 1102, 1200} {
		cs = append(cs, comparison{128*mib + 4*k*kib, "-b 4096"}, comparison{2*gib + 4*k*kib, "-b 4096"})
	}
	for _, k := range []int64{1, 49, 53, 300, 600, 1000} {
		cs = append(cs, comparison{(16*8192 + 1 + k*4) * kib, "-b 1024"})
	}
	for _, args := range optionComparisons {
		size := 300 * mib
		if rest, ok := strings.CutPrefix(args, "1G "); ok {
			size, args = gib, rest
		} else if rest, ok := strings.CutPrefix(args, "64M "); ok {
			size, args = 64*mib, rest
		} else if rest, ok := strings.CutPrefix(args, "8M "); ok {
			size, args = 8*mib, rest
		}
		cs = append(cs, comparison{size, args})
	}
	for _, args := range matrix.Rows() {
		if c := (comparison{matrix.Size, args}); !slices.Contains(cs, c) {
			cs = append(cs, c)
		}
	}
	return cs
}

// optionComparisons are made of 300 MiB where they do not say another size.
var optionComparisons = []string{
	"64M -m 0",
	"64M -m 12.5",
	"64M -L a-label",
	"64M -i 1024",
	"64M -i 65536",
	"64M -b 4096 -N 12",
	"64M -N 100000",
	"64M -N 16",
	"64M -I 128",
	"64M -I 512",
	"64M -I 1024",
	"64M -b 4096 -I 4096 -i 65536",
	"64M -J size=8",
	"1G -J size=64",
	"1G -b 1024 -J size=64",
	"1G -g 8192",
	"1G -g 1024 -G 4",
	"1G -g 256 -b 4096",
	"1G -g 1024 -b 1024 -N 3000",
	"1G -O meta_bg,^resize_inode -b 1024",
	"1G -G 2",
	"1G -G 1",
	"1G -G 64",
	"-O ^flex_bg",
	"-O ^has_journal",
	"-O ^64bit",
	"-O ^resize_inode",
	"-O ^metadata_csum,^64bit",
	"-O ^metadata_csum,uninit_bg",
	"-O metadata_csum_seed",
	"-O ^resize_inode,^sparse_super",

	// The older types, and what they lack.
	"-t ext2",
	"-t ext3",
	"8M -t ext2",
	"8M -t ext3",
	"1G -t ext2",
	"1G -t ext3",
	"1G -t ext3 -b 1024",
	"-t ext3 -b 2048",
	"-t ext3 -b 65536",
	"-t ext2 -I 128",
	"-t ext3 -I 128 -b 4096",
	"-t ext2 -r 0",
	"1G -t ext2 -r 0",
	"-t ext2 -O none",
	"-t ext2 -O ^filetype",
	"-t ext2 -O ^sparse_super,^resize_inode",
	"-t ext2 -O ^large_file,^dir_index,^ext_attr",
	"-t ext3 -O uninit_bg",
	"-t ext3 -O flex_bg",
	"-t ext3 -O flex_bg,metadata_csum",
	"-t ext3 -O extent",
	"-t ext2 -O extent,64bit",
	"1G -t ext3 -O meta_bg,^resize_inode -g 1024 -b 1024",
	"-O ^extent,^64bit",
	"-O ^huge_file,^dir_nlink,^extra_isize",
	"-O ^extra_isize",
	"-O ^dir_index",
	"-O ^ext_attr",
	"-O ^filetype",

	// Features that change fields, or add files.
	"-O large_dir",
	"-O ea_inode",
	"-O encrypt",
	"-O verity",
	"-O stable_inodes",
	"-O casefold",
	"-O casefold -E encoding_flags=strict",
	"-E encoding=utf8",
	"-O inline_data",
	"-O inline_data -b 4096",
	"-O inline_data -b 65536",
	"-O mmp",
	"-O mmp -E mmp_update_interval=20",
	"-O mmp -b 4096",
	"-O fast_commit",
	"1G -O fast_commit",
	"-O fast_commit -J size=16",
	"-O fast_commit -J size=16,fast_commit_size=512",
	"-O orphan_file",
	"1G -O orphan_file",
	"1G -O orphan_file -b 1024",
	"-O orphan_file -E orphan_file_size=16",
	"-O orphan_file -E orphan_file_size=64K",
	"-O quota",
	"-O quota -b 2048",
	"-O quota -b 4096",
	"-O quota -b 65536",
	"-O quota -E quotatype=usrquota",
	"-O quota -E quotatype=grpquota",
	"-O quota,project",
	"-O quota,project -b 4096",
	"-O quota -E root_owner=7:9",
	"-O quota -E root_owner=1000:70000",
	"-t ext2 -O quota",
	"-t ext3 -O quota -b 1024",
	"-O sparse_super2",
	"-O sparse_super2,^sparse_super,^resize_inode",
	"-O sparse_super2 -E num_backup_sb=1",
	"-O sparse_super2 -E num_backup_sb=0",
	"64M -O sparse_super2 -b 4096",
	"-O sparse_super2,^resize_inode",
	"-O sparse_super2 -g 1024",
	"-O bigalloc",
	"-O bigalloc -b 4096",
	"-O bigalloc -b 4096 -C 8192",
	"-O bigalloc -b 4096 -C 65536",
	"-O bigalloc -b 1024 -C 2048",
	"-O bigalloc -b 65536 -C 131072",
	"1G -O bigalloc -C 1M",
	"1G -O bigalloc -b 1024 -C 4096",
	"1G -O bigalloc -C 65536 -g 4096",
	"-O bigalloc,^resize_inode",
	"-O bigalloc,quota",
	"-O bigalloc,orphan_file,mmp,quota,project -b 4096",
	"-O bigalloc,^flex_bg",
	"-O bigalloc,^metadata_csum",
	"-O bigalloc,meta_bg,^resize_inode",
	"-O bigalloc,quota -b 2048 -E root_owner=5:77777",
	"-O bigalloc,quota -b 1024 -C 2048 -E root_owner=5:77777",

	// Extended options.
	"-E root_owner=1000:100",
	"-E root_owner=100000:200000",
	"-E stride=16,stripe_width=64",
	"-O ^flex_bg -E stride=16",
	"-t ext2 -E stride=4,stripe_width=8",
	"-E packed_meta_blocks=1",
	"1G -E packed_meta_blocks=1",
	"1G -E packed_meta_blocks=1 -b 1024 -g 2048",
	"-E lazy_itable_init=0",
	"-E lazy_itable_init=1",
	"-E lazy_journal_init=1",
	"-E resize=1000000",
	"-b 4096 -E resize=4G",
	"-E test_fs",
	"-E desc_size=128",
	"-E discard",

	// Combinations.
	"-O metadata_csum_seed,large_dir,ea_inode,inline_data,mmp,orphan_file,fast_commit,quota,project,casefold,verity,encrypt,stable_inodes,sparse_super2",
	"-b 4096 -O orphan_file,quota,project,mmp,fast_commit -G 4 -g 4096 -I 512",
	"1G -b 1024 -O orphan_file,quota,project,mmp,fast_commit -G 4 -g 1024",
	"-t ext3 -b 4096 -O orphan_file,quota,mmp",
	"1G -t ext3 -O orphan_file,quota,mmp,uninit_bg -b 1024 -g 512",
	"-O ^flex_bg,orphan_file,quota,project -N 256 -g 1024",
	"-O ^metadata_csum,orphan_file,mmp,quota",
	"-O ^has_journal,quota,mmp,metadata_csum_seed -I 128 -b 2048",
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
	for _, c := range []comparison{{size: 16*tib - 4*mib}, {size: 16 * tib}, {size: 20 * tib}, {2 * tib, "-b 1024"}} {
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
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			compareWithMke2fs(t, c)
		})
	}
}

func compareWithMke2fs(t *testing.T, c comparison) {
	t.Helper()
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "mke2fs.img"), filepath.Join(dir, "extfused.img")
	runMke2fs(t, theirs, c)
	r := formatFile(t, ours, c.size, paramsOf(t, c.args))
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
	fields := strings.Fields(c.args)
	extended := "hash_seed=" + testSeed
	if i := slices.Index(fields, "-E"); i >= 0 { // only the last -E counts
		extended += "," + fields[i+1]
		fields = slices.Delete(fields, i, i+2)
	}
	args := append([]string{"-q", "-F", "-U", testUUID, "-E", extended}, fields...)
	if !strings.Contains(c.args, "-t ") {
		args = append([]string{"-t", "ext4"}, args...)
	}
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
			switch {
			case supers[off]:
				maskSuper(x)
				maskSuper(y)
			case isMMP(x) && isMMP(y):
				maskMMP(x)
				maskMMP(y)
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

func isMMP(b []byte) bool {
	var m ondisk.MMP
	return m.Decode(b) == nil
}

// maskMMP clears what tells of the machine and of the moment: ours says nothing
// of either, so that its image can be made again.
func maskMMP(b []byte) {
	clear(b[0x08:0x70])   // mmp_time, mmp_nodename, mmp_bdevname
	clear(b[0x3fc:0x400]) // mmp_checksum
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
