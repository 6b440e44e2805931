package ondisk

// Inode is struct ext4_inode, decoded: every field under the kernel's name
// with its offset. Fields from 0x80 on exist in inodes larger than 128 bytes
// only, and each of them only where i_extra_isize reaches (Fits).
type Inode struct {
	Mode        uint16   // 0x00 i_mode
	UIDLo       uint16   // 0x02 i_uid
	SizeLo      uint32   // 0x04 i_size_lo
	AtimeLo     uint32   // 0x08 i_atime
	CtimeLo     uint32   // 0x0c i_ctime
	MtimeLo     uint32   // 0x10 i_mtime
	Dtime       uint32   // 0x14 i_dtime; the next orphan while on the orphan list
	GIDLo       uint16   // 0x18 i_gid
	LinksCount  uint16   // 0x1a i_links_count
	BlocksLo    uint32   // 0x1c i_blocks_lo
	Flags       uint32   // 0x20 i_flags
	VersionLo   uint32   // 0x24 osd1.linux1.l_i_version
	Block       [60]byte // 0x28 i_block: extent root, block map, symlink, device or inline data
	Generation  uint32   // 0x64 i_generation
	FileACLLo   uint32   // 0x68 i_file_acl_lo
	SizeHi      uint32   // 0x6c i_size_high
	ObsoFaddr   uint32   // 0x70 i_obso_faddr
	BlocksHi    uint16   // 0x74 osd2.linux2.l_i_blocks_high
	FileACLHi   uint16   // 0x76 osd2.linux2.l_i_file_acl_high
	UIDHi       uint16   // 0x78 osd2.linux2.l_i_uid_high
	GIDHi       uint16   // 0x7a osd2.linux2.l_i_gid_high
	ChecksumLo  uint16   // 0x7c osd2.linux2.l_i_checksum_lo
	ReservedLo  uint16   // 0x7e osd2.linux2.l_i_reserved
	ExtraIsize  uint16   // 0x80 i_extra_isize
	ChecksumHi  uint16   // 0x82 i_checksum_hi
	CtimeExtra  uint32   // 0x84 i_ctime_extra
	MtimeExtra  uint32   // 0x88 i_mtime_extra
	AtimeExtra  uint32   // 0x8c i_atime_extra
	CrtimeLo    uint32   // 0x90 i_crtime
	CrtimeExtra uint32   // 0x94 i_crtime_extra
	VersionHi   uint32   // 0x98 i_version_hi
	Projid      uint32   // 0x9c i_projid
}

// InodeExtraSize is the i_extra_isize with which every field of Inode exists.
const InodeExtraSize = 0xa0 - GoodOldInodeSize

// Ends of the extra fields, for Fits.
const (
	EndChecksumHi  = 0x84
	EndCtimeExtra  = 0x88
	EndMtimeExtra  = 0x8c
	EndAtimeExtra  = 0x90
	EndCrtime      = 0x94
	EndCrtimeExtra = 0x98
	EndVersionHi   = 0x9c
	EndProjid      = 0xa0
)

// Decode reads an inode from b, whose length is the inode size of the file
// system (128 or more). Fields that i_extra_isize does not reach are zero. An
// i_extra_isize that does not fit the inode, or is no multiple of 4, is a
// CorruptError; then the first 128 bytes have been decoded.
func (n *Inode) Decode(b []byte) error {
	if len(b) < GoodOldInodeSize {
		return errShort("an inode", GoodOldInodeSize, len(b))
	}
	n.decodeBase(b[:GoodOldInodeSize])
	n.clearExtra()
	if len(b) == GoodOldInodeSize {
		return nil
	}
	if len(b) < GoodOldInodeSize+2 {
		return errShort("a large inode", GoodOldInodeSize+2, len(b))
	}
	extra := le.Uint16(b[0x80:])
	if int(extra) > len(b)-GoodOldInodeSize || extra%4 != 0 {
		return Corrupt("i_extra_isize is %d in an inode of %d bytes", extra, len(b))
	}
	n.ExtraIsize = extra
	n.decodeExtra(b)
	return nil
}

