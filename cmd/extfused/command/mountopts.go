package command

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/daemon"
	"extfused/fs/ext4"
	"extfused/mballoc"
)

// mountOption is one of -o: how it is spelled, what it does.
type mountOption struct {
	help  string
	value string // what follows "=", for the help; "" if nothing may
	set   func(c *daemon.Config, value string) error
}

// flagOption takes no value.
func flagOption(help string, set func(*daemon.Config)) mountOption {
	return mountOption{help: help, set: func(c *daemon.Config, _ string) error { set(c); return nil }}
}

// mountFlag is an option of mount(8) that the kernel keeps: a bit that is set
// or cleared.
func mountFlag(help string, bit uintptr, on bool) mountOption {
	return flagOption(help, func(c *daemon.Config) {
		c.MountFlags &^= bit
		if on {
			c.MountFlags |= bit
		}
	})
}

// mountOptions are all options with an effect.
var mountOptions = map[string]mountOption{
	"ro": flagOption("read-only; the image is not written, not even to replay the journal", func(c *daemon.Config) {
		c.FS.ReadOnly = true
		c.MountFlags |= unix.MS_RDONLY
	}),
	"rw": flagOption("read-write (default)", func(c *daemon.Config) {
		c.FS.ReadOnly = false
		c.MountFlags &^= unix.MS_RDONLY
	}),
	"noload":     flagOption("do not look at the journal; needs ro", setNoLoad),
	"norecovery": flagOption("as noload", setNoLoad),
	"commit": {"longest time until a change is durable (5)", "SECONDS", func(c *daemon.Config, v string) error {
		n, err := parseUint(v, 1<<31)
		c.FS.Commit = time.Duration(n) * time.Second
		return err
	}},
	"errors": {"what to do about a damaged image: continue, remount-ro or panic (as the superblock says)", "BEHAVIOUR", setErrors},
	"data":   {"data=ordered (default), journal (file data is logged, too) or writeback", "MODE", setData},
	"barrier": {"barrier=0 does not flush the device's cache", "0|1", func(c *daemon.Config, v string) error {
		n, err := parseUint(v, 1)
		c.FS.NoBarrier = err == nil && v != "" && n == 0
		return err
	}},
	"nobarrier":            flagOption("as barrier=0", func(c *daemon.Config) { c.FS.NoBarrier = true }),
	"journal_async_commit": flagOption("write the commit block without waiting for the others", func(c *daemon.Config) { c.FS.AsyncCommit = true }),
	"min_batch_time": {"how long an fsync waits for others at least, when several come, in microseconds (default 0)", "USEC", func(c *daemon.Config, v string) error {
		return setBatch(&c.FS.MinBatch, v, 0)
	}},
	"max_batch_time": {"how long at most; 0 does not wait (default 15000)", "USEC", func(c *daemon.Config, v string) error {
		return setBatch(&c.FS.MaxBatch, v, -1)
	}},
	"journal_dev": {"the same by its number (major * 256 + minor)", "NUMBER", func(c *daemon.Config, v string) error {
		n, err := strconv.ParseUint(v, 0, 32)
		if err == nil {
			c.JournalPath, err = devicePath(uint32(n))
		}
		return err
	}},
	"journal_path": {"the device of an external journal (default: looked for by number and UUID)", "PATH", func(c *daemon.Config, v string) (err error) {
		c.JournalPath, err = filepath.Abs(v)
		return err
	}},
	"discard":                   flagOption("tell the device, or punch holes into the image, where files were deleted", func(c *daemon.Config) { c.FS.Discard = true }),
	"nodiscard":                 flagOption("do not (default)", func(c *daemon.Config) { c.FS.Discard = false }),
	"prefetch_block_bitmaps":    flagOption("learn in the background what block groups have free (default)", func(c *daemon.Config) { c.FS.NoPrefetch = false }),
	"no_prefetch_block_bitmaps": flagOption("read block bitmaps when they are needed", func(c *daemon.Config) { c.FS.NoPrefetch = true }),
	"minixdf":                   flagOption("statfs counts the overhead as usable", func(c *daemon.Config) { c.FS.MinixDF = true }),
	"bsddf":                     flagOption("statfs leaves the overhead out (default)", func(c *daemon.Config) { c.FS.MinixDF = false }),
	"usrquota":                  flagOption("limits of users count (feature quota)", quotaLimits(ext4.QuotaUser)),
	"grpquota":                  flagOption("limits of groups count", quotaLimits(ext4.QuotaGroup)),
	"prjquota":                  flagOption("limits of projects count (feature project)", quotaLimits(ext4.QuotaProject)),
	"quota":                     flagOption("as usrquota,grpquota", quotaLimits(ext4.QuotaUser|ext4.QuotaGroup)),
	"noquota":                   flagOption("no limits count (default)", func(c *daemon.Config) { c.FS.QuotaLimits = 0 }),
	"grpid":                     flagOption("new files take the group of their directory", func(c *daemon.Config) { c.FS.GrpID = true }),
	"bsdgroups":                 flagOption("as grpid", func(c *daemon.Config) { c.FS.GrpID = true }),
	"nogrpid":                   flagOption("new files take the group of their maker (default)", func(c *daemon.Config) { c.FS.GrpID = false }),
	"sysvgroups":                flagOption("as nogrpid", func(c *daemon.Config) { c.FS.GrpID = false }),
	"resuid":                    {"who may use the reserved blocks, besides root", "UID", func(c *daemon.Config, v string) error { return setID(&c.FS.ResUID, v) }},
	"resgid":                    {"whose group may use the reserved blocks", "GID", func(c *daemon.Config, v string) error { return setID(&c.FS.ResGID, v) }},
	"sb": {"where to read the superblock, in units of 1 KiB; needs ro", "BLOCK", func(c *daemon.Config, v string) (err error) {
		c.FS.SBBlock, err = parseUint(v, 1<<53)
		return err
	}},
	"offset": {"where the file system starts in the image, bytes (K, M, G, T)", "BYTES", func(c *daemon.Config, v string) (err error) {
		c.Offset, err = parseSize(v)
		return err
	}},
	"sizelimit": {"how much of the image it may use, bytes", "BYTES", func(c *daemon.Config, v string) (err error) {
		c.SizeLimit, err = parseSize(v)
		return err
	}},
	"stripe":        {"stripe width of the array below, in blocks", "BLOCKS", setMballoc("stripe")},
	"allow_other":   flagOption("all users may enter; permission bits decide (default for root)", func(c *daemon.Config) { c.AllowOther = true }),
	"noallow_other": flagOption("only the user who mounts may enter (default for others)", func(c *daemon.Config) { c.AllowOther = false }),
	"user_xattr":    flagOption("extended attributes (default)", func(c *daemon.Config) { c.NoXattr = false }),
	"nouser_xattr":  flagOption("no extended attributes: one request less for each file written", func(c *daemon.Config) { c.NoXattr = true }),
	"acl":           flagOption("POSIX ACLs (default)", func(c *daemon.Config) { c.NoACL = false }),
	"noacl":         flagOption("no POSIX ACLs", func(c *daemon.Config) { c.NoACL = true }),
	"lazytime": flagOption("times of reads and cached writes are written with other changes, or late", func(c *daemon.Config) {
		c.FS.LazyTime = true
		c.MountFlags |= unix.MS_LAZYTIME
	}),
	"nolazytime": flagOption("write times soon (default)", func(c *daemon.Config) {
		c.FS.LazyTime = false
		c.MountFlags &^= unix.MS_LAZYTIME
	}),
	"suid":          mountFlag("set-user-id works (default for root)", unix.MS_NOSUID, false),
	"nosuid":        mountFlag("set-user-id does not work (always so for others)", unix.MS_NOSUID, true),
	"dev":           mountFlag("device files work (default for root)", unix.MS_NODEV, false),
	"nodev":         mountFlag("device files do not work (always so for others)", unix.MS_NODEV, true),
	"exec":          mountFlag("programs can be run (default)", unix.MS_NOEXEC, false),
	"noexec":        mountFlag("programs cannot be run", unix.MS_NOEXEC, true),
	"sync":          setSync("every write and change of names waits for the device", unix.MS_SYNCHRONOUS, true),
	"async":         setSync("neither waits (default)", unix.MS_SYNCHRONOUS|unix.MS_DIRSYNC, false),
	"dirsync":       setSync("changes of names wait for the device", unix.MS_DIRSYNC, true),
	"relatime":      setAtime("reading is noted in atime once after each change, and daily (default)", ext4.AtimeRelative, 0),
	"atime":         setAtime("as relatime", ext4.AtimeRelative, 0),
	"norelatime":    setAtime("as relatime", ext4.AtimeRelative, 0),
	"nostrictatime": setAtime("as relatime", ext4.AtimeRelative, 0),
	"noatime":       setAtime("reading leaves no trace", ext4.AtimeNever, unix.MS_NOATIME),
	"strictatime":   setAtime("reading is noted each time, but for what the kernel's cache answers", ext4.AtimeStrict, unix.MS_STRICTATIME),
	"nodiratime": flagOption("listing a directory leaves no trace", func(c *daemon.Config) {
		c.FS.NoDirAtime = true
		c.MountFlags |= unix.MS_NODIRATIME
	}),
	"diratime": flagOption("listing a directory is noted as reading is (default)", func(c *daemon.Config) {
		c.FS.NoDirAtime = false
		c.MountFlags &^= unix.MS_NODIRATIME
	}),
	"uid":   {"all files belong to this user, whatever the image says; new ones are stored so", "UID", func(c *daemon.Config, v string) error { return setID(&c.UID, v) }},
	"gid":   {"all files belong to this group, likewise", "GID", func(c *daemon.Config, v string) error { return setID(&c.GID, v) }},
	"idmap": flagOption("allow id-mapped mounts of the mount (Linux 6.12)", func(c *daemon.Config) { c.IDMapped = true }),
	"debug": flagOption("log every FUSE request", func(c *daemon.Config) { c.Debug = true }),
}

