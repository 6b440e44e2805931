package info

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"extfused/fs/ondisk"
)

// Line is a property with dumpe2fs's name and dumpe2fs's way to write its
// value. JSON is the value for programs: a number, a string or a list.
type Line struct {
	Key  string
	Text string
	JSON any
}

// Summary lists superblock and journal in dumpe2fs's order. Properties that
// dumpe2fs leaves away are left away here too.
func (i *Info) Summary() []Line {
	var b builder
	b.identity(i.Super)
	b.counts(i.Super)
	b.geometry(i.Super)
	b.history(i.Super)
	b.inodes(i.Super)
	b.special(i.Super)
	b.checksums(i.Super)
	b.errors(i.Super)
	b.journal(i)
	return b.lines
}

type builder struct{ lines []Line }

func (b *builder) text(key, value string) { b.lines = append(b.lines, Line{key, value, value}) }

func (b *builder) num(key string, n uint64) {
	b.lines = append(b.lines, Line{key, strconv.FormatUint(n, 10), n})
}

// opt leaves a zero away.
func (b *builder) opt(key string, n uint64) {
	if n != 0 {
		b.num(key, n)
	}
}

func (b *builder) list(key string, names []string, none string) {
	text := strings.Join(names, " ")
	if len(names) == 0 {
		text, names = none, []string{}
	}
	b.lines = append(b.lines, Line{key, text, names})
}

func (b *builder) hex(key string, n uint32) {
	b.lines = append(b.lines, Line{key, fmt.Sprintf("0x%08x", n), n})
}

func (b *builder) when(key string, t time.Time) {
	b.lines = append(b.lines, Line{key, t.Format("Mon Jan _2 15:04:05 2006"), t.Unix()})
}

func orNone(s, none string) string {
	if s == "" {
		return none
	}
	return printable(s)
}

// printable keeps text from the image off the terminal's control codes.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// numbered picks names[n], or tells n.
func numbered(n int, names ...string) string {
	if n >= 0 && n < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("unknown (%d)", n)
}

// flagNames picks the names of the set bits.
func flagNames(v uint32, names map[uint32]string) (out []string) {
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if v&bit == 0 {
			continue
		}
		name, ok := names[bit]
		if !ok {
			name = fmt.Sprintf("%#x", bit)
		}
		out = append(out, name)
	}
	return out
}

func (b *builder) identity(s *ondisk.SuperBlock) {
	b.text("Filesystem volume name", orNone(s.Label(), "<none>"))
	b.text("Last mounted on", orNone(cString(s.LastMounted[:]), "<not available>"))
	b.text("Filesystem UUID", ondisk.UUID(s.UUID).String())
	b.text("Filesystem magic number", fmt.Sprintf("0x%04X", s.Magic))
	b.text("Filesystem revision #", fmt.Sprintf("%d (%s)", s.RevLevel, numbered(int(s.RevLevel), "original", "dynamic")))
	b.list("Filesystem features", s.Features().Names(), "(none)")
	if s.Flags != 0 {
		b.list("Filesystem flags", flagNames(s.Flags, map[uint32]string{
			ondisk.FlagSignedHash: "signed_directory_hash", ondisk.FlagUnsignedHash: "unsigned_directory_hash", ondisk.FlagTestFilesys: "test_filesystem",
		}), "")
	}
	b.list("Default mount options", mountOptions(s.DefaultMountOpts), "(none)")
	if o := cString(s.MountOpts[:]); o != "" {
		b.text("Mount options", printable(o))
	}
	b.text("Filesystem state", state(s.State))
	b.text("Errors behavior", numbered(int(s.Errors)-1, "Continue", "Remount read-only", "Panic"))
	b.text("Filesystem OS type", numbered(int(s.CreatorOS), "Linux", "GNU/Hurd", "Masix", "FreeBSD", "Lites"))
}

func state(v uint16) string {
	out := "not clean"
	if v&ondisk.StateValid != 0 {
		out = "clean"
	}
	if v&ondisk.StateError != 0 {
		out += " with errors"
	}
	return out
}

func mountOptions(v uint32) []string {
	mode := map[uint32]string{ondisk.DefmJmodeData: "journal_data", ondisk.DefmJmodeOrdered: "journal_data_ordered", ondisk.DefmJmodeWback: "journal_data_writeback"}
	out := flagNames(v&^ondisk.DefmJmodeMask, map[uint32]string{
		ondisk.DefmDebug: "debug", ondisk.DefmBSDGroups: "bsdgroups", ondisk.DefmXattrUser: "user_xattr", ondisk.DefmACL: "acl", ondisk.DefmUID16: "uid16",
		ondisk.DefmNoBarrier: "nobarrier", ondisk.DefmBlockValidity: "block_validity", ondisk.DefmDiscard: "discard", ondisk.DefmNoDelalloc: "nodelalloc",
	})
	if m, ok := mode[v&ondisk.DefmJmodeMask]; ok {
		out = append([]string{m}, out...)
	}
	return out
}

