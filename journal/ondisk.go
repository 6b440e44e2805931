package journal

import (
	"encoding/binary"
	"strings"
)

// The structures of the log as they lie on the device. Everything jbd2 writes
// is big-endian (the ext4 structures around it are little-endian). Names and
// offsets are jbd2's (include/linux/jbd2.h, e2fsprogs kernel-jbd.h).

// Magic opens every block of the log that is not a copy of a home block.
const Magic uint32 = 0xC03B3998 // JBD2_MAGIC_NUMBER

// SuperBlockSize is the size in bytes of the journal superblock.
const SuperBlockSize = 1024

// MinLogBlocks is the least number of blocks that mke2fs and the kernel accept
// for a log (JBD2_MIN_JOURNAL_BLOCKS). Open is more lenient, see minUsable.
const MinLogBlocks = 1024

// DefaultFastCommitBlocks is the size of the fast-commit area when
// s_num_fc_blks is 0 (JBD2_DEFAULT_FAST_COMMIT_BLOCKS).
const DefaultFastCommitBlocks = 256

// BlockType is h_blocktype of a log block.
type BlockType uint32

// The block types of a log.
const (
	DescriptorBlock BlockType = 1 // JBD2_DESCRIPTOR_BLOCK
	CommitBlock     BlockType = 2 // JBD2_COMMIT_BLOCK
	SuperBlockV1    BlockType = 3 // JBD2_SUPERBLOCK_V1
	SuperBlockV2    BlockType = 4 // JBD2_SUPERBLOCK_V2
	RevokeBlock     BlockType = 5 // JBD2_REVOKE_BLOCK
)

// String gives the word debugfs logdump uses.
func (t BlockType) String() string {
	switch t {
	case DescriptorBlock:
		return "descriptor block"
	case CommitBlock:
		return "commit block"
	case SuperBlockV1:
		return "superblock v1"
	case SuperBlockV2:
		return "superblock v2"
	case RevokeBlock:
		return "revoke table"
	}
	return "unknown block type"
}

// FeatureCompat is s_feature_compat of the journal superblock.
type FeatureCompat uint32

// FeatureIncompat is s_feature_incompat of the journal superblock.
type FeatureIncompat uint32

// The features of a log.
const (
	CompatChecksum FeatureCompat = 0x1 // JBD2_FEATURE_COMPAT_CHECKSUM (v1: one crc32 in the commit block)

	IncompatRevoke      FeatureIncompat = 0x01 // JBD2_FEATURE_INCOMPAT_REVOKE
	Incompat64Bit       FeatureIncompat = 0x02 // JBD2_FEATURE_INCOMPAT_64BIT
	IncompatAsyncCommit FeatureIncompat = 0x04 // JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT
	IncompatCsumV2      FeatureIncompat = 0x08 // JBD2_FEATURE_INCOMPAT_CSUM_V2
	IncompatCsumV3      FeatureIncompat = 0x10 // JBD2_FEATURE_INCOMPAT_CSUM_V3
	IncompatFastCommit  FeatureIncompat = 0x20 // JBD2_FEATURE_INCOMPAT_FAST_COMMIT

	knownIncompat = IncompatRevoke | Incompat64Bit | IncompatAsyncCommit |
		IncompatCsumV2 | IncompatCsumV3 | IncompatFastCommit
)

var incompatNames = []struct {
	bit  FeatureIncompat
	name string
}{
	{IncompatRevoke, "journal_incompat_revoke"},
	{Incompat64Bit, "journal_64bit"},
	{IncompatAsyncCommit, "journal_async_commit"},
	{IncompatCsumV2, "journal_checksum_v2"},
	{IncompatCsumV3, "journal_checksum_v3"},
	{IncompatFastCommit, "fast_commit"},
}

// String lists the features in dumpe2fs's words, "(none)" if there is none.
func (f FeatureIncompat) String() string {
	var out []string
	for _, n := range incompatNames {
		if f&n.bit != 0 {
			out = append(out, n.name)
			f &^= n.bit
		}
	}
	if f != 0 {
		out = append(out, "unknown")
	}
	if len(out) == 0 {
		return "(none)"
	}
	return strings.Join(out, " ")
}

// checksumCRC32C is s_checksum_type of checksums v2 and v3; checksumCRC32 is
// h_chksum_type of v1 commit blocks.
const (
	checksumCRC32     = 1 // JBD2_CRC32_CHKSUM
	checksumCRC32C    = 4 // JBD2_CRC32C_CHKSUM
	checksumCRC32Size = 4 // JBD2_CRC32_CHKSUM_SIZE
)

