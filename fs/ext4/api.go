package ext4

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// RootIno is the inode number of the root directory.
const RootIno ondisk.InodeNumber = 2

// MaxNameLen is the longest file name in bytes.
const MaxNameLen = 255

// Time is a timestamp as ext4 keeps it: seconds since 1970 (34 bits, signed)
// and nanoseconds, 0 to 999999999.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Attr is what stat(2) shows of an inode, and a little more.
type Attr struct {
	Ino        ondisk.InodeNumber
	Generation uint32 // i_generation, which programs may set
	Life       uint32 // tells two lives of one number apart; stays while anything refers to the inode
	Mode       uint32 // S_IFMT | permissions
	Nlink      uint32
	UID, GID   uint32
	Rdev       uint32 // device number in the kernel's 32-bit encoding (new_encode_dev)
	Size       uint64 // bytes
	Blocks     uint64 // 512-byte units
	Atime      Time
	Mtime      Time
	Ctime      Time
	Crtime     Time
	Flags      uint32 // i_flags (EXT4_*_FL)
	ProjectID  uint32
}

// Caller says on whose behalf an operation runs. Permission checks are the
// kernel's job (default_permissions); the caller decides ownership of new
// inodes, the set-group-id rules and the right to the reserved blocks.
type Caller struct {
	UID, GID, PID uint32
	Umask         uint32
	Groups        func() []uint32 // supplementary groups, asked for only when needed; may be nil
}

// SetAttrMask tells which members of a SetAttr count.
type SetAttrMask uint32

// The members of SetAttr. The ...Now bits take the current time.
const (
	SetMode SetAttrMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetCtime
	SetCrtime
	SetAtimeNow
	SetMtimeNow
	SetFlags
	SetProjectID
)

// SetAttr is a change of attributes; Valid says which members count.
type SetAttr struct {
	Valid     SetAttrMask
	Mode      uint32 // permission bits; the type bits are ignored
	UID, GID  uint32
	Size      uint64
	Atime     Time
	Mtime     Time
	Ctime     Time
	Crtime    Time
	Flags     uint32 // EXT4_FL_USER_MODIFIABLE bits
	ProjectID uint32
	KillPriv  bool // drop set-user-id, set-group-id and security.capability (HANDLE_KILLPRIV_V2)
}

// DirEnt is one directory entry as ReadDir hands it out. Name is only valid
// during the call.
type DirEnt struct {
	Ino  ondisk.InodeNumber
	Name []byte
	Type uint8  // S_IFMT >> 12, as DT_* in readdir(3); 0 when the image does not say
	Next uint64 // cookie that continues after this entry
}

// Flags of Rename, with the values of renameat2(2).
const (
	RenameNoReplace = 1
	RenameExchange  = 2
	RenameWhiteout  = 4
)

// ErrorsPolicy is what happens when the image turns out to be damaged.
type ErrorsPolicy uint8

// The values of errors=, with ErrorsDefault for what the superblock says.
const (
	ErrorsDefault ErrorsPolicy = iota
	ErrorsContinue
	ErrorsRemountRO
	ErrorsPanic
)

// DataMode is the journaling mode for file data.
type DataMode uint8

// The values of data=, with DataDefault for what the superblock says, which is
// ordered unless tune2fs -o was told otherwise.
const (
	DataDefault DataMode = iota
	DataOrdered
	DataWriteback
	DataJournal
)

// AtimeMode is what a read does to atime.
type AtimeMode uint8

// The modes: relatime (only when it is not behind mtime and ctime, or a day
// old), noatime, strictatime.
const (
	AtimeRelative AtimeMode = iota
	AtimeNever
	AtimeStrict
)

// Level grades log messages.
type Level uint8

