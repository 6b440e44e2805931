package journal

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// All checksums of the log, as pairs of verify and set.
//
//	superblock   crc32c(~0, the 1024 bytes, s_checksum as 0)
//	descriptor,
//	revoke       crc32c(seed, the block, tail as 0) in its last four bytes
//	commit       crc32c(seed, the block, h_chksum[0] as 0)
//	data block   crc32c(crc32c(seed, sequence big-endian), the block as it
//	             stands in the log, so after escaping) in its tag
//	commit, v1   crc32 (big-endian polynomial) over the descriptor and data
//	             blocks of the transaction in log order, starting from ~0
//
// with seed = crc32c(~0, journal UUID), none of them inverted at the end.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c continues crc over b, without the inversions of Go's package.
func crc32c(crc uint32, b []byte) uint32 {
	return ^crc32.Update(^crc, castagnoli, b)
}

// crc32be continues the non-reflected CRC-32 (polynomial 0x04C11DB7) of v1
// checksums over b. It is the mirror image of the reflected one, which the
// standard library has, so both its state and its bytes are reversed.
func crc32be(crc uint32, b []byte) uint32 {
	var mirror [512]byte
	state := bits.Reverse32(crc)
	for len(b) > 0 {
		n := copy(mirror[:], b)
		for i, c := range mirror[:n] {
			mirror[i] = bits.Reverse8(c)
		}
		state = ^crc32.Update(^state, crc32.IEEETable, mirror[:n])
		b = b[n:]
	}
	return bits.Reverse32(state)
}

var zero4 [4]byte

// crcWithHole is crc32c over b with the four bytes at off taken as zero.
func crcWithHole(seed uint32, b []byte, off int) uint32 {
	c := crc32c(seed, b[:off])
	c = crc32c(c, zero4[:])
	return crc32c(c, b[off+4:])
}

// hasSuperChecksum says whether s_checksum is in use.
func (s *SuperBlock) hasSuperChecksum() bool {
	return s.Incompat&(IncompatCsumV2|IncompatCsumV3) != 0
}

// verifySuperChecksum checks s_checksum of the raw superblock b.
func verifySuperChecksum(b []byte) bool {
	want := binary.BigEndian.Uint32(b[offSuperChecksum:])
	return crcWithHole(^uint32(0), b[:SuperBlockSize], offSuperChecksum) == want
}

// setSuperChecksum sets s_checksum of the raw superblock b.
func setSuperChecksum(b []byte) {
	c := crcWithHole(^uint32(0), b[:SuperBlockSize], offSuperChecksum)
	binary.BigEndian.PutUint32(b[offSuperChecksum:], c)
}

// encodeWithChecksum is Encode, with s_checksum brought up to date.
func (s *SuperBlock) encodeWithChecksum(b []byte) {
	s.Encode(b)
	if s.hasSuperChecksum() {
		setSuperChecksum(b)
		s.Checksum = binary.BigEndian.Uint32(b[offSuperChecksum:])
	}
}

// verifyTail checks a descriptor or revoke block; true without v2 or v3.
func (l *layout) verifyTail(block []byte) bool {
	if l.tailSize == 0 {
		return true
	}
	off := l.blockSize - l.tailSize
	return crcWithHole(l.seed, block[:l.blockSize], off) == binary.BigEndian.Uint32(block[off:])
}

// setTail sets the checksum of a descriptor or revoke block, if it has one.
func (l *layout) setTail(block []byte) {
	if l.tailSize == 0 {
		return
	}
	off := l.blockSize - l.tailSize
	binary.BigEndian.PutUint32(block[off:], crcWithHole(l.seed, block[:l.blockSize], off))
}

// seqSeed is the start of the checksum of all data blocks of transaction seq.
func (l *layout) seqSeed(seq TID) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(seq))
	return crc32c(l.seed, b[:])
}

// verifyData checks the log's copy of a block against its tag; seqSeed is
// layout.seqSeed of the transaction. True without v2 or v3.
func (l *layout) verifyData(t Tag, seqSeed uint32, data []byte) bool {
	return l.csum < csumV2 || l.dataChecksum(seqSeed, data) == t.Checksum
}

// dataChecksum is the checksum that a tag keeps of data, 0 without v2 or v3.
func (l *layout) dataChecksum(seqSeed uint32, data []byte) uint32 {
	switch l.csum {
	case csumV3:
		return crc32c(seqSeed, data)
	case csumV2:
		return crc32c(seqSeed, data) & 0xFFFF
	}
	return 0
}

// verifyCommit checks a commit block. v1 is the crc32be of the transaction's
// blocks and used only where the log has that kind; a v1 commit with no type,
// size and value was written while the feature was off and passes, as in jbd2.
func (l *layout) verifyCommit(block []byte, v1 uint32) bool {
	found := binary.BigEndian.Uint32(block[offCommitCsum:])
	switch l.csum {
	case csumNone:
		return true
	case csumV1:
		kind, size := block[offCommitCsumType], block[offCommitCsumSize]
		if kind == 0 && size == 0 && found == 0 {
			return true
		}
		return kind == checksumCRC32 && size == checksumCRC32Size && found == v1
	}
	return crcWithHole(l.seed, block[:l.blockSize], offCommitCsum) == found
}

// setCommit sets the checksum of a commit block, if the log has any.
func (l *layout) setCommit(block []byte, v1 uint32) {
	switch l.csum {
	case csumNone:
	case csumV1:
		block[offCommitCsumType] = checksumCRC32
		block[offCommitCsumSize] = checksumCRC32Size
		binary.BigEndian.PutUint32(block[offCommitCsum:], v1)
	default:
		c := crcWithHole(l.seed, block[:l.blockSize], offCommitCsum)
		binary.BigEndian.PutUint32(block[offCommitCsum:], c)
	}
}