// maxUsers is the number of entries of s_users (JBD2_USERS_MAX).
const maxUsers = 48

// Header opens every metadata block of the log (journal_header_t).
type Header struct {
	Magic     uint32    // 0x00 h_magic
	BlockType BlockType // 0x04 h_blocktype
	Sequence  TID       // 0x08 h_sequence
}

const headerSize = 12

func decodeHeader(b []byte) Header {
	return Header{
		Magic:     binary.BigEndian.Uint32(b[0:]),
		BlockType: BlockType(binary.BigEndian.Uint32(b[4:])),
		Sequence:  TID(binary.BigEndian.Uint32(b[8:])),
	}
}

func putHeader(b []byte, t BlockType, seq TID) {
	binary.BigEndian.PutUint32(b[0:], Magic)
	binary.BigEndian.PutUint32(b[4:], uint32(t))
	binary.BigEndian.PutUint32(b[8:], uint32(seq))
}

// SuperBlock is the journal superblock (journal_superblock_t), block 0 of the
// log. Version 1 ends before FeatureCompat.
type SuperBlock struct {
	BlockType   BlockType // 0x04 h_blocktype: SuperBlockV1 or SuperBlockV2
	HeaderSeq   TID       // 0x08 h_sequence, unused
	BlockSize   uint32    // 0x0C s_blocksize, bytes
	MaxLen      uint32    // 0x10 s_maxlen, blocks of the log including this one
	First       uint32    // 0x14 s_first, first block of log information
	Sequence    TID       // 0x18 s_sequence, first commit ID expected in the log
	Start       uint32    // 0x1C s_start, log block of the first transaction; 0: the log is empty
	Errno       int32     // 0x20 s_errno, negative errno of an abort, 0 for none
	Compat      FeatureCompat
	Incompat    FeatureIncompat // 0x28 s_feature_incompat
	RoCompat    uint32          // 0x2C s_feature_ro_compat
	UUID        [16]byte        // 0x30 s_uuid of the journal
	NrUsers     uint32          // 0x40 s_nr_users, file systems sharing the log
	DynSuper    uint32          // 0x44 s_dynsuper
	MaxTrans    uint32          // 0x48 s_max_transaction, blocks
	MaxTransDat uint32          // 0x4C s_max_trans_data, blocks
	CsumType    uint8           // 0x50 s_checksum_type
	NumFcBlks   uint32          // 0x54 s_num_fc_blks
	Head        uint32          // 0x58 s_head
	Checksum    uint32          // 0xFC s_checksum
	Users       [maxUsers][16]byte
}

// offSuperChecksum is where s_checksum lies.
const offSuperChecksum = 0xFC

// Decode reads the fields from the first 1024 bytes of b. It checks only that
// b is long enough and bears the magic and type of a journal superblock.
func (s *SuperBlock) Decode(b []byte) error {
	if len(b) < SuperBlockSize {
		return &CorruptError{What: "journal superblock is cut short"}
	}
	h := decodeHeader(b)
	if h.Magic != Magic || (h.BlockType != SuperBlockV1 && h.BlockType != SuperBlockV2) {
		return &CorruptError{What: "no journal superblock (magic number or type is wrong)"}
	}
	be := binary.BigEndian
	*s = SuperBlock{
		BlockType: h.BlockType,
		HeaderSeq: h.Sequence,
		BlockSize: be.Uint32(b[0x0C:]),
		MaxLen:    be.Uint32(b[0x10:]),
		First:     be.Uint32(b[0x14:]),
		Sequence:  TID(be.Uint32(b[0x18:])),
		Start:     be.Uint32(b[0x1C:]),
		Errno:     int32(be.Uint32(b[0x20:])),
	}
	if h.BlockType == SuperBlockV1 {
		return nil
	}
	s.Compat = FeatureCompat(be.Uint32(b[0x24:]))
	s.Incompat = FeatureIncompat(be.Uint32(b[0x28:]))
	s.RoCompat = be.Uint32(b[0x2C:])
	copy(s.UUID[:], b[0x30:])
	s.NrUsers = be.Uint32(b[0x40:])
	s.DynSuper = be.Uint32(b[0x44:])
	s.MaxTrans = be.Uint32(b[0x48:])
	s.MaxTransDat = be.Uint32(b[0x4C:])
	s.CsumType = b[0x50]
	s.NumFcBlks = be.Uint32(b[0x54:])
	s.Head = be.Uint32(b[0x58:])
	s.Checksum = be.Uint32(b[offSuperChecksum:])
	for i := range s.Users {
		copy(s.Users[i][:], b[0x100+16*i:])
	}
	return nil
}

