package mkfs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"extfused/fs/ondisk"
)

// features of the types: mke2fs.conf's base_features, and what ext3 and ext4
// add to them.
var (
	baseFeatures = ondisk.Features{
		Compat:   ondisk.CompatExtAttr | ondisk.CompatResizeInode | ondisk.CompatDirIndex,
		Incompat: ondisk.IncompatFiletype,
		ROCompat: ondisk.ROCompatSparseSuper | ondisk.ROCompatLargeFile,
	}
	ext3Features = ondisk.Features{Compat: ondisk.CompatHasJournal}
	ext4Features = ondisk.Features{
		Compat:   ondisk.CompatHasJournal,
		Incompat: ondisk.IncompatExtents | ondisk.Incompat64Bit | ondisk.IncompatFlexBG,
		ROCompat: ondisk.ROCompatHugeFile | ondisk.ROCompatDirNlink | ondisk.ROCompatExtraIsize | ondisk.ROCompatMetadataCsum,
	}
)

func union(a, b ondisk.Features) ondisk.Features {
	return ondisk.Features{Compat: a.Compat | b.Compat, Incompat: a.Incompat | b.Incompat, ROCompat: a.ROCompat | b.ROCompat}
}

func without(a, b ondisk.Features) ondisk.Features {
	return ondisk.Features{Compat: a.Compat &^ b.Compat, Incompat: a.Incompat &^ b.Incompat, ROCompat: a.ROCompat &^ b.ROCompat}
}

// DefaultFeatures are those of mkfs.ext4 1.47.
var DefaultFeatures = union(baseFeatures, ext4Features)

// SetType takes the features of a type: ext2, ext3 or ext4.
func (p *Params) SetType(t string) error {
	switch t {
	case "ext2":
		p.Features = baseFeatures
	case "ext3":
		p.Features = union(baseFeatures, ext3Features)
	case "ext4":
		p.Features = DefaultFeatures
	default:
		return fmt.Errorf("type %q: know ext2, ext3 and ext4", t)
	}
	return nil
}

// EditFeatures changes the features as mke2fs -O does: a list with commas or
// spaces, where ^name clears a feature and none clears all.
func (p *Params) EditFeatures(list string) error {
	for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		if name == "none" {
			p.Features = ondisk.Features{}
			continue
		}
		plain, off := strings.CutPrefix(name, "^")
		if !off {
			plain, off = strings.CutPrefix(name, "-")
		}
		f, ok := ondisk.FeatureByName(strings.TrimPrefix(plain, "+"))
		switch {
		case !ok:
			return fmt.Errorf("there is no feature %q", plain)
		case off:
			p.Features = without(p.Features, f)
		default:
			p.Features = union(p.Features, f)
		}
	}
	return nil
}

// extended are the options of EditExtended. value is "" where none was given.
var extended = map[string]func(p *Params, value string) error{
	"stride":                   uint32Option(func(p *Params, n uint32) { p.Stride = n }),
	"stripe_width":             uint32Option(func(p *Params, n uint32) { p.StripeWidth = n }),
	"stripe-width":             uint32Option(func(p *Params, n uint32) { p.StripeWidth = n }),
	"mmp_update_interval":      uint32Option(func(p *Params, n uint32) { p.MMPInterval = n }),
	"desc_size":                uint32Option(func(p *Params, n uint32) { p.DescSize = int(n) }),
	"desc-size":                uint32Option(func(p *Params, n uint32) { p.DescSize = int(n) }),
	"packed_meta_blocks":       boolOption(func(p *Params, on bool) { p.PackedMeta = on }),
	"lazy_itable_init":         boolOption(func(p *Params, on bool) { p.ZeroTables = !on }),
	"lazy_journal_init":        boolOption(func(p *Params, on bool) { p.LazyJournal = on }),
	"assume_storage_prezeroed": boolOption(func(p *Params, on bool) { p.Zeroed = p.Zeroed || on }),
	"discard":                  flagOption(func(p *Params) { p.NoDiscard = false }),
	"nodiscard":                flagOption(func(p *Params) { p.NoDiscard = true }),
	"no_copy_xattrs":           flagOption(func(p *Params) { p.NoCopyXattrs = true }),
	"test_fs":                  flagOption(func(p *Params) { p.TestFS = true }),
	"num_backup_sb":            setBackups,
	"root_owner":               setRootOwner,
	"hash_seed":                setHashSeed,
	"resize":                   setResize,
	"orphan_file_size":         setOrphanSize,
	"quotatype":                setQuotaTypes,
	"encoding":                 setEncoding,
	"encoding_flags":           setEncodingFlags,
}

