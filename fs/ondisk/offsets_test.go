package ondisk

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
)

// field is a row of an offset table: a field of a decoded structure, and where
// its bytes stand.
type field struct {
	name string
	off  int
	size int
}

// layout makes a table from "name offset" rows: sizes follow from the type.
type layout []struct {
	name string
	off  int
}

// checkLayout decodes a pattern in which all bytes differ from their
// neighbours, and compares each field with the bytes at its offset; encodes
// into zeroes, and compares all. Every field of the type must have its row,
// and the rows must cover size bytes without gap or overlap.
func checkLayout(t *testing.T, v any, size int, rows layout, pattern []byte, decode func([]byte) error, encode func([]byte)) {
	t.Helper()
	if err := decode(pattern); err != nil {
		t.Fatal(err)
	}
	rv := reflect.ValueOf(v).Elem()
	if rv.NumField() != len(rows) {
		t.Errorf("%d fields, %d rows", rv.NumField(), len(rows))
	}
	end := 0
	for _, r := range rows {
		f := rv.FieldByName(r.name)
		if !f.IsValid() {
			t.Errorf("no field %s", r.name)
			continue
		}
		n := binary.Size(f.Interface())
		if r.off != end {
			t.Errorf("%s: offset %#x, the one before ends at %#x", r.name, r.off, end)
		}
		end = r.off + n
		want := pattern[r.off : r.off+n]
		got, _ := binary.Append(nil, binary.LittleEndian, f.Interface())
		if string(got) != string(want) {
			t.Errorf("%s at %#x: % x, want % x", r.name, r.off, got, want)
		}
	}
	if end != size {
		t.Errorf("the rows end at %#x, want %#x", end, size)
	}
	out := make([]byte, len(pattern))
	encode(out)
	if string(out[:size]) != string(pattern[:size]) {
		t.Error("Encode does not give the bytes that were decoded")
	}
}

func patternBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + 1)
	}
	return b
}