// Encode writes the fields into the first 1024 bytes of b, leaving the padding
// between them alone. It does not compute the checksum: setSuperChecksum does.
func (s *SuperBlock) Encode(b []byte) {
	be := binary.BigEndian
	putHeader(b, s.BlockType, s.HeaderSeq)
	be.PutUint32(b[0x0C:], s.BlockSize)
	be.PutUint32(b[0x10:], s.MaxLen)
	be.PutUint32(b[0x14:], s.First)
	be.PutUint32(b[0x18:], uint32(s.Sequence))
	be.PutUint32(b[0x1C:], s.Start)
	be.PutUint32(b[0x20:], uint32(s.Errno))
	if s.BlockType == SuperBlockV1 {
		return
	}
	be.PutUint32(b[0x24:], uint32(s.Compat))
	be.PutUint32(b[0x28:], uint32(s.Incompat))
	be.PutUint32(b[0x2C:], s.RoCompat)
	copy(b[0x30:0x40], s.UUID[:])
	be.PutUint32(b[0x40:], s.NrUsers)
	be.PutUint32(b[0x44:], s.DynSuper)
	be.PutUint32(b[0x48:], s.MaxTrans)
	be.PutUint32(b[0x4C:], s.MaxTransDat)
	b[0x50] = s.CsumType
	be.PutUint32(b[0x54:], s.NumFcBlks)
	be.PutUint32(b[0x58:], s.Head)
	be.PutUint32(b[offSuperChecksum:], s.Checksum)
	for i := range s.Users {
		copy(b[0x100+16*i:0x110+16*i], s.Users[i][:])
	}
}

// fastCommitBlocks is the length of the area at the end of the log that holds
// fast commits, 0 without the feature (jbd2_journal_get_num_fc_blks).
func (s *SuperBlock) fastCommitBlocks() uint32 {
	switch {
	case s.Incompat&IncompatFastCommit == 0:
		return 0
	case s.NumFcBlks == 0:
		return DefaultFastCommitBlocks
	}
	return s.NumFcBlks
}

// TagFlags is t_flags of a descriptor's tag.
type TagFlags uint32

// The flags of a tag.
const (
	TagEscape   TagFlags = 1 // JBD2_FLAG_ESCAPE: the block began with Magic, zeroed in the log
	TagSameUUID TagFlags = 2 // JBD2_FLAG_SAME_UUID: no UUID follows the tag
	TagDeleted  TagFlags = 4 // JBD2_FLAG_DELETED
	TagLast     TagFlags = 8 // JBD2_FLAG_LAST_TAG
)

// Tag tells the home of one block of the log (journal_block_tag_t and
// journal_block_tag3_t).
type Tag struct {
	Home     uint64
	Flags    TagFlags
	Checksum uint32 // 32 bits with v3, the low 16 with v2
}

// tagUUIDSize is the UUID that follows a tag without TagSameUUID.
const tagUUIDSize = 16

// csumVersion says how the log is checksummed.
type csumVersion uint8

const (
	csumNone csumVersion = iota
	csumV1               // one crc32 over descriptors and data, in the commit block
	csumV2               // crc32c in every metadata block, 16 bits of it per tag
	csumV3               // the same, 32 bits per tag
)

// layout is what the features make of the format of the log's blocks.
type layout struct {
	blockSize int
	wide      bool // 64-bit block numbers
	async     bool
	csum      csumVersion
	uuid      [16]byte
	seed      uint32 // crc32c of the journal's UUID
	tagSize   int    // bytes of a tag, without UUID
	tailSize  int    // bytes of the checksum at the end of descriptor and revoke blocks
}

func (s *SuperBlock) layout() layout {
	l := layout{
		blockSize: int(s.BlockSize),
		wide:      s.Incompat&Incompat64Bit != 0,
		async:     s.Incompat&IncompatAsyncCommit != 0,
		uuid:      s.UUID,
		seed:      crc32c(^uint32(0), s.UUID[:]),
	}
	switch {
	case s.Incompat&IncompatCsumV3 != 0:
		l.csum = csumV3
	case s.Incompat&IncompatCsumV2 != 0:
		l.csum = csumV2
	case s.Compat&CompatChecksum != 0:
		l.csum = csumV1
	}
	l.tagSize = tagSize(l.csum, l.wide)
	if l.csum >= csumV2 {
		l.tailSize = 4
	}
	return l
}

