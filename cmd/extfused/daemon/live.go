package daemon

import (
	"fmt"
	"syscall"
)

// errEnding is what a command gets that comes too late.
var errEnding = fmt.Errorf("the mount is ending: %w", syscall.ENOTCONN)

// live makes a handler of fn that runs only while the file system is there:
// finish waits for it before it unmounts. fn that takes long asks d.ending.
func (d *Daemon) live(fn func(args map[string]string) (any, error)) func(map[string]string) (any, error) {
	return func(args map[string]string) (any, error) {
		d.users.RLock()
		defer d.users.RUnlock()
		if err := d.ending(); err != nil {
			return nil, err
		}
		return fn(args)
	}
}

// ending is an error as soon as the FUSE connection is gone.
func (d *Daemon) ending() error {
	select {
	case <-d.served:
		return errEnding
	default:
		return nil
	}
}

// awaitUsers returns when no handler uses the file system any more; served is
// closed, so none begins.
func (d *Daemon) awaitUsers() {
	d.users.Lock()
	//lint:ignore SA2001 waiting for it is the point
	d.users.Unlock()
}

// wrongArgs is an error in what the user gave: EINVAL, in better words.
type wrongArgs struct{ error }

func (e *wrongArgs) Unwrap() []error { return []error{e.error, syscall.EINVAL} }
