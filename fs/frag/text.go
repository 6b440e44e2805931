package frag

import (
	"fmt"
	"io"
	"strings"

	"extfused/fs/ondisk"
)

// barWidth is the length of the longest bar of a plot, in characters.
const barWidth = 40

// bar draws n of most; anything but 0 can be seen.
func bar(n, most uint64) string {
	if n == 0 || most == 0 {
		return ""
	}
	return strings.Repeat("#", int(max(n*barWidth/most, 1)))
}

// sizes is the range of a bucket: "1", "2-3", "4-7".
func (b *Bucket) sizes() string {
	lo := uint64(1) << b.Order
	if b.Order == 0 {
		return "1"
	}
	return fmt.Sprintf("%d-%d", lo, 2*lo-1)
}

func percent(n, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(n) / float64(all)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%d blocks of %d bytes, %d free (%.1f%%) in %d runs, the longest of %d\n",
		r.Blocks, r.BlockSize, r.FreeBlocks, percent(r.FreeBlocks, r.Blocks), total(r.Free), r.LongRun)
	fmt.Fprintf(w, "%d of %d groups hold files; %d regular files, %d directories\n", r.GroupsInUse, r.Groups, r.Files, r.Directories)
	fmt.Fprintf(w, "%d inodes used: %d non-contiguous files, %d non-contiguous directories (%.1f%%)\n",
		r.InodesUsed, r.NonContiguousFiles, r.NonContiguousDirs, r.NonContiguousShare)

	fmt.Fprintf(w, "\nfree space: runs of that many blocks\n%21s %10s %12s %6s\n", "length", "runs", "blocks", "share")
	most := uint64(0)
	for k := range r.Free {
		most = max(most, r.Free[k].Blocks)
	}
	for k := range r.Free {
		b := &r.Free[k]
		fmt.Fprintf(w, "%s\n", strings.TrimRight(fmt.Sprintf("%21s %10d %12d %5.1f%% %s",
			b.sizes(), b.Count, b.Blocks, percent(b.Blocks, r.FreeBlocks), bar(b.Blocks, most)), " "))
	}

	_, err := fmt.Fprintf(w, "\nregular files with that many extents (at most %d)\n%21s %10s %12s %6s\n", r.MostExtents, "extents", "files", "", "share")
	most = 0
	for k := range r.Extents {
		most = max(most, r.Extents[k].Count)
	}
	for k := range r.Extents {
		b := &r.Extents[k]
		_, err = fmt.Fprintf(w, "%s\n", strings.TrimRight(fmt.Sprintf("%21s %10d %12s %5.1f%% %s",
			b.sizes(), b.Count, "", percent(b.Count, total(r.Extents)), bar(b.Count, most)), " "))
	}
	return err
}

func total(list []Bucket) (n uint64) {
	for k := range list {
		n += list[k].Count
	}
	return n
}

// WriteText writes the extents as filefrag -v of e2fsprogs does. The column
// "expected" has where an extent would be if it followed the one before.
func (f *File) WriteText(w io.Writer, blockSize uint32) error {
	blocks := (f.Size + uint64(blockSize) - 1) / uint64(blockSize)
	plural := "s"
	if blocks == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "File size of %s is %d (%d block%s of %d bytes)\n", f.Path, f.Size, blocks, plural, blockSize)
	if len(f.Extents) > 0 {
		fmt.Fprintf(w, " ext:     logical_offset:        physical_offset: length:   expected: flags:\n")
	}
	pieces := 0
	for k, e := range f.Extents {
		expected := f.expected(k)
		if k == 0 || expected != "" {
			pieces++
		}
		fmt.Fprintf(w, "%4d: %8d..%8d: %10d..%10d: %6d: %11s %s\n", k, e.Logical, uint64(e.Logical)+uint64(e.Len)-1,
			e.Physical, uint64(e.Physical)+uint64(e.Len)-1, e.Len, expected, f.flags(k, blocks))
	}
	plural = "s"
	if pieces == 1 {
		plural = ""
	}
	_, err := fmt.Fprintf(w, "%s: %d extent%s found\n", f.Path, pieces, plural)
	return err
}

// expected is "" where extent k is in its place: right behind the one before
// it, or behind a gap that is as long as the hole in the file. As in filefrag
// the first one is in its place only at the start of the file.
func (f *File) expected(k int) string {
	if k == 0 {
		if at := f.Extents[0].Logical; at > 0 {
			return fmt.Sprintf("%d:", at)
		}
		return ""
	}
	a, b := &f.Extents[k-1], &f.Extents[k]
	dense := a.Physical + ondisk.FsBlock(a.Len)
	sparse := a.Physical + ondisk.FsBlock(b.Logical-a.Logical)
	if b.Physical == dense || b.Physical == sparse {
		return ""
	}
	return fmt.Sprintf("%d:", sparse)
}

func (f *File) flags(k int, blocks uint64) string {
	var words []string
	e := &f.Extents[k]
	if k == len(f.Extents)-1 {
		words = append(words, "last")
	}
	if e.Unwritten {
		words = append(words, "unwritten")
	}
	if uint64(e.Logical)+uint64(e.Len) >= blocks {
		words = append(words, "eof")
	}
	return strings.Join(words, ",")
}