func (n *Inode) decodeBase(b []byte) {
	_ = b[127]
	n.Mode = le.Uint16(b[0x00:])
	n.UIDLo = le.Uint16(b[0x02:])
	n.SizeLo = le.Uint32(b[0x04:])
	n.AtimeLo = le.Uint32(b[0x08:])
	n.CtimeLo = le.Uint32(b[0x0c:])
	n.MtimeLo = le.Uint32(b[0x10:])
	n.Dtime = le.Uint32(b[0x14:])
	n.GIDLo = le.Uint16(b[0x18:])
	n.LinksCount = le.Uint16(b[0x1a:])
	n.BlocksLo = le.Uint32(b[0x1c:])
	n.Flags = le.Uint32(b[0x20:])
	n.VersionLo = le.Uint32(b[0x24:])
	n.Block = [60]byte(b[0x28:0x64])
	n.Generation = le.Uint32(b[0x64:])
	n.FileACLLo = le.Uint32(b[0x68:])
	n.SizeHi = le.Uint32(b[0x6c:])
	n.ObsoFaddr = le.Uint32(b[0x70:])
	n.BlocksHi = le.Uint16(b[0x74:])
	n.FileACLHi = le.Uint16(b[0x76:])
	n.UIDHi = le.Uint16(b[0x78:])
	n.GIDHi = le.Uint16(b[0x7a:])
	n.ChecksumLo = le.Uint16(b[0x7c:])
	n.ReservedLo = le.Uint16(b[0x7e:])
}

func (n *Inode) clearExtra() {
	n.ExtraIsize, n.ChecksumHi = 0, 0
	n.CtimeExtra, n.MtimeExtra, n.AtimeExtra = 0, 0, 0
	n.CrtimeLo, n.CrtimeExtra, n.VersionHi, n.Projid = 0, 0, 0, 0
}

func (n *Inode) decodeExtra(b []byte) {
	if n.ExtraIsize >= InodeExtraSize {
		_ = b[0x9f]
		n.ChecksumHi = le.Uint16(b[0x82:])
		n.CtimeExtra = le.Uint32(b[0x84:])
		n.MtimeExtra = le.Uint32(b[0x88:])
		n.AtimeExtra = le.Uint32(b[0x8c:])
		n.CrtimeLo = le.Uint32(b[0x90:])
		n.CrtimeExtra = le.Uint32(b[0x94:])
		n.VersionHi = le.Uint32(b[0x98:])
		n.Projid = le.Uint32(b[0x9c:])
		return
	}
	if n.Fits(EndChecksumHi) {
		n.ChecksumHi = le.Uint16(b[0x82:])
	}
	for _, f := range n.extra32() {
		if !n.Fits(f.off + 4) {
			return
		}
		*f.p = le.Uint32(b[f.off:])
	}
}

type inodeField struct {
	off int
	p   *uint32
}

func (n *Inode) extra32() [7]inodeField {
	return [7]inodeField{
		{0x84, &n.CtimeExtra}, {0x88, &n.MtimeExtra}, {0x8c, &n.AtimeExtra}, {0x90, &n.CrtimeLo},
		{0x94, &n.CrtimeExtra}, {0x98, &n.VersionHi}, {0x9c, &n.Projid},
	}
}

// Fits tells whether the extra field that ends at offset end (one of the
// End... constants) exists in this inode.
func (n *Inode) Fits(end int) bool { return end <= GoodOldInodeSize+int(n.ExtraIsize) }

// Encode writes the inode to b, whose length is the inode size of the file
// system and reaches ExtraIsize. Bytes behind the fields it knows, where
// extended attributes live, are left alone. The checksum fields are written
// as they are; Csum.SetInode makes them right.
func (n *Inode) Encode(b []byte) {
	n.encodeBase(b[:GoodOldInodeSize])
	if len(b) < GoodOldInodeSize+2 {
		return
	}
	le.PutUint16(b[0x80:], n.ExtraIsize)
	n.encodeExtra(b)
}

func (n *Inode) encodeBase(b []byte) {
	_ = b[127]
	le.PutUint16(b[0x00:], n.Mode)
	le.PutUint16(b[0x02:], n.UIDLo)
	le.PutUint32(b[0x04:], n.SizeLo)
	le.PutUint32(b[0x08:], n.AtimeLo)
	le.PutUint32(b[0x0c:], n.CtimeLo)
	le.PutUint32(b[0x10:], n.MtimeLo)
	le.PutUint32(b[0x14:], n.Dtime)
	le.PutUint16(b[0x18:], n.GIDLo)
	le.PutUint16(b[0x1a:], n.LinksCount)
	le.PutUint32(b[0x1c:], n.BlocksLo)
	le.PutUint32(b[0x20:], n.Flags)
	le.PutUint32(b[0x24:], n.VersionLo)
	copy(b[0x28:0x64], n.Block[:])
	le.PutUint32(b[0x64:], n.Generation)
	le.PutUint32(b[0x68:], n.FileACLLo)
	le.PutUint32(b[0x6c:], n.SizeHi)
	le.PutUint32(b[0x70:], n.ObsoFaddr)
	le.PutUint16(b[0x74:], n.BlocksHi)
	le.PutUint16(b[0x76:], n.FileACLHi)
	le.PutUint16(b[0x78:], n.UIDHi)
	le.PutUint16(b[0x7a:], n.GIDHi)
	le.PutUint16(b[0x7c:], n.ChecksumLo)
	le.PutUint16(b[0x7e:], n.ReservedLo)
}

