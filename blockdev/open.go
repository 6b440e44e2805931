package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// OpenOptions says how OpenFile opens an image. The zero value opens an
// existing image for reading and writing, locked against everybody else.
type OpenOptions struct {
	ReadOnly bool

	// Create makes a regular file that does not exist. Size, if not 0, is the
	// length in bytes a regular file is given after its lock was taken
	// (sparse; a longer one is cut). Both need write access.
	Create bool
	Size   int64

	// NoLock looks at an image without asking whether it is in use. For
	// read-only tools that say so; what they see may change under them.
	NoLock bool

	// KeepBlocks has Zero leave a regular file its blocks, where it otherwise
	// makes holes.
	KeepBlocks bool
}

// NotWritableError means that an image exists but may not be written by us.
type NotWritableError struct {
	Path string
	Err  error
}

func (e *NotWritableError) Error() string {
	return fmt.Sprintf("%s cannot be opened for writing: %v", e.Path, e.Err)
}

func (e *NotWritableError) Unwrap() error { return e.Err }

// KindError means that a path is neither a regular file nor a block device.
type KindError struct{ Path string }

func (e *KindError) Error() string {
	return e.Path + " is neither a regular file nor a block device"
}

// OpenFile opens a regular file or a block device.
//
// A regular file gets an open-file-description lock over all of it: exclusive
// for writers, shared for readers. A block device is opened with O_EXCL, which
// the kernel's own mounts respect. Errors: *InUseError, *NotWritableError,
// *KindError, or an *fs.PathError.
func OpenFile(path string, o OpenOptions) (Device, error) {
	if o.NoLock && !o.ReadOnly {
		return nil, fmt.Errorf("%s: an image may be opened without a lock for reading only", path)
	}
	block, err := kindOf(path, o)
	if err != nil {
		return nil, err
	}
	f, err := openImage(path, o, block)
	if err != nil {
		return nil, err
	}
	d, err := newOSDevice(f, path, o, block)
	if err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// kindOf looks before opening, since opening a pipe or a tape has effects, and
// O_EXCL means something else on a regular file.
func kindOf(path string, o OpenOptions) (block bool, err error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && o.Create {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return isBlock(path, st)
}

func isBlock(path string, st os.FileInfo) (bool, error) {
	switch m := st.Mode(); {
	case m.IsRegular():
		return false, nil
	case m&os.ModeDevice != 0 && m&os.ModeCharDevice == 0:
		return true, nil
	case m.IsDir():
		return false, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	return false, &KindError{Path: path}
}

func openImage(path string, o OpenOptions, block bool) (*os.File, error) {
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	} else if o.Create && !block {
		flags |= os.O_CREATE
	}
	if block && !o.NoLock {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o666)
	switch {
	case err == nil:
		return f, nil
	case block && errors.Is(err, syscall.EBUSY):
		return nil, blockHolder(path)
	case !o.ReadOnly && notWritable(err):
		return nil, &NotWritableError{Path: path, Err: errors.Unwrap(err)}
	}
	return nil, err
}

// notWritable picks the reasons that a read-only open would not have.
func notWritable(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) ||
		errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ETXTBSY)
}

func newOSDevice(f *os.File, path string, o OpenOptions, block bool) (Device, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if now, err := isBlock(path, st); err != nil || now != block {
		return nil, fmt.Errorf("%s changed its kind while it was opened", path)
	}
	if block {
		if !o.NoLock {
			if err := backingHolder(f, path, o.ReadOnly); err != nil {
				return nil, err
			}
		}
		return newBlock(f, o.ReadOnly)
	}
	if !o.NoLock {
		if err := lockFile(f, path, o.ReadOnly); err != nil {
			return nil, err
		}
	}
	if o.Size != 0 && !o.ReadOnly {
		if err := f.Truncate(o.Size); err != nil {
			return nil, err
		}
	}
	return newFile(f, o)
}
