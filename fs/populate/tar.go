package populate

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// Tar fills m from a tar archive, plain or compressed by gzip or bzip2. size is
// the length of r in bytes, for the progress; 0: unknown.
func Tar(m *ext4.FS, r io.Reader, size int64, o Options) (Stats, error) {
	f := newFiller(m, o)
	f.total = size
	plain, err := decompress(&countingReader{r, f})
	if err != nil {
		return f.stats, err
	}
	archive := tar.NewReader(plain)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return f.stats, f.end()
		}
		if err != nil {
			return f.stats, fmt.Errorf("tar archive: %w", err)
		}
		e, err := tarEntry(h, archive)
		if err != nil {
			return f.stats, err
		}
		if e == nil {
			continue
		}
		if err := f.add(e); err != nil {
			return f.stats, err
		}
	}
}

// countingReader reports what has been read.
type countingReader struct {
	r io.Reader
	f *filler
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.f.progress(int64(n))
	return n, err
}

func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<18)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(b), nil
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z'}), bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errors.New("the archive is compressed by xz or zstd: decompress it first, as in xz -dc X.tar.xz | extfused mkfs -d -")
	}
	return b, nil
}

// paxXattr precedes the names of attributes in the records of GNU tar, star
// and libarchive.
const paxXattr = "SCHILY.xattr."

var tarTypes = map[byte]uint32{
	tar.TypeReg: ondisk.ModeReg, tar.TypeDir: ondisk.ModeDir, tar.TypeSymlink: ondisk.ModeLnk, tar.TypeChar: ondisk.ModeChr,
	tar.TypeBlock: ondisk.ModeBlk, tar.TypeFifo: ondisk.ModeFIFO, tar.TypeLink: ondisk.ModeReg,
	tar.TypeGNUSparse: ondisk.ModeReg, tar.TypeCont: ondisk.ModeReg,
}

// tarEntry is the entry of a header, nil for a header that makes none.
func tarEntry(h *tar.Header, content io.Reader) (*entry, error) {
	kind, ok := tarTypes[h.Typeflag]
	if !ok {
		if h.Typeflag == tar.TypeXGlobalHeader {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: entries of type %q are not known", h.Name, h.Typeflag)
	}
	p, err := cleanPath(h.Name)
	if err != nil {
		return nil, err
	}
	e := &entry{
		path: p, mode: kind | uint32(h.Mode)&0o7777, uid: uint32(h.Uid), gid: uint32(h.Gid),
		rdev: encodeDev(uint32(h.Devmajor), uint32(h.Devminor)), size: h.Size, mtime: timeOf(h.ModTime), atime: timeOf(h.ModTime),
	}
	if !h.AccessTime.IsZero() {
		e.atime = timeOf(h.AccessTime)
	}
	switch h.Typeflag {
	case tar.TypeLink:
		if e.link, err = cleanPath(h.Linkname); err != nil {
			return nil, err
		}
		return e, nil
	case tar.TypeSymlink:
		e.target = h.Linkname
	}
	if kind == ondisk.ModeReg {
		e.content = func(w *fileWriter) error { return copySparse(w, content, h.Size) }
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, paxXattr); ok && keepXattr(name) {
			e.xattrs = append(e.xattrs, xattr{name, []byte(value)})
		}
	}
	slices.SortFunc(e.xattrs, func(a, b xattr) int { return strings.Compare(a.name, b.name) })
	return e, nil
}

// sparseUnit is the size and alignment of zeroes that become a hole.
const sparseUnit = 64 << 10

// copySparse copies n bytes, and leaves runs of zeroes out: an archive without
// the sparse format has them, and one with it does not tell where they are.
func copySparse(w *fileWriter, r io.Reader, n int64) error {
	zero := make([]byte, sparseUnit)
	for off := int64(0); off < n; {
		b := w.f.buf[:min(n-off, int64(len(w.f.buf)))]
		if _, err := io.ReadFull(r, b); err != nil {
			return fmt.Errorf("at byte %d: %w", off, err)
		}
		if err := writeNonZero(w, b, off, zero); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// writeNonZero writes the parts of b that are not zero, in runs of units.
func writeNonZero(w *fileWriter, b []byte, off int64, zero []byte) error {
	from := -1 // start of a run that is to be written
	for i := 0; i < len(b); i += sparseUnit {
		unit := b[i:min(i+sparseUnit, len(b))]
		switch isZero := bytes.Equal(unit, zero[:len(unit)]); {
		case isZero && from >= 0:
			if err := w.writeAt(b[from:i], off+int64(from)); err != nil {
				return err
			}
			from = -1
		case !isZero && from < 0:
			from = i
		}
	}
	if from < 0 {
		return nil
	}
	return w.writeAt(b[from:], off+int64(from))
}
