package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
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

	served   chan struct{} // closed when no further request comes
	serving  chan struct{} // closed when the last answer is written
	finished chan struct{} // closed when the image is closed
	finish   func()        // once: the end of all but the control socket
	err      error         // of the end; read after finished
}

// Start mounts and returns when the mount answers. Nothing is left behind if
// it fails.
func Start(c Config) (*Daemon, error) {
	d := &Daemon{cfg: c, log: c.Log, served: make(chan struct{}), serving: make(chan struct{}), finished: make(chan struct{})}
	d.finish = sync.OnceFunc(d.closeImage)
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
	if stale {
		if err := d.detachDead(c.Mountpoint); err != nil {
			return err
		}
	}
	if err := d.freeDevice(); err != nil {
		return err
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
	if err := d.mountFUSE(); err != nil {
		return err
	}
	return d.open()
}

// freeDevice detaches dead fuseblk mounts of the image, wherever they are: the
// kernel holds the device for them.
func (d *Daemon) freeDevice() error {
	dev := blockDevice(d.cfg.Image)
	if dev == "" {
		return nil
	}
	list, err := mounts.List()
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Type == mounts.BlockType && m.Dev == dev && !Answers(m.Point) {
			if err := d.detachDead(m.Point); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Daemon) detachDead(mountpoint string) error {
	d.log.Warn("detaching the mount of a daemon that died", zap.String("mountpoint", mountpoint))
	return Detach(mountpoint)
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
		NoXattr: noXattr, StrictAtime: c.FS.Atime == ext4.AtimeStrict, UID: c.UID, GID: c.GID,
		OnPanic: func(op fusefs.Op, value any, stack []byte) {
			d.log.Error("bug: panic in a request", zap.Stringer("op", op), zap.Any("panic", value), zap.ByteString("stack", stack))
		},
	})
	over := sync.OnceFunc(func() { close(d.served) })
	said, err := captureStderr(func() error {
		return d.attach(fusefs.MountConfig{
			Source: c.Image, AllowOther: c.AllowOther, ACL: acl, IDMapped: c.IDMapped,
			Flags: c.MountFlags, Options: c.MountOptions,
			Debug: c.Debug, Logger: zap.NewStdLog(d.log.Named("fuse")),
			Destroy: func() { over(); d.finish() },
		})
	})
	if err != nil {
		return mountError(c.Mountpoint, said, err)
	}
	go func() {
		d.fuse.Serve()
		over()
		close(d.serving)
	}()
	d.log.Info("mounted", zap.String("image", c.Image), zap.String("mountpoint", c.Mountpoint), zap.Stringer("fuse", d.fuse.Negotiated))
	return nil
}

// attach mounts: a block device as fuseblk if we are root, so that sync(2)
// reaches us and umount(2) waits for us; everything else as plain fuse.
func (d *Daemon) attach(m fusefs.MountConfig) (err error) {
	if os.Geteuid() == 0 && blockdev.IsBlock(d.dev) {
		if err = d.attachBlock(m); err == nil || errors.Is(err, syscall.EBUSY) {
			return err
		}
		d.log.Info("no fuseblk mount: sync(2) does not reach the image, extfused sync does", zap.Error(err))
	}
	d.fuse, err = fusefs.Mount(d.files, d.cfg.Mountpoint, m)
	return err
}

// attachBlock hands the exclusive hold on the device to the kernel's mount, or
// takes it back.
func (d *Daemon) attachBlock(m fusefs.MountConfig) (err error) {
	if err := blockdev.SetExclusive(d.dev, false); err != nil {
		return err
	}
	m.BlockDevice = true
	d.fuse, err = fusefs.Mount(d.files, d.cfg.Mountpoint, m)
	if err != nil {
		err = errors.Join(err, blockdev.SetExclusive(d.dev, true))
	}
	return err
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
	tuneBDI(d.log, m)
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
	<-d.serving
	if d.socket != nil {
		d.socket.Close()
	}
	return d.err
}

// closeImage is the end, in order. The control socket outlives it, since a
// command on it may be waiting for the umount(2) that waits for this.
func (d *Daemon) closeImage() {
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
		if err := unmount(d.cfg.Mountpoint); err != nil {
			Detach(d.cfg.Mountpoint)
		}
		<-d.serving
	}
	if d.socket != nil {
		d.socket.Close()
	}
	if d.http != nil {
		d.http.Close()
	}
	if d.fs != nil {
		d.finish() // fuseblk has done it already
		return
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