// tagSize is journal_tag_bytes: a v3 tag has 16 bytes with 32 or 64-bit
// numbers; the older one 8 or 12, and 2 more with v2.
func tagSize(c csumVersion, wide bool) int {
	if c == csumV3 {
		return 16
	}
	n := 8
	if wide {
		n = 12
	}
	if c == csumV2 {
		n += 2
	}
	return n
}

// tagsPerBlock is how many blocks one descriptor can announce.
func (l *layout) tagsPerBlock() int {
	return (l.blockSize - headerSize - l.tailSize - tagUUIDSize) / l.tagSize
}

// recordSize is the size of a revoke record.
func (l *layout) recordSize() int {
	if l.wide {
		return 8
	}
	return 4
}

// revokeHeaderSize is journal_revoke_header_t: Header and r_count (0x0C).
const revokeHeaderSize = 16

// revokesPerBlock is how many records a revoke block holds.
func (l *layout) revokesPerBlock() int {
	return (l.blockSize - revokeHeaderSize - l.tailSize) / l.recordSize()
}

// putTag writes t into b, which has at least tagSize bytes.
func (l *layout) putTag(b []byte, t Tag) {
	be := binary.BigEndian
	be.PutUint32(b[0:], uint32(t.Home))
	if l.csum == csumV3 {
		be.PutUint32(b[4:], uint32(t.Flags))
		be.PutUint32(b[8:], uint32(t.Home>>32))
		be.PutUint32(b[12:], t.Checksum)
		return
	}
	be.PutUint16(b[4:], uint16(t.Checksum)) // 0x04 t_checksum
	be.PutUint16(b[6:], uint16(t.Flags))    // 0x06 t_flags
	if l.wide {
		be.PutUint32(b[8:], uint32(t.Home>>32)) // 0x08 t_blocknr_high
	}
}

// getTag reads the tag at the start of b, which has at least tagSize bytes.
func (l *layout) getTag(b []byte) Tag {
	be := binary.BigEndian
	t := Tag{Home: uint64(be.Uint32(b[0:]))}
	if l.csum == csumV3 {
		t.Flags = TagFlags(be.Uint32(b[4:]))
		if l.wide {
			t.Home |= uint64(be.Uint32(b[8:])) << 32
		}
		t.Checksum = be.Uint32(b[12:])
		return t
	}
	t.Checksum = uint32(be.Uint16(b[4:]))
	t.Flags = TagFlags(be.Uint16(b[6:]))
	if l.wide {
		t.Home |= uint64(be.Uint32(b[8:])) << 32
	}
	return t
}

// forEachTag calls fn with the tags of a descriptor block until the last one,
// the end of the block, or fn's refusal.
func (l *layout) forEachTag(block []byte, fn func(Tag) bool) {
	end := l.blockSize - l.tailSize
	for off := headerSize; off+l.tagSize <= end; {
		t := l.getTag(block[off:])
		off += l.tagSize
		if t.Flags&TagSameUUID == 0 {
			off += tagUUIDSize
		}
		if !fn(t) || t.Flags&TagLast != 0 {
			return
		}
	}
}

// forEachRevoke calls fn with the block numbers of a revoke block. It returns
// false if r_count does not fit the block.
func (l *layout) forEachRevoke(block []byte, fn func(uint64)) bool {
	count := int64(binary.BigEndian.Uint32(block[0x0C:])) // r_count, bytes used
	if count < revokeHeaderSize || count > int64(l.blockSize-l.tailSize) {
		return false
	}
	size := l.recordSize()
	for off := revokeHeaderSize; off+size <= int(count); off += size {
		if l.wide {
			fn(binary.BigEndian.Uint64(block[off:]))
		} else {
			fn(uint64(binary.BigEndian.Uint32(block[off:])))
		}
	}
	return true
}

func (l *layout) putRevoke(b []byte, blk uint64) {
	if l.wide {
		binary.BigEndian.PutUint64(b, blk)
	} else {
		binary.BigEndian.PutUint32(b, uint32(blk))
	}
}

// Offsets of a commit block (struct commit_header) behind its Header.
const (
	offCommitCsumType = 0x0C // h_chksum_type
	offCommitCsumSize = 0x0D // h_chksum_size
	offCommitCsum     = 0x10 // h_chksum[0]
	offCommitSec      = 0x30 // h_commit_sec, 64 bits
	offCommitNsec     = 0x38 // h_commit_nsec
)
