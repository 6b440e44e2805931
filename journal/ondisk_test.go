package journal

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// Each field at its offset, both ways.
func TestSuperBlockOffsets(t *testing.T) {
	for _, f := range []struct {
		name string
		off  int
		size int
		get  func(s *SuperBlock) uint64
	}{
		{"h_blocktype", 0x04, 4, func(s *SuperBlock) uint64 { return uint64(s.BlockType) }},
		{"h_sequence", 0x08, 4, func(s *SuperBlock) uint64 { return uint64(s.HeaderSeq) }},
		{"s_blocksize", 0x0C, 4, func(s *SuperBlock) uint64 { return uint64(s.BlockSize) }},
		{"s_maxlen", 0x10, 4, func(s *SuperBlock) uint64 { return uint64(s.MaxLen) }},
		{"s_first", 0x14, 4, func(s *SuperBlock) uint64 { return uint64(s.First) }},
		{"s_sequence", 0x18, 4, func(s *SuperBlock) uint64 { return uint64(s.Sequence) }},
		{"s_start", 0x1C, 4, func(s *SuperBlock) uint64 { return uint64(s.Start) }},
		{"s_errno", 0x20, 4, func(s *SuperBlock) uint64 { return uint64(uint32(s.Errno)) }},
		{"s_feature_compat", 0x24, 4, func(s *SuperBlock) uint64 { return uint64(s.Compat) }},
		{"s_feature_incompat", 0x28, 4, func(s *SuperBlock) uint64 { return uint64(s.Incompat) }},
		{"s_feature_ro_compat", 0x2C, 4, func(s *SuperBlock) uint64 { return uint64(s.RoCompat) }},
		{"s_uuid", 0x30, 8, func(s *SuperBlock) uint64 { return binary.BigEndian.Uint64(s.UUID[:]) }},
		{"s_nr_users", 0x40, 4, func(s *SuperBlock) uint64 { return uint64(s.NrUsers) }},
		{"s_dynsuper", 0x44, 4, func(s *SuperBlock) uint64 { return uint64(s.DynSuper) }},
		{"s_max_transaction", 0x48, 4, func(s *SuperBlock) uint64 { return uint64(s.MaxTrans) }},
		{"s_max_trans_data", 0x4C, 4, func(s *SuperBlock) uint64 { return uint64(s.MaxTransDat) }},
		{"s_checksum_type", 0x50, 1, func(s *SuperBlock) uint64 { return uint64(s.CsumType) }},
		{"s_num_fc_blks", 0x54, 4, func(s *SuperBlock) uint64 { return uint64(s.NumFcBlks) }},
		{"s_head", 0x58, 4, func(s *SuperBlock) uint64 { return uint64(s.Head) }},
		{"s_checksum", 0xFC, 4, func(s *SuperBlock) uint64 { return uint64(s.Checksum) }},
		{"s_users[47]", 0x3F0, 8, func(s *SuperBlock) uint64 { return binary.BigEndian.Uint64(s.Users[47][:]) }},
	} {
		b := make([]byte, SuperBlockSize)
		putHeader(b, SuperBlockV2, 0)
		want := uint64(0)
		for i := range f.size {
			v := byte(0xA1 + i)
			if f.name == "h_blocktype" {
				v = b[f.off+i] // only two values are legal
			}
			b[f.off+i] = v
			want = want<<8 | uint64(v)
		}
		var s SuperBlock
		if err := s.Decode(b); err != nil {
			t.Fatal(f.name, err)
		}
		if got := f.get(&s); got != want {
			t.Errorf("%s: %#x, want %#x", f.name, got, want)
		}
		back := make([]byte, SuperBlockSize)
		if s.Encode(back); string(back) != string(b) {
			t.Errorf("%s: Encode gives something else", f.name)
		}
	}
}

