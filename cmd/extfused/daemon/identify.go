package daemon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"extfused/fs/ondisk"
)

// signature is a magic number: bytes at an offset.
type signature struct {
	off   int64
	magic string
	what  string
}

// signatures of what people try to mount by mistake. The numbers are those of
// libmagic's and util-linux's tables.
var signatures = []signature{
	{0, "XFSB", "an XFS file system"},
	{0x10040, "_BHRfS_M", "a btrfs file system"},
	{0x8001, "CD001", "an ISO 9660 image"},
	{0, "hsqs", "a squashfs file system"},
	{1024, "\xe2\xe1\xf5\xe0", "an EROFS file system"},
	{1024, "\x10\x20\xf5\xf2", "an F2FS file system"},
	{3, "NTFS    ", "an NTFS file system"},
	{82, "FAT32   ", "a FAT file system"},
	{54, "FAT1", "a FAT file system"},
	{0, "LUKS\xba\xbe", "LUKS encryption: open it with cryptsetup, and mount the device under /dev/mapper"},
	{512, "LABELONE", "an LVM physical volume: activate it with vgchange, and mount the logical volume"},
	{0, "QFI\xfb", "a qcow2 image: convert it with qemu-img convert -O raw"},
	{0, "\x1f\x8b", "gzip-compressed data: decompress it first"},
	{0, "\x28\xb5\x2f\xfd", "zstd-compressed data: decompress it first"},
	{0, "\xfd7zXZ", "xz-compressed data: decompress it first"},
	{4086, "SWAPSPACE2", "swap space"},
}

// identify says what an image without an ext4 superblock holds, in words that
// follow "but", or "".
func identify(dev io.ReaderAt) string {
	if p := identifyPartitions(dev); p != "" {
		return p
	}
	for _, s := range signatures {
		b := make([]byte, len(s.magic))
		if n, _ := dev.ReadAt(b, s.off); n == len(b) && string(b) == s.magic {
			return s.what
		}
	}
	return ""
}

const sector = 512

// identifyPartitions recognises a partition table, and names the offset of the
// first partition that has an ext4 superblock.
func identifyPartitions(dev io.ReaderAt) string {
	mbr := make([]byte, sector)
	if n, _ := dev.ReadAt(mbr, 0); n < sector || mbr[510] != 0x55 || mbr[511] != 0xaa {
		return ""
	}
	kind, starts := "MBR", mbrStarts(mbr)
	if gpt := gptStarts(dev); gpt != nil {
		kind, starts = "GPT", gpt
	}
	if len(starts) == 0 {
		return ""
	}
	for i, start := range starts {
		if hasSuperBlock(dev, start) {
			return fmt.Sprintf("a partition table (%s): mount partition %d of it with -o offset=%d", kind, i+1, start)
		}
	}
	return fmt.Sprintf("a partition table (%s), and no ext4 in its partitions", kind)
}

// mbrStarts gives the byte offsets of the partitions of an MBR, whose entries
// have their type at 4 and their first sector at 8. A boot sector that is none
// has nonsense there, above all in the status byte at 0.
func mbrStarts(mbr []byte) (starts []int64) {
	for i := range 4 {
		e := mbr[446+16*i:][:16]
		if e[0]&0x7f != 0 {
			return nil
		}
		if e[4] != 0 {
			starts = append(starts, int64(binary.LittleEndian.Uint32(e[8:]))*sector)
		}
	}
	return starts
}

// gptStarts gives the byte offsets of the partitions of a GPT with the header
// in sector 1, or nil. The header has the table's sector at 72, the number of
// entries at 80 and their size at 84; an entry its first sector at 32.
func gptStarts(dev io.ReaderAt) []int64 {
	h := make([]byte, 92)
	if n, _ := dev.ReadAt(h, sector); n < len(h) || !bytes.HasPrefix(h, []byte("EFI PART")) {
		return nil
	}
	table := int64(binary.LittleEndian.Uint64(h[72:])) * sector
	count := min(binary.LittleEndian.Uint32(h[80:]), 128)
	size := binary.LittleEndian.Uint32(h[84:])
	if size < 128 || size > 4096 || table <= 0 {
		return []int64{}
	}
	starts := []int64{}
	e := make([]byte, size)
	for i := range count {
		if n, _ := dev.ReadAt(e, table+int64(i)*int64(size)); n < len(e) {
			break
		}
		if !bytes.Equal(e[:16], make([]byte, 16)) {
			starts = append(starts, int64(binary.LittleEndian.Uint64(e[32:]))*sector)
		}
	}
	return starts
}

// hasSuperBlock tells whether an ext4 superblock's magic number is where it
// belongs in a partition that starts at off.
func hasSuperBlock(dev io.ReaderAt, off int64) bool {
	if off < 0 {
		return false
	}
	var b [2]byte
	n, _ := dev.ReadAt(b[:], off+ondisk.SuperBlockOffset+0x38) // s_magic
	return n == 2 && binary.LittleEndian.Uint16(b[:]) == 0xEF53
}
