package command

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
	"extfused/fs/populate"
)

// fillSource is what the argument of -d names, opened.
type fillSource struct {
	fill  func(*ext4.FS, populate.Options) (populate.Stats, error) // nil: no -d
	close func() error
	stats populate.Stats
}

// sourceError is an error of filling, which says what went wrong with which
// file of the source.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// openSource finds out what -d names before anything is written.
func (o *mkfsOptions) openSource() error {
	if o.source == "" {
		return nil
	}
	if o.source == "-" {
		o.from.fill = func(m *ext4.FS, po populate.Options) (populate.Stats, error) { return populate.Tar(m, o.stdin, 0, po) }
		return nil
	}
	f, err := os.Open(o.source)
	if err != nil {
		return Exitf(ExitUsage, "-d %s: %w", o.source, cause(err))
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return Exitf(ExitUsage, "-d %s: %w", o.source, cause(err))
	}
	o.from.close = f.Close
	if st.IsDir() {
		o.from.fill = func(m *ext4.FS, po populate.Options) (populate.Stats, error) { return populate.Dir(m, o.source, po) }
		return nil
	}
	o.from.fill = func(m *ext4.FS, po populate.Options) (populate.Stats, error) {
		return populate.Tar(m, f, st.Size(), po)
	}
	return nil
}

func (o *mkfsOptions) closeSource() {
	if o.from.close != nil {
		o.from.close()
	}
}

// fillImage fills the fresh file system, and unmakes it when that fails.
func (o *mkfsOptions) fillImage(dev blockdev.Device, p mkfs.Params, r *mkfs.Report) error {
	bar := newProgress(o.stderr, "filling", o.quiet || o.json)
	po := populate.Options{
		NoXattrs: p.NoCopyXattrs, KeepRootOwner: p.RootUID != 0 || p.RootGID != 0, Progress: bar.set,
	}
	clock := p.Time
	if o.timestamp != "" {
		po.Time = clock
	}
	err := populate.Image(dev, clock, func(m *ext4.FS) (err error) {
		o.from.stats, err = o.from.fill(m, po)
		r.FreeBlocks = m.Statfs().BlocksFree
		return err
	})
	bar.end()
	if err == nil {
		return nil
	}
	if _, werr := dev.WriteAt(make([]byte, ondisk.SuperBlockSize), ondisk.SuperBlockOffset); werr != nil {
		err = fmt.Errorf("%w (and a broken file system is left: %w)", err, werr)
	}
	return &sourceError{fmt.Errorf("filling the file system: %w", err)}
}

// dropCache takes an image that has been flushed out of the page cache.
func dropCache(image string) error {
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// isTerminal tells whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
