package ondisk

// ExtentMagic is eh_magic.
const ExtentMagic = 0xF30A

const (
	// ExtentEntrySize is the size in bytes of the header, of an index entry
	// and of a leaf entry alike.
	ExtentEntrySize = 12
	// ExtentMaxInitLen is the longest written extent, in blocks;
	// ExtentMaxUnwrittenLen the longest unwritten one.
	ExtentMaxInitLen      = 32768
	ExtentMaxUnwrittenLen = 32767
	// ExtentMaxDepth is the greatest eh_depth.
	ExtentMaxDepth = 5
	// ExtentTailSize is the size of the checksum behind the entries.
	ExtentTailSize = 4
)

// ExtentHeader is struct ext4_extent_header at the start of i_block and of
// each node.
type ExtentHeader struct {
	Magic      uint16 // 0x0 eh_magic
	Entries    uint16 // 0x2 eh_entries
	Max        uint16 // 0x4 eh_max
	Depth      uint16 // 0x6 eh_depth, 0 in a leaf
	Generation uint32 // 0x8 eh_generation
}

// Decode reads the header and checks it against the node b that it heads:
// magic, the number of entries against Max and Max against the room, depth.
func (h *ExtentHeader) Decode(b []byte) error {
	if len(b) < ExtentEntrySize {
		return errShort("an extent node", ExtentEntrySize, len(b))
	}
	h.Magic = le.Uint16(b[0:])
	h.Entries = le.Uint16(b[2:])
	h.Max = le.Uint16(b[4:])
	h.Depth = le.Uint16(b[6:])
	h.Generation = le.Uint32(b[8:])
	switch {
	case h.Magic != ExtentMagic:
		return Corrupt("extent node has magic %#x", h.Magic)
	case int(h.Max) > ExtentRoom(len(b)) || h.Max == 0:
		return Corrupt("extent node of %d bytes says it has room for %d entries", len(b), h.Max)
	case h.Entries > h.Max:
		return Corrupt("extent node has %d entries and room for %d", h.Entries, h.Max)
	case h.Depth > ExtentMaxDepth:
		return Corrupt("extent node has depth %d", h.Depth)
	}
	return nil
}

// Encode writes the header to the start of b.
func (h *ExtentHeader) Encode(b []byte) {
	_ = b[11]
	le.PutUint16(b[0:], h.Magic)
	le.PutUint16(b[2:], h.Entries)
	le.PutUint16(b[4:], h.Max)
	le.PutUint16(b[6:], h.Depth)
	le.PutUint32(b[8:], h.Generation)
}

// ExtentRoom is how many entries fit in a node of size bytes behind the
// header (the tail of a block needs no place of its own: it uses what is left).
func ExtentRoom(size int) int { return (size - ExtentEntrySize) / ExtentEntrySize }

// ExtentIdx is struct ext4_extent_idx: an entry of an inner node.
type ExtentIdx struct {
	Block  LBlock  // 0x0 ei_block: the first logical block below
	Leaf   FsBlock // 0x4 ei_leaf_lo, 0x8 ei_leaf_hi: the node below, 48 bits
	Unused uint16  // 0xa ei_unused
}

// GetExtentIdx reads entry i (from 0) of node b. The caller has checked the
// header and i.
func GetExtentIdx(b []byte, i int) ExtentIdx {
	e := b[ExtentEntrySize*(i+1):]
	_ = e[11]
	return ExtentIdx{
		Block:  LBlock(le.Uint32(e[0:])),
		Leaf:   FsBlock(le.Uint32(e[4:])) | FsBlock(le.Uint16(e[8:]))<<32,
		Unused: le.Uint16(e[10:]),
	}
}

// PutExtentIdx writes entry i of node b.
func PutExtentIdx(b []byte, i int, x ExtentIdx) {
	e := b[ExtentEntrySize*(i+1):]
	_ = e[11]
	le.PutUint32(e[0:], uint32(x.Block))
	le.PutUint32(e[4:], uint32(x.Leaf))
	le.PutUint16(e[8:], uint16(x.Leaf>>32))
	le.PutUint16(e[10:], x.Unused)
}

// ExtentLeaf is struct ext4_extent: an entry of a leaf.
type ExtentLeaf struct {
	Block LBlock  // 0x0 ee_block: the first logical block
	Len   uint16  // 0x4 ee_len: see Length
	Start FsBlock // 0x6 ee_start_hi, 0x8 ee_start_lo: the first physical block, 48 bits
}

// GetExtent reads entry i (from 0) of leaf b. The caller has checked the
// header and i.
func GetExtent(b []byte, i int) ExtentLeaf {
	e := b[ExtentEntrySize*(i+1):]
	_ = e[11]
	return ExtentLeaf{
		Block: LBlock(le.Uint32(e[0:])),
		Len:   le.Uint16(e[4:]),
		Start: FsBlock(le.Uint32(e[8:])) | FsBlock(le.Uint16(e[6:]))<<32,
	}
}

// PutExtent writes entry i of leaf b.
func PutExtent(b []byte, i int, x ExtentLeaf) {
	e := b[ExtentEntrySize*(i+1):]
	_ = e[11]
	le.PutUint32(e[0:], uint32(x.Block))
	le.PutUint16(e[4:], x.Len)
	le.PutUint16(e[6:], uint16(x.Start>>32))
	le.PutUint32(e[8:], uint32(x.Start))
}

// Length is the number of blocks of the extent: ee_len up to 32768 is a
// written extent, above it an unwritten one of ee_len - 32768.
func (x ExtentLeaf) Length() (n uint32, unwritten bool) {
	if x.Len <= ExtentMaxInitLen {
		return uint32(x.Len), false
	}
	return uint32(x.Len) - ExtentMaxInitLen, true
}

// EncodeExtentLen is the inverse of Length. n must be 1 to ExtentMaxInitLen,
// or to ExtentMaxUnwrittenLen when unwritten.
func EncodeExtentLen(n uint32, unwritten bool) uint16 {
	if unwritten {
		return uint16(n + ExtentMaxInitLen)
	}
	return uint16(n)
}

// ExtentTailOffset is where the checksum of node b stands: behind the room
// for eh_max entries; -1 if it would not fit, or in a node of a broken header.
func ExtentTailOffset(b []byte) int {
	if len(b) < ExtentEntrySize {
		return -1
	}
	off := ExtentEntrySize * (1 + int(le.Uint16(b[4:])))
	if off+ExtentTailSize > len(b) {
		return -1
	}
	return off
}
