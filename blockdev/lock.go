package blockdev

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// InUseError means that somebody else holds the image. PID is 0 when the
// holder could not be found (another user's process, or the kernel itself, in
// which case Holder says how).
type InUseError struct {
	Path   string
	PID    int
	Comm   string // the process's name, if PID is known
	Holder string // "/dev/loop3", "mounted on /mnt": users that are no process
}

func (e *InUseError) Error() string {
	switch {
	case e.Holder != "":
		return fmt.Sprintf("%s is in use: %s", e.Path, e.Holder)
	case e.PID != 0:
		return fmt.Sprintf("%s is in use by process %d (%s)", e.Path, e.PID, e.Comm)
	}
	return e.Path + " is in use by another process"
}

// Unwrap makes errors.Is(err, syscall.EBUSY) true.
func (e *InUseError) Unwrap() error { return syscall.EBUSY }

// lockFile takes an open-file-description lock over the whole file; it is
// released when the file is closed, also by a crash. Unlike a POSIX lock it
// also keeps out a second opener in the same process, and is not lost when
// some other descriptor of the file is closed.
func lockFile(f *os.File, path string, shared bool) error {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if shared {
		lk.Type = unix.F_RDLCK
	}
	err := retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk) })
	switch {
	case err == unix.EAGAIN || err == unix.EACCES:
		return fileHolder(f, path, lk.Type)
	case unsupported(err) || err == unix.EINVAL || err == unix.ENOLCK:
		// Some network and FUSE file systems have no locks at all.
	case err != nil:
		return &os.PathError{Op: "lock", Path: path, Err: err}
	}
	if shared {
		return nil
	}
	return loopHolder(f, path)
}

// unlockFile takes the lock back, if there is one. Closing alone would not, if
// a child of this process has just been forked and has not yet run its program:
// until then it holds the same open file.
func unlockFile(f *os.File) {
	lk := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart}
	retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk) })
}

// fileHolder builds the error for a lock that was refused. A POSIX lock names
// its pid; an OFD lock belongs to no process, so whoever has it in the locks
// of one of its descriptors is found in /proc.
func fileHolder(f *os.File, path string, typ int16) error {
	e := &InUseError{Path: path}
	lk := unix.Flock_t{Type: typ, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lk); err == nil && lk.Pid > 0 {
		e.PID = int(lk.Pid)
	} else if st, err := f.Stat(); err == nil {
		e.PID = findProcess(func(pid, fd string) bool {
			o, err := os.Stat("/proc/" + pid + "/fd/" + fd)
			return err == nil && os.SameFile(st, o) && holdsLock(pid, fd)
		})
	}
	e.Comm = commOf(e.PID)
	return e
}

// holdsLock reads /proc/PID/fdinfo/FD, which has a line for each lock:
//
//	lock:	1: OFDLCK  ADVISORY  WRITE -1 fe:00:1234 0 EOF
func holdsLock(pid, fd string) bool {
	info, err := os.ReadFile("/proc/" + pid + "/fdinfo/" + fd)
	return err == nil && strings.Contains(string(info), "\nlock:")
}

// findProcess returns the first process with a descriptor that match accepts,
// or 0.
func findProcess(match func(pid, fd string) bool) int {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid := filepath.Base(p)
		fds, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue // gone, or another user's
		}
		for _, fd := range fds {
			if match(pid, fd.Name()) {
				n, _ := strconv.Atoi(pid)
				return n
			}
		}
	}
	return 0
}

func commOf(pid int) string {
	if pid == 0 {
		return ""
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// loopPatience is how long a loop device may take to go after the umount that
// released it: the kernel detaches it a moment later.
const loopPatience = 2 * time.Second

// loopHolder refuses a file that a loop device serves: the kernel may have it
// mounted, and takes no lock.
func loopHolder(f *os.File, path string) error {
	for end := time.Now().Add(loopPatience); ; time.Sleep(10 * time.Millisecond) {
		going, err := loopAttached(f, path)
		if err == nil || !going || time.Now().After(end) {
			return err
		}
	}
}

// loopAttached also tells whether the device goes by itself when nobody uses
// it any more (autoclear): it may be about to.
func loopAttached(f *os.File, path string) (going bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	backs, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, b := range backs {
		name, err := os.ReadFile(b)
		if err != nil {
			continue
		}
		o, err := os.Stat(strings.TrimSuffix(string(name), "\n"))
		if err == nil && os.SameFile(st, o) {
			dev := strings.Split(b, "/")[3]
			auto, _ := os.ReadFile(filepath.Join(filepath.Dir(b), "autoclear"))
			return strings.TrimSpace(string(auto)) == "1", &InUseError{Path: path, Holder: "/dev/" + dev + " is attached to it"}
		}
	}
	return false, nil
}

// backingHolder refuses a loop device, or a partition of one, whose file
// somebody has locked: opening the device tells nothing about that.
func backingHolder(f *os.File, path string, shared bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	sys := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	name, err := os.ReadFile(sys + "loop/backing_file")
	if err != nil {
		name, err = os.ReadFile(sys + "../loop/backing_file")
	}
	if err != nil {
		return nil // no loop device
	}
	back, err := os.Open(strings.TrimSuffix(string(name), "\n"))
	if err != nil {
		return nil // deleted, or elsewhere: nobody else finds it either
	}
	defer back.Close()
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if shared {
		lk.Type = unix.F_RDLCK
	}
	typ := lk.Type
	if err := unix.FcntlFlock(back.Fd(), unix.F_OFD_GETLK, &lk); err != nil || lk.Type == unix.F_UNLCK {
		return nil
	}
	return fileHolder(back, back.Name(), typ)
}

// blockHolder builds the error for a block device whose exclusive open said
// EBUSY: a mount, or a process that has it open.
func blockHolder(path string) error {
	e := &InUseError{Path: path}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return e
	}
	if at := mountedAt(unix.Major(st.Rdev), unix.Minor(st.Rdev)); at != "" {
		e.Holder = "mounted on " + at
		return e
	}
	e.PID = findProcess(func(pid, fd string) bool {
		var o unix.Stat_t
		err := unix.Stat("/proc/"+pid+"/fd/"+fd, &o)
		return err == nil && o.Mode&unix.S_IFMT == unix.S_IFBLK && o.Rdev == st.Rdev
	})
	e.Comm = commOf(e.PID)
	return e
}

// mountedAt finds a device in /proc/self/mountinfo, whose third field is
// major:minor and whose fifth is the mount point.
func mountedAt(major, minor uint32) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	want := fmt.Sprintf("%d:%d", major, minor)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if w := strings.Fields(sc.Text()); len(w) > 4 && w[2] == want {
			return w[4]
		}
	}
	return ""
}

// InUse tells whether err means that somebody else holds the image.
func InUse(err error) bool {
	var e *InUseError
	return errors.As(err, &e)
}