// EditExtended takes extended options as mke2fs -E does: name or name=value,
// with commas between. Sizes in blocks count blocks of p.BlockSize, which must
// be set before if it is to be.
func (p *Params) EditExtended(list string) error {
	for _, item := range strings.Split(list, ",") {
		if item == "" {
			continue
		}
		name, value, _ := strings.Cut(item, "=")
		set, ok := extended[name]
		if !ok {
			return fmt.Errorf("there is no extended option %q", name)
		}
		if err := set(p, value); err != nil {
			return fmt.Errorf("%s: %w", item, err)
		}
	}
	return nil
}

// ExtendedOptions lists the names that EditExtended knows.
func ExtendedOptions() []string {
	var names []string
	for n := range extended {
		if !strings.Contains(n, "-") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

var errNumber = errors.New("want a number")

func uint32Option(set func(*Params, uint32)) func(*Params, string) error {
	return func(p *Params, value string) error {
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil {
			return errNumber
		}
		set(p, uint32(n))
		return nil
	}
}

// boolOption is an option that 0 turns off; without a value it is on.
func boolOption(set func(*Params, bool)) func(*Params, string) error {
	return func(p *Params, value string) error {
		switch value {
		case "", "1":
			set(p, true)
		case "0":
			set(p, false)
		default:
			return errors.New("want 0 or 1")
		}
		return nil
	}
}

func flagOption(set func(*Params)) func(*Params, string) error {
	return func(p *Params, value string) error {
		if value != "" {
			return errors.New("takes no value")
		}
		set(p)
		return nil
	}
}

func setBackups(p *Params, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 2 {
		return errors.New("want 0, 1 or 2")
	}
	p.Backups = &n
	return nil
}

func setRootOwner(p *Params, value string) error {
	uid, gid, ok := strings.Cut(value, ":")
	u, err1 := strconv.ParseUint(uid, 0, 32)
	g, err2 := strconv.ParseUint(gid, 0, 32)
	if !ok || err1 != nil || err2 != nil {
		return errors.New("want UID:GID")
	}
	p.RootUID, p.RootGID = uint32(u), uint32(g)
	return nil
}

func setHashSeed(p *Params, value string) (err error) {
	p.HashSeed, err = ondisk.ParseUUID(value)
	return err
}

// ParseBytes reads a size: a number of bytes, or one with K, M, G or T.
func ParseBytes(text string) (int64, error) {
	digits := strings.TrimRight(strings.ToUpper(text), "KMGT")
	shift := 0
	if suffix := strings.ToUpper(text)[len(digits):]; suffix != "" {
		if len(suffix) > 1 {
			return 0, fmt.Errorf("%q is no size", text)
		}
		shift = 10 * (1 + strings.Index("KMGT", suffix))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is no size", text)
	}
	return n << shift, nil
}

// setResize takes the greatest size that online resizing shall reach: blocks,
// or bytes with a letter.
func setResize(p *Params, value string) error {
	n, err := ParseBytes(value)
	if err != nil {
		return err
	}
	p.ResizeTo = SizeOrBlocks{N: uint64(n), Bytes: !isDigits(value)}
	return nil
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// setOrphanSize takes the size of the orphan file: blocks, or bytes with a
// letter.
func setOrphanSize(p *Params, value string) error {
	n, err := ParseBytes(value)
	if err != nil || n == 0 {
		return errors.New("want a size")
	}
	p.OrphanSize = SizeOrBlocks{N: uint64(n), Bytes: !isDigits(value)}
	return nil
}

func setQuotaTypes(p *Params, value string) error {
	p.Quotas = nil
	for _, name := range strings.Split(value, ":") {
		k := slices.Index([]string{"usrquota", "grpquota", "prjquota"}, name)
		if k < 0 {
			return errors.New("want usrquota, grpquota, prjquota with : between")
		}
		p.Quotas = append(p.Quotas, QuotaType(k))
	}
	return nil
}

func setEncoding(p *Params, value string) error {
	if value != "utf8" && value != "utf8-12.1" {
		return errors.New("the only encoding is utf8-12.1")
	}
	p.Features.Incompat |= ondisk.IncompatCasefold
	return nil
}

func setEncodingFlags(p *Params, value string) error {
	switch value {
	case "strict":
		p.StrictEncoding = true
	case "no-strict", "nostrict":
		p.StrictEncoding = false
	default:
		return errors.New("want strict or no-strict")
	}
	p.Features.Incompat |= ondisk.IncompatCasefold
	return nil
}

// SetRevision0 asks for the format before revisions: no features, and inodes
// of 128 bytes.
func (p *Params) SetRevision0() {
	p.Revision0, p.Features, p.InodeSize = true, ondisk.Features{}, ondisk.GoodOldInodeSize
}
