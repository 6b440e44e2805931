package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"extfused/blockdev"
	"extfused/cmd/extfused/control"
	"extfused/cmd/extfused/mounts"
	"extfused/fs/ext4"
	"extfused/fs/fusefs"
	"extfused/fs/ondisk"
	"extfused/metrics"
)

// Daemon serves one mount from Start until Wait returns.
type Daemon struct {
	cfg       Config
	log       *zap.Logger
	devNumber string // major:minor of the mount

	http   *metrics.Server // nil without --metrics
	dev    blockdev.Device
	jdev   blockdev.Device // nil without an external journal
	fs     *ext4.FS
	files  *fusefs.FileSystem
	fuse   *fusefs.Server
	socket *control.Server

	umount sync.Mutex   // one unmount at a time
	users  sync.RWMutex // handlers that use fs share it, see live

	served   chan struct{} // closed when the FUSE connection is gone
	finished chan struct{} // closed when the image is closed
	err      error         // of the end; read after finished
}

// Start mounts and returns when the mount answers. Nothing is left behind if
// it fails.
func Start(c Config) (*Daemon, error) {
	d := &Daemon{cfg: c, log: c.Log, served: make(chan struct{}), finished: make(chan struct{})}
	stale, err := checkMountpoint(c.Mountpoint)
	if err != nil {
		return nil, err
	}
	if err := checkFUSE(); err != nil {
		return nil, err
	}
	if err := d.start(stale); err != nil {
		d.undo()
		return nil, err
	}
	return d, nil
}

// start brings the parts up in order; undo takes down what is there.
func (d *Daemon) start(stale bool) (err error) {
	c := &d.cfg
	if c.Metrics != "" {
		if d.http, err = metrics.Listen(c.Metrics); err != nil {
			return err
		}
	}
	if d.dev, err = openImage(c); err != nil {
		return err
	}
	if d.jdev, err = openJournalDevice(c); err != nil {
		return err
	}
	d.setFSOptions()
	if d.fs, err = mountImage(d.dev, c); err != nil {
		return err
	}
	if stale {
		d.log.Warn("detaching the mount of a daemon that died", zap.String("mountpoint", c.Mountpoint))
		if err := Detach(c.Mountpoint); err != nil {
			return err
		}
	}
	if err := d.mountFUSE(); err != nil {
		return err
	}
	return d.open()
}

// setFSOptions adds to the mount options what only the daemon knows.
func (d *Daemon) setFSOptions() {
	o := &d.cfg.FS
	o.LastMounted = d.cfg.Mountpoint
	if d.jdev != nil {
		o.JournalDev = d.jdev
	}
	sugar := d.log.Sugar()
	o.Logf = func(level ext4.Level, format string, args ...any) {
		switch level {
		case ext4.LevelDebug:
			sugar.Debugf(format, args...)
		case ext4.LevelInfo:
			sugar.Infof(format, args...)
		case ext4.LevelWarn:
			sugar.Warnf(format, args...)
		default:
			sugar.Errorf(format, args...)
		}
	}
	o.Panic = func(cause error) {
		d.log.Error("errors=panic: ending at once", zap.Error(cause))
		os.Exit(1)
	}
}

func (d *Daemon) mountFUSE() (err error) {
	c := &d.cfg
	sb := d.fs.Super()
	noXattr := c.NoXattr || !sb.HasCompat(ondisk.CompatExtAttr)
	acl := !c.NoACL && !noXattr
	d.files = fusefs.New(d.fs, fusefs.Options{
		Device: d.dev, NoXattr: noXattr, StrictAtime: c.FS.Atime == ext4.AtimeStrict, UID: c.UID, GID: c.GID,
		OnPanic: func(op fusefs.Op, value any, stack []byte) {
			d.log.Error("bug: panic in a request", zap.Stringer("op", op), zap.Any("panic", value), zap.ByteString("stack", stack))
		},
	})
	said, err := captureStderr(func() error {
		d.fuse, err = fusefs.Mount(d.files, c.Mountpoint, fusefs.MountConfig{
			Source: c.Image, AllowOther: c.AllowOther, ACL: acl, IDMapped: c.IDMapped,
			Flags: c.MountFlags, Options: c.MountOptions,
			Debug: c.Debug, Logger: zap.NewStdLog(d.log.Named("fuse")),
		})
		return err
	})
	if err != nil {
		return mountError(c.Mountpoint, said, err)
	}
	go func() {
		d.fuse.Serve()
		close(d.served)
	}()
	d.log.Info("mounted", zap.String("image", c.Image), zap.String("mountpoint", c.Mountpoint), zap.Stringer("fuse", d.fuse.Negotiated))
	return nil
}

// open makes the daemon reachable.
func (d *Daemon) open() error {
	m, err := mounts.At(d.cfg.Mountpoint)
	if err != nil {
		return err
	}
	if m == nil || !m.Ours() {
		return fmt.Errorf("the new mount at %s cannot be found in /proc/self/mountinfo", d.cfg.Mountpoint)
	}
	d.devNumber = m.Dev
	tuneBDI(d.log, m.Dev)
	beIOFlusher(d.log)
	if d.socket, err = control.Listen(m.Dev, d.handlers()); err != nil {
		return err
	}
	go d.socket.Serve()
	if d.http != nil {
		d.http.Serve(d.sources())
	}
	return nil
}

// Metrics is the address that HTTP is served on, "" if none.
func (d *Daemon) Metrics() string {
	if d.http == nil {
		return ""
	}
	return d.http.Addr()
}

// Wait serves until the mount is gone and the image is closed.
func (d *Daemon) Wait() error {
	stop := d.watchSignals()
	defer stop()
	<-d.served
	d.finish()
	return d.err
}

// finish is the end, in order.
func (d *Daemon) finish() {
	if d.http != nil {
		d.http.Close()
	}
	d.awaitUsers()
	start := time.Now()
	d.err = errors.Join(d.fs.Unmount(context.Background()), d.closeDevices())
	if d.err != nil {
		d.log.Error("unmounted with errors", zap.Error(d.err))
	} else {
		d.log.Info("unmounted; the image is clean and closed", zap.Duration("took", time.Since(start)))
	}
	close(d.finished)
	if d.socket != nil {
		d.socket.Close()
	}
}

func (d *Daemon) closeDevices() (err error) {
	for _, dev := range []blockdev.Device{d.dev, d.jdev} {
		if dev != nil {
			err = errors.Join(err, dev.Close())
		}
	}
	return err
}

// undo takes down what a failed start has built.
func (d *Daemon) undo() {
	if d.fuse != nil {
		if err := d.fuse.Unmount(); err != nil {
			Detach(d.cfg.Mountpoint)
		}
		<-d.served
	}
	if d.socket != nil {
		d.socket.Close()
	}
	if d.http != nil {
		d.http.Close()
	}
	if d.fs != nil {
		d.fs.Unmount(context.Background())
	}
	d.closeDevices()
}

// unmount unmounts wherever the mount is by now. That it has been unmounted
// already is no error.
func (d *Daemon) unmount() error { return d.atMountpoint(unmount) }

// detach detaches lazily.
func (d *Daemon) detach() error { return d.atMountpoint(Detach) }

func (d *Daemon) atMountpoint(fn func(path string) error) error {
	d.umount.Lock()
	defer d.umount.Unlock()
	m, err := mounts.ByDev(d.devNumber)
	if err != nil || m == nil {
		return err
	}
	return fn(m.Point)
}
