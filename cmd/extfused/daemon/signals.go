package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// watchSignals unmounts at the first SIGTERM or SIGINT, and is harder on each
// further one. It ends with stop.
func (d *Daemon) watchSignals() (stop func()) {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for n := 0; ; n++ {
			s, ok := <-ch
			if !ok {
				return
			}
			d.log.Info("signal", zap.Stringer("signal", s))
			go d.stopBySignal(n)
		}
	}()
	return func() { signal.Stop(ch); close(ch) }
}

// stopBySignal is what the nth signal does.
func (d *Daemon) stopBySignal(n int) {
	switch n {
	case 0:
		d.unmountOrDetach()
	case 1:
		d.abort()
	default:
		d.log.Error("third signal: ending at once; the next mount replays the journal")
		os.Exit(1)
	}
}

// unmountOrDetach unmounts; a mount in use is committed and detached, and ends
// when its last user is gone.
func (d *Daemon) unmountOrDetach() {
	err := d.unmount()
	if err == nil {
		return
	}
	if !errors.Is(err, syscall.EBUSY) {
		d.log.Error("unmount", zap.Error(err))
	}
	d.log.Warn("the mount is in use: it is detached, and ends with its last user; a second signal cuts the users off")
	if err := d.fs.Sync(); err != nil {
		d.log.Error("commit", zap.Error(err))
	}
	if err := d.detach(); err != nil {
		d.log.Error("detach", zap.Error(err))
	}
}

// abort cuts the FUSE connection: users get ENOTCONN, and what the kernel had
// not written back is lost. What reached us is committed.
func (d *Daemon) abort() {
	d.log.Warn("second signal: cutting off the users of the mount")
	if err := abortConnection(d.devNumber); err != nil {
		d.log.Error("the FUSE connection cannot be aborted; a third signal ends the daemon", zap.Error(err))
	}
}

// connections is where fusectl has a directory for each FUSE connection, named
// after the kernel's device number of the mount: major<<20 | minor.
const connections = "/sys/fs/fuse/connections"

// abortConnection aborts the connection of the mount with device number dev.
// Where fusectl is not mounted it is, if we may, for as long as that takes.
func abortConnection(dev string) error {
	var major, minor uint32
	if _, err := fmt.Sscanf(dev, "%d:%d", &major, &minor); err != nil {
		return fmt.Errorf("device number %q: %w", dev, err)
	}
	path := filepath.Join(connections, strconv.FormatUint(uint64(major<<20|minor), 10), "abort")
	err := os.WriteFile(path, []byte("1"), 0)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mount("fusectl", connections, "fusectl", 0, ""); err != nil {
		return os.NewSyscallError("mount fusectl", err)
	}
	defer unix.Unmount(connections, unix.MNT_DETACH)
	return os.WriteFile(path, []byte("1"), 0)
}
