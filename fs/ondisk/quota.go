package ondisk

// Quota files of the quota feature: the format vfsv1 ("v2r1"), in hidden
// inodes. A file is quota blocks of 1 KiB: block 0 begins with the header,
// block 1 is the root of a tree of four levels over the bytes of the id, most
// significant first, 256 block numbers a node; below the fourth level are data
// blocks of up to 14 entries.
const (
	QuotaBlockSize    = 1024
	QuotaRoot         = 1 // block of the tree's root
	QuotaDepth        = 4
	QuotaHeaderSize   = 32
	QuotaDataHeader   = 16 // before the entries of a data block
	QuotaEntrySize    = 72
	QuotaEntries      = (QuotaBlockSize - QuotaDataHeader) / QuotaEntrySize
	QuotaVersion      = 1
	QuotaLimitUnit    = 1024 // bytes, of block limits
	QuotaMagicUser    = 0xd9c01f11
	QuotaMagicGroup   = 0xd9c01927
	QuotaMagicProject = 0xd9c03f14
)

// QuotaHeader is the head of a quota file: v2_disk_dqheader and v2_disk_dqinfo.
type QuotaHeader struct {
	Magic     uint32 // 0x00 dqh_magic
	Version   uint32 // 0x04 dqh_version
	BGrace    uint32 // 0x08 dqi_bgrace, s
	IGrace    uint32 // 0x0c dqi_igrace, s
	Flags     uint32 // 0x10 dqi_flags
	Blocks    uint32 // 0x14 dqi_blocks, of the file
	FreeBlk   uint32 // 0x18 dqi_free_blk, head of a list of free blocks
	FreeEntry uint32 // 0x1c dqi_free_entry, head of a list of data blocks with room
}

// Decode reads the header.
func (q *QuotaHeader) Decode(b []byte) error {
	if len(b) < QuotaHeaderSize {
		return errShort("a quota file's header", QuotaHeaderSize, len(b))
	}
	q.walk(&codec{b: b})
	if q.Version != QuotaVersion {
		return Corrupt("quota file: version %d", q.Version)
	}
	return nil
}

// Encode writes the header.
func (q *QuotaHeader) Encode(b []byte) { q.walk(&codec{b: b[:QuotaHeaderSize], writing: true}) }

func (q *QuotaHeader) walk(c *codec) {
	for _, p := range []*uint32{&q.Magic, &q.Version, &q.BGrace, &q.IGrace, &q.Flags, &q.Blocks, &q.FreeBlk, &q.FreeEntry} {
		c.u32(p)
	}
}

// Quota is v2r1_disk_dqblk: usage and limits of one id. A limit of 0 is none.
type Quota struct {
	ID         uint32 // 0x00 dqb_id
	pad        uint32
	InodesHard uint64 // 0x08 dqb_ihardlimit
	InodesSoft uint64 // 0x10 dqb_isoftlimit
	Inodes     uint64 // 0x18 dqb_curinodes
	BlocksHard uint64 // 0x20 dqb_bhardlimit, in QuotaLimitUnit
	BlocksSoft uint64 // 0x28 dqb_bsoftlimit
	Space      uint64 // 0x30 dqb_curspace, bytes
	BlocksTime uint64 // 0x38 dqb_btime: until when the soft limit may be exceeded, s since 1970
	InodesTime uint64 // 0x40 dqb_itime
}

// Decode reads an entry from QuotaEntrySize bytes; all zero is an unused one.
func (q *Quota) Decode(b []byte) { q.walk(&codec{b: b[:QuotaEntrySize]}) }

// Encode writes an entry.
func (q *Quota) Encode(b []byte) { q.walk(&codec{b: b[:QuotaEntrySize], writing: true}) }

func (q *Quota) walk(c *codec) {
	c.u32(&q.ID)
	c.u32(&q.pad)
	for _, p := range []*uint64{&q.InodesHard, &q.InodesSoft, &q.Inodes, &q.BlocksHard, &q.BlocksSoft, &q.Space, &q.BlocksTime, &q.InodesTime} {
		c.u64(p)
	}
}
