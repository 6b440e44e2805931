package ondisk

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// Seconds and the low two bits of the extra field, from the table in the
// kernel's inode documentation.
func TestTimeEpochs(t *testing.T) {
	cases := []struct {
		sec   int64
		lo    uint32
		epoch uint32
	}{
		{-1 << 31, 0x80000000, 0},    // 1901-12-13
		{-1, 0xffffffff, 0},          // 1969-12-31
		{0, 0, 0},                    // 1970-01-01
		{0x7fffffff, 0x7fffffff, 0},  // 2038-01-19
		{0x80000000, 0x80000000, 1},  // 2038-01-19
		{0xffffffff, 0xffffffff, 1},  // 2106-02-07
		{0x100000000, 0, 1},          // 2106-02-07
		{0x17fffffff, 0x7fffffff, 1}, // 2174-02-25
		{0x180000000, 0x80000000, 2}, // 2174-02-25
		{0x27fffffff, 0x7fffffff, 2}, // 2310-04-04
		{0x280000000, 0x80000000, 3}, // 2310-04-04
		{0x37fffffff, 0x7fffffff, 3}, // 2446-05-10
	}
	for _, c := range cases {
		lo, extra := EncodeTime(Timestamp{c.sec, 123456789}, true)
		if lo != c.lo || extra != 123456789<<2|c.epoch {
			t.Errorf("%#x: stored as %#x, extra %#x", c.sec, lo, extra)
		}
		if got := DecodeTime(lo, extra); got != (Timestamp{c.sec, 123456789}) {
			t.Errorf("%#x: reads back as %+v", c.sec, got)
		}
	}
}

func TestTimeIsClampedNotWrapped(t *testing.T) {
	cases := []struct {
		in, want Timestamp
		wide     bool
	}{
		{Timestamp{1 << 31, 5}, Timestamp{MaxTimeSec, 0}, false},
		{Timestamp{-1<<31 - 1, 5}, Timestamp{MinTimeSec, 0}, false},
		{Timestamp{7, 5}, Timestamp{7, 0}, false},
		{Timestamp{0x380000000, 5}, Timestamp{0x37fffffff, 0}, true},
		{Timestamp{-1 << 40, 5}, Timestamp{MinTimeSec, 0}, true},
	}
	for _, c := range cases {
		if got := DecodeTime(EncodeTime(c.in, c.wide)); got != c.want {
			t.Errorf("%+v (wide %v) reads back as %+v, want %+v", c.in, c.wide, got, c.want)
		}
	}
	if got := DecodeTime(0, 0xffffffff); got.Nsec != 999_999_999 {
		t.Errorf("too many nanoseconds read as %d", got.Nsec)
	}
}

func TestSectors(t *testing.T) {
	cases := []struct {
		v        uint64
		huge, ok bool
		flag     bool
	}{
		{1<<32 - 1, false, true, false},
		{1 << 32, false, false, false},
		{1 << 32, true, true, false},
		{1<<48 - 1, true, true, false},
		{1 << 48, true, true, true},
		{(1<<48 - 1) << 3, true, true, true},
		{1 << 51, true, false, false},
	}
	for _, c := range cases {
		var n Inode
		if ok := n.SetSectors(c.v, c.huge, 12); ok != c.ok {
			t.Errorf("%#x: %v", c.v, ok)
			continue
		}
		if c.ok && (n.Sectors(c.huge, 12) != c.v || n.Flags&InodeHugeFile != 0 != c.flag) {
			t.Errorf("%#x: reads back as %#x, flags %#x", c.v, n.Sectors(c.huge, 12), n.Flags)
		}
	}
}

func TestInodeEncodeLeavesAttributesAlone(t *testing.T) {
	for _, extra := range []uint16{0, 4, 28, 32, 64} {
		b := patternBytes(256)
		binary.LittleEndian.PutUint16(b[0x80:], extra)
		want := string(b[GoodOldInodeSize+max(2, min(extra, InodeExtraSize)):])
		var n Inode
		if err := n.Decode(b); err != nil {
			t.Fatal(err)
		}
		n.CrtimeLo, n.Projid, n.CtimeExtra = ^n.CrtimeLo, ^n.Projid, ^n.CtimeExtra
		n.Encode(b)
		if got := string(b[GoodOldInodeSize+max(2, min(extra, InodeExtraSize)):]); got != want {
			t.Errorf("i_extra_isize %d: bytes behind the fields have changed", extra)
		}
	}
	var n Inode
	b := make([]byte, 256)
	for _, extra := range []uint16{2, 129, 132, 0xffff} {
		binary.LittleEndian.PutUint16(b[0x80:], extra)
		if n.Decode(b) == nil {
			t.Errorf("i_extra_isize %d is taken", extra)
		}
	}
}

func TestRecLen(t *testing.T) {
	for _, bs := range []int{1024, 4096, 32768, 65536} {
		for n := 12; n <= bs; n += 4 {
			if got := DecodeRecLen(EncodeRecLen(n, bs), bs); got != n {
				t.Fatalf("block size %d: rec_len %d reads back as %d", bs, n, got)
			}
		}
	}
	if EncodeRecLen(65536, 65536) != 65535 || DecodeRecLen(0, 65536) != 65536 {
		t.Error("a 64 KiB block's rec_len")
	}
}

