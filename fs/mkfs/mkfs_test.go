package mkfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// A device full of garbage must give a sound file system, whether its tables
// are cleared now or lazily, and nothing of the garbage may be taken for
// metadata.
func TestFormatOverGarbage(t *testing.T) {
	needTool(t, "e2fsck")
	for _, zero := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "img")
		garbage := bytes.Repeat([]byte("\x53\xef garbage \xff"), 64<<20/12+1)[:64<<20]
		if err := os.WriteFile(path, garbage, 0o600); err != nil {
			t.Fatal(err)
		}
		dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := testParams(t)
		p.Zeroed, p.ZeroTables = false, zero
		if _, err := Format(dev, p); err != nil {
			t.Fatal(err)
		}
		dev.Close()
		e2fsck(t, path)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b[:1024], make([]byte, 1024)) || !bytes.Equal(b[len(b)-wipeTail:], make([]byte, wipeTail)) {
			t.Error("signatures of what was there before are left")
		}
		out, err := exec.Command("dumpe2fs", path).CombinedOutput()
		if err != nil {
			t.Fatalf("dumpe2fs: %v\n%s", err, out)
		}
		if strings.Contains(string(out), "ITABLE_ZEROED") != zero {
			t.Errorf("tables cleared: %v, but the flag says otherwise", zero)
		}
	}
}

// The same parameters give the same bytes: nothing of the run gets in.
func TestFormatIsReproducible(t *testing.T) {
	var images [2][]byte
	for i := range images {
		dev := blockdev.NewMem(40 * mib)
		if _, err := Format(dev, testParams(t)); err != nil {
			t.Fatal(err)
		}
		images[i] = make([]byte, dev.Size())
		if _, err := dev.ReadAt(images[i], 0); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two runs differ")
	}
}

