package journal

import "math/bits"

const (
	maxBlockSize = 64 << 10
	// minUsable is the least number of log blocks that transactions need to
	// get anywhere: a quarter of it must hold a small operation.
	minUsable = 32
)

// geometry is where in the log what lies.
type geometry struct {
	first   uint32 // first block of the circular log
	last    uint32 // one behind its last block
	fcFirst uint32 // first block of the fast-commit area
	fcLast  uint32 // one behind its last block; fcFirst >= fcLast: there is none
}

// usable is the number of blocks of the circular log.
func (g geometry) usable() uint32 { return g.last - g.first }

// next is the block after blk, wrapped.
func (g geometry) next(blk uint32) uint32 { return g.add(blk, 1) }

// add is the block n blocks after blk, wrapped; n is at most usable.
func (g geometry) add(blk, n uint32) uint32 {
	v := uint64(blk) + uint64(n)
	if v >= uint64(g.last) {
		v -= uint64(g.usable())
	}
	return uint32(v)
}

// distance is the number of blocks from a forward to b.
func (g geometry) distance(a, b uint32) uint32 {
	if b >= a {
		return b - a
	}
	return b + g.usable() - a
}

// geometry checks the fields that place things, against a log that has total
// blocks, and returns the places. jbd2 makes the fast-commit area from the end
// of the log and leaves one block between the two unused.
func (s *SuperBlock) geometry(total uint64) (geometry, error) {
	switch {
	case uint64(s.MaxLen) > total:
		return geometry{}, superError("log claims %d blocks, there are only %d", s.MaxLen, total)
	case s.First == 0 || s.First >= s.MaxLen:
		return geometry{}, superError("first log block %d of %d", s.First, s.MaxLen)
	}
	g := geometry{first: s.First, last: s.MaxLen, fcFirst: s.MaxLen, fcLast: s.MaxLen}
	if fc := s.fastCommitBlocks(); fc > 0 {
		if uint64(fc) >= uint64(s.MaxLen-s.First) {
			return geometry{}, superError("fast-commit area of %d blocks in a log of %d", fc, s.MaxLen)
		}
		g.last = s.MaxLen - fc
		g.fcFirst = g.last + 1
	}
	if g.usable() < minUsable {
		return geometry{}, superError("log of %d blocks is too short", g.usable())
	}
	if s.Start != 0 && (s.Start < g.first || s.Start >= g.last) {
		return geometry{}, superError("log starts at block %d, outside of %d..%d", s.Start, g.first, g.last-1)
	}
	return g, nil
}

// check verifies everything that needs only the superblock itself. raw are the
// 1024 bytes it was decoded from.
func (s *SuperBlock) check(raw []byte, blockSize int) error {
	if s.BlockSize != uint32(blockSize) {
		return superError("block size %d, the file system has %d", s.BlockSize, blockSize)
	}
	if blockSize < SuperBlockSize || blockSize > maxBlockSize || bits.OnesCount(uint(blockSize)) != 1 {
		return superError("block size %d", blockSize)
	}
	if s.BlockType == SuperBlockV1 {
		return nil
	}
	return s.checkFeatures(raw)
}

func (s *SuperBlock) checkFeatures(raw []byte) error {
	if err := s.checkCombination(); err != nil {
		return err
	}
	if s.hasSuperChecksum() && !verifySuperChecksum(raw) {
		return superError("bad checksum")
	}
	return nil
}

// checkCombination refuses features that are unknown or exclude each other.
func (s *SuperBlock) checkCombination() error {
	const csum23 = IncompatCsumV2 | IncompatCsumV3
	switch {
	case s.Incompat&^knownIncompat != 0:
		return superError("unknown incompatible features %#x", uint32(s.Incompat&^knownIncompat))
	case s.RoCompat != 0:
		return superError("unknown read-only compatible features %#x", s.RoCompat)
	case s.Incompat&csum23 == csum23:
		return superError("checksums v2 and v3 at once")
	case s.Incompat&csum23 != 0 && s.Compat&CompatChecksum != 0:
		return superError("checksums v1 and v2 or v3 at once")
	case s.NrUsers > maxUsers:
		return superError("%d users", s.NrUsers)
	case s.hasSuperChecksum() && s.CsumType != checksumCRC32C:
		return superError("unknown checksum type %d", s.CsumType)
	}
	return nil
}

// hasUser says whether uuid is among the file systems that share the log.
func (s *SuperBlock) hasUser(uuid [16]byte) bool {
	for _, u := range s.Users[:min(s.NrUsers, maxUsers)] {
		if u == uuid {
			return true
		}
	}
	return false
}
