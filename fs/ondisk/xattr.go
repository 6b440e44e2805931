package ondisk

const (
	// XattrMagic heads an xattr block and the xattr area of an inode.
	XattrMagic = 0xEA020000
	// XattrHeaderSize is the size of a block's header, XattrIbodyHeader that
	// of an inode's (the magic only).
	XattrHeaderSize  = 32
	XattrIbodyHeader = 4
	// XattrEntrySize is the size of an entry before its name.
	XattrEntrySize = 16
	// XattrRefcountMax is the largest number of inodes that share a block.
	XattrRefcountMax = 1024
	// XattrPad is the alignment of entries and of values.
	XattrPad = 4
)

// Values of e_name_index: the prefix of a name.
const (
	XattrIndexUser            = 1
	XattrIndexPosixACLAccess  = 2
	XattrIndexPosixACLDefault = 3
	XattrIndexTrusted         = 4
	XattrIndexLustre          = 5
	XattrIndexSecurity        = 6
	XattrIndexSystem          = 7
	XattrIndexRichACL         = 8
	XattrIndexEncryption      = 9
	XattrIndexHurd            = 10
)

// XattrHeader is struct ext4_xattr_header of an xattr block.
type XattrHeader struct {
	Magic    uint32    // 0x00 h_magic
	Refcount uint32    // 0x04 h_refcount
	Blocks   uint32    // 0x08 h_blocks, 1
	Hash     uint32    // 0x0c h_hash
	Checksum uint32    // 0x10 h_checksum
	Reserved [3]uint32 // 0x14 h_reserved
}

// Decode reads the header and checks magic, h_blocks, and that the reference
// count is not 0.
func (h *XattrHeader) Decode(b []byte) error {
	if len(b) < XattrHeaderSize {
		return errShort("an xattr block", XattrHeaderSize, len(b))
	}
	h.walk(&codec{b: b})
	switch {
	case h.Magic != XattrMagic:
		return Corrupt("xattr block has magic %#x", h.Magic)
	case h.Blocks != 1:
		return Corrupt("xattr block says it has %d blocks", h.Blocks)
	case h.Refcount == 0:
		return Corrupt("xattr block has reference count 0")
	}
	return nil
}

// Encode writes the header to b.
func (h *XattrHeader) Encode(b []byte) { h.walk(&codec{b: b[:XattrHeaderSize], writing: true}) }

func (h *XattrHeader) walk(c *codec) {
	c.u32(&h.Magic)
	c.u32(&h.Refcount)
	c.u32(&h.Blocks)
	c.u32(&h.Hash)
	c.u32(&h.Checksum)
	c.u32s(h.Reserved[:])
}

// XattrEntry is struct ext4_xattr_entry without its name.
type XattrEntry struct {
	NameLen   uint8  // 0x0 e_name_len
	NameIndex uint8  // 0x1 e_name_index
	ValueOffs uint16 // 0x2 e_value_offs
	ValueInum uint32 // 0x4 e_value_inum, of the ea_inode feature
	ValueSize uint32 // 0x8 e_value_size
	Hash      uint32 // 0xc e_hash
}

// Decode reads an entry from b and checks that its name lies within b.
func (e *XattrEntry) Decode(b []byte) error {
	if len(b) < XattrEntrySize {
		return errShort("an xattr entry", XattrEntrySize, len(b))
	}
	e.NameLen = b[0]
	e.NameIndex = b[1]
	e.ValueOffs = le.Uint16(b[2:])
	e.ValueInum = le.Uint32(b[4:])
	e.ValueSize = le.Uint32(b[8:])
	e.Hash = le.Uint32(b[12:])
	if XattrEntryLen(int(e.NameLen)) > len(b) {
		return Corrupt("xattr entry with a name of %d bytes reaches out of its area", e.NameLen)
	}
	return nil
}

// Encode writes the entry to b; the name follows at XattrEntrySize.
func (e *XattrEntry) Encode(b []byte) {
	_ = b[15]
	b[0], b[1] = e.NameLen, e.NameIndex
	le.PutUint16(b[2:], e.ValueOffs)
	le.PutUint32(b[4:], e.ValueInum)
	le.PutUint32(b[8:], e.ValueSize)
	le.PutUint32(b[12:], e.Hash)
}

// XattrIsLast tells whether the entry at b is the end mark: four zero bytes.
// Less than four bytes are an end, too.
func XattrIsLast(b []byte) bool { return len(b) < 4 || le.Uint32(b) == 0 }

// XattrEntryLen is the length of an entry whose name has n bytes.
func XattrEntryLen(n int) int { return (XattrEntrySize + n + XattrPad - 1) &^ (XattrPad - 1) }

// XattrValueLen is the room that a value of n bytes takes.
func XattrValueLen(n int) int { return (n + XattrPad - 1) &^ (XattrPad - 1) }
