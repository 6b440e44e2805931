package command

import (
	"errors"
	"fmt"
)

// Exit codes of extfused. README.md carries the same table; exit_test.go
// compares the two.
const (
	ExitOK          = 0  // done
	ExitFailure     = 1  // anything the table has no line for: I/O errors, out of memory
	ExitUsage       = 2  // unknown command, flag or mount option, wrong number of arguments
	ExitImage       = 3  // the image does not exist, is no file or block device, or cannot be read
	ExitNotExt4     = 4  // no ext4 in the image (another file system, a partition table, too short, damaged)
	ExitFeature     = 5  // the image needs an ext4 feature that extfused does not have
	ExitInUse       = 6  // another process holds the image, or it is mounted
	ExitMountpoint  = 7  // the mountpoint does not exist or is no directory
	ExitBusy        = 8  // the mountpoint is taken (mount), or the mount is in use (umount)
	ExitNoFUSE      = 9  // /dev/fuse or fusermount3 is missing
	ExitPermission  = 10 // not allowed to open the image, /dev/fuse or the mountpoint
	ExitAddress     = 11 // the metrics address cannot be listened on
	ExitNotMounted  = 12 // no extfused daemon serves that mountpoint
	ExitHasContents = 13 // mkfs: the image holds data already and -F was not given
)

// ExitError is an error that knows the exit code of the process.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Exitf makes an ExitError. The text is one line that names the thing and
// says what to do about it; %w works as in fmt.Errorf.
func Exitf(code int, format string, args ...any) error {
	return &ExitError{Code: code, Err: fmt.Errorf(format, args...)}
}

// ExitCode returns the code that err ends the process with: 0 for nil, the
// code of an ExitError in its chain, else ExitFailure.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	return ExitFailure
}
