package info

import (
	"fmt"
	"io"
	"strings"

	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

// Feature is what extfused does with a feature of ext4: one row of the table
// in docs/ONDISK.md and of `extfused info --features`.
type Feature struct {
	Name  string `json:"feature"`
	Set   string `json:"set"`       // compat, incompat or ro_compat
	Read  string `json:"read"`      // yes or no, and what there is to know
	Write string `json:"write"`     // likewise
	Mkfs  string `json:"mkfs"`      // default, option or no
	Tests string `json:"tested_by"` // package: Test, ...
}

// note is what the table says besides yes and no, and the tests.
type note struct{ read, write, tests string }

const (
	byMkfs   = "fs/mkfs: TestSameAsMke2fs"
	byMatrix = "fs/ext4/matrix: TestMatrix"
)

// notes are the features by name. What is read and written follows from the
// lists in fs/ondisk, and what mkfs makes from those in fs/mkfs.
var notes = map[string]note{
	"dir_prealloc":    {"it means nothing", "it means nothing", ""},
	"imagic_inodes":   {"it means nothing here", "it means nothing here", ""},
	"has_journal":     {"replayed before anything is read", "", "journal: TestCommitCrashReplay, TestModelCrash; fs/ext4: TestRecoverKernelImage, TestCrash"},
	"ext_attr":        {"see Extended attributes", "the first attribute block sets it", "fs/xattr: TestReadWhatTheKernelWrote, TestKernelReadsWhatWeWrote; " + byMatrix},
	"resize_inode":    {"inode 7 is left alone", "kept as it is; no resizing", byMkfs + "; " + byMatrix},
	"dir_index":       {"and without", "growing and splitting as the kernel does", "fs/htree: TestTravel, TestHtreeDump, TestModel; " + byMatrix},
	"lazy_bg":         {"it means nothing", "it means nothing", ""},
	"snapshot_bitmap": {"it means nothing", "it means nothing", ""},
	"sparse_super2":   {"", "backups are not rewritten", "fs/ondisk: TestHasSuper; fs/ext4: TestFeatureRows, TestBackupSuperblock; " + byMatrix},
	"fast_commit":     {"replayed at mount, all records; the result is one transaction of the log", "no fast commits are written", "fs/ext4: TestFastCommitsAsTheKernel; " + byMatrix},
	"stable_inodes":   {"ignored, as the kernel does", "ignored", "fs/ext4: TestFeatureRows"},
	"orphan_file":     {"worked off at mount", "orphans go there, and where it is full on the list from s_last_orphan", "fs/ext4: TestOrphanFile, TestOrphanFileFull, TestOrphanFileDamage, TestRecoverKernelImage; " + byMatrix},

	"compression":        {"", "", "fs/ext4: TestMountRefuses"},
	"filetype":           {"and without", "and without", "fs/htree: TestTravel; " + byMatrix},
	"needs_recovery":     {"read-only mounts replay in memory and leave the image as it is", "set while mounted, cleared by unmount", "fs/ext4: TestReadOnlyLeavesImage, TestCrash"},
	"journal_dev":        {"it is a journal, not a file system; given with journal_path= to the file system that it belongs to", "", "journal: TestExternalLog; fs/ext4: TestExternalJournal"},
	"meta_bg":            {"", "", "fs/ext4: TestMountUnmount; " + byMkfs + "; " + byMatrix},
	"extent":             {"any depth; and without: the block maps of ext2 and ext3", "and without", "fs/extent: TestModel, TestDeepRandomOrder; fs/ext4: TestTwin; " + byMatrix},
	"64bit":              {"and without", "and without", byMkfs + "; fs/ext4: TestRecoverKernelImage; " + byMatrix},
	"mmp":                {"a read-only mount neither looks nor writes, as with the kernel", "kept alive; a file system that another host, or e2fsck, has is refused (exit 6)", "fs/ext4: TestMMP, TestMMPLeftBehind, TestMMPAgainstKernel; " + byMatrix},
	"flex_bg":            {"and without", "and without", "fs/ext4: TestInodesComeAndGo; " + byMatrix},
	"ea_inode":           {"the checksum of the value is verified", "values up to 64 KiB, reference counts kept; equal values are not looked for and shared", "fs/ext4: TestEAInodes, TestEAInodesOfTheKernel; fs/xattr: TestKernelEAInode; " + byMatrix},
	"dirdata":            {"", "", "fs/ext4: TestUnknownBits"},
	"metadata_csum_seed": {"", "", "fs/ext4: TestRecoverKernelImage; " + byMatrix},
	"large_dir":          {"three index levels", "", "fs/ext4: TestLargeDir; fs/htree: TestTravel, TestIndexGrowth; " + byMatrix},
	"inline_data":        {"files, directories, symlinks", "files and directories, and every way in and out; long symlinks get a block", "fs/ext4: TestInlineTwin, TestInlineFiles, TestInlineDirs, TestInlineOfTheKernel; " + byMatrix},
	"encrypt":            {"without keys: names in the no-key form, content is ENOKEY", "removal and attributes; new names are ENOKEY", "fs/ext4: TestEncrypted"},
	"casefold":           {"", "", "fs/ext4: TestMountRefuses"},

	"sparse_super":   {"and without", "and without", "fs/ext4: TestStatfsAgrees; " + byMkfs + "; " + byMatrix},
	"large_file":     {"", "the first file past 2 GiB sets it", "fs/ext4: TestLargeFileFeature, TestTwin"},
	"FEATURE_R2":     {"btree_dir, which nobody made", "", "fs/ext4: TestUnknownBits"},
	"huge_file":      {"", "i_blocks in blocks where sectors do not fit", "fs/ondisk: TestSectors; " + byMatrix},
	"uninit_bg":      {"also called gdt_csum", "", "fs/ext4: TestMountUnmount, TestInodesComeAndGo; " + byMatrix},
	"dir_nlink":      {"", "", byMatrix},
	"extra_isize":    {"and inodes of 128 bytes", "nanoseconds, years to 2446, creation time", "fs/ondisk: TestTimeEpochs; fs/ext4: TestTwin; " + byMatrix},
	"FEATURE_R7":     {"has_snapshot, of kernels that never were", "", "fs/ext4: TestUnknownBits"},
	"quota":          {"", "usage is kept in the transaction of each change; limits count with usrquota and grpquota, for chown and chgrp, too", "fs/ext4: TestQuotaUsage, TestQuotaTwin, TestQuotaLimits, TestQuotaMoves, TestQuotaMovesUnlinked; " + byMatrix},
	"bigalloc":       {"any cluster size", "any cluster size; fast commits of such an image are left to others", "fs/ext4: TestBigallocTwin, TestBigallocClusterLife, TestBigallocOfTheKernel; " + byMatrix},
	"metadata_csum":  {"verified at every read from the device", "", "fs/ondisk: TestGoldenChecksums; fs/htree: TestTravel; " + byMatrix},
	"replica":        {"", "", "fs/ext4: TestUnknownBits"},
	"read-only":      {"", "that is what it says", "fs/ext4: TestUnknownBits"},
	"project":        {"", "its usage is kept; limits count with prjquota", "fs/ext4: TestQuotaUsage, TestQuotaTwin, TestQuotaMoves, TestProjectDirectories; " + byMatrix},
	"shared_blocks":  {"", "", "fs/ext4: TestSharedBlocks"},
	"verity":         {"content is read, not verified", "of files without the flag; with it they are sealed (EPERM)", "fs/ext4: TestVerity; " + byMatrix},
	"orphan_present": {"see orphan_file", "set while mounted, cleared by unmount", "fs/ext4: TestOrphanFile, TestRecoverKernelImage"},
}

// FeatureTable lists every feature that has a name, or a meaning, in the order
// of their bits.
func FeatureTable() []Feature {
	var out []Feature
	for bit := range 32 {
		out = append(out, featureRow("compat", ondisk.Features{Compat: 1 << bit}, true, true)...)
	}
	for bit := range 32 {
		f := ondisk.IncompatFeatures(1) << bit
		out = append(out, featureRow("incompat", ondisk.Features{Incompat: f}, f&ondisk.IncompatRead != 0, f&ondisk.IncompatWrite != 0)...)
	}
	for bit := range 32 {
		f := ondisk.ROCompatFeatures(1) << bit
		write := f&(ondisk.ROCompatWrite|ondisk.ROCompatOrphanPresent) != 0
		out = append(out, featureRow("ro_compat", ondisk.Features{ROCompat: f}, true, write)...)
	}
	return out
}

// featureRow is the row of one bit; none if nothing is known of it.
func featureRow(set string, f ondisk.Features, read, write bool) []Feature {
	name := f.String()
	n, known := notes[name]
	if !known && strings.HasPrefix(name, "FEATURE_") {
		return nil
	}
	row := Feature{Name: name, Set: set, Read: yes(read, n.read), Write: yes(write, n.write), Mkfs: madeBy(f), Tests: n.tests}
	if row.Tests == "" {
		row.Tests = "-"
	}
	if row.Mkfs == "option" && !write {
		row.Mkfs = "no" // the command refuses what a mount could not write to
	}
	return []Feature{row}
}

func yes(b bool, note string) string {
	word := "no"
	if b {
		word = "yes"
	}
	if note == "" {
		return word
	}
	return word + ": " + note
}

func madeBy(f ondisk.Features) string {
	in := func(all ondisk.Features) bool {
		return f.Compat&all.Compat|ondisk.CompatFeatures(f.Incompat&all.Incompat)|ondisk.CompatFeatures(f.ROCompat&all.ROCompat) != 0
	}
	switch {
	case in(mkfs.DefaultFeatures):
		return "default"
	case in(mkfs.Can):
		return "option"
	}
	return "no"
}

// WriteFeatures prints the table, in Markdown.
func WriteFeatures(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| feature | set | read | write | mkfs | tested by |\n|---|---|---|---|---|---|\n")
	for _, f := range FeatureTable() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", f.Name, f.Set, f.Read, f.Write, f.Mkfs, f.Tests)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