// harmless options are accepted and ignored: they are for mount(8) or
// systemd, say what is so anyway, or tune what extfused does not have.
var harmless = map[string]bool{}

// harmlessPrefixes are the same for those with a value or a family of names.
var harmlessPrefixes = []string{"x-", "X-", "comment=", "uhelper=", "helper=", "user=", "subtype=", "fsname=", "inode_readahead_blks=", "journal_ioprio=", "max_dir_size_kb=", "auto_da_alloc=", "init_itable=", "loop=", "max_read="}

func init() {
	for _, o := range strings.Fields(`defaults auto noauto user nouser users owner group nofail _netdev loop
		default_permissions nonempty kernel_cache
		delalloc nodelalloc auto_da_alloc noauto_da_alloc dioread_lock dioread_nolock nodioread_nolock
		journal_checksum nojournal_checksum block_validity noblock_validity nombcache i_version iversion noiversion
		mand nomand silent loud oldalloc orlov init_itable noinit_itable
		reservation noreservation bh nobh check=none nocheck`) {
		harmless[o] = true
	}
}

// parseMountOptions reads lists of options, later ones winning, into c.
func parseMountOptions(c *daemon.Config, lists []string) error {
	for _, list := range lists {
		for o := range strings.SplitSeq(list, ",") {
			if o == "" {
				continue
			}
			if err := parseMountOption(c, o); err != nil {
				return err
			}
		}
	}
	c.MountOptions = flagWords(c.MountFlags)
	if c.FS.NoLoad && !c.FS.ReadOnly {
		return Exitf(ExitUsage, "mount option noload needs ro: without the journal the image may be inconsistent")
	}
	if c.FS.SBBlock != 0 && !c.FS.ReadOnly {
		return Exitf(ExitUsage, "mount option sb needs ro: repair the primary superblock with e2fsck -b")
	}
	return nil
}

