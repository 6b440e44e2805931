package ondisk

// Bits of bg_flags.
const (
	BGInodeUninit = 0x0001 // the inode bitmap and table are not initialised
	BGBlockUninit = 0x0002 // the block bitmap is not initialised
	BGInodeZeroed = 0x0004 // the inode table has been zeroed on disk
)

// GroupDesc is a view of struct ext4_group_desc over its bytes on disk: 32
// bytes, or 64 and more with the 64bit feature (SuperBlock.DescSize). The
// halves at 0x20 and behind count only when they are there. The caller slices
// the right length; a shorter one than 32 panics.
type GroupDesc []byte

// GroupDescAt is the view of descriptor i of a descriptor block, which must
// hold that many.
func GroupDescAt(block []byte, i uint32, descSize int) GroupDesc {
	o := int(i) * descSize
	return GroupDesc(block[o : o+descSize : o+descSize])
}

func (d GroupDesc) wide() bool { return len(d) >= MinDescSize64 }

func (d GroupDesc) get32(lo, hi int) uint64 {
	v := uint64(le.Uint32(d[lo:]))
	if d.wide() {
		v |= uint64(le.Uint32(d[hi:])) << 32
	}
	return v
}

func (d GroupDesc) set32(lo, hi int, v uint64) {
	le.PutUint32(d[lo:], uint32(v))
	if d.wide() {
		le.PutUint32(d[hi:], uint32(v>>32))
	}
}

func (d GroupDesc) get16(lo, hi int) uint32 {
	v := uint32(le.Uint16(d[lo:]))
	if d.wide() {
		v |= uint32(le.Uint16(d[hi:])) << 16
	}
	return v
}

func (d GroupDesc) set16(lo, hi int, v uint32) {
	le.PutUint16(d[lo:], uint16(v))
	if d.wide() {
		le.PutUint16(d[hi:], uint16(v>>16))
	}
}

// BlockBitmap is the block of the block bitmap: 0x00 and 0x20 bg_block_bitmap.
func (d GroupDesc) BlockBitmap() FsBlock { return FsBlock(d.get32(0x00, 0x20)) }

// InodeBitmap is the block of the inode bitmap: 0x04 and 0x24 bg_inode_bitmap.
func (d GroupDesc) InodeBitmap() FsBlock { return FsBlock(d.get32(0x04, 0x24)) }

// InodeTable is the first block of the inode table: 0x08 and 0x28 bg_inode_table.
func (d GroupDesc) InodeTable() FsBlock { return FsBlock(d.get32(0x08, 0x28)) }

// FreeClusters counts free clusters: 0x0c and 0x2c bg_free_blocks_count.
func (d GroupDesc) FreeClusters() uint32 { return d.get16(0x0c, 0x2c) }

// FreeInodes counts free inodes: 0x0e and 0x2e bg_free_inodes_count.
func (d GroupDesc) FreeInodes() uint32 { return d.get16(0x0e, 0x2e) }

// UsedDirs counts directories: 0x10 and 0x30 bg_used_dirs_count.
func (d GroupDesc) UsedDirs() uint32 { return d.get16(0x10, 0x30) }

// Flags is 0x12 bg_flags.
func (d GroupDesc) Flags() uint16 { return le.Uint16(d[0x12:]) }

// ExcludeBitmap is 0x14 and 0x34 bg_exclude_bitmap, which nobody uses.
func (d GroupDesc) ExcludeBitmap() FsBlock { return FsBlock(d.get32(0x14, 0x34)) }

// BlockBitmapCsum is 0x18 and 0x38 bg_block_bitmap_csum; 16 bits in a short descriptor.
func (d GroupDesc) BlockBitmapCsum() uint32 { return d.get16(0x18, 0x38) }

// InodeBitmapCsum is 0x1a and 0x3a bg_inode_bitmap_csum; 16 bits in a short descriptor.
func (d GroupDesc) InodeBitmapCsum() uint32 { return d.get16(0x1a, 0x3a) }

// ItableUnused counts the never used inodes at the end of the table: 0x1c and
// 0x32 bg_itable_unused.
func (d GroupDesc) ItableUnused() uint32 { return d.get16(0x1c, 0x32) }

// Checksum is 0x1e bg_checksum.
func (d GroupDesc) Checksum() uint16 { return le.Uint16(d[0x1e:]) }

// SetBlockBitmap stores the block of the block bitmap.
func (d GroupDesc) SetBlockBitmap(b FsBlock) { d.set32(0x00, 0x20, uint64(b)) }

// SetInodeBitmap stores the block of the inode bitmap.
func (d GroupDesc) SetInodeBitmap(b FsBlock) { d.set32(0x04, 0x24, uint64(b)) }

// SetInodeTable stores the first block of the inode table.
func (d GroupDesc) SetInodeTable(b FsBlock) { d.set32(0x08, 0x28, uint64(b)) }

// SetFreeClusters stores the count of free clusters.
func (d GroupDesc) SetFreeClusters(n uint32) { d.set16(0x0c, 0x2c, n) }

// SetFreeInodes stores the count of free inodes.
func (d GroupDesc) SetFreeInodes(n uint32) { d.set16(0x0e, 0x2e, n) }

// SetUsedDirs stores the count of directories.
func (d GroupDesc) SetUsedDirs(n uint32) { d.set16(0x10, 0x30, n) }

// SetFlags stores bg_flags.
func (d GroupDesc) SetFlags(f uint16) { le.PutUint16(d[0x12:], f) }

// SetBlockBitmapCsum stores the block bitmap's checksum, cut to 16 bits in a short descriptor.
func (d GroupDesc) SetBlockBitmapCsum(c uint32) { d.set16(0x18, 0x38, c) }

// SetInodeBitmapCsum stores the inode bitmap's checksum, cut to 16 bits in a short descriptor.
func (d GroupDesc) SetInodeBitmapCsum(c uint32) { d.set16(0x1a, 0x3a, c) }

// SetItableUnused stores the count of never used inodes.
func (d GroupDesc) SetItableUnused(n uint32) { d.set16(0x1c, 0x32, n) }

// SetChecksum stores bg_checksum.
func (d GroupDesc) SetChecksum(c uint16) { le.PutUint16(d[0x1e:], c) }
