package info

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"extfused/blockdev"
	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

// images are made by mke2fs with these arguments, then changed by these
// debugfs commands.
var images = []struct {
	size    string
	args    string
	debugfs []string
}{
	{"2M", "-t ext4", nil},
	{"64M", "-t ext4 -L label -M /mnt/there", nil},
	{"300M", "-t ext4 -b 1024 -E stride=16,stripe_width=64", nil},
	{"300M", "-t ext4 -O ^resize_inode,meta_bg", nil},
	{"2G", "-t ext4 -O fast_commit,orphan_file,metadata_csum_seed,quota,project,mmp", nil},
	{"2G", "-t ext4 -O bigalloc -C 65536", nil},
	{"300M", "-t ext4 -E lazy_itable_init=1,nodiscard", nil},
	{"64M", "-t ext3", nil},
	{"64M", "-t ext2 -O ^dir_index,^filetype -I 128", nil},
	{"64M", "-t ext4 -J size=16 -e panic", []string{"ssv mount_count 7", "ssv max_mount_count 30", "ssv checkinterval 1000000", "ssv last_orphan 13",
		"ssv state 2", "ssv mtime 20200101", "ssv kbytes_written 123456789", "ssv def_resuid 77"}},
	{"64M", "-t ext4", []string{"ssv error_count 3", "ssv first_error_time 20260101", "ssv last_error_time 20260102", "ssv first_error_func foo",
		"ssv last_error_func bar", "ssv first_error_line 17", "ssv last_error_ino 12", "ssv last_error_block 99"}},
}

func makeImage(t *testing.T, size, args string, commands []string) string {
	t.Helper()
	for _, tool := range []string{"mke2fs", "dumpe2fs", "debugfs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (package e2fsprogs)", tool)
		}
	}
	path := filepath.Join(t.TempDir(), "img")
	out, err := exec.Command("mke2fs", append(append([]string{"-q", "-F"}, strings.Fields(args)...), path, size)...).CombinedOutput()
	if err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
	for _, c := range commands {
		if out, err := exec.Command("debugfs", "-w", "-R", c, path).CombinedOutput(); err != nil {
			t.Fatalf("debugfs %s: %v\n%s", c, err, out)
		}
	}
	return path
}

