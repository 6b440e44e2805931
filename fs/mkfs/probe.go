package mkfs

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// Found is what a device holds already.
type Found struct {
	Kind  string      // "an ext4 file system", "a GPT partition table", ...
	Label string      // of a file system of the ext family
	UUID  ondisk.UUID // likewise; zero if it has none
}

// String tells it in words: an ext4 file system labelled "x".
func (f *Found) String() string {
	if f.Label != "" {
		return f.Kind + " labelled \"" + f.Label + "\""
	}
	return f.Kind
}

// signature is a mark that a format keeps at a fixed place.
type signature struct {
	kind  string
	off   int64
	magic string
}

// signatures go from the more to the less telling. Facts from blkid(8) and
// file(1).
var signatures = []signature{
	{"an XFS file system", 0, "XFSB"},
	{"a Btrfs file system", 0x10040, "_BHRfS_M"},
	{"a LUKS encrypted volume", 0, "LUKS\xba\xbe"},
	{"an LVM2 physical volume", 0x200 + 0x18, "LVM2 001"},
	{"a ZFS member", 0x20000, "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
	{"an NTFS file system", 3, "NTFS    "},
	{"an exFAT file system", 3, "EXFAT   "},
	{"a FAT file system", 0x36, "FAT1"},
	{"a FAT file system", 0x52, "FAT32   "},
	{"a GPT partition table", 512, "EFI PART"},
	{"a GPT partition table", 4096, "EFI PART"},
	{"a swap area", 4086, "SWAPSPACE2"},
	{"a swap area", 65526, "SWAPSPACE2"},
	{"an F2FS file system", 0x400, "\x10\x20\xf5\xf2"},
	{"an EROFS file system", 0x400, "\xe2\xe1\xf5\xe0"},
	{"a SquashFS file system", 0, "hsqs"},
	{"an ISO 9660 file system", 0x8001, "CD001"},
	{"a Linux RAID member", 0x1000, "\xfc\x4e\x2b\xa9"},
	{"a Linux RAID member", 0, "\xfc\x4e\x2b\xa9"},
}

// probeSize covers every signature.
const probeSize = 0x21000

// Probe tells whether dev holds a file system, a partition table or something
// else that formatting would destroy; nil if it knows of none. What it does
// not know it does not see. It only reads.
func Probe(dev blockdev.Device) (*Found, error) {
	b := make([]byte, min(probeSize, dev.Size()))
	if n, err := dev.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, err
	}
	if f := probeExt(b); f != nil {
		return f, nil
	}
	for _, s := range signatures {
		if end := s.off + int64(len(s.magic)); end <= int64(len(b)) && string(b[s.off:end]) == s.magic {
			return &Found{Kind: s.kind}, nil
		}
	}
	if len(b) >= 512 && isMBR(b[:512]) {
		return &Found{Kind: "a partition table"}, nil
	}
	return nil, nil
}

func probeExt(b []byte) *Found {
	if len(b) < ondisk.SuperBlockOffset+ondisk.SuperBlockSize {
		return nil
	}
	var s ondisk.SuperBlock
	if s.Decode(b[ondisk.SuperBlockOffset:]) != nil {
		return nil
	}
	kind := "an ext2 file system"
	switch {
	case s.HasIncompat(ondisk.IncompatJournalDev):
		kind = "an ext4 journal"
	case s.HasIncompat(ondisk.IncompatExtents) || s.HasROCompat(ondisk.ROCompatHugeFile) || s.HasROCompat(ondisk.ROCompatMetadataCsum):
		kind = "an ext4 file system"
	case s.HasCompat(ondisk.CompatHasJournal):
		kind = "an ext3 file system"
	}
	return &Found{Kind: kind, Label: printable(s.Label()), UUID: s.UUID}
}

// printable keeps a label from the image off the terminal's control codes.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// isMBR tells whether a boot sector has partition entries that make sense: a
// boot sector without any has the same signature.
func isMBR(b []byte) bool {
	if b[510] != 0x55 || b[511] != 0xaa {
		return false
	}
	used := 0
	for p := b[446:510]; len(p) > 0; p = p[16:] {
		if p[0] != 0 && p[0] != 0x80 {
			return false
		}
		if p[4] != 0 && binary.LittleEndian.Uint32(p[12:]) != 0 {
			used++
		}
	}
	return used > 0
}
