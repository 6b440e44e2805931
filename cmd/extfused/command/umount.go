package command

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"extfused/cmd/extfused/control"
	"extfused/cmd/extfused/daemon"
	"extfused/cmd/extfused/mounts"
)

type umountOptions struct {
	lazy bool
}

// AddFlags registers the flags of `extfused umount`.
func (o *umountOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.lazy, "lazy", "l", false, "detach a mount in use now, and wait until its last user is gone")
}

func newUmountCommand() *cobra.Command {
	o := &umountOptions{}
	cmd := &cobra.Command{
		Use:   "umount [-l] MOUNTPOINT",
		Short: "unmount; returns when everything is on the device and the image is closed",
		Args:  exactArgs("MOUNTPOINT"),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.run(cmd.ErrOrStderr(), args[0]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *umountOptions) run(stderr io.Writer, path string) error {
	m, err := findMount(path)
	if err != nil {
		return err
	}
	client, err := dial(m)
	if errors.Is(err, control.ErrNoDaemon) {
		return detachDead(stderr, m)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	args := map[string]string{}
	if o.lazy {
		args["lazy"] = "1"
	}
	if err := client.Do("umount", args, nil); err != nil {
		if errors.Is(err, syscall.EBUSY) {
			return Exitf(ExitBusy, "%s is in use: end what uses it (fuser -vm %s), or use -l", m.Point, m.Point)
		}
		return Exitf(ExitFailure, "%s: %w", m.Point, err)
	}
	return nil
}

// detachDead removes a mount whose daemon has died.
func detachDead(stderr io.Writer, m *mounts.Mount) error {
	if daemon.Answers(m.Point) {
		return Exitf(ExitNotMounted, "the daemon of %s (mounted by uid %d) has its control socket elsewhere: use umount(8)", m.Point, m.UserID())
	}
	if err := daemon.Detach(m.Point); err != nil {
		return Exitf(ExitFailure, "no daemon serves %s, and it cannot be detached: %w", m.Point, err)
	}
	fmt.Fprintf(stderr, "extfused: the daemon of %s had died: detached; the next mount of %s replays its journal\n", m.Point, m.Source)
	return nil
}

// findMount finds our mount at path.
func findMount(path string) (*mounts.Mount, error) {
	abs, err := mounts.Resolve(path)
	if err != nil {
		return nil, Exitf(ExitMountpoint, "%s: %w", path, cause(err))
	}
	m, err := mounts.At(abs)
	if err != nil {
		return nil, err
	}
	if m == nil || !m.Ours() {
		return nil, Exitf(ExitNotMounted, "%s is no mount of extfused", path)
	}
	return m, nil
}

// dial connects to the daemon of a mount.
func dial(m *mounts.Mount) (*control.Client, error) {
	c, err := control.Dial(m.Dev, m.UserID())
	switch {
	case err == nil, errors.Is(err, control.ErrNoDaemon):
		return c, err
	case errors.Is(err, syscall.EACCES):
		return nil, Exitf(ExitPermission, "%s was mounted by somebody else (uid %d)", m.Point, m.UserID())
	}
	return nil, Exitf(ExitFailure, "%s: %w", m.Point, err)
}

// ask sends one command to the daemon at path.
func ask(path, command string, args map[string]string, data any) error {
	m, err := findMount(path)
	if err != nil {
		return err
	}
	client, err := dial(m)
	if errors.Is(err, control.ErrNoDaemon) {
		return Exitf(ExitNotMounted, "the daemon of %s does not answer: it may have died; extfused umount %s detaches it", m.Point, m.Point)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Do(command, args, data); err != nil {
		return Exitf(ExitFailure, "%s: %w", m.Point, err)
	}
	return nil
}