// quotaLimits is for an option that makes limits count.
func quotaLimits(k ext4.QuotaKind) func(c *daemon.Config) {
	return func(c *daemon.Config) { c.FS.QuotaLimits |= k }
}

func parseMountOption(c *daemon.Config, o string) error {
	name, value, hasValue := strings.Cut(o, "=")
	if m, ok := mountOptions[name]; ok {
		switch {
		case hasValue && m.value == "":
			return Exitf(ExitUsage, "mount option %s takes no value (%q)", name, value)
		case !hasValue && m.value != "" && name != "barrier":
			return Exitf(ExitUsage, "mount option %s needs a value: %s=%s", name, name, m.value)
		}
		if err := m.set(c, value); err != nil {
			return Exitf(ExitUsage, "mount option %s: %w", o, err)
		}
		return nil
	}
	if hasValue && slices.Contains((*mballoc.Allocator)(nil).Names(), name) {
		return wrapUsage(o, setMballoc(name)(c, value))
	}
	if harmless[o] {
		return nil
	}
	for _, p := range harmlessPrefixes {
		if strings.HasPrefix(o, p) {
			return nil
		}
	}
	return Exitf(ExitUsage, "unknown mount option %q; extfused mount --help lists them", o)
}

func wrapUsage(option string, err error) error {
	if err == nil {
		return nil
	}
	return Exitf(ExitUsage, "mount option %s: %w", option, err)
}

