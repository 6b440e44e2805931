package ondisk

const (
	// OrphanTailSize is the size of the tail of an orphan file block: magic
	// and checksum.
	OrphanTailSize = 8
	// OrphanMagic is ob_magic.
	OrphanMagic = 0x0b10ca04
)

// OrphanBlock is a view of a block of the orphan file: slots of inode
// numbers, 0 where free, and a tail of ob_magic and ob_checksum.
type OrphanBlock []byte

// Slots is the number of inode numbers that a block holds.
func (b OrphanBlock) Slots() int { return (len(b) - OrphanTailSize) / 4 }

// Inode is the inode in slot i.
func (b OrphanBlock) Inode(i int) InodeNumber { return InodeNumber(le.Uint32(b[4*i:])) }

// SetInode stores the inode in slot i.
func (b OrphanBlock) SetInode(i int, n InodeNumber) { le.PutUint32(b[4*i:], uint32(n)) }

// Check tells whether the tail has its magic.
func (b OrphanBlock) Check() error {
	if len(b) < OrphanTailSize {
		return errShort("an orphan file block", OrphanTailSize, len(b))
	}
	if m := le.Uint32(b[len(b)-OrphanTailSize:]); m != OrphanMagic {
		return Corrupt("orphan file block has magic %#x", m)
	}
	return nil
}

// Init makes the block empty, its checksum still to be set.
func (b OrphanBlock) Init() {
	clear(b)
	le.PutUint32(b[len(b)-OrphanTailSize:], OrphanMagic)
}
