package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/mounts"
	"extfused/fs/fusefs/devfuse"
)

// MountpointError is a mountpoint that cannot be used. Err is
// ErrNoMountpoint, or ErrBusy.
type MountpointError struct {
	Path string
	Text string
	Err  error
}

func (e *MountpointError) Error() string { return fmt.Sprintf("mountpoint %s %s", e.Path, e.Text) }
func (e *MountpointError) Unwrap() error { return e.Err }

// Why a mountpoint cannot be used.
var (
	ErrNoMountpoint = errors.New("no directory")
	ErrBusy         = errors.New("busy")
)

// checkMountpoint tells whether something can be mounted at path. stale means
// that a mount whose daemon died is in the way, which Detach removes.
func checkMountpoint(path string) (stale bool, err error) {
	m, err := mounts.At(path)
	if err != nil {
		return false, err
	}
	isDir, err := probeDir(path)
	switch {
	case m != nil && m.Ours() && Dead(err):
		return true, nil
	case Dead(err):
		return false, &MountpointError{path, "has a dead FUSE mount on it: umount it first", ErrBusy}
	case errors.Is(err, os.ErrNotExist):
		return false, &MountpointError{path, "does not exist: make the directory first", ErrNoMountpoint}
	case err != nil && m == nil:
		return false, fmt.Errorf("mountpoint %s: %w", path, err)
	case m != nil:
		return false, &MountpointError{path, fmt.Sprintf("is busy: %s is mounted there (%s)", m.Source, m.Type), ErrBusy}
	case !isDir:
		return false, &MountpointError{path, "is no directory", ErrNoMountpoint}
	}
	return false, nil
}

// Dead tells whether err is what a mount answers whose daemon has gone;
// requests that its end caught are answered with ECONNABORTED.
func Dead(err error) bool {
	return errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ECONNABORTED)
}

// Answers tells whether the mount at path has a living daemon.
func Answers(path string) bool {
	_, err := probeDir(path)
	return !Dead(err)
}

// probePatience is how long a mountpoint may take to answer.
const probePatience = 5 * time.Second

// probeDir tells whether path is a directory, and whether a mount there
// answers: that takes statfs(2), since attributes may come from the kernel's
// cache. It gives up after a while: a hung mount may be in the way.
func probeDir(path string) (isDir bool, err error) {
	type result struct {
		isDir bool
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var fs unix.Statfs_t
		err := unix.Statfs(path, &fs)
		var st os.FileInfo
		if err == nil {
			st, err = os.Stat(path)
		}
		done <- result{err == nil && st.IsDir(), err}
	}()
	select {
	case r := <-done:
		return r.isDir, r.err
	case <-time.After(probePatience):
		return false, &MountpointError{path, fmt.Sprintf("does not answer within %v", probePatience), ErrBusy}
	}
}

// Detach takes the mount at path out of the name space; it lives on until its
// last user is gone.
func Detach(path string) error {
	if os.Geteuid() == 0 {
		return os.NewSyscallError("umount", unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return fusermount("-u", "-z", path)
}

// unmount unmounts path. An error that is syscall.EBUSY means that someone
// uses it.
func unmount(path string) error {
	if os.Geteuid() == 0 {
		return os.NewSyscallError("umount", unix.Unmount(path, unix.UMOUNT_NOFOLLOW))
	}
	return fusermount("-u", path)
}

// fusermount runs the helper that mounts and unmounts for ordinary users.
func fusermount(args ...string) error {
	bin, err := fusermountPath()
	if err != nil {
		return err
	}
	out, err := exec.Command(bin, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "busy") {
		return fmt.Errorf("%s: %w", text, syscall.EBUSY)
	}
	return fmt.Errorf("%s: %w", text, err)
}

func fusermountPath() (string, error) {
	if p, err := devfuse.Fusermount(); err == nil {
		return p, nil
	}
	return "", &FUSEError{"fusermount3 is missing, which mounts for users other than root: install fuse3"}
}

// captureStderr runs fn, which mounts, and returns what fusermount3 said on
// stderr meanwhile, which is ours. Root mounts without it.
func captureStderr(fn func() error) (said string, err error) {
	if os.Geteuid() == 0 {
		return "", fn()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	stderr := os.Stderr
	os.Stderr = w
	err = fn()
	os.Stderr = stderr
	w.Close()
	text, _ := io.ReadAll(r)
	r.Close()
	return strings.TrimSpace(string(text)), err
}

// mountError words a failed mount; said is what fusermount3 had to say.
func mountError(mountpoint, said string, err error) error {
	if said == "" {
		return fmt.Errorf("mount at %s: %w", mountpoint, err)
	}
	if _, text, ok := strings.Cut(said, ": "); ok {
		said = text
	}
	switch {
	case strings.Contains(said, "user_allow_other"), strings.Contains(said, "ermission denied"), strings.Contains(said, "not permitted"):
		return &explained{fmt.Sprintf("mount at %s: fusermount3: %s", mountpoint, said), os.ErrPermission}
	}
	return &FUSEError{fmt.Sprintf("mount at %s: fusermount3: %s", mountpoint, said)}
}

// FUSEError means that this machine cannot mount FUSE, or not for us.
type FUSEError struct{ Text string }

func (e *FUSEError) Error() string { return e.Text }

// checkFUSE tells early whether a FUSE mount can work.
func checkFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &FUSEError{"/dev/fuse is missing: load the kernel module (modprobe fuse), or pass the device into the container"}
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return &FUSEError{"/dev/fuse has no driver behind it: modprobe fuse"}
	case err != nil && os.Geteuid() == 0:
		return fmt.Errorf("cannot open /dev/fuse: %w", err)
	case err == nil:
		f.Close()
	}
	if os.Geteuid() == 0 {
		return nil
	}
	_, err = fusermountPath()
	return err
}
