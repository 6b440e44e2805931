package ondisk

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C continues a crc32c as ext4 uses it: starting from ^0, without the
// final inversion that hash/crc32 makes.
func CRC32C(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

// crc32cU32 continues over a little-endian number, by the table: a slice of a
// local array would escape to the heap.
func crc32cU32(crc, v uint32) uint32 {
	for range 4 {
		crc = castagnoli[byte(crc)^byte(v)] ^ crc>>8
		v >>= 8
	}
	return crc
}

func crc32cU64(crc uint32, v uint64) uint32 {
	return crc32cU32(crc32cU32(crc, uint32(v)), uint32(v>>32))
}

var zero4 [4]byte

// Csum computes the metadata checksums of one file system. Every Verify is
// true and every Set does nothing where the file system has no such checksum,
// so that callers need not ask. It is a value without state: copy it freely.
type Csum struct {
	metadata   bool // metadata_csum
	gdt        bool // uninit_bg without metadata_csum: crc16 of group descriptors
	seed       uint32
	uuid16     uint16 // crc16 of the UUID
	blockBytes int    // bytes of a block bitmap that count
	inodeBytes int    // bytes of an inode bitmap that count
}

// Csum is the file system's checksum calculator. The superblock has passed
// Check.
func (s *SuperBlock) Csum() Csum {
	return Csum{
		metadata:   s.HasROCompat(ROCompatMetadataCsum),
		gdt:        s.HasROCompat(ROCompatGDTCsum) && !s.HasROCompat(ROCompatMetadataCsum),
		seed:       s.CsumSeed(),
		uuid16:     crc16(^uint16(0), s.UUID[:]),
		blockBytes: int(s.ClustersPerGroup) / 8,
		inodeBytes: int(s.InodesPerGroup) / 8,
	}
}

// CsumSeed is what all metadata checksums but the superblock's start from:
// s_checksum_seed with metadata_csum_seed, else the crc32c of the UUID.
func (s *SuperBlock) CsumSeed() uint32 {
	if s.HasIncompat(IncompatCsumSeed) {
		return s.ChecksumSeed
	}
	return CRC32C(^uint32(0), s.UUID[:])
}

// Metadata tells whether the file system has metadata_csum.
func (c Csum) Metadata() bool { return c.metadata }

// HasGroupCsum tells whether group descriptors have a checksum of either
// kind, and with it the flags INODE_UNINIT and BLOCK_UNINIT a meaning.
func (c Csum) HasGroupCsum() bool { return c.metadata || c.gdt }

// Seed is the file system's seed.
func (c Csum) Seed() uint32 { return c.seed }

// InodeSeed is what the checksums of an inode's own blocks (extents,
// directory, orphan file) start from: its number and its generation.
func (c Csum) InodeSeed(ino InodeNumber, generation uint32) uint32 {
	return crc32cU32(crc32cU32(c.seed, uint32(ino)), generation)
}

// superCsum covers all of the superblock before s_checksum, from ^0, not from
// the seed.
func superCsum(b []byte) uint32 { return CRC32C(^uint32(0), b[:0x3fc]) }

// VerifySuperBlock checks the checksum of a superblock's 1024 bytes; true
// without metadata_csum.
func VerifySuperBlock(b []byte) bool {
	if ROCompatFeatures(le.Uint32(b[0x64:]))&ROCompatMetadataCsum == 0 {
		return true
	}
	return le.Uint32(b[0x3fc:]) == superCsum(b)
}

// SetSuperBlockCsum stores the checksum in a superblock's 1024 bytes; nothing
// without metadata_csum.
func SetSuperBlockCsum(b []byte) {
	if ROCompatFeatures(le.Uint32(b[0x64:]))&ROCompatMetadataCsum != 0 {
		le.PutUint32(b[0x3fc:], superCsum(b))
	}
}

// groupDesc covers the group number and the descriptor with bg_checksum taken
// as zero (crc32c, low half), or left out (crc16).
func (c Csum) groupDesc(g GroupNumber, d GroupDesc) uint16 {
	if c.metadata {
		crc := crc32cU32(c.seed, uint32(g))
		crc = CRC32C(crc, d[:0x1e])
		crc = CRC32C(crc, zero4[:2])
		return uint16(CRC32C(crc, d[0x20:]))
	}
	var n [4]byte
	le.PutUint32(n[:], uint32(g))
	crc := crc16(c.uuid16, n[:])
	crc = crc16(crc, d[:0x1e])
	return crc16(crc, d[0x20:])
}

// VerifyGroupDesc checks the checksum of a group descriptor of either kind.
func (c Csum) VerifyGroupDesc(g GroupNumber, d GroupDesc) bool {
	return !c.HasGroupCsum() || d.Checksum() == c.groupDesc(g, d)
}

// SetGroupDesc stores the checksum of a group descriptor. It comes after the
// checksums of the bitmaps, which it covers.
func (c Csum) SetGroupDesc(g GroupNumber, d GroupDesc) {
	if c.HasGroupCsum() {
		d.SetChecksum(c.groupDesc(g, d))
	}
}

// bitmapEqual compares with a stored bitmap checksum, of which a short
// descriptor keeps only the low half.
func bitmapEqual(d GroupDesc, stored, crc uint32) bool {
	if !d.wide() {
		crc &= 0xffff
	}
	return stored == crc
}

// VerifyBlockBitmap checks a block bitmap against its descriptor. It covers
// the clusters_per_group/8 first bytes of the block.
func (c Csum) VerifyBlockBitmap(d GroupDesc, bitmap []byte) bool {
	return !c.metadata || bitmapEqual(d, d.BlockBitmapCsum(), CRC32C(c.seed, bitmap[:c.blockBytes]))
}

// SetBlockBitmap stores a block bitmap's checksum in the descriptor, whose
// own checksum is then to be set.
func (c Csum) SetBlockBitmap(d GroupDesc, bitmap []byte) {
	if c.metadata {
		d.SetBlockBitmapCsum(CRC32C(c.seed, bitmap[:c.blockBytes]))
	}
}

// VerifyInodeBitmap checks an inode bitmap against its descriptor. It covers
// the inodes_per_group/8 first bytes of the block.
func (c Csum) VerifyInodeBitmap(d GroupDesc, bitmap []byte) bool {
	return !c.metadata || bitmapEqual(d, d.InodeBitmapCsum(), CRC32C(c.seed, bitmap[:c.inodeBytes]))
}

// SetInodeBitmap stores an inode bitmap's checksum in the descriptor, whose
// own checksum is then to be set.
func (c Csum) SetInodeBitmap(d GroupDesc, bitmap []byte) {
	if c.metadata {
		d.SetInodeBitmapCsum(CRC32C(c.seed, bitmap[:c.inodeBytes]))
	}
}

// inode covers the whole inode in its table, attributes included, with the
// two checksum fields taken as zero, and starts from its number and
// generation. i_checksum_hi exists where i_extra_isize reaches it (wide).
func (c Csum) inode(ino InodeNumber, raw []byte) (crc uint32, wide bool) {
	crc = c.InodeSeed(ino, le.Uint32(raw[0x64:]))
	crc = CRC32C(crc, raw[:0x7c])
	crc = CRC32C(crc, zero4[:2])
	crc = CRC32C(crc, raw[0x7e:0x80])
	if len(raw) <= GoodOldInodeSize+2 {
		return crc, false
	}
	crc = CRC32C(crc, raw[0x80:0x82])
	rest := 0x82
	if le.Uint16(raw[0x80:]) >= EndChecksumHi-GoodOldInodeSize && len(raw) >= EndChecksumHi {
		crc = CRC32C(crc, zero4[:2])
		rest, wide = EndChecksumHi, true
	}
	return CRC32C(crc, raw[rest:]), wide
}

// VerifyInode checks the checksum of an inode, given all its bytes in the
// inode table.
func (c Csum) VerifyInode(ino InodeNumber, raw []byte) bool {
	if !c.metadata {
		return true
	}
	crc, wide := c.inode(ino, raw)
	if le.Uint16(raw[0x7c:]) != uint16(crc) {
		return false
	}
	return !wide || le.Uint16(raw[0x82:]) == uint16(crc>>16)
}

// SetInode stores the checksum of an inode in its bytes of the inode table.
func (c Csum) SetInode(ino InodeNumber, raw []byte) {
	if !c.metadata {
		return
	}
	crc, wide := c.inode(ino, raw)
	le.PutUint16(raw[0x7c:], uint16(crc))
	if wide {
		le.PutUint16(raw[0x82:], uint16(crc>>16))
	}
}

// VerifyExtentBlock checks the tail of an extent node. It covers the header
// and the room for eh_max entries. A node without room for a tail fails.
func (c Csum) VerifyExtentBlock(inodeSeed uint32, b []byte) bool {
	if !c.metadata {
		return true
	}
	off := ExtentTailOffset(b)
	return off >= 0 && le.Uint32(b[off:]) == CRC32C(inodeSeed, b[:off])
}

// SetExtentBlock stores the tail of an extent node.
func (c Csum) SetExtentBlock(inodeSeed uint32, b []byte) {
	if off := ExtentTailOffset(b); c.metadata && off >= 0 {
		le.PutUint32(b[off:], CRC32C(inodeSeed, b[:off]))
	}
}

// VerifyDirBlock checks the tail entry of a directory's leaf block. It covers
// everything before the tail. A block without a tail fails.
func (c Csum) VerifyDirBlock(inodeSeed uint32, b []byte) bool {
	if !c.metadata {
		return true
	}
	t := DirTail(b)
	return t != nil && le.Uint32(t[8:]) == CRC32C(inodeSeed, b[:len(b)-DirTailSize])
}

// SetDirBlock stores the checksum in the tail entry, which must be there.
func (c Csum) SetDirBlock(inodeSeed uint32, b []byte) {
	if t := DirTail(b); c.metadata && t != nil {
		le.PutUint32(t[8:], CRC32C(inodeSeed, b[:len(b)-DirTailSize]))
	}
}

// dx covers the block up to the last entry in use, then the tail with its
// checksum taken as zero. tail is where the tail stands, behind the room for
// limit entries; ok is false where there is none.
func (c Csum) dx(inodeSeed uint32, b []byte) (crc uint32, tail int, ok bool) {
	off, ok := DxEntriesOffset(b)
	if !ok || off+DxEntrySize > len(b) {
		return 0, 0, false
	}
	e := DxEntries(b[off:])
	tail = off + e.Limit()*DxEntrySize
	used := off + e.Count()*DxEntrySize
	if tail+DxTailSize > len(b) || used > tail {
		return 0, 0, false
	}
	crc = CRC32C(inodeSeed, b[:used])
	crc = CRC32C(crc, b[tail:tail+4])
	return CRC32C(crc, zero4[:]), tail, true
}

// VerifyDxBlock checks an index block of a directory (root or inner node).
func (c Csum) VerifyDxBlock(inodeSeed uint32, b []byte) bool {
	if !c.metadata {
		return true
	}
	crc, tail, ok := c.dx(inodeSeed, b)
	return ok && le.Uint32(b[tail+4:]) == crc
}

// SetDxBlock stores the checksum of an index block, whose limit leaves room
// for it.
func (c Csum) SetDxBlock(inodeSeed uint32, b []byte) {
	if !c.metadata {
		return
	}
	if crc, tail, ok := c.dx(inodeSeed, b); ok {
		le.PutUint32(b[tail+4:], crc)
	}
}

// VerifyDir checks a block of a directory of either kind: an index block by
// its own tail, a leaf by its tail entry. An index block is known by its first
// entries, which leave no room for a tail entry; what stands at the block's end
// does not tell, since a root that the kernel made of a leaf keeps the bytes of
// the tail entry under its own tail.
func (c Csum) VerifyDir(inodeSeed uint32, b []byte) bool {
	if _, ok := DxEntriesOffset(b); ok {
		return c.VerifyDxBlock(inodeSeed, b)
	}
	return c.VerifyDirBlock(inodeSeed, b)
}

// SetDir stores the checksum of a block of a directory of either kind.
func (c Csum) SetDir(inodeSeed uint32, b []byte) {
	if _, ok := DxEntriesOffset(b); ok {
		c.SetDxBlock(inodeSeed, b)
		return
	}
	c.SetDirBlock(inodeSeed, b)
}

// xattrBlock covers the block's own number and the block with h_checksum
// taken as zero.
func (c Csum) xattrBlock(blk FsBlock, b []byte) uint32 {
	crc := crc32cU64(c.seed, uint64(blk))
	crc = CRC32C(crc, b[:0x10])
	crc = CRC32C(crc, zero4[:])
	return CRC32C(crc, b[0x14:])
}

// VerifyXattrBlock checks the checksum of xattr block blk.
func (c Csum) VerifyXattrBlock(blk FsBlock, b []byte) bool {
	return !c.metadata || le.Uint32(b[0x10:]) == c.xattrBlock(blk, b)
}

// SetXattrBlock stores the checksum of xattr block blk.
func (c Csum) SetXattrBlock(blk FsBlock, b []byte) {
	if c.metadata {
		le.PutUint32(b[0x10:], c.xattrBlock(blk, b))
	}
}

// VerifyMMP checks the checksum of the MMP structure: all before it.
func (c Csum) VerifyMMP(b []byte) bool {
	return !c.metadata || le.Uint32(b[0x3fc:]) == CRC32C(c.seed, b[:0x3fc])
}

// SetMMP stores the checksum of the MMP structure.
func (c Csum) SetMMP(b []byte) {
	if c.metadata {
		le.PutUint32(b[0x3fc:], CRC32C(c.seed, b[:0x3fc]))
	}
}

// orphanBlock covers the block's own number and all slots.
func orphanBlock(inodeSeed uint32, blk FsBlock, b []byte) uint32 {
	return CRC32C(crc32cU64(inodeSeed, uint64(blk)), b[:len(b)-OrphanTailSize])
}

// VerifyOrphanBlock checks block blk of the orphan file.
func (c Csum) VerifyOrphanBlock(inodeSeed uint32, blk FsBlock, b []byte) bool {
	return !c.metadata || le.Uint32(b[len(b)-4:]) == orphanBlock(inodeSeed, blk, b)
}

// SetOrphanBlock stores the checksum of block blk of the orphan file.
func (c Csum) SetOrphanBlock(inodeSeed uint32, blk FsBlock, b []byte) {
	if c.metadata {
		le.PutUint32(b[len(b)-4:], orphanBlock(inodeSeed, blk, b))
	}
}
