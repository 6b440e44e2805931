package ondisk

const (
	// SuperBlockSize is the size of the superblock in bytes.
	SuperBlockSize = 1024
	// SuperBlockOffset is where the first superblock starts, in bytes, for
	// every block size.
	SuperBlockOffset = 1024
	// SuperMagic is s_magic.
	SuperMagic = 0xEF53
	// MinBlockSize and MaxBlockSize bound the block size in bytes.
	MinBlockSize = 1024
	MaxBlockSize = 65536
	// MinDescSize is the size of a group descriptor without the 64bit
	// feature; MinDescSize64 is the least size with it.
	MinDescSize   = 32
	MinDescSize64 = 64
	// GoodOldInodeSize is the inode size of revision 0.
	GoodOldInodeSize = 128
	// GoodOldFirstIno is the first inode of revision 0 that is not reserved.
	GoodOldFirstIno = 11
)

// Values of s_state.
const (
	StateValid  = 0x0001 // cleanly unmounted
	StateError  = 0x0002 // errors were found
	StateOrphan = 0x0004 // orphans are being recovered
)

// Values of s_errors.
const (
	ErrorsContinue = 1
	ErrorsRO       = 2
	ErrorsPanic    = 3
)

// Values of s_rev_level.
const (
	RevGoodOld = 0
	RevDynamic = 1
)

// Values of s_creator_os.
const (
	OSLinux   = 0
	OSHurd    = 1
	OSMasix   = 2
	OSFreeBSD = 3
	OSLites   = 4
)

// Bits of s_flags.
const (
	FlagSignedHash   = 0x0001
	FlagUnsignedHash = 0x0002
	FlagTestFilesys  = 0x0004
)

// Bits of s_default_mount_opts.
const (
	DefmDebug         = 0x0001
	DefmBSDGroups     = 0x0002
	DefmDataMode      = 0x0060 // two bits: DefmDataJournal, ordered 0x40, DefmDataWriteback
	DefmDataJournal   = 0x0020
	DefmDataWriteback = 0x0060
	DefmXattrUser     = 0x0004
	DefmACL           = 0x0008
	DefmUID16         = 0x0010
	DefmJmodeData     = 0x0020
	DefmJmodeOrdered  = 0x0040
	DefmJmodeWback    = 0x0060
	DefmJmodeMask     = 0x0060
	DefmNoBarrier     = 0x0100
	DefmBlockValidity = 0x0200
	DefmDiscard       = 0x0400
	DefmNoDelalloc    = 0x0800
)

// Values of s_jnl_backup_type.
const (
	JnlBackupNone   = 0
	JnlBackupBlocks = 1
)

// ChecksumCRC32C is the only value of s_checksum_type.
const ChecksumCRC32C = 1