// Every size from nothing upwards either gives a sound file system or says
// that it is too small.
func TestSmallSizes(t *testing.T) {
	needTool(t, "e2fsck")
	made := 0
	for size := int64(4 * kib); size < 3*mib; size += 52 * kib {
		path := filepath.Join(t.TempDir(), "img")
		sparseFile(t, path, size)
		dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Format(dev, testParams(t))
		dev.Close()
		if err == nil {
			made++
			e2fsck(t, path)
		} else if !errors.Is(err, ErrTooSmall) && !strings.Contains(err.Error(), "do not fit") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if made < 40 {
		t.Errorf("only %d of the sizes could be formatted", made)
	}
}

// From 2 MiB to past 16 TiB the layout must hold together: every superblock
// passes its own check, and no block is placed twice (space.add panics).
func TestPlanSizes(t *testing.T) {
	for _, bs := range []int{0, 1024, 2048, 4096, 65536} {
		for size := 2 * mib; size <= 64*tib; size = size*7/2 + 12345 {
			if bs != 0 && bs <= 2048 && size > 2*tib || bs == 65536 && size < 64*mib {
				continue
			}
			p := testParams(t)
			p.BlockSize = bs
			r, err := Plan(size, p)
			if err != nil {
				t.Errorf("%d bytes in blocks of %d: %v", size, bs, err)
				continue
			}
			if got := int64(r.Blocks) * int64(r.BlockSize); got > size || size-got > 64*mib+int64(r.BlockSize) {
				t.Errorf("%d bytes in blocks of %d: the file system has %d", size, bs, got)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for what, set := range map[string]func(*Params){
		"block size":       func(p *Params) { p.BlockSize = 3000 },
		"inode size":       func(p *Params) { p.InodeSize = 100 },
		"bytes per inode":  func(p *Params) { p.BytesPerInode = 512 },
		"reserved":         func(p *Params) { p.ReservedPercent = 51 },
		"label":            func(p *Params) { p.Label = "seventeen letters" },
		"size":             func(p *Params) { p.Size = 65 * mib },
		"inodes":           func(p *Params) { p.Inodes = 10000000 },
		"small journal":    func(p *Params) { p.JournalBytes = 1000 },
		"big journal":      func(p *Params) { p.JournalBytes = 60 * mib },
		"compression":      func(p *Params) { p.Features.Incompat |= ondisk.IncompatCompression },
		"needs_recovery":   func(p *Params) { p.Features.Incompat |= ondisk.IncompatRecover },
		"exclude":          func(p *Params) { p.Features.Incompat |= ondisk.IncompatMetaBG },
		"needs bigalloc":   func(p *Params) { p.ClusterSize = 65536 },
		"cluster size":     func(p *Params) { p.Features.ROCompat |= ondisk.ROCompatBigalloc; p.ClusterSize = 5000 },
		"needs quota":      func(p *Params) { p.Features.ROCompat |= ondisk.ROCompatProject },
		"inline_data":      func(p *Params) { p.Features.Incompat |= ondisk.IncompatInlineData; p.InodeSize = 128 },
		"num_backup_sb":    func(p *Params) { p.Backups = new(int) },
		"revision 0":       func(p *Params) { p.Revision0 = true },
		"quotatype":        func(p *Params) { p.Quotas = []QuotaType{UserQuota} },
		"mmp_update":       func(p *Params) { p.MMPInterval = 7 },
		"orphan_file_size": func(p *Params) { p.OrphanSize.N = 10 },
		"an orphan file": func(p *Params) {
			p.Features.Compat |= ondisk.CompatOrphanFile
			p.OrphanSize.N = 1000
		},
		"FEATURE_R30":      func(p *Params) { p.Features.ROCompat |= 1 << 30 },
		"without extent":   func(p *Params) { p.Features.Incompat &^= ondisk.IncompatExtents },
		"needs sparse":     func(p *Params) { p.Features.ROCompat &^= ondisk.ROCompatSparseSuper },
		"blocks per group": func(p *Params) { p.BlocksPerGroup = 100 },
		"per flex group":   func(p *Params) { p.FlexGroups = 3 },
		"needs metadata_cs": func(p *Params) {
			p.Features.Incompat |= ondisk.IncompatCsumSeed
			p.Features.ROCompat &^= ondisk.ROCompatMetadataCsum
		},
	} {
		p := testParams(t)
		set(&p)
		dev := blockdev.NewMem(64 * mib)
		if _, err := Format(dev, p); err == nil || strings.Contains(err.Error(), "\n") || errors.Is(err, errFailing) {
			t.Errorf("%s: %v", what, err)
		}
		b := make([]byte, 4096)
		if _, err := dev.ReadAt(b, 0); err != nil || !bytes.Equal(b, make([]byte, 4096)) {
			t.Errorf("%s: the device was written", what)
		}
	}
}

func TestProbe(t *testing.T) {
	mem := func(off int64, s string) blockdev.Device {
		dev := blockdev.NewMem(mib)
		if _, err := dev.WriteAt([]byte(s), off); err != nil {
			t.Fatal(err)
		}
		return dev
	}
	if f, err := Probe(blockdev.NewMem(mib)); f != nil || err != nil {
		t.Errorf("an empty device: %v, %v", f, err)
	}
	if f, err := Probe(blockdev.NewMem(100)); f != nil || err != nil {
		t.Errorf("a tiny device: %v, %v", f, err)
	}
	for _, s := range signatures {
		if f, err := Probe(mem(s.off, s.magic)); err != nil || f == nil || f.Kind != s.kind {
			t.Errorf("%s: %v, %v", s.kind, f, err)
		}
	}
	mbr := make([]byte, 512)
	mbr[510], mbr[511] = 0x55, 0xaa
	if f, _ := Probe(mem(0, string(mbr))); f != nil {
		t.Errorf("a boot sector without partitions: %v", f)
	}
	mbr[446+4], mbr[446+12] = 0x83, 1
	if f, _ := Probe(mem(0, string(mbr))); f == nil || f.Kind != "a partition table" {
		t.Errorf("a partition table: %v", f)
	}
	dev := blockdev.NewMem(8 * mib)
	p := testParams(t)
	p.Label = "bad\x1blabel"
	if _, err := Format(dev, p); err != nil {
		t.Fatal(err)
	}
	if f, _ := Probe(dev); f == nil || f.String() != `an ext4 file system labelled "bad?label"` || f.UUID != p.UUID {
		t.Errorf("our own: %v", f)
	}
}

// A crash while formatting leaves the old file system's superblock gone and
// no new one: nothing mounts half of each.
func TestSuperBlockComesLast(t *testing.T) {
	dev := &failing{Device: blockdev.NewMem(64 * mib)}
	for dev.left = 0; ; dev.left++ {
		dev.n = 0
		p := testParams(t)
		p.Zeroed = false
		_, err := Format(dev, p)
		if err == nil {
			break
		}
		if f, _ := Probe(dev.Device); f != nil && dev.n > 2 {
			t.Fatalf("after %d operations: %v", dev.left, f)
		}
	}
	if dev.left < 10 {
		t.Fatalf("only %d operations", dev.left)
	}
}

// failing lets the first left writes through.
type failing struct {
	blockdev.Device
	n, left int
}

var errFailing = errors.New("no more")

func (f *failing) step() error {
	if f.n++; f.n > f.left {
		return errFailing
	}
	return nil
}

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if err := f.step(); err != nil {
		return 0, err
	}
	return f.Device.WriteAt(p, off)
}

func (f *failing) Zero(off, n int64) error {
	if err := f.step(); err != nil {
		return err
	}
	return f.Device.Zero(off, n)
}

func TestSpace(t *testing.T) {
	var s space
	model := make([]bool, 400)
	seed := uint32(7)
	rnd := func(n int) int {
		seed = seed*1664525 + 1013904223
		return int(seed>>8) % n
	}
	for range 300 {
		at, n := rnd(390), rnd(9)+1
		free := true
		for i := at; i < at+n; i++ {
			free = free && !model[i]
		}
		if got := s.isFree(ondisk.FsBlock(at), uint64(n)); got != free {
			t.Fatalf("isFree(%d, %d) = %v", at, n, got)
		}
		if free {
			s.add(ondisk.FsBlock(at), uint64(n))
			for i := at; i < at+n; i++ {
				model[i] = true
			}
		}
		compareSpace(t, &s, model, rnd(400), rnd(5)+1)
	}
}

func compareSpace(t *testing.T, s *space, model []bool, from, n int) {
	t.Helper()
	used, want, length := uint64(0), -1, 0
	for i := range model {
		if model[i] && i >= from {
			used++
		}
		if i < from || model[i] {
			length = 0
			continue
		}
		if length++; length == n && want < 0 {
			want = i - n + 1
		}
	}
	if got := s.used(ondisk.FsBlock(from), 400); got != used {
		t.Fatalf("used(%d) = %d, want %d", from, got, used)
	}
	got, ok := s.find(ondisk.FsBlock(from), 400, uint64(n))
	if ok != (want >= 0) || ok && int(got) != want {
		t.Fatalf("find(%d, %d) = %d %v, want %d", from, n, got, ok, want)
	}
	for i := 1; i < len(s.runs); i++ {
		if s.runs[i-1].end() >= s.runs[i].start {
			t.Fatal("runs touch or are out of order")
		}
	}
}

func BenchmarkFormat16TiB(b *testing.B) {
	path := filepath.Join(b.TempDir(), "img")
	size := 16*tib - 4*mib
	for b.Loop() {
		sparseFile(b, path, size)
		formatFile(b, path, size, testParams(b))
	}
}
