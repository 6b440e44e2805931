package fusefs

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"extfused/fs/ondisk"
)

// euclean is EUCLEAN, "structure needs cleaning": what the kernel's ext4
// answers when the image is damaged.
const euclean = fuse.Status(syscall.EUCLEAN)

// status maps an error of ext4.FS to the errno that the caller sees. It is the
// only place that does.
//
// ENOSYS never passes: the kernel takes it as "this server never will" and
// stops asking for the life of the mount.
func status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	var errno syscall.Errno
	var corrupt *ondisk.CorruptError
	switch {
	case errors.As(err, &corrupt):
		return euclean
	case !errors.As(err, &errno) || errno == 0:
		return fuse.EIO
	case errno == syscall.ENOSYS:
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return fuse.Status(errno)
}

// maxName is the longest file name in bytes; the kernel passes longer ones on.
const maxName = 255

// checkName refuses names that ext4 cannot hold.
func checkName(name string) fuse.Status {
	if len(name) > maxName {
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	return fuse.OK
}