// Tags of all formats keep what they can hold, and have jbd2's sizes.
func TestTags(t *testing.T) {
	for _, c := range []struct {
		s    SuperBlock
		size int
		csum uint32
	}{
		{SuperBlock{}, 8, 0xFFFF},
		{SuperBlock{Incompat: Incompat64Bit}, 12, 0xFFFF},
		{SuperBlock{Incompat: IncompatCsumV2}, 10, 0xFFFF},
		{SuperBlock{Incompat: IncompatCsumV2 | Incompat64Bit}, 14, 0xFFFF},
		{SuperBlock{Incompat: IncompatCsumV3}, 16, 0xFFFFFFFF},
		{SuperBlock{Incompat: IncompatCsumV3 | Incompat64Bit}, 16, 0xFFFFFFFF},
	} {
		c.s.BlockSize = 1024
		l := c.s.layout()
		if l.tagSize != c.size {
			t.Errorf("%v: tag of %d bytes, want %d", c.s.Incompat, l.tagSize, c.size)
		}
		tag := Tag{Home: 0x87654321, Flags: TagEscape | TagLast, Checksum: 0xCAFEBABE & c.csum}
		if l.wide {
			tag.Home |= 0xABCD << 32
		}
		b := make([]byte, 16)
		l.putTag(b, tag)
		if got := l.getTag(b); got != tag {
			t.Errorf("%v: %+v, want %+v", c.s.Incompat, got, tag)
		}
	}
}

// crc32be against a bit-by-bit computation, in pieces of all lengths.
func TestCrc32be(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 1100 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		want := ^uint32(0)
		for _, c := range b {
			want ^= uint32(c) << 24
			for range 8 {
				if want>>31 != 0 {
					want = want<<1 ^ 0x04C11DB7
				} else {
					want <<= 1
				}
			}
		}
		cut := rng.IntN(n + 1)
		if got := crc32be(crc32be(^uint32(0), b[:cut]), b[cut:]); got != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	if got := ^crc32c(^uint32(0), []byte("123456789")); got != crc32.Checksum([]byte("123456789"), castagnoli) {
		t.Errorf("crc32c %#x", got)
	}
}

func TestTIDWraps(t *testing.T) {
	for _, c := range []struct {
		a, b  TID
		after bool
	}{{2, 1, true}, {1, 2, false}, {1, 1, false}, {1, 0xFFFFFFFF, true}, {0xFFFFFFFF, 1, false}, {0x80000000, 1, true}} {
		if c.a.After(c.b) != c.after || c.a.AtLeast(c.b) != (c.after || c.a == c.b) {
			t.Errorf("%d after %d: %v", c.a, c.b, c.a.After(c.b))
		}
	}
}

// Places of the log that wrap and that are in several pieces.
func TestLogMap(t *testing.T) {
	m, err := newLogMap(make(ram, 100*1024), 1024, []Run{{50, 3}, {0, 0}, {10, 2}, {90, 10}})
	if err != nil {
		t.Fatal(err)
	}
	want := []int64{50, 51, 52, 10, 11, 90, 91}
	for blk, home := range want {
		if off, _ := m.place(uint32(blk)); off != home*1024 {
			t.Errorf("log block %d at %d, want %d", blk, off/1024, home)
		}
	}
	b := make([]byte, 7*1024)
	for i := range b {
		b[i] = byte(i / 1024)
	}
	if err := m.write(b, 1); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7*1024)
	if err := m.read(got, 1); err != nil || string(got) != string(b) {
		t.Errorf("read back something else (%v)", err)
	}
	if err := m.read(make([]byte, 16*1024), 0); err == nil {
		t.Error("read beyond the end")
	}
	if !m.contains(51) || m.contains(53) || m.contains(49) {
		t.Error("contains is wrong")
	}
	g := geometry{first: 3, last: 10}
	if g.next(9) != 3 || g.add(8, 4) != 5 || g.distance(8, 5) != 4 || g.distance(5, 8) != 3 {
		t.Error("the log wraps wrongly")
	}
}
