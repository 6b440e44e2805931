package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"extfused/cmd/extfused/control"
	"extfused/fs/ext4"
	"extfused/fs/frag"
	"extfused/fs/fusefs"
	"extfused/metrics"
)

// handlers are the commands of the control socket.
func (d *Daemon) handlers() map[string]control.Handler {
	return map[string]control.Handler{
		"ping":   d.ping,
		"sync":   d.live(d.sync),
		"umount": d.unmountAndWait,
		"stats":  d.live(d.stats),
		"set":    d.live(d.set),
		"view":   d.live(d.view),
		"frag":   d.live(d.frag),
		"layout": d.live(d.layout),
		"trim":   d.live(d.trim),
	}
}

// Info is what "ping" answers.
type Info struct {
	PID        int    `json:"pid"`
	Image      string `json:"image"`
	Mountpoint string `json:"mountpoint"`
	Version    string `json:"version"`
	Metrics    string `json:"metrics,omitempty"`
}

func (d *Daemon) ping(map[string]string) (any, error) {
	return Info{os.Getpid(), d.cfg.Image, d.cfg.Mountpoint, d.cfg.Version, d.Metrics()}, nil
}

// sync commits what has reached us.
func (d *Daemon) sync(map[string]string) (any, error) {
	d.files.Drain()
	return nil, d.fs.Sync()
}

// unmountAndWait unmounts, and answers when the image is closed. With
// args["lazy"] it detaches a mount in use instead of refusing.
func (d *Daemon) unmountAndWait(args map[string]string) (any, error) {
	err := d.unmount()
	if errors.Is(err, syscall.EBUSY) && args["lazy"] != "" {
		err = d.detach()
	}
	if errors.Is(err, syscall.EBUSY) {
		return nil, fmt.Errorf("%s is in use: %w", d.cfg.Mountpoint, syscall.EBUSY)
	}
	if err != nil {
		return nil, err
	}
	<-d.finished
	return nil, d.err
}

// Stats is what "stats" answers.
type Stats struct {
	FUSE fusefs.Stats `json:"fuse"`
	FS   ext4.Stats   `json:"fs"`
}

func (d *Daemon) stats(map[string]string) (any, error) {
	return Stats{FUSE: d.files.Stats(), FS: d.fs.Stats()}, nil
}

// view answers the text of the view that args["name"] names.
func (d *Daemon) view(args map[string]string) (any, error) {
	var b strings.Builder
	src := d.sources()
	err := metrics.WriteView(&src, args["name"], &mortal{&b, d})
	if _, ok := errors.AsType[*metrics.UnknownViewError](err); ok {
		return nil, &wrongArgs{err}
	}
	return b.String(), err
}

// mortal fails when the mount ends, so that a long view does not hold it up.
type mortal struct {
	io.Writer
	d *Daemon
}

func (m *mortal) Write(p []byte) (int, error) {
	if err := m.d.ending(); err != nil {
		return 0, err
	}
	return m.Writer.Write(p)
}

// sources are what metrics and views show.
func (d *Daemon) sources() metrics.Sources {
	return metrics.Sources{FS: d.fs, FUSE: d.files, Image: d.cfg.Image, Mountpoint: d.cfg.Mountpoint, Version: d.cfg.Version}
}

// frag surveys the file system.
func (d *Daemon) frag(map[string]string) (any, error) { return frag.Survey(d.fs, d.ending) }

// Layout is what "layout" answers.
type Layout struct {
	BlockSize uint32 `json:"block_size"`
	frag.File
}

// layout says where the blocks of the file args["path"] are.
func (d *Daemon) layout(args map[string]string) (any, error) {
	f, err := frag.Lookup(d.fs, args["path"])
	if err != nil {
		return nil, err
	}
	return Layout{d.fs.Statfs().BlockSize, *f}, nil
}

// Trimmed is what "trim" answers.
type Trimmed struct {
	Bytes uint64 `json:"bytes"`
}

// trim tells the device of all free space, but not of runs shorter than
// args["minlen"] bytes.
func (d *Daemon) trim(args map[string]string) (any, error) {
	minLen, err := strconv.ParseUint(cmp.Or(args["minlen"], "0"), 10, 64)
	if err != nil {
		return nil, &wrongArgs{err}
	}
	d.files.Drain()
	n, err := d.fs.Trim(ext4.TrimRange{Len: math.MaxUint64, MinLen: minLen}, d.ending)
	switch err {
	case syscall.EINVAL:
		return nil, &wrongArgs{errors.New("no group has room for so long a run")}
	case syscall.EOPNOTSUPP:
		return nil, fmt.Errorf("the device of the image knows no discards: %w", err)
	}
	return Trimmed{n}, err
}