// Levels, from chatty to grave.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// Options are the mount options. The zero value mounts read-write with the
// defaults of ext4(5).
type Options struct {
	ReadOnly bool
	NoLoad   bool   // do not look at the journal; needs ReadOnly
	SBBlock  uint64 // sb=: where the superblock is, in 1 KiB units; 0 is the primary one

	Commit      time.Duration // commit=: longest life of a transaction; 0 is 5 s
	MinBatch    time.Duration // min_batch_time=: see journal.Options
	MaxBatch    time.Duration // max_batch_time=
	NoBarrier   bool          // barrier=0: no device flushes at commits
	AsyncCommit bool          // journal_async_commit
	Data        DataMode
	JournalDev  blockdev.Device // journal_path=: the external journal, opened by the caller
	Errors      ErrorsPolicy
	Discard     bool    // discard freed blocks once their transaction has committed
	NoPrefetch  bool    // no_prefetch_block_bitmaps: read block bitmaps only when they are needed
	MinixDF     bool    // minixdf: statfs counts the overhead as usable
	GrpID       bool    // grpid/bsdgroups: new inodes take the group of their directory
	ResUID      *uint32 // resuid=
	ResGID      *uint32 // resgid=
	LazyTime    bool    // lazytime: atime goes to the device with other changes, or late
	Atime       AtimeMode
	NoDirAtime  bool // nodiratime: listing a directory leaves its atime
	DirSync     bool // dirsync: changes of names are durable when they return

	Mballoc map[string]string // mb_* tunables by ext4's names, stripe=, inode_readahead_blks ignored

	QuotaLimits QuotaKind // usrquota, grpquota, prjquota: whose limits count

	LastMounted string // path written to s_last_mounted; "" leaves the old one
	CacheBytes  int64  // bound of the buffer cache; 0 is bcache.DefaultMaxBytes
	MaxInodes   int    // bound of cached inodes that nothing refers to; 0 is 16384

	// Logf takes messages for the operator; nil drops them. It is called from
	// any goroutine and must not call back into the file system.
	Logf func(level Level, format string, args ...any)
	// OnRemountRO is told once when an error has turned the mount read-only.
	OnRemountRO func(cause error)
	// Panic is what errors=panic calls; nil is Go's panic.
	Panic func(cause error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Rand gives the numbers for generations and for the placing of directories;
	// nil is math/rand. With it the allocator is for one writer at a time, so that
	// the same calls from one goroutine give the same image.
	Rand func() uint32

	mmpSecond time.Duration // of multiple mount protection, for tests; 0 is one second
	warmAfter time.Duration // see warmAfter, for tests; 0 is that
}

// StatFS is what statfs(2) shows. Block counts are in units of BlockSize.
type StatFS struct {
	BlockSize   uint32
	Blocks      uint64 // data blocks: all without the overhead
	BlocksFree  uint64
	BlocksAvail uint64 // free for the unprivileged
	Files       uint64
	FilesFree   uint64
	NameLen     uint32
	FSID        uint64 // folded from the UUID as the kernel does
}

// ShutdownMode is how Shutdown stops the file system, as EXT4_IOC_SHUTDOWN.
type ShutdownMode uint8

// The modes of EXT4_IOC_SHUTDOWN.
const (
	ShutdownDefault    ShutdownMode = iota // commit everything, then stop
	ShutdownLogFlush                       // commit the journal, write nothing home, then stop
	ShutdownNoLogFlush                     // stop at once: as a power cut
)

// Errors of Mount. Each concrete error says what it is about and wraps one of
// these, so that a caller can choose an exit code.
var (
	ErrNotExt4     = errors.New("not an ext4 file system")
	ErrUnsupported = errors.New("unsupported ext4 feature")
	ErrTooShort    = errors.New("image shorter than its file system")
	ErrReadOnly    = errors.New("can only be mounted read-only")
	ErrNeedsReplay = errors.New("the journal needs recovery")
	ErrBadOption   = errors.New("bad mount option")
	ErrInUse       = errors.New("in use by another host")
)

// MountError is an error of Mount: Kind is one of the Err... values above.
type MountError struct {
	Kind error
	Msg  string
}

func (e *MountError) Error() string { return e.Msg }

// Unwrap gives Kind.
func (e *MountError) Unwrap() error { return e.Kind }

func mountErrorf(kind error, format string, args ...any) error {
	return &MountError{Kind: kind, Msg: fmt.Sprintf(format, args...)}
}

// ErrShutdown is what operations return after Shutdown.
const ErrShutdown = syscall.EIO
