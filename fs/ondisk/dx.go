package ondisk

// Directory hash versions, of dx_root_info and s_def_hash_version.
const (
	HashLegacy          = 0
	HashHalfMD4         = 1
	HashTea             = 2
	HashLegacyUnsigned  = 3
	HashHalfMD4Unsigned = 4
	HashTeaUnsigned     = 5
	HashSiphash         = 6
)

const (
	// DxRootInfoOffset is where dx_root_info stands in the first block of an
	// indexed directory: behind "." and "..".
	DxRootInfoOffset = 0x18
	// DxRootInfoSize is info_length.
	DxRootInfoSize = 8
	// DxRootEntries is where the entries of a root start, DxNodeEntries
	// where those of an inner node start (behind an empty directory entry).
	DxRootEntries = DxRootInfoOffset + DxRootInfoSize
	DxNodeEntries = 8
	// DxEntrySize is the size of an entry; the first one holds count and
	// limit in place of a hash.
	DxEntrySize = 8
	// DxTailSize is the size of the checksum behind the entries.
	DxTailSize = 8
	// DxEOF is the largest hash, which stands for the end of a directory and
	// is never a name's.
	DxEOF = 0x7fffffff
)

// DxRootInfo is struct dx_root_info.
type DxRootInfo struct {
	ReservedZero   uint32 // 0x0 reserved_zero
	HashVersion    uint8  // 0x4 hash_version
	InfoLength     uint8  // 0x5 info_length, 8
	IndirectLevels uint8  // 0x6 indirect_levels: 0 when the root points to leaves
	UnusedFlags    uint8  // 0x7 unused_flags
}

// Decode reads the root info from the first block of a directory and checks
// what can be checked without the rest.
func (r *DxRootInfo) Decode(block []byte) error {
	if len(block) < DxRootEntries {
		return errShort("a directory index root", DxRootEntries, len(block))
	}
	b := block[DxRootInfoOffset:]
	r.ReservedZero = le.Uint32(b[0:])
	r.HashVersion = b[4]
	r.InfoLength = b[5]
	r.IndirectLevels = b[6]
	r.UnusedFlags = b[7]
	switch {
	case r.ReservedZero != 0 || r.InfoLength != DxRootInfoSize || r.UnusedFlags&1 != 0:
		return Corrupt("directory index root: reserved %#x, length %d, flags %#x", r.ReservedZero, r.InfoLength, r.UnusedFlags)
	case r.HashVersion > HashSiphash:
		return Corrupt("directory index root: hash version %d", r.HashVersion)
	case r.IndirectLevels > 3:
		return Corrupt("directory index root: %d levels", r.IndirectLevels)
	}
	return nil
}

// Encode writes the root info into the first block of a directory.
func (r *DxRootInfo) Encode(block []byte) {
	b := block[DxRootInfoOffset:DxRootEntries]
	le.PutUint32(b[0:], r.ReservedZero)
	b[4], b[5], b[6], b[7] = r.HashVersion, r.InfoLength, r.IndirectLevels, r.UnusedFlags
}

// DxEntriesOffset is where the entries of an index block start: DxRootEntries
// in a root, DxNodeEntries in an inner node; ok is false if block is neither.
// A node starts with an empty entry over the whole block; a root has a ".."
// entry over the rest of it behind the twelve bytes of ".".
func DxEntriesOffset(block []byte) (off int, ok bool) {
	if len(block) < DxRootEntries {
		return 0, false
	}
	size := len(block)
	switch DecodeRecLen(le.Uint16(block[4:]), size) {
	case size:
		return DxNodeEntries, true
	case 12:
		if DecodeRecLen(le.Uint16(block[12+4:]), size) == size-12 && block[DxRootInfoOffset+5] == DxRootInfoSize &&
			le.Uint32(block[DxRootInfoOffset:]) == 0 {
			return DxRootEntries, true
		}
	}
	return 0, false
}

// DxEntries is a view of the entries of an index block: entry 0 holds limit
// and count, and the block for hashes below the first.
type DxEntries []byte

// Limit is the room, in entries, the first one included: 0x0 limit.
func (e DxEntries) Limit() int { return int(le.Uint16(e[0:])) }

// Count is the number of entries in use, the first one included: 0x2 count.
func (e DxEntries) Count() int { return int(le.Uint16(e[2:])) }

// SetLimit stores the room.
func (e DxEntries) SetLimit(n int) { le.PutUint16(e[0:], uint16(n)) }

// SetCount stores the number of entries in use.
func (e DxEntries) SetCount(n int) { le.PutUint16(e[2:], uint16(n)) }

// Hash is the lowest hash below entry i; entry 0 has none, and 0 is returned.
func (e DxEntries) Hash(i int) uint32 {
	if i == 0 {
		return 0
	}
	return le.Uint32(e[i*DxEntrySize:])
}

// SetHash stores the hash of entry i > 0.
func (e DxEntries) SetHash(i int, h uint32) { le.PutUint32(e[i*DxEntrySize:], h) }

// Block is the directory's logical block below entry i (28 bits: the kernel
// keeps the upper four for itself).
func (e DxEntries) Block(i int) LBlock {
	return LBlock(le.Uint32(e[i*DxEntrySize+4:]) & 0x0fffffff)
}

// SetBlock stores the block of entry i.
func (e DxEntries) SetBlock(i int, b LBlock) { le.PutUint32(e[i*DxEntrySize+4:], uint32(b)) }

// DxLimit is the room for entries in an index block of blockSize bytes whose
// entries start at off, with or without a checksum.
func DxLimit(blockSize, off int, csum bool) int {
	room := blockSize - off
	if csum {
		room -= DxTailSize
	}
	return room / DxEntrySize
}

// DxEntriesAt is the checked view of the entries of an index block: limit
// must be exactly what the block has room for, count between 1 and limit.
func DxEntriesAt(block []byte, off int, csum bool) (DxEntries, error) {
	if off < 0 || off+DxEntrySize > len(block) {
		return nil, errShort("directory index entries", off+DxEntrySize, len(block))
	}
	e := DxEntries(block[off:])
	if want := DxLimit(len(block), off, csum); e.Limit() != want {
		return nil, Corrupt("directory index block says it has room for %d entries, it has for %d", e.Limit(), want)
	}
	if e.Count() < 1 || e.Count() > e.Limit() {
		return nil, Corrupt("directory index block has %d entries and room for %d", e.Count(), e.Limit())
	}
	return e, nil
}
