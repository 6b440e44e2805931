package ondisk

import (
	"fmt"
	"math/bits"
	"strings"
)

// CompatFeatures is s_feature_compat: a kernel that does not know a bit may
// still read and write the file system.
type CompatFeatures uint32

// IncompatFeatures is s_feature_incompat: who does not know a bit must not
// mount at all.
type IncompatFeatures uint32

// ROCompatFeatures is s_feature_ro_compat: who does not know a bit may mount
// read-only.
type ROCompatFeatures uint32

// Bits of s_feature_compat.
const (
	CompatDirPrealloc   CompatFeatures = 1 << 0
	CompatImagicInodes  CompatFeatures = 1 << 1
	CompatHasJournal    CompatFeatures = 1 << 2
	CompatExtAttr       CompatFeatures = 1 << 3
	CompatResizeInode   CompatFeatures = 1 << 4
	CompatDirIndex      CompatFeatures = 1 << 5
	CompatLazyBG        CompatFeatures = 1 << 6
	CompatExcludeInode  CompatFeatures = 1 << 7
	CompatExcludeBitmap CompatFeatures = 1 << 8
	CompatSparseSuper2  CompatFeatures = 1 << 9
	CompatFastCommit    CompatFeatures = 1 << 10
	CompatStableInodes  CompatFeatures = 1 << 11
	CompatOrphanFile    CompatFeatures = 1 << 12
)

// Bits of s_feature_incompat.
const (
	IncompatCompression IncompatFeatures = 1 << 0
	IncompatFiletype    IncompatFeatures = 1 << 1
	IncompatRecover     IncompatFeatures = 1 << 2 // the journal holds something to replay
	IncompatJournalDev  IncompatFeatures = 1 << 3 // this is an external journal, not a file system
	IncompatMetaBG      IncompatFeatures = 1 << 4
	IncompatExtents     IncompatFeatures = 1 << 6
	Incompat64Bit       IncompatFeatures = 1 << 7
	IncompatMMP         IncompatFeatures = 1 << 8
	IncompatFlexBG      IncompatFeatures = 1 << 9
	IncompatEAInode     IncompatFeatures = 1 << 10
	IncompatDirData     IncompatFeatures = 1 << 12
	IncompatCsumSeed    IncompatFeatures = 1 << 13
	IncompatLargeDir    IncompatFeatures = 1 << 14
	IncompatInlineData  IncompatFeatures = 1 << 15
	IncompatEncrypt     IncompatFeatures = 1 << 16
	IncompatCasefold    IncompatFeatures = 1 << 17
)

// Bits of s_feature_ro_compat.
const (
	ROCompatSparseSuper   ROCompatFeatures = 1 << 0
	ROCompatLargeFile     ROCompatFeatures = 1 << 1
	ROCompatBtreeDir      ROCompatFeatures = 1 << 2
	ROCompatHugeFile      ROCompatFeatures = 1 << 3
	ROCompatGDTCsum       ROCompatFeatures = 1 << 4 // uninit_bg
	ROCompatDirNlink      ROCompatFeatures = 1 << 5
	ROCompatExtraIsize    ROCompatFeatures = 1 << 6
	ROCompatHasSnapshot   ROCompatFeatures = 1 << 7
	ROCompatQuota         ROCompatFeatures = 1 << 8
	ROCompatBigalloc      ROCompatFeatures = 1 << 9
	ROCompatMetadataCsum  ROCompatFeatures = 1 << 10
	ROCompatReplica       ROCompatFeatures = 1 << 11
	ROCompatReadonly      ROCompatFeatures = 1 << 12
	ROCompatProject       ROCompatFeatures = 1 << 13
	ROCompatSharedBlocks  ROCompatFeatures = 1 << 14
	ROCompatVerity        ROCompatFeatures = 1 << 15
	ROCompatOrphanPresent ROCompatFeatures = 1 << 16
)

// Names as mke2fs -O takes them and dumpe2fs prints them, by bit number.
var (
	compatNames = [32]string{
		0: "dir_prealloc", 1: "imagic_inodes", 2: "has_journal", 3: "ext_attr", 4: "resize_inode",
		5: "dir_index", 6: "lazy_bg", 8: "snapshot_bitmap", 9: "sparse_super2", 10: "fast_commit",
		11: "stable_inodes", 12: "orphan_file",
	}
	incompatNames = [32]string{
		0: "compression", 1: "filetype", 2: "needs_recovery", 3: "journal_dev", 4: "meta_bg",
		6: "extent", 7: "64bit", 8: "mmp", 9: "flex_bg", 10: "ea_inode", 12: "dirdata",
		13: "metadata_csum_seed", 14: "large_dir", 15: "inline_data", 16: "encrypt", 17: "casefold",
	}
	roCompatNames = [32]string{
		0: "sparse_super", 1: "large_file", 3: "huge_file", 4: "uninit_bg", 5: "dir_nlink",
		6: "extra_isize", 8: "quota", 9: "bigalloc", 10: "metadata_csum",
		11: "replica", 12: "read-only", 13: "project", 14: "shared_blocks", 15: "verity",
		16: "orphan_present",
	}
)

