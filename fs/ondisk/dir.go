package ondisk

const (
	// DirEntryHeader is the size of a directory entry before its name.
	DirEntryHeader = 8
	// DirTailSize is the size of the checksum entry that ends a directory
	// block with metadata_csum.
	DirTailSize = 12
)

// DirEntry2 is a view of struct ext4_dir_entry_2: b starts at the entry and
// may go on behind it. It must hold DirEntryHeader bytes, and the name.
//
//	0x0 inode u32 | 0x4 rec_len u16 | 0x6 name_len u8 | 0x7 file_type u8 | 0x8 name
type DirEntry2 []byte

// Inode is the inode the entry names; 0 in an unused entry.
func (e DirEntry2) Inode() InodeNumber { return InodeNumber(le.Uint32(e[0:])) }

// SetInode stores the inode.
func (e DirEntry2) SetInode(n InodeNumber) { le.PutUint32(e[0:], uint32(n)) }

// RecLen is the distance to the next entry, in bytes, decoded for a directory
// block of blockSize bytes.
func (e DirEntry2) RecLen(blockSize int) int { return DecodeRecLen(le.Uint16(e[4:]), blockSize) }

// SetRecLen stores the distance to the next entry.
func (e DirEntry2) SetRecLen(n, blockSize int) { le.PutUint16(e[4:], EncodeRecLen(n, blockSize)) }

// NameLen is the length of the name in bytes.
func (e DirEntry2) NameLen() int { return int(e[6]) }

// FileType is the Ft... type, 0 without the filetype feature.
func (e DirEntry2) FileType() uint8 { return e[7] }

// SetFileType stores the type.
func (e DirEntry2) SetFileType(t uint8) { e[7] = t }

// Name is the name: a view, not a copy.
func (e DirEntry2) Name() []byte { return e[DirEntryHeader : DirEntryHeader+int(e[6])] }

// SetName stores the name (1 to 255 bytes) and its length.
func (e DirEntry2) SetName(name []byte) {
	e[6] = uint8(len(name))
	copy(e[DirEntryHeader:], name)
}

// DecodeRecLen is the rec_len of a block of blockSize bytes. Up to 32 KiB the
// word is the length. A 64 KiB block needs 17 bits: 65535 and 0 mean the whole
// block, and in other values the two low bits, which alignment leaves free,
// are bits 16 and 17.
func DecodeRecLen(raw uint16, blockSize int) int {
	if blockSize < 65536 {
		return int(raw)
	}
	if raw == 65535 || raw == 0 {
		return blockSize
	}
	return int(raw&^3) | int(raw&3)<<16
}

// EncodeRecLen is the inverse of DecodeRecLen. n is a multiple of 4, at most
// blockSize.
func EncodeRecLen(n, blockSize int) uint16 {
	switch {
	case n < 65536:
		return uint16(n)
	case n == blockSize && blockSize == 65536:
		return 65535
	case n == blockSize:
		return 0
	}
	return uint16(n&0xfffc | n>>16&3)
}

// DirRecLen is the least rec_len for a name of n bytes.
func DirRecLen(n int) int { return (DirEntryHeader + n + 3) &^ 3 }

// DirEntryAt is the entry at offset off of a directory block, checked: it may
// not reach out of the block, its length is a multiple of 4 with room for its
// name. next is the offset of the one behind it, at most len(block). The size
// of the block is len(block).
func DirEntryAt(block []byte, off int) (e DirEntry2, next int, err error) {
	if off < 0 || off+DirEntryHeader > len(block) {
		return nil, 0, Corrupt("directory entry at offset %d does not fit its block", off)
	}
	e = DirEntry2(block[off:])
	n := e.RecLen(len(block))
	switch {
	case n < DirRecLen(1):
		return nil, 0, Corrupt("directory entry at offset %d has a rec_len of %d", off, n)
	case n%4 != 0:
		return nil, 0, Corrupt("directory entry at offset %d has a rec_len of %d, no multiple of 4", off, n)
	case n > len(block)-off:
		return nil, 0, Corrupt("directory entry at offset %d reaches out of its block", off)
	case n < DirRecLen(e.NameLen()):
		return nil, 0, Corrupt("directory entry at offset %d: name of %d bytes in a rec_len of %d", off, e.NameLen(), n)
	}
	return e[:n:n], off + n, nil
}

// DirTail is the view of the checksum entry at the end of a directory block:
//
//	0x0 det_reserved_zero1 u32 | 0x4 det_rec_len u16 = 12 | 0x6 det_reserved_zero2 u8 | 0x7 det_reserved_ft u8 = 0xde | 0x8 det_checksum u32
//
// It returns nil if the block does not end with one.
func DirTail(block []byte) []byte {
	if len(block) < DirTailSize {
		return nil
	}
	t := block[len(block)-DirTailSize:]
	if le.Uint32(t[0:]) != 0 || le.Uint16(t[4:]) != DirTailSize || t[6] != 0 || t[7] != FtDirCsum {
		return nil
	}
	return t
}

// InitDirTail writes an empty checksum entry at the end of a directory block.
func InitDirTail(block []byte) {
	t := block[len(block)-DirTailSize:]
	clear(t)
	le.PutUint16(t[4:], DirTailSize)
	t[7] = FtDirCsum
}
