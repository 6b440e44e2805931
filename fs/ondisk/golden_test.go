package ondisk

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// goldenImages are made by testdata/make.sh, which holds the mke2fs lines;
// each with the kinds of checksum that it must exercise.
var goldenImages = map[string][]string{
	"ext4-4k":      {"super", "group", "blockbitmap", "inodebitmap", "inode", "extent", "dirleaf", "dxroot", "xattr"},
	"ext4-1k":      {"super", "group", "blockbitmap", "inodebitmap", "inode", "extent", "dirleaf", "dxroot", "xattr", "mmp", "orphan"},
	"ext4-64k":     {"super", "group", "blockbitmap", "inodebitmap", "inode", "dirleaf", "xattr"},
	"ext4-gdtcsum": {"group"},
	"ext3":         {},
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".img.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pair is one Verify/Set pair bound to its place in an image: data is what it
// covers, stored the bytes of the checksum.
type pair struct {
	kind   string
	data   []byte
	verify func() bool
	set    func()
}

// walker finds everything with a checksum in an image held in memory.
type walker struct {
	t     testing.TB
	img   []byte
	sb    SuperBlock
	c     Csum
	pairs []pair
	inode map[InodeNumber]Inode
}

func newWalker(t testing.TB, img []byte) *walker {
	t.Helper()
	w := &walker{t: t, img: img, inode: map[InodeNumber]Inode{}}
	raw := img[SuperBlockOffset:][:SuperBlockSize]
	if err := w.sb.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.sb.Check(int64(len(img))); err != nil {
		t.Fatal(err)
	}
	w.c = w.sb.Csum()
	w.add("super", raw, func() bool { return VerifySuperBlock(raw) }, func() { SetSuperBlockCsum(raw) })
	for g := range w.sb.GroupCount() {
		w.group(g)
	}
	if w.sb.HasIncompat(IncompatMMP) {
		b := w.block(FsBlock(w.sb.MMPBlock))[:MMPSize]
		w.add("mmp", b, func() bool { return w.c.VerifyMMP(b) }, func() { w.c.SetMMP(b) })
	}
	return w
}

func (w *walker) add(kind string, data []byte, verify func() bool, set func()) {
	w.pairs = append(w.pairs, pair{kind, data, verify, set})
}

func (w *walker) block(n FsBlock) []byte {
	bs := w.sb.BlockSize()
	return w.img[int(n)*bs:][:bs]
}

func (w *walker) desc(g GroupNumber) GroupDesc {
	per := w.sb.DescPerBlock()
	return GroupDescAt(w.block(w.sb.DescBlock(uint32(g)/per)), uint32(g)%per, w.sb.DescSize())
}

func (w *walker) group(g GroupNumber) {
	d := w.desc(g)
	w.add("group", d, func() bool { return w.c.VerifyGroupDesc(g, d) }, func() { w.c.SetGroupDesc(g, d) })
	if d.Flags()&BGBlockUninit == 0 {
		b := w.block(d.BlockBitmap())
		w.add("blockbitmap", b[:w.c.blockBytes], func() bool { return w.c.VerifyBlockBitmap(d, b) }, func() { w.c.SetBlockBitmap(d, b) })
	}
	if d.Flags()&BGInodeUninit != 0 {
		return
	}
	b := w.block(d.InodeBitmap())
	w.add("inodebitmap", b[:w.c.inodeBytes], func() bool { return w.c.VerifyInodeBitmap(d, b) }, func() { w.c.SetInodeBitmap(d, b) })
	for i := range w.sb.InodesPerGroup - d.ItableUnused() {
		if b[i/8]>>(i%8)&1 != 0 {
			w.oneInode(InodeNumber(uint32(g)*w.sb.InodesPerGroup+i+1), w.rawInode(d, i))
		}
	}
}

func (w *walker) rawInode(d GroupDesc, i uint32) []byte {
	size := w.sb.InodeBytes()
	return w.img[int(d.InodeTable())*w.sb.BlockSize()+int(i)*size:][:size]
}

func (w *walker) oneInode(ino InodeNumber, raw []byte) {
	var n Inode
	if err := n.Decode(raw); err != nil {
		w.t.Fatal(ino, err)
	}
	again := bytes.Clone(raw)
	n.Encode(again)
	if !bytes.Equal(raw, again) {
		w.t.Errorf("inode %d changes in a round trip", ino)
	}
	if n.LinksCount == 0 {
		return
	}
	w.inode[ino] = n
	w.add("inode", raw, func() bool { return w.c.VerifyInode(ino, raw) }, func() { w.c.SetInode(ino, raw) })
	if blk := n.FileACL(); blk != 0 {
		b := w.block(blk)
		w.add("xattr", b, func() bool { return w.c.VerifyXattrBlock(blk, b) }, func() { w.c.SetXattrBlock(blk, b) })
	}
	if n.Flags&InodeExtents != 0 {
		w.node(ino, &n, n.Block[:], true)
	}
}

func (w *walker) node(ino InodeNumber, n *Inode, b []byte, root bool) {
	seed := w.c.InodeSeed(ino, n.Generation)
	var h ExtentHeader
	if err := h.Decode(b); err != nil {
		w.t.Fatal(ino, err)
	}
	if !root {
		w.add("extent", b[:ExtentTailOffset(b)], func() bool { return w.c.VerifyExtentBlock(seed, b) }, func() { w.c.SetExtentBlock(seed, b) })
	}
	for i := range int(h.Entries) {
		if h.Depth > 0 {
			w.node(ino, n, w.block(GetExtentIdx(b, i).Leaf), false)
			continue
		}
		x := GetExtent(b, i)
		for j := range FsBlock(x.Len) {
			w.data(ino, n, seed, x.Start+j)
		}
	}
}

func (w *walker) data(ino InodeNumber, n *Inode, seed uint32, blk FsBlock) {
	b := w.block(blk)
	switch {
	case w.sb.OrphanFileInum != 0 && ino == InodeNumber(w.sb.OrphanFileInum):
		if err := OrphanBlock(b).Check(); err != nil {
			w.t.Error(err)
		}
		w.add("orphan", b[:len(b)-OrphanTailSize], func() bool { return w.c.VerifyOrphanBlock(seed, blk, b) }, func() { w.c.SetOrphanBlock(seed, blk, b) })
	case n.Mode&ModeFmt != ModeDir || !w.c.Metadata():
	case DirTail(b) != nil:
		w.add("dirleaf", b[:len(b)-DirTailSize], func() bool { return w.c.VerifyDir(seed, b) }, func() { w.c.SetDir(seed, b) })
	default:
		off, ok := DxEntriesOffset(b)
		if !ok {
			w.t.Errorf("inode %d block %d is neither leaf nor index", ino, blk)
			return
		}
		e, err := DxEntriesAt(b, off, true)
		if err != nil {
			w.t.Error(err)
			return
		}
		kind := "dxnode"
		if off == DxRootEntries {
			kind = "dxroot"
		}
		w.add(kind, b[:off+e.Count()*DxEntrySize], func() bool { return w.c.VerifyDir(seed, b) }, func() { w.c.SetDir(seed, b) })
	}
}

func TestGoldenChecksums(t *testing.T) {
	for name, kinds := range goldenImages {
		t.Run(name, func(t *testing.T) {
			w := newWalker(t, readGolden(t, name))
			seen := map[string]int{}
			for _, p := range w.pairs {
				seen[p.kind]++
				if !p.verify() {
					t.Errorf("%s: does not verify", p.kind)
				}
			}
			t.Log(seen)
			for _, k := range kinds {
				if seen[k] == 0 {
					t.Errorf("%s: none in the image", k)
				}
			}
		})
	}
}

// A flipped bit must be seen, and Set must make the checksum right for it;
// flipping it back and setting again must give the bytes of the start.
func TestGoldenChecksumsNoticeChanges(t *testing.T) {
	for name, kinds := range goldenImages {
		t.Run(name, func(t *testing.T) {
			img := readGolden(t, name)
			before := bytes.Clone(img)
			done := map[string]bool{}
			for _, p := range newWalker(t, img).pairs {
				if done[p.kind] || !contains(kinds, p.kind) {
					continue
				}
				done[p.kind] = true
				for _, at := range []int{0, len(p.data) / 2, len(p.data) - 5} {
					flipAndBack(t, p, at)
				}
			}
			// The bitmap's sums were set again before their descriptor's own.
			for _, p := range newWalker(t, img).pairs {
				if !p.verify() {
					t.Errorf("%s: does not verify at the end", p.kind)
				}
			}
			if !bytes.Equal(img, before) {
				t.Error("the image has changed")
			}
		})
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func flipAndBack(t *testing.T, p pair, at int) {
	t.Helper()
	old := p.data[at]
	p.data[at] ^= 0x10
	if p.verify() {
		t.Errorf("%s: a change of byte %d of %d goes unnoticed", p.kind, at, len(p.data))
	}
	p.set()
	// Some bytes say where the checksum stands; then Set has nothing to set.
	if !p.verify() && at != 0 {
		t.Errorf("%s: Set after a change of byte %d does not verify", p.kind, at)
	}
	p.data[at] = old
	p.set()
	if !p.verify() {
		t.Errorf("%s: Set does not verify", p.kind)
	}
}

func TestGoldenSuperBlockRoundTrip(t *testing.T) {
	for name := range goldenImages {
		raw := readGolden(t, name)[SuperBlockOffset:][:SuperBlockSize]
		var s SuperBlock
		if err := s.Decode(raw); err != nil {
			t.Fatal(err)
		}
		out := make([]byte, SuperBlockSize)
		s.Encode(out)
		if !bytes.Equal(raw, out) {
			t.Errorf("%s: the superblock changes in a round trip", name)
		}
	}
}

// Figures of the images as dumpe2fs and debugfs tell them.
func TestGoldenContent(t *testing.T) {
	w := newWalker(t, readGolden(t, "ext4-1k"))
	if got, want := w.sb.Features().String(), "has_journal ext_attr dir_index orphan_file filetype meta_bg extent 64bit mmp flex_bg metadata_csum_seed "+
		"sparse_super large_file huge_file dir_nlink extra_isize metadata_csum"; got != want {
		t.Errorf("features\n %s, want\n %s", got, want)
	}
	if w.sb.GroupCount() != 6 || w.sb.Blocks() != 12288 || w.sb.BlocksPerGroup != 2048 {
		t.Errorf("%d groups, %d blocks, %d per group", w.sb.GroupCount(), w.sb.Blocks(), w.sb.BlocksPerGroup)
	}
	devices := map[[2]uint32]bool{}
	for _, n := range w.inode {
		if f := n.Mode & ModeFmt; f == ModeChr || f == ModeBlk {
			major, minor := DecodeDev(&n.Block)
			devices[[2]uint32{major, minor}] = true
			var again [60]byte
			if EncodeDev(&again, major, minor); again != n.Block {
				t.Errorf("device %d:%d is encoded as % x, want % x", major, minor, again[:8], n.Block[:8])
			}
		}
	}
	if len(devices) != 2 || !devices[[2]uint32{1, 3}] || !devices[[2]uint32{300, 70000}] {
		t.Errorf("devices %v", devices)
	}
}