func TestSuperBlockLayout(t *testing.T) {
	b := patternBytes(SuperBlockSize)
	binary.LittleEndian.PutUint16(b[0x38:], SuperMagic)
	var s SuperBlock
	checkLayout(t, &s, SuperBlockSize, layout{
		{"InodesCount", 0x0}, {"BlocksCountLo", 0x4}, {"RBlocksCountLo", 0x8}, {"FreeBlocksCountLo", 0xc},
		{"FreeInodesCount", 0x10}, {"FirstDataBlock", 0x14}, {"LogBlockSize", 0x18}, {"LogClusterSize", 0x1c},
		{"BlocksPerGroup", 0x20}, {"ClustersPerGroup", 0x24}, {"InodesPerGroup", 0x28}, {"MtimeLo", 0x2c},
		{"WtimeLo", 0x30}, {"MntCount", 0x34}, {"MaxMntCount", 0x36}, {"Magic", 0x38}, {"State", 0x3a},
		{"Errors", 0x3c}, {"MinorRevLevel", 0x3e}, {"LastcheckLo", 0x40}, {"Checkinterval", 0x44},
		{"CreatorOS", 0x48}, {"RevLevel", 0x4c}, {"DefResuidLo", 0x50}, {"DefResgidLo", 0x52}, {"FirstIno", 0x54},
		{"InodeSize", 0x58}, {"BlockGroupNr", 0x5a}, {"FeatureCompat", 0x5c}, {"FeatureIncompat", 0x60},
		{"FeatureROCompat", 0x64}, {"UUID", 0x68}, {"VolumeName", 0x78}, {"LastMounted", 0x88},
		{"AlgorithmUsage", 0xc8}, {"PreallocBlocks", 0xcc}, {"PreallocDirBlocks", 0xcd}, {"ReservedGDTBlocks", 0xce},
		{"JournalUUID", 0xd0}, {"JournalInum", 0xe0}, {"JournalDev", 0xe4}, {"LastOrphan", 0xe8}, {"HashSeed", 0xec},
		{"DefHashVersion", 0xfc}, {"JnlBackupType", 0xfd}, {"DescSizeRaw", 0xfe}, {"DefaultMountOpts", 0x100},
		{"FirstMetaBG", 0x104}, {"MkfsTimeLo", 0x108}, {"JnlBlocks", 0x10c}, {"BlocksCountHi", 0x150},
		{"RBlocksCountHi", 0x154}, {"FreeBlocksCountHi", 0x158}, {"MinExtraIsize", 0x15c}, {"WantExtraIsize", 0x15e},
		{"Flags", 0x160}, {"RAIDStride", 0x164}, {"MMPInterval", 0x166}, {"MMPBlock", 0x168}, {"RAIDStripeWidth", 0x170},
		{"LogGroupsPerFlex", 0x174}, {"ChecksumType", 0x175}, {"EncryptionLevel", 0x176}, {"ReservedPad", 0x177},
		{"KbytesWritten", 0x178}, {"SnapshotInum", 0x180}, {"SnapshotID", 0x184}, {"SnapshotRBlocks", 0x188},
		{"SnapshotList", 0x190}, {"ErrorCount", 0x194}, {"FirstErrorTimeLo", 0x198}, {"FirstErrorIno", 0x19c},
		{"FirstErrorBlock", 0x1a0}, {"FirstErrorFunc", 0x1a8}, {"FirstErrorLine", 0x1c8}, {"LastErrorTimeLo", 0x1cc},
		{"LastErrorIno", 0x1d0}, {"LastErrorLine", 0x1d4}, {"LastErrorBlock", 0x1d8}, {"LastErrorFunc", 0x1e0},
		{"MountOpts", 0x200}, {"UsrQuotaInum", 0x240}, {"GrpQuotaInum", 0x244}, {"OverheadClusters", 0x248},
		{"BackupBGs", 0x24c}, {"EncryptAlgos", 0x254}, {"EncryptPWSalt", 0x258}, {"LpfIno", 0x268},
		{"PrjQuotaInum", 0x26c}, {"ChecksumSeed", 0x270}, {"WtimeHi", 0x274}, {"MtimeHi", 0x275}, {"MkfsTimeHi", 0x276},
		{"LastcheckHi", 0x277}, {"FirstErrorTimeHi", 0x278}, {"LastErrorTimeHi", 0x279}, {"FirstErrorErrcode", 0x27a},
		{"LastErrorErrcode", 0x27b}, {"Encoding", 0x27c}, {"EncodingFlags", 0x27e}, {"OrphanFileInum", 0x280},
		{"DefResuidHi", 0x284}, {"DefResgidHi", 0x286}, {"Reserved", 0x288}, {"Checksum", 0x3fc},
	}, b, s.Decode, s.Encode)
}

func TestInodeLayout(t *testing.T) {
	b := patternBytes(256)
	binary.LittleEndian.PutUint16(b[0x80:], InodeExtraSize)
	var n Inode
	checkLayout(t, &n, 0xa0, layout{
		{"Mode", 0x0}, {"UIDLo", 0x2}, {"SizeLo", 0x4}, {"AtimeLo", 0x8}, {"CtimeLo", 0xc}, {"MtimeLo", 0x10},
		{"Dtime", 0x14}, {"GIDLo", 0x18}, {"LinksCount", 0x1a}, {"BlocksLo", 0x1c}, {"Flags", 0x20}, {"VersionLo", 0x24},
		{"Block", 0x28}, {"Generation", 0x64}, {"FileACLLo", 0x68}, {"SizeHi", 0x6c}, {"ObsoFaddr", 0x70},
		{"BlocksHi", 0x74}, {"FileACLHi", 0x76}, {"UIDHi", 0x78}, {"GIDHi", 0x7a}, {"ChecksumLo", 0x7c},
		{"ReservedLo", 0x7e}, {"ExtraIsize", 0x80}, {"ChecksumHi", 0x82}, {"CtimeExtra", 0x84}, {"MtimeExtra", 0x88},
		{"AtimeExtra", 0x8c}, {"CrtimeLo", 0x90}, {"CrtimeExtra", 0x94}, {"VersionHi", 0x98}, {"Projid", 0x9c},
	}, b, n.Decode, n.Encode)
}