// SuperBlock is struct ext4_super_block, decoded: every field under the
// kernel's name with its offset. Counts split in two halves have helpers.
type SuperBlock struct {
	InodesCount       uint32     // 0x000 s_inodes_count
	BlocksCountLo     uint32     // 0x004 s_blocks_count_lo
	RBlocksCountLo    uint32     // 0x008 s_r_blocks_count_lo
	FreeBlocksCountLo uint32     // 0x00c s_free_blocks_count_lo, in blocks also with bigalloc
	FreeInodesCount   uint32     // 0x010 s_free_inodes_count
	FirstDataBlock    uint32     // 0x014 s_first_data_block
	LogBlockSize      uint32     // 0x018 s_log_block_size: block size is 1024 << this
	LogClusterSize    uint32     // 0x01c s_log_cluster_size: cluster size is 1024 << this
	BlocksPerGroup    uint32     // 0x020 s_blocks_per_group
	ClustersPerGroup  uint32     // 0x024 s_clusters_per_group
	InodesPerGroup    uint32     // 0x028 s_inodes_per_group
	MtimeLo           uint32     // 0x02c s_mtime, mount time, s since 1970
	WtimeLo           uint32     // 0x030 s_wtime, write time
	MntCount          uint16     // 0x034 s_mnt_count
	MaxMntCount       uint16     // 0x036 s_max_mnt_count, 0xffff: never
	Magic             uint16     // 0x038 s_magic
	State             uint16     // 0x03a s_state
	Errors            uint16     // 0x03c s_errors
	MinorRevLevel     uint16     // 0x03e s_minor_rev_level
	LastcheckLo       uint32     // 0x040 s_lastcheck
	Checkinterval     uint32     // 0x044 s_checkinterval, in s
	CreatorOS         uint32     // 0x048 s_creator_os
	RevLevel          uint32     // 0x04c s_rev_level
	DefResuidLo       uint16     // 0x050 s_def_resuid
	DefResgidLo       uint16     // 0x052 s_def_resgid
	FirstIno          uint32     // 0x054 s_first_ino
	InodeSize         uint16     // 0x058 s_inode_size
	BlockGroupNr      uint16     // 0x05a s_block_group_nr, of this copy
	FeatureCompat     uint32     // 0x05c s_feature_compat
	FeatureIncompat   uint32     // 0x060 s_feature_incompat
	FeatureROCompat   uint32     // 0x064 s_feature_ro_compat
	UUID              [16]byte   // 0x068 s_uuid
	VolumeName        [16]byte   // 0x078 s_volume_name
	LastMounted       [64]byte   // 0x088 s_last_mounted
	AlgorithmUsage    uint32     // 0x0c8 s_algorithm_usage_bitmap
	PreallocBlocks    uint8      // 0x0cc s_prealloc_blocks
	PreallocDirBlocks uint8      // 0x0cd s_prealloc_dir_blocks
	ReservedGDTBlocks uint16     // 0x0ce s_reserved_gdt_blocks
	JournalUUID       [16]byte   // 0x0d0 s_journal_uuid
	JournalInum       uint32     // 0x0e0 s_journal_inum
	JournalDev        uint32     // 0x0e4 s_journal_dev
	LastOrphan        uint32     // 0x0e8 s_last_orphan
	HashSeed          [4]uint32  // 0x0ec s_hash_seed
	DefHashVersion    uint8      // 0x0fc s_def_hash_version
	JnlBackupType     uint8      // 0x0fd s_jnl_backup_type
	DescSizeRaw       uint16     // 0x0fe s_desc_size, 0 in images without 64bit; see DescSize
	DefaultMountOpts  uint32     // 0x100 s_default_mount_opts
	FirstMetaBG       uint32     // 0x104 s_first_meta_bg
	MkfsTimeLo        uint32     // 0x108 s_mkfs_time
	JnlBlocks         [17]uint32 // 0x10c s_jnl_blocks: i_block, i_size_high, i_size_lo of the journal
	BlocksCountHi     uint32     // 0x150 s_blocks_count_hi
	RBlocksCountHi    uint32     // 0x154 s_r_blocks_count_hi
	FreeBlocksCountHi uint32     // 0x158 s_free_blocks_count_hi
	MinExtraIsize     uint16     // 0x15c s_min_extra_isize
	WantExtraIsize    uint16     // 0x15e s_want_extra_isize
	Flags             uint32     // 0x160 s_flags
	RAIDStride        uint16     // 0x164 s_raid_stride, in blocks
	MMPInterval       uint16     // 0x166 s_mmp_update_interval, in s
	MMPBlock          uint64     // 0x168 s_mmp_block
	RAIDStripeWidth   uint32     // 0x170 s_raid_stripe_width, in blocks
	LogGroupsPerFlex  uint8      // 0x174 s_log_groups_per_flex
	ChecksumType      uint8      // 0x175 s_checksum_type
	EncryptionLevel   uint8      // 0x176 s_encryption_level
	ReservedPad       uint8      // 0x177 s_reserved_pad
	KbytesWritten     uint64     // 0x178 s_kbytes_written
	SnapshotInum      uint32     // 0x180 s_snapshot_inum
	SnapshotID        uint32     // 0x184 s_snapshot_id
	SnapshotRBlocks   uint64     // 0x188 s_snapshot_r_blocks_count
	SnapshotList      uint32     // 0x190 s_snapshot_list
	ErrorCount        uint32     // 0x194 s_error_count
	FirstErrorTimeLo  uint32     // 0x198 s_first_error_time
	FirstErrorIno     uint32     // 0x19c s_first_error_ino
	FirstErrorBlock   uint64     // 0x1a0 s_first_error_block
	FirstErrorFunc    [32]byte   // 0x1a8 s_first_error_func
	FirstErrorLine    uint32     // 0x1c8 s_first_error_line
	LastErrorTimeLo   uint32     // 0x1cc s_last_error_time
	LastErrorIno      uint32     // 0x1d0 s_last_error_ino
	LastErrorLine     uint32     // 0x1d4 s_last_error_line
	LastErrorBlock    uint64     // 0x1d8 s_last_error_block
	LastErrorFunc     [32]byte   // 0x1e0 s_last_error_func
	MountOpts         [64]byte   // 0x200 s_mount_opts
	UsrQuotaInum      uint32     // 0x240 s_usr_quota_inum
	GrpQuotaInum      uint32     // 0x244 s_grp_quota_inum
	OverheadClusters  uint32     // 0x248 s_overhead_clusters
	BackupBGs         [2]uint32  // 0x24c s_backup_bgs
	EncryptAlgos      [4]uint8   // 0x254 s_encrypt_algos
	EncryptPWSalt     [16]byte   // 0x258 s_encrypt_pw_salt
	LpfIno            uint32     // 0x268 s_lpf_ino
	PrjQuotaInum      uint32     // 0x26c s_prj_quota_inum
	ChecksumSeed      uint32     // 0x270 s_checksum_seed
	WtimeHi           uint8      // 0x274 s_wtime_hi
	MtimeHi           uint8      // 0x275 s_mtime_hi
	MkfsTimeHi        uint8      // 0x276 s_mkfs_time_hi
	LastcheckHi       uint8      // 0x277 s_lastcheck_hi
	FirstErrorTimeHi  uint8      // 0x278 s_first_error_time_hi
	LastErrorTimeHi   uint8      // 0x279 s_last_error_time_hi
	FirstErrorErrcode uint8      // 0x27a s_first_error_errcode
	LastErrorErrcode  uint8      // 0x27b s_last_error_errcode
	Encoding          uint16     // 0x27c s_encoding
	EncodingFlags     uint16     // 0x27e s_encoding_flags
	OrphanFileInum    uint32     // 0x280 s_orphan_file_inum
	DefResuidHi       uint16     // 0x284 s_def_resuid_hi
	DefResgidHi       uint16     // 0x286 s_def_resgid_hi
	Reserved          [93]uint32 // 0x288 s_reserved
	Checksum          uint32     // 0x3fc s_checksum
}

