// Package control is the way to the daemon of a mount: a unix socket that only
// the daemon's user (and root) can reach, in a directory of its own. Requests
// and answers are JSON, one per line; a connection carries any number of
// them, one at a time.
//
// The socket is named after the device number of the mount (st_dev), which
// /proc/self/mountinfo tells without touching the mount, and which no two
// living mounts share.
package control

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Request is a line to the daemon.
type Request struct {
	Command string            `json:"command"`
	Args    map[string]string `json:"args,omitempty"`
}

// Response is its answer.
type Response struct {
	OK    bool            `json:"ok"`
	Error string          `json:"error,omitempty"`
	Errno int             `json:"errno,omitempty"` // as in errno(3), when there is one
	Data  json.RawMessage `json:"data,omitempty"`
}

// RemoteError is an error that the daemon answered.
type RemoteError struct {
	Text  string
	Errno syscall.Errno
}

func (e *RemoteError) Error() string { return e.Text }

// Is makes errors.Is(err, syscall.EBUSY) and its like work.
func (e *RemoteError) Is(target error) bool {
	errno, ok := target.(syscall.Errno)
	return ok && e.Errno != 0 && errno == e.Errno
}

// dirs lists where the sockets of a user may be, best first. A daemon takes
// the first that it can make; a client looks in all.
func dirs(uid int) (list []string) {
	if uid == 0 {
		list = append(list, "/run/extfused")
	} else {
		if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" && uid == os.Getuid() {
			list = append(list, filepath.Join(d, "extfused"))
		}
		list = append(list, filepath.Join("/run/user", strconv.Itoa(uid), "extfused"))
	}
	return append(list, filepath.Join(os.TempDir(), "extfused-"+strconv.Itoa(uid)))
}

// makeDir makes the first directory of dirs that can be made, or is there.
func makeDir(uid int) (string, error) {
	var first error
	for _, d := range dirs(uid) {
		err := os.Mkdir(d, 0o700)
		if err == nil || os.IsExist(err) {
			err = checkDir(d, uid)
		}
		if err == nil {
			return d, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

// checkDir refuses a directory that is not the user's own, or that others may
// enter.
func checkDir(path string, uid int) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return fmt.Errorf("%s is no directory", path)
	case !ok || int(sys.Uid) != uid:
		return fmt.Errorf("%s belongs to somebody else", path)
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others: chmod 700 it", path)
	}
	return nil
}

// socketName is the name of the socket of a device number "major:minor".
func socketName(dev string) string { return strings.ReplaceAll(dev, ":", "-") + ".sock" }
