package xattr

import (
	"bytes"

	"extfused/fs/ondisk"
)

// EntryHash is e_hash of an entry in a block: over the name's bytes, and the
// value's little-endian words, the last one filled up with zeroes.
func EntryHash(suffix string, value []byte) uint32 {
	h := nameHash(suffix)
	for len(value) > 0 {
		var w [4]byte
		value = value[copy(w[:], value):]
		h = h<<16 ^ h>>16 ^ le.Uint32(w[:])
	}
	return h
}

// EntryHashInode is e_hash of an entry whose value is in an inode of its own:
// the value is represented by its checksum (crc32c with the file system's
// seed), which that inode keeps in its access time.
func EntryHashInode(suffix string, valueCRC uint32) uint32 {
	h := nameHash(suffix)
	return h<<16 ^ h>>16 ^ valueCRC
}

// nameHash takes the bytes as unsigned, as kernels do since 6.2.
func nameHash(suffix string) uint32 {
	var h uint32
	for i := range len(suffix) {
		h = h<<5 ^ h>>27 ^ uint32(suffix[i])
	}
	return h
}

// entryHash is 0 in an inode, where the kernel keeps none.
func (a Area) entryHash(suffix string, padded []byte) uint32 {
	if a.magic != nil {
		return 0
	}
	return EntryHash(suffix, padded)
}

// rehash sets h_hash of a block: over the hashes of its entries, or 0 if one
// of them is 0, which makes the block one not to be shared.
func (a Area) rehash() {
	if a.magic != nil {
		return
	}
	var h uint32
	for at := a.first; ; {
		x, ok := a.next(at)
		if !ok {
			break
		}
		if x.Hash == 0 {
			h = 0
			break
		}
		h = h<<16 ^ h>>16 ^ x.Hash
		at += ondisk.XattrEntryLen(int(x.NameLen))
	}
	le.PutUint32(a.b[0x0c:], h)
}

// The header fields of a block that sharing needs. The caller has checked the
// block with Block.

// Refcount is the number of inodes that use the block.
func Refcount(b []byte) uint32 { return le.Uint32(b[4:]) }

// SetRefcount changes it; the checksum is the caller's.
func SetRefcount(b []byte, n uint32) { le.PutUint32(b[4:], n) }

// BlockHash is h_hash: blocks with different hashes differ. A block with hash
// 0 must not be shared.
func BlockHash(b []byte) uint32 { return le.Uint32(b[0x0c:]) }

// SameAttributes tells whether two blocks hold the same attributes, so that
// one can serve for both. Values may lie in different order.
func SameAttributes(a, b Area) bool {
	if !a.started() || !b.started() || a.magic != nil || b.magic != nil || BlockHash(a.b) != BlockHash(b.b) {
		return false
	}
	at, bt := a.first, b.first
	for {
		x, okx := a.next(at)
		y, oky := b.next(bt)
		if !okx || !oky {
			return okx == oky
		}
		if x.Hash != y.Hash || x.NameIndex != y.NameIndex || x.ValueSize != y.ValueSize || x.ValueInum != y.ValueInum ||
			!bytes.Equal(a.name(at, &x), b.name(bt, &y)) ||
			!bytes.Equal(a.Value(entryOf(at, &x)), b.Value(entryOf(bt, &y))) {
			return false
		}
		at += ondisk.XattrEntryLen(int(x.NameLen))
		bt += ondisk.XattrEntryLen(int(y.NameLen))
	}
}
