package ext4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// faultRun is a mount on a device that will fail, and what it has promised.
type faultRun struct {
	fs       *FS
	warnings atomic.Int32 // messages that the mount turns read-only
	told     atomic.Int32 // calls of OnRemountRO
	panics   atomic.Int32

	mu     sync.Mutex
	synced map[string][]byte // +checklocks:mu, files whose fsync returned nil
	failed []error           // +checklocks:mu, of fsyncs
}

func (r *faultRun) options(policy ErrorsPolicy) Options {
	return Options{
		Errors: policy, Discard: true,
		OnRemountRO: func(error) { r.told.Add(1) },
		Panic:       func(error) { r.panics.Add(1) },
		Logf: func(l Level, format string, args ...any) {
			if strings.HasPrefix(format, "remounting read-only") {
				r.warnings.Add(1)
			}
		},
	}
}

// worker makes files, overwrites and removes some, and fsyncs each.
func (r *faultRun) worker(id int) {
	for k := range 6 {
		name := fmt.Sprintf("w%d-%d", id, k)
		data := bytes.Repeat([]byte(name), 3000)
		a, f, err := r.fs.Create(&Caller{}, RootIno, name, ondisk.ModeReg|0o644, syscall.O_RDWR)
		if err != nil {
			r.note("", nil, err)
			continue
		}
		if _, err = f.WriteAt(data, 0); err == nil {
			err = f.Fsync(k%2 == 1)
		}
		if err == nil && k%3 == 0 { // in place
			data = bytes.Clone(data)
			copy(data[5000:], "overwritten")
			r.forget(name)
			if _, err = f.WriteAt(data[5000:5011], 5000); err == nil {
				err = f.Fsync(true)
			}
		}
		f.Release()
		r.fs.Forget(a.Ino, 1)
		r.note(name, data, err)
		if k%3 == 2 {
			gone := fmt.Sprintf("w%d-%d", id, k-1)
			r.forget(gone)
			r.fs.Unlink(RootIno, gone)
		}
	}
}

func (r *faultRun) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.synced, name)
}

func (r *faultRun) note(name string, data []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = append(r.failed, err)
		return
	}
	r.synced[name] = data
}

// Whichever write, flush or discard fails, in a commit, a checkpoint or a write
// of data: either only the writer of data hears of it, or the mount turns
// read-only (or errors=panic is obeyed), everybody who waits for durability
// hears of it, and later ones do; it is logged once and counted; and on the
// repaired device a mount finds everything that an fsync had promised, and
// e2fsck nothing.
func TestDeviceFailures(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20, "-b", "1024", "-J", "size=1")
	for _, c := range []struct {
		name string
		rule bdtest.Rule
	}{
		{"write", bdtest.Rule{Ops: bdtest.OpWrite}},
		{"write, once", bdtest.Rule{Ops: bdtest.OpWrite, Count: 1}},
		{"write, torn", bdtest.Rule{Ops: bdtest.OpWrite, Tear: 1536}},
		{"flush", bdtest.Rule{Ops: bdtest.OpFlush}},
		{"flush, once", bdtest.Rule{Ops: bdtest.OpFlush, Count: 1}},
		{"discard", bdtest.Rule{Ops: bdtest.OpDiscard, Count: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			step, hits := 1, 0
			if c.rule.Ops == bdtest.OpWrite {
				step = 7
			}
			if testing.Short() {
				step *= 5
			}
			for n := 0; failOnce(t, image, c.rule, n, ErrorsDefault) && !t.Failed(); n += step {
				hits++
			}
			if hits == 0 {
				t.Error("nothing failed")
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		failOnce(t, image, bdtest.Rule{Ops: bdtest.OpFlush}, 3, ErrorsPanic)
	})
}

// failOnce lets operation number skip of the rule's kinds fail, and tells
// whether there was one.
func failOnce(t *testing.T, image string, rule bdtest.Rule, skip int, policy ErrorsPolicy) bool {
	t.Helper()
	mem := ext4test.Load(t, image)
	dev := bdtest.NewFault(mem)
	r := &faultRun{synced: map[string][]byte{}}
	fs, err := Mount(dev, r.options(policy))
	if err != nil {
		t.Fatal(err)
	}
	r.fs = fs
	rule.Skip = skip
	dev.Add(rule)
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r.worker(id)
		}()
	}
	wg.Wait()
	if dev.Hits() == 0 {
		_, _ = fs.jnl.CheckpointOnce()
	}
	hit := dev.Hits() > 0
	if hit {
		r.checkReaction(t, skip, policy)
	}
	if err := fs.Unmount(context.Background()); err == nil && fs.Err() != nil {
		t.Errorf("operation %d: unmount after an abort returned nil", skip)
	}
	dev.Heal()
	r.checkRepaired(t, mem, skip)
	return hit
}

