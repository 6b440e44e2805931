package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/cmd/extfused/daemon"
	"extfused/cmd/extfused/mounts"
	"extfused/fs/ext4"
	"extfused/metrics"
)

type mountCmdOptions struct {
	foreground bool
	options    []string
	metrics    string
	logLevel   string
	logFile    string
}

// AddFlags registers the flags of `extfused mount`.
func (o *mountCmdOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.foreground, "foreground", "f", false, "stay in the foreground, and log to stderr")
	f.StringArrayVarP(&o.options, "options", "o", nil, "mount options, separated by commas")
	f.StringVar(&o.metrics, "metrics", "", "serve metrics and status pages on this address, for example 127.0.0.1:9117")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFile, "log-file", "", "log to this file (default: stderr in the foreground, else syslog)")
}

func newMountCommand() *cobra.Command {
	o := &mountCmdOptions{}
	cmd := &cobra.Command{
		Use:   "mount [-f] [-o OPTIONS] IMAGE MOUNTPOINT",
		Short: "mount an ext4 image; returns when the mount answers",
		Long: "Mounts the ext4 image IMAGE, a file or a block device, at the directory MOUNTPOINT.\n" +
			"Without -f it goes to the background, and returns when the mount answers.\n\nMount options:\n" + mountOptionHelp(),
		Args: exactArgs("IMAGE", "MOUNTPOINT"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *mountCmdOptions) run(cmd *cobra.Command, image, mountpoint string) error {
	c, err := o.config(image, mountpoint)
	if err != nil {
		return err
	}
	if o.foreground {
		return o.serve(c, nil)
	}
	if ready := readyPipe(); ready != nil {
		return o.serve(c, ready)
	}
	return spawn(c, cmd.ErrOrStderr())
}

// config turns flags and arguments into what the daemon needs. Nothing but
// names is looked at.
func (o *mountCmdOptions) config(image, mountpoint string) (*daemon.Config, error) {
	c := &daemon.Config{Metrics: o.metrics, Version: Version, AllowOther: os.Geteuid() == 0}
	if _, err := parseLevel(o.logLevel); err != nil {
		return nil, err
	}
	if err := parseMountOptions(c, o.options); err != nil {
		return nil, err
	}
	var err error
	if c.Image, err = filepath.Abs(image); err != nil {
		return nil, err
	}
	if c.Mountpoint, err = mounts.Resolve(mountpoint); err != nil {
		return nil, Exitf(ExitMountpoint, "mountpoint %s: %w", mountpoint, cause(err))
	}
	return c, nil
}

// serve mounts, tells ready (nil in the foreground) how that went, and serves
// until the mount is gone.
func (o *mountCmdOptions) serve(c *daemon.Config, ready *readyWriter) error {
	log, err := o.logger(ready != nil)
	if err != nil {
		return ready.report(err)
	}
	c.Log = log
	findJournal(c)
	daemon.TuneMemory()
	d, err := daemon.Start(*c)
	if err != nil {
		return ready.report(mountExit(err))
	}
	if err := os.Chdir("/"); err != nil { // hold no directory of the caller
		log.Warn(err.Error())
	}
	if err := ready.report(nil); err != nil {
		log.Error(err.Error())
	}
	if err := d.Wait(); err != nil {
		return Exitf(ExitFailure, "unmount %s: %w", c.Image, err)
	}
	return nil
}

// mountExit gives the errors of daemon.Start their exit codes.
func mountExit(err error) error {
	var fuse *daemon.FUSEError
	var mp *daemon.MountpointError
	var addr *metrics.AddressError
	code := ExitFailure
	switch {
	case errors.As(err, &addr):
		code = ExitAddress
	case errors.As(err, &fuse):
		code = ExitNoFUSE
	case errors.As(err, &mp) && errors.Is(err, daemon.ErrBusy):
		code = ExitBusy
	case errors.As(err, &mp):
		code = ExitMountpoint
	default:
		return imageExit(err)
	}
	return &ExitError{Code: code, Err: err}
}

// imageExit gives errors about an image their exit codes; any sub-command that
// opens one may use it.
func imageExit(err error) error {
	if err == nil {
		return nil
	}
	code := ExitFailure
	var kind *blockdev.KindError
	switch {
	case blockdev.InUse(err), errors.Is(err, ext4.ErrInUse):
		code = ExitInUse
	case errors.Is(err, ext4.ErrNotExt4), errors.Is(err, ext4.ErrTooShort), isCorrupt(err):
		code = ExitNotExt4
	case errors.Is(err, ext4.ErrUnsupported), errors.Is(err, ext4.ErrReadOnly):
		code = ExitFeature
	case errors.Is(err, ext4.ErrBadOption):
		code = ExitUsage
	case errors.Is(err, fs.ErrPermission):
		code = ExitPermission
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENXIO), errors.As(err, &kind):
		code = ExitImage
	}
	return &ExitError{Code: code, Err: err}
}