// Decode reads the superblock from the first SuperBlockSize bytes of b. It
// fails with ErrNotExt4 when the magic is missing, and checks nothing else:
// that is Check's part.
func (s *SuperBlock) Decode(b []byte) error {
	if len(b) < SuperBlockSize {
		return errShort("a superblock", SuperBlockSize, len(b))
	}
	if le.Uint16(b[0x38:]) != SuperMagic {
		return ErrNotExt4
	}
	s.walk(&codec{b: b})
	return nil
}

// Encode writes the superblock to the first SuperBlockSize bytes of b, which
// must be there. The checksum field is written as it is; SetSuperBlockCsum
// makes it right.
func (s *SuperBlock) Encode(b []byte) {
	s.walk(&codec{b: b[:SuperBlockSize], writing: true})
}

func (s *SuperBlock) walk(c *codec) {
	s.walkBase(c)
	s.walkDynamic(c)
	s.walk64(c)
	s.walkErrors(c)
	s.walkTail(c)
}

func (s *SuperBlock) walkBase(c *codec) {
	for _, p := range []*uint32{
		&s.InodesCount, &s.BlocksCountLo, &s.RBlocksCountLo, &s.FreeBlocksCountLo, &s.FreeInodesCount,
		&s.FirstDataBlock, &s.LogBlockSize, &s.LogClusterSize, &s.BlocksPerGroup, &s.ClustersPerGroup,
		&s.InodesPerGroup, &s.MtimeLo, &s.WtimeLo,
	} {
		c.u32(p)
	}
	for _, p := range []*uint16{&s.MntCount, &s.MaxMntCount, &s.Magic, &s.State, &s.Errors, &s.MinorRevLevel} {
		c.u16(p)
	}
	for _, p := range []*uint32{&s.LastcheckLo, &s.Checkinterval, &s.CreatorOS, &s.RevLevel} {
		c.u32(p)
	}
	c.u16(&s.DefResuidLo)
	c.u16(&s.DefResgidLo)
}