// checkReaction is after a failure, with the mount still there.
func (r *faultRun) checkReaction(t *testing.T, n int, policy ErrorsPolicy) {
	t.Helper()
	fs := r.fs
	if fs.Stats().IOErrors == 0 {
		t.Errorf("operation %d: the failure was not counted", n)
	}
	if fs.Err() == nil { // a write of data: its writer has heard
		if len(r.failed) == 0 && !fs.ReadOnly() {
			t.Errorf("operation %d: nobody heard of the failure", n)
		}
		return
	}
	for end := time.Now().Add(20 * time.Second); !fs.health.isAborted.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the journal gives up first, and tells then
	}
	fs.health.reports.Wait()
	if !fs.ReadOnly() || r.warnings.Load() != 1 || r.told.Load() != 1 {
		t.Errorf("operation %d: read-only %v, logged %d times, told %d times", n, fs.ReadOnly(), r.warnings.Load(), r.told.Load())
	}
	if want := policy == ErrorsPanic; want != (r.panics.Load() == 1) {
		t.Errorf("operation %d: errors=panic obeyed %d times", n, r.panics.Load())
	}
	if err := fs.Sync(); err != syscall.EIO {
		t.Errorf("operation %d: a sync afterwards: %v", n, err)
	}
	if _, _, err := fs.Create(&Caller{}, RootIno, "late", ondisk.ModeReg, syscall.O_RDWR); err != syscall.EROFS {
		t.Errorf("operation %d: a create afterwards: %v", n, err)
	}
	for name := range r.synced {
		a, err := fs.Lookup(RootIno, name)
		if err != nil {
			t.Errorf("operation %d: lookup of %s afterwards: %v", n, name, err)
			break
		}
		f, err := fs.Open(a.Ino, syscall.O_RDONLY)
		if err != nil {
			t.Errorf("operation %d: open of %s afterwards: %v", n, name, err)
			break
		}
		if err := f.Fsync(false); err != syscall.EIO {
			t.Errorf("operation %d: an fsync afterwards: %v", n, err)
		}
		f.Release()
		break
	}
	for _, err := range r.failed {
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
			t.Errorf("operation %d: somebody was told %v", n, err)
		}
	}
}

// checkRepaired mounts the repaired device: what was promised is there.
func (r *faultRun) checkRepaired(t *testing.T, mem blockdev.Device, n int) {
	t.Helper()
	fs, err := Mount(mem, Options{})
	if err != nil {
		t.Fatalf("operation %d: mount after the repair: %v", n, err)
	}
	for name, want := range r.synced {
		if got, err := readPath(fs, name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("operation %d: %s was promised, and is %d bytes of %d: %v", n, name, len(got), len(want), err)
		}
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Errorf("operation %d: unmount after the repair: %v", n, err)
	}
	ext4test.Fsck(t, ext4test.Save(t, mem))
}

// readPath reads a file in the root directory.
func readPath(fs *FS, name string) ([]byte, error) {
	a, err := fs.Lookup(RootIno, name)
	if err != nil {
		return nil, err
	}
	defer fs.Forget(a.Ino, 1)
	f, err := fs.Open(a.Ino, syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Release()
	b := make([]byte, a.Size)
	k, err := f.ReadAt(b, 0)
	return b[:k], err
}
