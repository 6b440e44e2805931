package ondisk

import "testing"

// blocks adds all non-empty blocks of the smaller golden images as seeds.
func seedBlocks(f *testing.F) {
	for _, name := range []string{"ext4-4k", "ext4-1k", "ext4-64k"} {
		w := newWalker(f, readGolden(f, name))
		kinds := map[string]int{}
		for _, p := range w.pairs {
			if kinds[p.kind]++; kinds[p.kind] < 3 {
				f.Add(p.data)
			}
		}
		for blk := FsBlock(0); blk < FsBlock(w.sb.Blocks()) && blk < 40; blk++ {
			if b := w.block(blk); nonZero(b) > 0 {
				f.Add(b)
			}
		}
	}
}

func FuzzSuperBlock(f *testing.F) {
	for name := range goldenImages {
		f.Add(readGolden(f, name)[SuperBlockOffset:][:SuperBlockSize], int64(0))
		f.Add(readGolden(f, name)[SuperBlockOffset:][:SuperBlockSize], int64(8<<20))
	}
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		var s SuperBlock
		if s.Decode(b) != nil || s.Check(size) != nil {
			return
		}
		if size > 0 && s.Blocks()*uint64(s.BlockSize()) > uint64(size) {
			t.Fatal("reaches out of the image")
		}
		last := s.GroupCount() - 1
		if n := s.GroupBlocks(last); n == 0 || n > s.BlocksPerGroup {
			t.Fatalf("the last group has %d blocks", n)
		}
		if g, _ := s.GroupOfBlock(FsBlock(s.Blocks() - 1)); g != last {
			t.Fatalf("the last block is in group %d of %d", g, s.GroupCount())
		}
		if g, _ := s.GroupOfInode(InodeNumber(s.InodesCount)); g != last {
			t.Fatalf("the last inode is in group %d of %d", g, s.GroupCount())
		}
		for _, i := range []uint32{0, s.DescBlocks() - 1} {
			if blk := s.DescBlock(i); uint64(blk) >= s.Blocks()+1 {
				t.Fatalf("descriptor block %d is block %d of %d", i, blk, s.Blocks())
			}
		}
		c := s.Csum()
		block := make([]byte, s.BlockSize())
		desc := GroupDesc(make([]byte, s.DescSize()))
		c.SetBlockBitmap(desc, block)
		c.SetInodeBitmap(desc, block)
		c.SetGroupDesc(0, desc)
		c.SetInode(2, block[:s.InodeBytes()])
		_, _, _ = s.HasSuper(last), s.Features().String(), s.Label()
	})
}

func FuzzInode(f *testing.F) {
	w := newWalker(f, readGolden(f, "ext4-4k"))
	for _, p := range w.pairs {
		if p.kind == "inode" {
			f.Add(p.data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var n Inode
		if n.Decode(b) != nil {
			return
		}
		out := append([]byte(nil), b...)
		n.Encode(out)
		if string(out) != string(b) {
			t.Fatal("a round trip changes bytes")
		}
		for _, ts := range []Timestamp{n.Atime(), n.Ctime(), n.Mtime()} {
			if ts.Nsec > 999_999_999 {
				t.Fatal("too many nanoseconds")
			}
		}
		c := Csum{metadata: true}
		c.SetInode(7, out)
		if !c.VerifyInode(7, out) {
			t.Fatal("Set does not verify")
		}
	})
}

func FuzzExtentNode(f *testing.F) {
	seedBlocks(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Csum{metadata: true}
		_ = c.VerifyExtentBlock(1, b)
		var h ExtentHeader
		if h.Decode(b) != nil {
			return
		}
		for i := range int(h.Entries) {
			_, _ = GetExtentIdx(b, i), GetExtent(b, i)
		}
		if c.SetExtentBlock(1, b); ExtentTailOffset(b) >= 0 && !c.VerifyExtentBlock(1, b) {
			t.Fatal("Set does not verify")
		}
	})
}

func FuzzDirBlock(f *testing.F) {
	seedBlocks(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Csum{metadata: true}
		_ = c.VerifyDir(1, b)
		for off := 0; off < len(b); {
			e, next, err := DirEntryAt(b, off)
			if err != nil {
				break
			}
			if next <= off || next > len(b) {
				t.Fatalf("from %d to %d", off, next)
			}
			_, _, _ = e.Name(), e.Inode(), e.FileType()
			off = next
		}
		var r DxRootInfo
		_ = r.Decode(b)
		if off, ok := DxEntriesOffset(b); ok {
			for _, csum := range []bool{false, true} {
				e, err := DxEntriesAt(b, off, csum)
				for i := 0; err == nil && i < e.Count(); i++ {
					_, _ = e.Hash(i), e.Block(i)
				}
			}
		}
		c.SetDir(1, b)
	})
}

func FuzzXattr(f *testing.F) {
	seedBlocks(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var h XattrHeader
		if h.Decode(b) != nil {
			return
		}
		for p := b[XattrHeaderSize:]; !XattrIsLast(p); {
			var e XattrEntry
			if e.Decode(p) != nil {
				return
			}
			out := append([]byte(nil), p[:XattrEntrySize]...)
			if e.Encode(out); string(out) != string(p[:XattrEntrySize]) {
				t.Fatal("a round trip changes bytes")
			}
			p = p[XattrEntryLen(int(e.NameLen)):]
		}
	})
}

func FuzzMMP(f *testing.F) {
	seedBlocks(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m MMP
		if m.Decode(b) != nil {
			return
		}
		out := make([]byte, MMPSize)
		if m.Encode(out); string(out) != string(b[:MMPSize]) {
			t.Fatal("a round trip changes bytes")
		}
	})
}

func FuzzOrphanBlock(f *testing.F) {
	seedBlocks(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		o := OrphanBlock(b)
		if o.Check() != nil {
			return
		}
		for i := range o.Slots() {
			_ = o.Inode(i)
		}
		c := Csum{metadata: true}
		if c.SetOrphanBlock(1, 2, b); !c.VerifyOrphanBlock(1, 2, b) {
			t.Fatal("Set does not verify")
		}
	})
}