// Names lists the names of the set bits, lowest bit first; a bit without a
// name is told as FEATURE_C<bit>.
func (f CompatFeatures) Names() []string { return bitNames(uint32(f), &compatNames, 'C') }

// Names lists the names of the set bits, lowest bit first; a bit without a
// name is told as FEATURE_I<bit>.
func (f IncompatFeatures) Names() []string { return bitNames(uint32(f), &incompatNames, 'I') }

// Names lists the names of the set bits, lowest bit first; a bit without a
// name is told as FEATURE_R<bit>.
func (f ROCompatFeatures) Names() []string { return bitNames(uint32(f), &roCompatNames, 'R') }

func (f CompatFeatures) String() string   { return strings.Join(f.Names(), " ") }
func (f IncompatFeatures) String() string { return strings.Join(f.Names(), " ") }
func (f ROCompatFeatures) String() string { return strings.Join(f.Names(), " ") }

func bitNames(v uint32, names *[32]string, kind byte) []string {
	var out []string
	for ; v != 0; v &= v - 1 {
		bit := bits.TrailingZeros32(v)
		name := names[bit]
		if name == "" {
			name = fmt.Sprintf("FEATURE_%c%d", kind, bit)
		}
		out = append(out, name)
	}
	return out
}

// Features is the whole feature set of a file system.
type Features struct {
	Compat   CompatFeatures
	Incompat IncompatFeatures
	ROCompat ROCompatFeatures
}

// Names lists all features in dumpe2fs's order: compat, incompat, ro_compat.
func (f Features) Names() []string {
	return append(append(f.Compat.Names(), f.Incompat.Names()...), f.ROCompat.Names()...)
}

func (f Features) String() string { return strings.Join(f.Names(), " ") }

// FeatureByName finds the bit of a feature as mke2fs -O spells it, among them
// the other spellings it takes (extents, uninit_groups, FEATURE_I17).
func FeatureByName(name string) (f Features, ok bool) {
	switch name {
	case "extents":
		name = "extent"
	case "uninit_groups", "gdt_csum":
		name = "uninit_bg"
	}
	for bit := range 32 {
		switch {
		case nameIs(compatNames[bit], name, 'C', bit):
			return Features{Compat: 1 << bit}, true
		case nameIs(incompatNames[bit], name, 'I', bit):
			return Features{Incompat: 1 << bit}, true
		case nameIs(roCompatNames[bit], name, 'R', bit):
			return Features{ROCompat: 1 << bit}, true
		}
	}
	return Features{}, false
}

func nameIs(known, name string, kind byte, bit int) bool {
	return (known != "" && known == name) || name == fmt.Sprintf("FEATURE_%c%d", kind, bit)
}

// Allow-lists of the features that this implementation understands. They are
// data for fs/ext4's mount: a bit outside of them refuses the mount, or allows
// it read-only, by name.
const (
	// IncompatRead are the incompat bits with which an image can be read.
	IncompatRead = IncompatFiletype | IncompatRecover | IncompatMetaBG | IncompatExtents |
		Incompat64Bit | IncompatFlexBG | IncompatCsumSeed | IncompatLargeDir |
		IncompatMMP | IncompatEAInode | IncompatInlineData
	// IncompatWrite are those with which it can be changed.
	IncompatWrite = IncompatRead
	// ROCompatWrite are the ro_compat bits with which it can be changed. Any
	// other bit allows reading.
	ROCompatWrite = ROCompatSparseSuper | ROCompatLargeFile | ROCompatHugeFile | ROCompatGDTCsum |
		ROCompatDirNlink | ROCompatExtraIsize | ROCompatMetadataCsum | ROCompatBigalloc |
		ROCompatQuota | ROCompatProject
	// CompatKnown are the compat bits whose meaning is respected. An unknown
	// one stops nothing: that is what compat means.
	CompatKnown = CompatDirPrealloc | CompatHasJournal | CompatExtAttr | CompatResizeInode |
		CompatDirIndex | CompatSparseSuper2
)

// Unsupported tells which features stand in the way of a mount: refuse those
// of the incompat set altogether; readOnly those that allow reading only.
func (f Features) Unsupported() (refuse, readOnly []string) {
	refuse = (f.Incompat &^ IncompatRead).Names()
	readOnly = append((f.Incompat & IncompatRead &^ IncompatWrite).Names(), (f.ROCompat &^ ROCompatWrite).Names()...)
	return refuse, readOnly
}