func (b *builder) counts(s *ondisk.SuperBlock) {
	b.num("Inode count", uint64(s.InodesCount))
	b.num("Block count", s.Blocks())
	b.num("Reserved block count", s.ReservedBlocks())
	b.opt("Overhead clusters", uint64(s.OverheadClusters))
	b.num("Free blocks", s.FreeBlocks())
	b.num("Free inodes", uint64(s.FreeInodesCount))
	b.num("First block", uint64(s.FirstDataBlock))
	b.num("Block size", uint64(s.BlockSize()))
	if s.HasROCompat(ondisk.ROCompatBigalloc) {
		b.num("Cluster size", uint64(s.ClusterSize()))
	} else {
		b.num("Fragment size", uint64(s.ClusterSize()))
	}
	if s.HasIncompat(ondisk.Incompat64Bit) {
		b.num("Group descriptor size", uint64(s.DescSize()))
	}
	b.opt("Reserved GDT blocks", uint64(s.ReservedGDTBlocks))
}

func (b *builder) geometry(s *ondisk.SuperBlock) {
	b.num("Blocks per group", uint64(s.BlocksPerGroup))
	if s.HasROCompat(ondisk.ROCompatBigalloc) {
		b.num("Clusters per group", uint64(s.ClustersPerGroup))
	} else {
		b.num("Fragments per group", uint64(s.ClustersPerGroup))
	}
	b.num("Inodes per group", uint64(s.InodesPerGroup))
	b.num("Inode blocks per group", uint64(s.InodeTableBlocksPerGroup()))
	b.opt("First meta block group", uint64(s.FirstMetaBG))
	b.opt("RAID stride", uint64(s.RAIDStride))
	b.opt("RAID stripe width", uint64(s.RAIDStripeWidth))
	if s.LogGroupsPerFlex != 0 {
		b.num("Flex block group size", uint64(s.FlexSize()))
	}
}

func (b *builder) history(s *ondisk.SuperBlock) {
	if t := s.MkfsTime(); t.Unix() != 0 {
		b.when("Filesystem created", t)
	}
	if t := s.Mtime(); t.Unix() != 0 {
		b.when("Last mount time", t)
	} else {
		b.text("Last mount time", "n/a")
	}
	b.when("Last write time", s.Wtime())
	b.num("Mount count", uint64(s.MntCount))
	b.lines = append(b.lines, Line{"Maximum mount count", strconv.Itoa(int(int16(s.MaxMntCount))), int16(s.MaxMntCount)})
	b.when("Last checked", s.Lastcheck())
	b.lines = append(b.lines, Line{"Check interval", fmt.Sprintf("%d (%s)", s.Checkinterval, interval(s.Checkinterval)), s.Checkinterval})
	if s.Checkinterval != 0 {
		b.when("Next check after", s.Lastcheck().Add(time.Duration(s.Checkinterval)*time.Second))
	}
	if s.KbytesWritten != 0 {
		b.lines = append(b.lines, Line{"Lifetime writes", scaledKB(s.KbytesWritten), s.KbytesWritten})
	}
	b.lines = append(b.lines,
		Line{"Reserved blocks uid", owner(s.Resuid(), "user"), s.Resuid()},
		Line{"Reserved blocks gid", owner(s.Resgid(), "group"), s.Resgid()})
}

func owner(id uint32, kind string) string {
	if id == 0 {
		return fmt.Sprintf("0 (%s root)", kind)
	}
	return fmt.Sprintf("%d (%s unknown)", id, kind)
}

func interval(s uint32) string {
	if s == 0 {
		return "<none>"
	}
	const day, week = 86400, 7 * 86400
	var parts []string
	for _, u := range []struct {
		n    uint32
		name string
	}{{s / week, "week"}, {s % week / day, "day"}} {
		switch u.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+u.name)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", u.n, u.name))
		}
	}
	if rest := s % day; rest != 0 {
		parts = append(parts, fmt.Sprintf("%d:%02d:%02d", rest/3600, rest/60%60, rest%60))
	}
	return strings.Join(parts, ", ")
}

// scaledKB writes a number of KiB with the unit that leaves two digits at
// least, as e2fsprogs does.
func scaledKB(kb uint64) string {
	units := []string{"kB", "MB", "GB", "TB"}
	i := 0
	for kb >= 1<<13 && i < len(units)-1 {
		kb = (kb + 512) >> 10
		i++
	}
	return fmt.Sprintf("%d %s", kb, units[i])
}

func (b *builder) inodes(s *ondisk.SuperBlock) {
	if s.RevLevel < ondisk.RevDynamic {
		return
	}
	b.num("First inode", uint64(s.FirstIno))
	b.num("Inode size", uint64(s.InodeSize))
	b.opt("Required extra isize", uint64(s.MinExtraIsize))
	b.opt("Desired extra isize", uint64(s.WantExtraIsize))
}

var hashNames = []string{"legacy", "half_md4", "tea", "legacy_unsigned", "half_md4_unsigned", "tea_unsigned", "siphash"}

