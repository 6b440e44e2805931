package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/daemon"
)

// readyEnv carries the number of the descriptor on which a daemon in the
// background tells its parent how mounting went.
const readyEnv = "EXTFUSED_READY_FD"

// readyMessage is the one line that goes over it.
type readyMessage struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// spawn starts this program again as a daemon, and waits until it has mounted
// or failed. What it says on stderr until then is seen by the caller.
func spawn(c *daemon.Config, stderr io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	child := exec.Command("/proc/self/exe")
	child.Args = os.Args
	child.Env = append(os.Environ(), readyEnv+"=3")
	child.ExtraFiles = []*os.File{w}
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	w.Close()
	if err != nil {
		return err
	}
	var m readyMessage
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return Exitf(ExitFailure, "the daemon died while mounting (%v): try -f", child.Wait())
	}
	if m.Code != ExitOK {
		child.Wait()
		return Exitf(m.Code, "%s", m.Error)
	}
	return awaitMount(c.Mountpoint)
}

// awaitMount makes sure that the mount answers.
func awaitMount(path string) error {
	if !daemon.Answers(path) {
		return Exitf(ExitFailure, "%s does not answer: the daemon has died", path)
	}
	return nil
}

// readyWriter is the daemon's end. A nil one is the foreground's.
type readyWriter struct{ f *os.File }

// readyPipe returns the pipe to the parent, nil if this is no daemon.
func readyPipe() *readyWriter {
	fd, err := strconv.Atoi(os.Getenv(readyEnv))
	if err != nil || fd < 3 {
		return nil
	}
	os.Unsetenv(readyEnv)
	unix.CloseOnExec(fd)
	// It is exe otherwise, to ps and to who is told that it holds the image.
	os.WriteFile("/proc/self/comm", []byte("extfused"), 0)
	return &readyWriter{os.NewFile(uintptr(fd), "ready")}
}

// report tells the parent how mounting went. In the background a failure is
// the parent's to print, so the error that comes back is silent.
func (w *readyWriter) report(err error) error {
	if w == nil {
		return err
	}
	m := readyMessage{Code: ExitCode(err)}
	if err != nil {
		m.Error = err.Error()
	} else if err := leaveTerminal(); err != nil {
		return err
	}
	if encodeErr := json.NewEncoder(w.f).Encode(m); encodeErr != nil {
		return fmt.Errorf("telling the parent process: %w", encodeErr)
	}
	w.f.Close()
	if err != nil {
		return &ExitError{Code: ExitCode(err), Err: errSilent}
	}
	return nil
}

// errSilent is an error that has been printed already.
var errSilent = errors.New("")

// leaveTerminal gives the caller's standard streams back, so that nobody waits
// for their end.
func leaveTerminal() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}
