package ondisk

import "encoding/binary"

// Records of a fast commit (fs/ext4/fast_commit.h), little-endian. The journal
// package finds them and knows the kinds; here is what their values mean.

// FcName is the value of a CREAT, LINK or UNLINK record: a name in a directory
// and its inode.
//
//	parent inode(32) | inode(32) | name
type FcName struct {
	Parent, Inode InodeNumber
	Name          string
}

// Decode checks only what does not depend on the file system.
func (n *FcName) Decode(b []byte) error {
	if len(b) <= 8 || len(b)-8 > 255 {
		return Corrupt("fast commit: a name of %d bytes", len(b)-8)
	}
	le := binary.LittleEndian
	n.Parent, n.Inode, n.Name = InodeNumber(le.Uint32(b)), InodeNumber(le.Uint32(b[4:])), string(b[8:])
	return nil
}

// FcRange is the value of an ADD_RANGE record, and with Start 0 and not
// Unwritten of a DEL_RANGE record.
//
//	ADD_RANGE   inode(32) | struct ext4_extent, 12 bytes
//	DEL_RANGE   inode(32) | logical block(32) | blocks(32)
type FcRange struct {
	Inode     InodeNumber
	Logical   LBlock
	Len       uint32 // blocks
	Start     FsBlock
	Unwritten bool
}

// DecodeAdd reads an ADD_RANGE record.
func (r *FcRange) DecodeAdd(b []byte) error {
	if len(b) != 16 {
		return Corrupt("fast commit: ADD_RANGE of %d bytes", len(b))
	}
	le := binary.LittleEndian
	n := uint32(le.Uint16(b[8:]))
	*r = FcRange{
		Inode: InodeNumber(le.Uint32(b)), Logical: LBlock(le.Uint32(b[4:])), Len: n,
		Start: FsBlock(le.Uint16(b[10:]))<<32 | FsBlock(le.Uint32(b[12:])),
	}
	if n > ExtentMaxInitLen { // the length's top bit, 32768 itself being a written extent
		r.Len, r.Unwritten = n-ExtentMaxInitLen, true
	}
	return r.check()
}

// DecodeDel reads a DEL_RANGE record.
func (r *FcRange) DecodeDel(b []byte) error {
	if len(b) != 12 {
		return Corrupt("fast commit: DEL_RANGE of %d bytes", len(b))
	}
	le := binary.LittleEndian
	*r = FcRange{Inode: InodeNumber(le.Uint32(b)), Logical: LBlock(le.Uint32(b[4:])), Len: le.Uint32(b[8:])}
	return r.check()
}

func (r *FcRange) check() error {
	if r.Len == 0 || uint64(r.Logical)+uint64(r.Len) > 1<<32 {
		return Corrupt("fast commit: range of %d blocks from %d", r.Len, r.Logical)
	}
	return nil
}

// FcInodeRaw splits the value of an INODE record: the number, and as much of
// the on-disk inode as was recorded, at least the first 128 bytes.
func FcInodeRaw(b []byte) (InodeNumber, []byte, error) {
	if len(b) < 4+GoodOldInodeSize {
		return 0, nil, Corrupt("fast commit: INODE of %d bytes", len(b))
	}
	return InodeNumber(binary.LittleEndian.Uint32(b)), b[4:], nil
}