func (n *Inode) encodeExtra(b []byte) {
	if n.ExtraIsize >= InodeExtraSize {
		_ = b[0x9f]
		le.PutUint16(b[0x82:], n.ChecksumHi)
		le.PutUint32(b[0x84:], n.CtimeExtra)
		le.PutUint32(b[0x88:], n.MtimeExtra)
		le.PutUint32(b[0x8c:], n.AtimeExtra)
		le.PutUint32(b[0x90:], n.CrtimeLo)
		le.PutUint32(b[0x94:], n.CrtimeExtra)
		le.PutUint32(b[0x98:], n.VersionHi)
		le.PutUint32(b[0x9c:], n.Projid)
		return
	}
	if n.Fits(EndChecksumHi) {
		le.PutUint16(b[0x82:], n.ChecksumHi)
	}
	for _, f := range n.extra32() {
		if !n.Fits(f.off + 4) {
			return
		}
		le.PutUint32(b[f.off:], *f.p)
	}
}

// Size is the length of the file in bytes. The high half counts for regular
// files, and for directories with the large_dir feature; nothing else can be
// that large, and zero stands there.
func (n *Inode) Size() uint64 { return uint64(n.SizeHi)<<32 | uint64(n.SizeLo) }

// SetSize stores the length in bytes.
func (n *Inode) SetSize(v uint64) { n.SizeLo, n.SizeHi = uint32(v), uint32(v>>32) }

// UID is the owner.
func (n *Inode) UID() uint32 { return uint32(n.UIDHi)<<16 | uint32(n.UIDLo) }

// SetUID stores the owner.
func (n *Inode) SetUID(v uint32) { n.UIDLo, n.UIDHi = uint16(v), uint16(v>>16) }

// GID is the owning group.
func (n *Inode) GID() uint32 { return uint32(n.GIDHi)<<16 | uint32(n.GIDLo) }

// SetGID stores the owning group.
func (n *Inode) SetGID(v uint32) { n.GIDLo, n.GIDHi = uint16(v), uint16(v>>16) }

// FileACL is the block with extended attributes, 0 if there is none.
func (n *Inode) FileACL() FsBlock { return FsBlock(n.FileACLHi)<<32 | FsBlock(n.FileACLLo) }

// SetFileACL stores the block with extended attributes.
func (n *Inode) SetFileACL(b FsBlock) { n.FileACLLo, n.FileACLHi = uint32(b), uint16(b>>32) }

// Version is i_version: a counter of changes.
func (n *Inode) Version() uint64 { return uint64(n.VersionHi)<<32 | uint64(n.VersionLo) }

// SetVersion stores i_version; without room for the high half it is cut.
func (n *Inode) SetVersion(v uint64) {
	n.VersionLo = uint32(v)
	if n.Fits(EndVersionHi) {
		n.VersionHi = uint32(v >> 32)
	}
}

// Sectors is the space the file takes, in units of 512 bytes. hugeFile is the
// file system's huge_file feature: without it i_blocks has 32 bits; with it
// 48, which count file system blocks of 1<<blockBits bytes when the inode has
// InodeHugeFile.
func (n *Inode) Sectors(hugeFile bool, blockBits uint) uint64 {
	if !hugeFile {
		return uint64(n.BlocksLo)
	}
	v := uint64(n.BlocksHi)<<32 | uint64(n.BlocksLo)
	if n.Flags&InodeHugeFile != 0 {
		v <<= blockBits - 9
	}
	return v
}

// SetSectors stores the space the file takes, given in units of 512 bytes,
// choosing the encoding and InodeHugeFile as the kernel does: 32 bits, else 48
// bits, else 48 bits of blocks. It returns false, having changed nothing, when
// the number cannot be stored (EFBIG).
func (n *Inode) SetSectors(v uint64, hugeFile bool, blockBits uint) bool {
	if v <= 1<<32-1 {
		n.BlocksLo, n.BlocksHi = uint32(v), 0
		n.Flags &^= InodeHugeFile
		return true
	}
	if !hugeFile {
		return false
	}
	if v < 1<<48 {
		n.Flags &^= InodeHugeFile
	} else if v >>= blockBits - 9; v < 1<<48 {
		n.Flags |= InodeHugeFile
	} else {
		return false
	}
	n.BlocksLo, n.BlocksHi = uint32(v), uint16(v>>32)
	return true
}
