package daemon

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/mounts"
	"extfused/fs/fusefs"
)

// memoryLimit is what the garbage collector aims to stay under, in bytes; the
// buffer cache and a few MiB for each request in flight are the bulk.
const memoryLimit = 384 << 20

// gcPercent lets the heap grow more than Go's default between collections.
const gcPercent = 200

// TuneMemory sets the garbage collector, unless the environment did.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// tuneBDI lifts limits that the kernel sets on every FUSE mount, since it
// trusts no server: 1 % of memory for dirty pages, read-ahead of 128 KiB. Only
// root may; for others the defaults stay.
func tuneBDI(log *zap.Logger, m *mounts.Mount) {
	dir := filepath.Join("/sys/class/bdi", m.Dev)
	if m.Type == mounts.BlockType {
		dir += "-fuseblk" // the device's own has the plain name
	}
	for _, v := range []struct {
		file  string
		value int
	}{
		{"read_ahead_kb", fusefs.MaxRequest >> 10},
		{"strict_limit", 0},
		{"max_ratio", 100},
	} {
		err := os.WriteFile(filepath.Join(dir, v.file), []byte(strconv.Itoa(v.value)), 0)
		if err != nil {
			log.Debug("kernel default kept", zap.String("file", v.file), zap.Error(err))
		}
	}
}

// beIOFlusher marks the process as one that the kernel's write-back depends
// on: it must not wait for write-back when it allocates memory, see
// PR_SET_IO_FLUSHER in prctl(2). Needs CAP_SYS_RESOURCE.
func beIOFlusher(log *zap.Logger) {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
	if errno != 0 {
		log.Debug("not marked as I/O flusher", zap.Error(errno))
	}
}