func TestSmallLayouts(t *testing.T) {
	node := make([]byte, 60)
	copy(node, []byte{0x0a, 0xf3, 2, 0, 4, 0, 1, 0, 0x11, 0x22, 0x33, 0x44})
	var h ExtentHeader
	checkLayout(t, &h, ExtentEntrySize, layout{{"Magic", 0}, {"Entries", 2}, {"Max", 4}, {"Depth", 6}, {"Generation", 8}},
		node, h.Decode, h.Encode)

	x := patternBytes(64)
	copy(x, []byte{0, 0, 2, 0xea, 3, 0, 0, 0, 1, 0, 0, 0})
	var xh XattrHeader
	checkLayout(t, &xh, XattrHeaderSize, layout{{"Magic", 0}, {"Refcount", 4}, {"Blocks", 8}, {"Hash", 0xc}, {"Checksum", 0x10}, {"Reserved", 0x14}},
		x, xh.Decode, xh.Encode)

	e := patternBytes(64)
	var xe XattrEntry
	checkLayout(t, &xe, XattrEntrySize, layout{{"NameLen", 0}, {"NameIndex", 1}, {"ValueOffs", 2}, {"ValueInum", 4}, {"ValueSize", 8}, {"Hash", 0xc}},
		e, xe.Decode, xe.Encode)

	b := patternBytes(MMPSize)
	copy(b, []byte{0x50, 0x4d, 0x4d, 0})
	var m MMP
	checkLayout(t, &m, MMPSize, layout{{"Magic", 0}, {"Seq", 4}, {"Time", 8}, {"NodeName", 0x10}, {"BdevName", 0x50},
		{"CheckInterval", 0x70}, {"Pad1", 0x72}, {"Pad2", 0x74}, {"Checksum", 0x3fc}}, b, m.Decode, m.Encode)

	root := patternBytes(64)
	copy(root[DxRootInfoOffset:], []byte{0, 0, 0, 0, HashTea, DxRootInfoSize, 1, 0})
	var r DxRootInfo
	checkLayout(t, &r, DxRootInfoSize, layout{{"ReservedZero", 0}, {"HashVersion", 4}, {"InfoLength", 5}, {"IndirectLevels", 6}, {"UnusedFlags", 7}},
		root[DxRootInfoOffset:], func([]byte) error { return r.Decode(root) },
		func(out []byte) {
			full := make([]byte, 64)
			r.Encode(full)
			copy(out, full[DxRootInfoOffset:])
		})
}

