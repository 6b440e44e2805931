package journal

// FormatParams describes the log that FormatSuperBlock makes.
type FormatParams struct {
	BlockSize int             // bytes
	Blocks    uint32          // length of the log including its superblock
	UUID      [16]byte        // s_uuid; mke2fs gives an internal log that of its file system
	Incompat  FeatureIncompat // mke2fs sets none: the first mount does
	Compat    FeatureCompat
	Users     [][16]byte // file systems of an external log; an internal one has one nameless user
	NumFcBlks uint32     // blocks of the fast-commit area within Blocks (with IncompatFastCommit)
	Sequence  TID        // 0 means 1
	First     uint32     // first block of the log proper; 0 means 1; of an external log ExternalSuperBlock+1
}

// FormatSuperBlock writes an empty log's superblock (version 2) into b, which
// is one block or at least 1024 bytes; the rest of b is zeroed. The rest of the
// log need not be cleared where the features include a checksum or the device
// reads zeroes there; a stale log in the same place is otherwise a danger.
func FormatSuperBlock(b []byte, p FormatParams) error {
	switch {
	case len(b) < SuperBlockSize:
		return superError("needs %d bytes", SuperBlockSize)
	case p.BlockSize < SuperBlockSize || p.BlockSize > maxBlockSize || p.BlockSize&(p.BlockSize-1) != 0:
		return superError("block size %d", p.BlockSize)
	case len(p.Users) > maxUsers:
		return superError("%d users, at most %d fit", len(p.Users), maxUsers)
	}
	s := newSuperBlock(p)
	if _, err := s.geometry(uint64(p.Blocks)); err != nil {
		return err
	}
	clear(b)
	s.encodeWithChecksum(b)
	return nil
}

func newSuperBlock(p FormatParams) *SuperBlock {
	s := &SuperBlock{
		BlockType: SuperBlockV2,
		BlockSize: uint32(p.BlockSize),
		MaxLen:    p.Blocks,
		First:     max(p.First, 1),
		Sequence:  max(p.Sequence, 1),
		Compat:    p.Compat,
		Incompat:  p.Incompat,
		UUID:      p.UUID,
		NrUsers:   1,
		NumFcBlks: p.NumFcBlks,
	}
	if len(p.Users) > 0 {
		s.NrUsers = uint32(len(p.Users))
		copy(s.Users[:], p.Users)
	}
	if s.hasSuperChecksum() {
		s.CsumType = checksumCRC32C
	}
	return s
}
