// Package daemon puts the parts together that serve one mount, and takes them
// apart again in the right order.
//
//	metrics address, /dev/fuse, mountpoint    checked first: cheap, and nothing is touched
//	image opened and locked                   blockdev
//	file system mounted, journal replayed     fs/ext4
//	FUSE mount                                fs/fusefs
//	control socket, signals, HTTP             from here on the mount answers
//
// The end comes from one place: the FUSE connection is gone, whoever asked for
// that. Then HTTP stops, the file system commits and checkpoints, the image is
// closed, and those who wait for it on the control socket are told.
//
// The daemon never opens anything below its own mountpoint: a request to
// itself may wait for itself.
package daemon

import (
	"go.uber.org/zap"

	"extfused/fs/ext4"
)

// Config says what to mount where, and how. Paths are absolute.
type Config struct {
	Image      string
	Mountpoint string

	FS          ext4.Options
	Offset      int64  // where the file system starts in the image, bytes
	SizeLimit   int64  // how much of the image it may use, bytes; 0 is all
	JournalPath string // device of an external journal

	AllowOther   bool
	UID, GID     *uint32 // whom all files belong to, if set
	IDMapped     bool    // allow id-mapped mounts of the mount
	NoXattr      bool
	NoACL        bool
	MountFlags   uintptr  // MS_... of mount(2), for root
	MountOptions []string // the same in words, for fusermount3

	Metrics string // address to serve HTTP on; "" none
	Debug   bool   // log every FUSE request
	Log     *zap.Logger
	Version string
}