// The views: each setter may touch its own bytes only, and its getter reads
// back what it stored.
func TestGroupDescLayout(t *testing.T) {
	type view struct {
		name string
		rows []field // the halves
		set  func(GroupDesc, uint64)
		get  func(GroupDesc) uint64
	}
	half := func(lo, hi, size int) []field { return []field{{"lo", lo, size}, {"hi", hi, size}} }
	views := []view{
		{"BlockBitmap", half(0x00, 0x20, 4), func(d GroupDesc, v uint64) { d.SetBlockBitmap(FsBlock(v)) }, func(d GroupDesc) uint64 { return uint64(d.BlockBitmap()) }},
		{"InodeBitmap", half(0x04, 0x24, 4), func(d GroupDesc, v uint64) { d.SetInodeBitmap(FsBlock(v)) }, func(d GroupDesc) uint64 { return uint64(d.InodeBitmap()) }},
		{"InodeTable", half(0x08, 0x28, 4), func(d GroupDesc, v uint64) { d.SetInodeTable(FsBlock(v)) }, func(d GroupDesc) uint64 { return uint64(d.InodeTable()) }},
		{"FreeClusters", half(0x0c, 0x2c, 2), func(d GroupDesc, v uint64) { d.SetFreeClusters(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.FreeClusters()) }},
		{"FreeInodes", half(0x0e, 0x2e, 2), func(d GroupDesc, v uint64) { d.SetFreeInodes(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.FreeInodes()) }},
		{"UsedDirs", half(0x10, 0x30, 2), func(d GroupDesc, v uint64) { d.SetUsedDirs(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.UsedDirs()) }},
		{"BlockBitmapCsum", half(0x18, 0x38, 2), func(d GroupDesc, v uint64) { d.SetBlockBitmapCsum(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.BlockBitmapCsum()) }},
		{"InodeBitmapCsum", half(0x1a, 0x3a, 2), func(d GroupDesc, v uint64) { d.SetInodeBitmapCsum(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.InodeBitmapCsum()) }},
		{"ItableUnused", half(0x1c, 0x32, 2), func(d GroupDesc, v uint64) { d.SetItableUnused(uint32(v)) }, func(d GroupDesc) uint64 { return uint64(d.ItableUnused()) }},
		{"Flags", []field{{"lo", 0x12, 2}}, func(d GroupDesc, v uint64) { d.SetFlags(uint16(v)) }, func(d GroupDesc) uint64 { return uint64(d.Flags()) }},
		{"Checksum", []field{{"lo", 0x1e, 2}}, func(d GroupDesc, v uint64) { d.SetChecksum(uint16(v)) }, func(d GroupDesc) uint64 { return uint64(d.Checksum()) }},
	}
	for _, size := range []int{32, 64, 128} {
		for _, v := range views {
			d := make(GroupDesc, size)
			v.set(d, 0xf1f2f3f4f5f6f7f8)
			var got uint64
			touched := 0
			for i, r := range v.rows {
				if r.off < size {
					p := make([]byte, 8)
					touched += copy(p, d[r.off:r.off+r.size])
					got |= binary.LittleEndian.Uint64(p) << (8 * r.size * i)
				}
			}
			want := uint64(0xf1f2f3f4f5f6f7f8) & (1<<(8*touched) - 1)
			if touched == 8 {
				want = 0xf1f2f3f4f5f6f7f8
			}
			if got != want || v.get(d) != want {
				t.Errorf("%s of %d bytes: stored %#x, read %#x, want %#x", v.name, size, got, v.get(d), want)
			}
			if n := nonZero(d); n != touched {
				t.Errorf("%s of %d bytes touches %d bytes, want %d", v.name, size, n, touched)
			}
		}
	}
}

func nonZero(b []byte) (n int) {
	for _, c := range b {
		if c != 0 {
			n++
		}
	}
	return n
}

func TestExtentEntries(t *testing.T) {
	b := make([]byte, 60)
	leaf := ExtentLeaf{Block: 0x01020304, Len: 0x8007, Start: 0xa1a2a3a4a5a6}
	PutExtent(b, 1, leaf)
	want := "04 03 02 01 07 80 a2 a1 a6 a5 a4 a3"
	if got := fmt.Sprintf("% x", b[24:36]); got != want || nonZero(b) != 12 {
		t.Errorf("leaf: %s, want %s", got, want)
	}
	if got := GetExtent(b, 1); got != leaf {
		t.Errorf("leaf: %+v", got)
	}
	if n, unwritten := leaf.Length(); n != 7 || !unwritten {
		t.Errorf("length %d, %v", n, unwritten)
	}
	clear(b)
	idx := ExtentIdx{Block: 0x01020304, Leaf: 0xa1a2a3a4a5a6, Unused: 0x0b0c}
	PutExtentIdx(b, 2, idx)
	want = "04 03 02 01 a6 a5 a4 a3 a2 a1 0c 0b"
	if got := fmt.Sprintf("% x", b[36:48]); got != want || nonZero(b) != 12 {
		t.Errorf("index: %s, want %s", got, want)
	}
	if got := GetExtentIdx(b, 2); got != idx {
		t.Errorf("index: %+v", got)
	}
	for _, n := range []uint32{1, 2, 32767, 32768} {
		for _, unwritten := range []bool{false, true} {
			if unwritten && n > ExtentMaxUnwrittenLen {
				continue
			}
			x := ExtentLeaf{Len: EncodeExtentLen(n, unwritten)}
			if m, u := x.Length(); m != n || u != unwritten {
				t.Errorf("length %d %v reads back as %d %v", n, unwritten, m, u)
			}
		}
	}
}
