package daemon

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"extfused/cmd/extfused/control"
	"extfused/fs/ext4"
	"extfused/fs/fusefs"
)

// handlers are the commands of the control socket.
func (d *Daemon) handlers() map[string]control.Handler {
	return map[string]control.Handler{
		"ping":   d.ping,
		"sync":   d.live(d.sync),
		"umount": d.unmountAndWait,
		"stats":  d.live(d.stats),
		"set":    d.live(d.set),
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