// setAtime chooses what reading does to atime; the kernel shows it as flag.
func setAtime(help string, mode ext4.AtimeMode, flag uintptr) mountOption {
	return flagOption(help, func(c *daemon.Config) {
		c.FS.Atime = mode
		c.MountFlags = c.MountFlags&^(unix.MS_NOATIME|unix.MS_STRICTATIME) | flag
	})
}

// setSync sets or clears the flags of sync and dirsync. The kernel sees to the
// writes, the daemon to the names.
func setSync(help string, bits uintptr, on bool) mountOption {
	return flagOption(help, func(c *daemon.Config) {
		c.MountFlags &^= bits
		if on {
			c.MountFlags |= bits
		}
		c.FS.DirSync = c.MountFlags&(unix.MS_SYNCHRONOUS|unix.MS_DIRSYNC) != 0
	})
}

func setNoLoad(c *daemon.Config) { c.FS.NoLoad = true }

func setErrors(c *daemon.Config, v string) error {
	policy, ok := map[string]ext4.ErrorsPolicy{
		"continue": ext4.ErrorsContinue, "remount-ro": ext4.ErrorsRemountRO, "panic": ext4.ErrorsPanic,
	}[v]
	if !ok {
		return fmt.Errorf("must be continue, remount-ro or panic")
	}
	c.FS.Errors = policy
	return nil
}

func setData(c *daemon.Config, v string) error {
	mode, ok := map[string]ext4.DataMode{
		"ordered": ext4.DataOrdered, "writeback": ext4.DataWriteback, "journal": ext4.DataJournal,
	}[v]
	if !ok {
		return fmt.Errorf("must be journal, ordered or writeback")
	}
	c.FS.Data = mode
	return nil
}

func setID(to **uint32, v string) error {
	n, err := parseUint(v, 1<<32-1)
	id := uint32(n)
	*to = &id
	return err
}

// setMballoc sets a tunable of the allocator.
func setMballoc(name string) func(*daemon.Config, string) error {
	return func(c *daemon.Config, v string) error {
		if _, err := parseUint(v, 1<<31-1); err != nil {
			return err
		}
		if c.FS.Mballoc == nil {
			c.FS.Mballoc = map[string]string{}
		}
		c.FS.Mballoc[name] = v
		return nil
	}
}

func parseUint(v string, limit uint64) (uint64, error) {
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n > limit {
		return 0, fmt.Errorf("%q is no number from 0 to %d", v, limit)
	}
	return n, nil
}

// parseSize reads bytes with an optional K, M, G or T for powers of 1024.
func parseSize(v string) (int64, error) {
	shift := 0
	if n := len(v); n > 0 {
		if i := strings.IndexByte("KMGT", v[n-1]&^0x20); i >= 0 {
			shift, v = 10*(i+1), v[:n-1]
		}
	}
	n, err := strconv.ParseUint(v, 10, 63-shift)
	if err != nil {
		return 0, fmt.Errorf("%q is no size", v)
	}
	return int64(n << shift), nil
}

// flagWords spells mount flags as fusermount3 takes them.
func flagWords(flags uintptr) (words []string) {
	for _, f := range []struct {
		bit  uintptr
		word string
	}{
		{unix.MS_RDONLY, "ro"}, {unix.MS_NOSUID, "nosuid"}, {unix.MS_NODEV, "nodev"}, {unix.MS_NOEXEC, "noexec"},
		{unix.MS_SYNCHRONOUS, "sync"}, {unix.MS_DIRSYNC, "dirsync"}, {unix.MS_NOATIME, "noatime"},
		{unix.MS_NODIRATIME, "nodiratime"},
	} {
		if flags&f.bit != 0 {
			words = append(words, f.word)
		}
	}
	return words
}

// mountOptionHelp lists the options for `extfused mount --help`.
func mountOptionHelp() string {
	names := make([]string, 0, len(mountOptions))
	for name := range mountOptions {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		o := mountOptions[name]
		if o.value != "" {
			name += "=" + o.value
		}
		fmt.Fprintf(&b, "  %-22s %s\n", name, o.help)
	}
	fmt.Fprintf(&b, "  %-22s %s\n", "mb_NAME=NUMBER", "a tunable of the allocator, by ext4's name (mb_optimize_scan=0)")
	return b.String()
}

// setBatch sets a time that is given in microseconds; 0 is none.
func setBatch(to *time.Duration, v string, none time.Duration) error {
	n, err := parseUint(v, 1<<31-1)
	if *to = time.Duration(n) * time.Microsecond; n == 0 {
		*to = none
	}
	return err
}