func (b *builder) special(s *ondisk.SuperBlock) {
	if u := ondisk.UUID(s.JournalUUID); u != (ondisk.UUID{}) {
		b.text("Journal UUID", u.String())
	}
	b.opt("Journal inode", uint64(s.JournalInum))
	if s.JournalDev != 0 {
		b.text("Journal device", fmt.Sprintf("0x%04x", s.JournalDev))
	}
	b.opt("First orphan inode", uint64(s.LastOrphan))
	if s.HasCompat(ondisk.CompatDirIndex) || s.DefHashVersion != 0 {
		b.text("Default directory hash", numbered(int(s.DefHashVersion), hashNames...))
	}
	if seed := hashSeed(s); seed != (ondisk.UUID{}) {
		b.text("Directory Hash Seed", seed.String())
	}
	if s.JnlBackupType != ondisk.JnlBackupNone {
		b.text("Journal backup", numbered(int(s.JnlBackupType)-1, "inode blocks"))
	}
	if s.HasIncompat(ondisk.IncompatMMP) {
		b.num("MMP block number", s.MMPBlock)
		b.num("MMP update interval", uint64(s.MMPInterval))
	}
	if s.HasROCompat(ondisk.ROCompatQuota) {
		b.opt("User quota inode", uint64(s.UsrQuotaInum))
		b.opt("Group quota inode", uint64(s.GrpQuotaInum))
		b.opt("Project quota inode", uint64(s.PrjQuotaInum))
	}
}

func hashSeed(s *ondisk.SuperBlock) (u ondisk.UUID) {
	for i, w := range s.HashSeed {
		for j := range 4 {
			u[4*i+j] = byte(w >> (8 * j))
		}
	}
	return u
}

func (b *builder) checksums(s *ondisk.SuperBlock) {
	if s.HasROCompat(ondisk.ROCompatMetadataCsum) {
		b.text("Checksum type", numbered(int(s.ChecksumType)-1, "crc32c"))
		b.hex("Checksum", s.Checksum)
	}
	if s.HasIncompat(ondisk.IncompatCsumSeed) {
		b.hex("Checksum seed", s.ChecksumSeed)
	}
	if s.HasCompat(ondisk.CompatOrphanFile) {
		b.num("Orphan file inode", uint64(s.OrphanFileInum))
	}
}

func (b *builder) errors(s *ondisk.SuperBlock) {
	if s.ErrorCount == 0 {
		return
	}
	b.num("FS Error count", uint64(s.ErrorCount))
	for _, e := range []struct {
		name      string
		lo        uint32
		hi        uint8
		fn        []byte
		line, ino uint32
		block     uint64
	}{
		{"First", s.FirstErrorTimeLo, s.FirstErrorTimeHi, s.FirstErrorFunc[:], s.FirstErrorLine, s.FirstErrorIno, s.FirstErrorBlock},
		{"Last", s.LastErrorTimeLo, s.LastErrorTimeHi, s.LastErrorFunc[:], s.LastErrorLine, s.LastErrorIno, s.LastErrorBlock},
	} {
		if e.lo == 0 && e.hi == 0 {
			continue
		}
		b.when(e.name+" error time", time.Unix(int64(e.hi)<<32|int64(e.lo), 0))
		b.text(e.name+" error function", printable(cString(e.fn)))
		b.num(e.name+" error line #", uint64(e.line))
		b.opt(e.name+" error inode #", uint64(e.ino))
		b.opt(e.name+" error block #", e.block)
	}
}

func (b *builder) journal(i *Info) {
	j := i.Journal
	if j == nil {
		return
	}
	b.list("Journal features", journalFeatures(uint32(j.Compat), uint32(j.Incompat)), "(none)")
	kb := uint64(j.MaxLen) * uint64(i.Super.BlockSize()) / 1024
	size := fmt.Sprintf("%dk", kb)
	if kb >= 8192 {
		size = fmt.Sprintf("%dM", (kb+512)/1024)
	}
	b.lines = append(b.lines, Line{"Total journal size", size, kb * 1024})
	b.num("Total journal blocks", uint64(j.MaxLen))
	fc := uint64(j.NumFcBlks)
	if fc == 0 && uint32(j.Incompat)&journalFastCommit != 0 {
		fc = 256 // jbd2's default
	}
	b.num("Max transaction length", uint64(j.MaxLen)-min(fc, uint64(j.MaxLen)))
	b.num("Fast commit length", fc)
	b.hex("Journal sequence", uint32(j.Sequence))
	b.num("Journal start", uint64(j.Start))
	if j.Errno != 0 {
		b.lines = append(b.lines, Line{"Journal errno", strconv.Itoa(int(j.Errno)), j.Errno})
	}
}

// Bits of the journal's incompat features, by jbd2's names.
var journalNames = map[uint32]string{
	1: "journal_incompat_revoke", 2: "journal_64bit", 4: "journal_async_commit",
	8: "journal_checksum_v2", 16: "journal_checksum_v3", journalFastCommit: "fast_commit",
}

const journalFastCommit = 32

func journalFeatures(compat, incompat uint32) []string {
	return append(flagNames(compat, map[uint32]string{1: "journal_checksum"}), flagNames(incompat, journalNames)...)
}