func (s *SuperBlock) walkDynamic(c *codec) {
	c.u32(&s.FirstIno)
	c.u16(&s.InodeSize)
	c.u16(&s.BlockGroupNr)
	c.u32(&s.FeatureCompat)
	c.u32(&s.FeatureIncompat)
	c.u32(&s.FeatureROCompat)
	c.bytes(s.UUID[:])
	c.bytes(s.VolumeName[:])
	c.bytes(s.LastMounted[:])
	c.u32(&s.AlgorithmUsage)
	c.u8(&s.PreallocBlocks)
	c.u8(&s.PreallocDirBlocks)
	c.u16(&s.ReservedGDTBlocks)
	c.bytes(s.JournalUUID[:])
	c.u32(&s.JournalInum)
	c.u32(&s.JournalDev)
	c.u32(&s.LastOrphan)
	c.u32s(s.HashSeed[:])
	c.u8(&s.DefHashVersion)
	c.u8(&s.JnlBackupType)
	c.u16(&s.DescSizeRaw)
	c.u32(&s.DefaultMountOpts)
	c.u32(&s.FirstMetaBG)
	c.u32(&s.MkfsTimeLo)
	c.u32s(s.JnlBlocks[:])
}

func (s *SuperBlock) walk64(c *codec) {
	c.u32(&s.BlocksCountHi)
	c.u32(&s.RBlocksCountHi)
	c.u32(&s.FreeBlocksCountHi)
	c.u16(&s.MinExtraIsize)
	c.u16(&s.WantExtraIsize)
	c.u32(&s.Flags)
	c.u16(&s.RAIDStride)
	c.u16(&s.MMPInterval)
	c.u64(&s.MMPBlock)
	c.u32(&s.RAIDStripeWidth)
	c.u8(&s.LogGroupsPerFlex)
	c.u8(&s.ChecksumType)
	c.u8(&s.EncryptionLevel)
	c.u8(&s.ReservedPad)
	c.u64(&s.KbytesWritten)
	c.u32(&s.SnapshotInum)
	c.u32(&s.SnapshotID)
	c.u64(&s.SnapshotRBlocks)
	c.u32(&s.SnapshotList)
}

func (s *SuperBlock) walkErrors(c *codec) {
	c.u32(&s.ErrorCount)
	c.u32(&s.FirstErrorTimeLo)
	c.u32(&s.FirstErrorIno)
	c.u64(&s.FirstErrorBlock)
	c.bytes(s.FirstErrorFunc[:])
	c.u32(&s.FirstErrorLine)
	c.u32(&s.LastErrorTimeLo)
	c.u32(&s.LastErrorIno)
	c.u32(&s.LastErrorLine)
	c.u64(&s.LastErrorBlock)
	c.bytes(s.LastErrorFunc[:])
}

func (s *SuperBlock) walkTail(c *codec) {
	c.bytes(s.MountOpts[:])
	c.u32(&s.UsrQuotaInum)
	c.u32(&s.GrpQuotaInum)
	c.u32(&s.OverheadClusters)
	c.u32s(s.BackupBGs[:])
	c.bytes(s.EncryptAlgos[:])
	c.bytes(s.EncryptPWSalt[:])
	c.u32(&s.LpfIno)
	c.u32(&s.PrjQuotaInum)
	c.u32(&s.ChecksumSeed)
	for _, p := range []*uint8{
		&s.WtimeHi, &s.MtimeHi, &s.MkfsTimeHi, &s.LastcheckHi, &s.FirstErrorTimeHi, &s.LastErrorTimeHi,
		&s.FirstErrorErrcode, &s.LastErrorErrcode,
	} {
		c.u8(p)
	}
	c.u16(&s.Encoding)
	c.u16(&s.EncodingFlags)
	c.u32(&s.OrphanFileInum)
	c.u16(&s.DefResuidHi)
	c.u16(&s.DefResgidHi)
	c.u32s(s.Reserved[:])
	c.u32(&s.Checksum)
}