func TestFeatureNames(t *testing.T) {
	f := Features{CompatHasJournal | 1<<13, IncompatExtents | 1<<17 | 1<<18, ROCompatGDTCsum | 1<<31}
	if got := f.String(); got != "has_journal FEATURE_C13 extent casefold FEATURE_I18 uninit_bg FEATURE_R31" {
		t.Error(got)
	}
	refuse, ro := f.Unsupported()
	if strings.Join(refuse, " ") != "casefold FEATURE_I18" || strings.Join(ro, " ") != "FEATURE_R31" {
		t.Error(refuse, ro)
	}
	for _, name := range f.Names() {
		one, ok := FeatureByName(name)
		if !ok || one.String() != name {
			t.Errorf("%s is found as %v, %v", name, one, ok)
		}
	}
	if _, ok := FeatureByName(""); ok {
		t.Error("a feature without a name")
	}
}

func TestHasSuper(t *testing.T) {
	var s SuperBlock
	s.SetROCompat(ROCompatSparseSuper, true)
	var got []GroupNumber
	for g := range GroupNumber(130) {
		if s.HasSuper(g) {
			got = append(got, g)
		}
	}
	want := []GroupNumber{0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125}
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatal(got)
		}
	}
}

// Every lie about a size is told in one line, and none gets through.
func TestCheckCatchesLies(t *testing.T) {
	img := readGolden(t, "ext4-4k")
	lies := map[string]func(*SuperBlock){
		"block size":       func(s *SuperBlock) { s.LogBlockSize = 7 },
		"cluster size":     func(s *SuperBlock) { s.LogClusterSize = 9 },
		"revision":         func(s *SuperBlock) { s.RevLevel = 2 },
		"inode size":       func(s *SuperBlock) { s.InodeSize = 192 },
		"inode size large": func(s *SuperBlock) { s.InodeSize = 8192 },
		"desc size":        func(s *SuperBlock) { s.DescSizeRaw = 0 },
		"desc size odd":    func(s *SuperBlock) { s.DescSizeRaw = 96 },
		"checksum type":    func(s *SuperBlock) { s.ChecksumType = 2 },
		"blocks per group": func(s *SuperBlock) { s.BlocksPerGroup, s.ClustersPerGroup = 0, 0 },
		"clusters":         func(s *SuperBlock) { s.ClustersPerGroup = 8 },
		"large groups":     func(s *SuperBlock) { s.BlocksPerGroup, s.ClustersPerGroup = 1<<16, 1<<16 },
		"inodes per group": func(s *SuperBlock) { s.InodesPerGroup = 0 },
		"many inodes":      func(s *SuperBlock) { s.InodesPerGroup = 1 << 16 },
		"inodes":           func(s *SuperBlock) { s.InodesCount++ },
		"first block":      func(s *SuperBlock) { s.FirstDataBlock = 1 },
		"no blocks":        func(s *SuperBlock) { s.SetBlocks(0) },
		"huge":             func(s *SuperBlock) { s.SetBlocks(1 << 62) },
		"longer":           func(s *SuperBlock) { s.SetBlocks(s.Blocks() + 1) },
		"reserved":         func(s *SuperBlock) { s.SetReservedBlocks(s.Blocks() + 1) },
		"first inode":      func(s *SuperBlock) { s.FirstIno = 1 },
		"gdt":              func(s *SuperBlock) { s.ReservedGDTBlocks = 5000 },
		"meta_bg":          func(s *SuperBlock) { s.SetIncompat(IncompatMetaBG, true); s.FirstMetaBG = 99 },
		"flex":             func(s *SuperBlock) { s.LogGroupsPerFlex = 32 },
		"bigalloc":         func(s *SuperBlock) { s.SetROCompat(ROCompatBigalloc, true); s.LogClusterSize = 6 },
	}
	for name, lie := range lies {
		var s SuperBlock
		if err := s.Decode(img[SuperBlockOffset:]); err != nil {
			t.Fatal(err)
		}
		lie(&s)
		err := s.Check(int64(len(img)))
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "longer" && !errors.Is(err, ErrTruncated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var s SuperBlock
	if err := s.Decode(make([]byte, 1024)); !errors.Is(err, ErrNotExt4) {
		t.Error(err)
	}
}

func TestCorruptErrorTellsThePlace(t *testing.T) {
	err := InGroup(AtBlock(InInode(Corrupt("a thing"), 12), 34), 0)
	if got := err.Error(); got != "corrupt file system: a thing (group 0, inode 12, block 34)" {
		t.Error(got)
	}
	if got := Corrupt("a thing").Error(); got != "corrupt file system: a thing" {
		t.Error(got)
	}
}

func BenchmarkInodeDecode(b *testing.B) {
	raw := patternBytes(256)
	binary.LittleEndian.PutUint16(raw[0x80:], InodeExtraSize)
	var n Inode
	for b.Loop() {
		if err := n.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInodeEncode(b *testing.B) {
	raw := make([]byte, 256)
	n := Inode{ExtraIsize: InodeExtraSize}
	for b.Loop() {
		n.Encode(raw)
	}
}

func BenchmarkInodeCsum(b *testing.B) {
	c := Csum{metadata: true}
	raw := patternBytes(256)
	for b.Loop() {
		c.SetInode(12, raw)
	}
}