func read(t *testing.T, path string) *Info {
	t.Helper()
	dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	i, err := Read(dev, Options{Groups: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Unreadable) > 0 {
		t.Errorf("unreadable: %v", i.Unreadable)
	}
	return i
}

// TestAgreesWithDumpe2fs compares every line of dumpe2fs's header, and every
// group of its table.
func TestAgreesWithDumpe2fs(t *testing.T) {
	for _, im := range images {
		t.Run(im.size+" "+im.args, func(t *testing.T) {
			path := makeImage(t, im.size, im.args, im.debugfs)
			i := read(t, path)
			out, err := exec.Command("dumpe2fs", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			header, groups, _ := strings.Cut(string(out), "\n\n\n")
			compareHeader(t, i, header)
			compareGroups(t, i, groups)
		})
	}
}

// notOurs are lines that stand for more than superblock and journal say.
var notOurs = regexp.MustCompile(`^(MMP_block|    mmp_|Reserved blocks [ug]id|Journal checksum)`)

func compareHeader(t *testing.T, i *Info, header string) {
	t.Helper()
	ours := map[string]string{}
	for _, l := range i.Summary() {
		ours[l.Key] = strings.TrimSpace(l.Text)
	}
	lines := 0
	for s := bufio.NewScanner(strings.NewReader(header)); s.Scan(); {
		key, value, ok := strings.Cut(s.Text(), ":")
		if !ok || notOurs.MatchString(s.Text()) {
			continue
		}
		lines++
		got, found := ours[key]
		if !found || got != strings.TrimSpace(value) {
			t.Errorf("%s: %q, dumpe2fs says %q", key, got, strings.TrimSpace(value))
		}
		delete(ours, key)
	}
	for key, value := range ours {
		if !notOurs.MatchString(key) {
			t.Errorf("%s: %s: dumpe2fs does not say so", key, value)
		}
	}
	if lines < 30 {
		t.Errorf("only %d lines to compare", lines)
	}
}

var (
	groupLine  = regexp.MustCompile(`^Group (\d+): \(Blocks (\d+)-(\d+)\)(?: csum (0x[0-9a-f]+))?(?: \[(.*)\])?`)
	placeLine  = regexp.MustCompile(`(Block bitmap|Inode bitmap|Inode table) at (\d+)`)
	countsLine = regexp.MustCompile(`^  (\d+) free (?:blocks|clusters), (\d+) free inodes, (\d+) directories(?:, (\d+) unused inodes)?`)
)

func compareGroups(t *testing.T, i *Info, text string) {
	t.Helper()
	var theirs []string
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if m := groupLine.FindStringSubmatch(line); m != nil {
			csum := m[4]
			if csum == "" {
				csum = "0x0000"
			}
			theirs = append(theirs, fmt.Sprintf("%s %s-%s %s [%s]", m[1], m[2], m[3], csum, m[5]))
		}
		for _, m := range placeLine.FindAllStringSubmatch(line, -1) {
			theirs[len(theirs)-1] += " " + m[2]
		}
		if m := countsLine.FindStringSubmatch(line); m != nil {
			if m[4] == "" {
				m[4] = "0"
			}
			theirs[len(theirs)-1] += fmt.Sprintf(" %s %s %s %s", m[1], m[2], m[3], m[4])
		}
	}
	if len(theirs) != len(i.Groups) || len(theirs) == 0 {
		t.Fatalf("%d groups, dumpe2fs has %d", len(i.Groups), len(theirs))
	}
	for k := range i.Groups {
		g := &i.Groups[k]
		ours := fmt.Sprintf("%d %d-%d 0x%04x [%s] %d %d %d %d %d %d %d", g.Number, g.First, g.Last, g.Checksum, strings.Join(g.FlagNames(), ", "),
			g.BlockBitmap, g.InodeBitmap, g.InodeTable, g.FreeClusters, g.FreeInodes, g.UsedDirs, g.ItableUnused)
		if ours != theirs[k] {
			t.Errorf("ours     %s\ndumpe2fs %s", ours, theirs[k])
		}
		if !g.CsumOK {
			t.Errorf("group %d: checksum", k)
		}
	}
}

func formatted(t testing.TB) blockdev.Device {
	t.Helper()
	dev := blockdev.NewMem(16 << 20)
	p := mkfs.DefaultParams()
	p.Zeroed = true
	if _, err := mkfs.Format(dev, p); err != nil {
		t.Fatal(err)
	}
	return dev
}

// Damage is told, in words, and does not keep the rest from being shown.
func TestDamageIsTold(t *testing.T) {
	read := func(dev blockdev.Device) string {
		i, err := Read(dev, Options{Groups: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(i.Summary()) < 30 || len(i.Groups) != 2 {
			t.Errorf("%d lines, %d groups", len(i.Summary()), len(i.Groups))
		}
		return strings.Join(i.Unreadable, "; ")
	}
	poke := func(dev blockdev.Device, off int64) {
		b := make([]byte, 1)
		if _, err := dev.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x55
		if _, err := dev.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
	dev := formatted(t)
	if got := read(dev); got != "" {
		t.Errorf("nothing is damaged: %s", got)
	}
	i, _ := Read(dev, Options{Groups: true})
	journalInode := int64(i.Groups[0].InodeTable)*1024 + 7*256
	poke(dev, journalInode+0x28)
	if got := read(dev); !strings.Contains(got, "inode checksum is wrong (inode 8)") {
		t.Error(got)
	}
	dev = formatted(t)
	poke(dev, 2*1024+5) // the first group descriptor
	i, err := Read(dev, Options{Groups: true})
	if err != nil || i.Groups[0].CsumOK || !i.Groups[1].CsumOK {
		t.Errorf("%v, %+v", err, i)
	}
	dev = formatted(t)
	poke(dev, 1024+0x88) // s_last_mounted
	if got := read(dev); !strings.Contains(got, "superblock: checksum is wrong") {
		t.Error(got)
	}
}

func TestNotExt4(t *testing.T) {
	if _, err := Read(blockdev.NewMem(100), Options{}); !errors.Is(err, ondisk.ErrNotExt4) {
		t.Error(err)
	}
	if _, err := Read(blockdev.NewMem(1<<20), Options{}); !errors.Is(err, ondisk.ErrNotExt4) {
		t.Error(err)
	}
	dev := formatted(t)
	short, err := blockdev.NewSection(dev, 0, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(short, Options{}); !errors.Is(err, ondisk.ErrTruncated) {
		t.Error(err)
	}
}

// FuzzRead changes bytes of a small image's superblock, descriptors, inode
// table and journal superblock.
func FuzzRead(f *testing.F) {
	dev := formatted(f)
	i, err := Read(dev, Options{Groups: true})
	if err != nil {
		f.Fatal(err)
	}
	image := make([]byte, dev.Size())
	if _, err := dev.ReadAt(image, 0); err != nil {
		f.Fatal(err)
	}
	places := []int{1024, 2048, int(i.Groups[0].InodeTable)*1024 + 7*256, int(binary.LittleEndian.Uint32(image[1024+0x10c+20:])) * 1024}
	f.Add(uint8(0), uint16(0x18), []byte{1, 2, 3})
	f.Add(uint8(1), uint16(0), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(2), uint16(0x28), []byte{0x0a, 0xf3, 1, 0, 4, 0, 5})
	f.Add(uint8(3), uint16(0), []byte{0})
	f.Fuzz(func(t *testing.T, place uint8, off uint16, change []byte) {
		dev := blockdev.NewMem(int64(len(image)))
		if _, err := dev.WriteAt(image[:1<<20], 0); err != nil {
			t.Fatal(err)
		}
		at := int64(places[int(place)%len(places)]) + int64(off%1024)
		if _, err := dev.WriteAt(change[:min(len(change), 1024)], at); err != nil {
			t.Fatal(err)
		}
		fixChecksums(t, dev)
		if i, err := Read(dev, Options{Groups: true}); err == nil {
			i.Summary()
		}
	})
}

// fixChecksums makes the superblock's checksum right, so that fuzzing gets
// behind it.
func fixChecksums(t *testing.T, dev blockdev.Device) {
	b := make([]byte, 1024)
	if _, err := dev.ReadAt(b, 1024); err != nil {
		t.Fatal(err)
	}
	ondisk.SetSuperBlockCsum(b)
	if _, err := dev.WriteAt(b, 1024); err != nil {
		t.Fatal(err)
	}
}

// Reading leaves the image as it was.
func TestReadChangesNothing(t *testing.T) {
	path := makeImage(t, "8M", "-t ext4", nil)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read(t, path).Summary()
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the image has changed (%v)", err)
	}
}
