package ondisk

// Reserved inodes.
const (
	BadIno        InodeNumber = 1
	RootIno       InodeNumber = 2
	UsrQuotaIno   InodeNumber = 3
	GrpQuotaIno   InodeNumber = 4
	BootLoaderIno InodeNumber = 5
	UndelDirIno   InodeNumber = 6
	ResizeIno     InodeNumber = 7
	JournalIno    InodeNumber = 8
	ExcludeIno    InodeNumber = 9
	ReplicaIno    InodeNumber = 10
)

// Bits of i_mode: the file type, and permissions.
const (
	ModeFmt  = 0xf000
	ModeFIFO = 0x1000
	ModeChr  = 0x2000
	ModeDir  = 0x4000
	ModeBlk  = 0x6000
	ModeReg  = 0x8000
	ModeLnk  = 0xa000
	ModeSock = 0xc000

	ModeSetUID = 0x0800
	ModeSetGID = 0x0400
	ModeSticky = 0x0200
	ModePerm   = 0x01ff
)

// Values of a directory entry's file_type.
const (
	FtUnknown  = 0
	FtRegFile  = 1
	FtDir      = 2
	FtChrdev   = 3
	FtBlkdev   = 4
	FtFIFO     = 5
	FtSock     = 6
	FtSymlink  = 7
	FtMax      = 8
	FtDirCsum  = 0xde // the tail of a directory block
	FtTypeMask = 0x0f
)

// FileType is the directory entry's file_type for an i_mode.
func FileType(mode uint16) uint8 {
	switch mode & ModeFmt {
	case ModeReg:
		return FtRegFile
	case ModeDir:
		return FtDir
	case ModeChr:
		return FtChrdev
	case ModeBlk:
		return FtBlkdev
	case ModeFIFO:
		return FtFIFO
	case ModeSock:
		return FtSock
	case ModeLnk:
		return FtSymlink
	}
	return FtUnknown
}

// FileTypeMode is the file type part of i_mode for a directory entry's
// file_type, 0 if it is unknown.
func FileTypeMode(ft uint8) uint16 {
	modes := [FtMax]uint16{0, ModeReg, ModeDir, ModeChr, ModeBlk, ModeFIFO, ModeSock, ModeLnk}
	if ft >= FtMax {
		return 0
	}
	return modes[ft]
}

// Bits of i_flags.
const (
	InodeSecrm        = 0x00000001
	InodeUnrm         = 0x00000002
	InodeCompr        = 0x00000004
	InodeSync         = 0x00000008
	InodeImmutable    = 0x00000010
	InodeAppend       = 0x00000020
	InodeNodump       = 0x00000040
	InodeNoatime      = 0x00000080
	InodeDirty        = 0x00000100
	InodeComprblk     = 0x00000200
	InodeNocompr      = 0x00000400
	InodeEncrypt      = 0x00000800
	InodeIndex        = 0x00001000 // directory with a hash tree
	InodeImagic       = 0x00002000
	InodeJournalData  = 0x00004000
	InodeNotail       = 0x00008000
	InodeDirsync      = 0x00010000
	InodeTopdir       = 0x00020000
	InodeHugeFile     = 0x00040000 // i_blocks counts blocks
	InodeExtents      = 0x00080000
	InodeVerity       = 0x00100000
	InodeEAInode      = 0x00200000
	InodeEOFBlocks    = 0x00400000
	InodeSnapfile     = 0x01000000
	InodeDAX          = 0x02000000
	InodeSnapfileDel  = 0x04000000
	InodeSnapfileShr  = 0x08000000
	InodeInlineData   = 0x10000000
	InodeProjInherit  = 0x20000000
	InodeCasefold     = 0x40000000
	InodeReservedFlag = 0x80000000
)

// Masks of i_flags as FS_IOC_GETFLAGS shows them and FS_IOC_SETFLAGS takes
// them, and of what a new inode inherits from its directory.
const (
	InodeUserVisible    = 0x725bdfff
	InodeUserModifiable = 0x624bc0ff
	InodeInherited      = InodeSecrm | InodeUnrm | InodeCompr | InodeSync | InodeNodump | InodeNoatime |
		InodeNocompr | InodeJournalData | InodeNotail | InodeDirsync | InodeProjInherit | InodeCasefold | InodeDAX
	// InodeInheritedReg are the inherited flags that make sense on a regular
	// file, InodeInheritedOther those on anything but a directory or a file.
	InodeInheritedReg   = InodeInherited &^ (InodeDirsync | InodeTopdir | InodeCasefold | InodeProjInherit)
	InodeInheritedOther = InodeInherited & (InodeNodump | InodeNoatime)
)

// LinkMax is the largest number of links of a file, and of a directory
// without dir_nlink; with it, a directory past it has link count 1.
const LinkMax = 65000

// MaxSmallFile is the length in bytes past which a file takes the feature
// large_file.
const MaxSmallFile = 1<<31 - 1

// MaxNameLen is the longest file name in bytes.
const MaxNameLen = 255

// FastSymlinkMax is the longest symlink target kept in i_block, in bytes.
const FastSymlinkMax = 59

// DecodeDev reads the device number of a device inode from i_block: the old
// encoding (8 bits each) in the first word, or the new one (12 and 20 bits)
// in the second.
func DecodeDev(block *[60]byte) (major, minor uint32) {
	if old := le.Uint32(block[0:]); old != 0 {
		return old >> 8 & 0xff, old & 0xff
	}
	v := le.Uint32(block[4:])
	return v >> 8 & 0xfff, v&0xff | v>>12&0xfff00
}

// EncodeDev writes a device number (major below 4096, minor below 2^20) to
// i_block, in the old encoding where it fits, as the kernel does.
func EncodeDev(block *[60]byte, major, minor uint32) {
	*block = [60]byte{}
	if major < 256 && minor < 256 {
		le.PutUint32(block[0:], major<<8|minor)
		return
	}
	le.PutUint32(block[4:], minor&0xff|major<<8|(minor&^0xff)<<12)
}
