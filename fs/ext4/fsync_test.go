package ext4

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// gatedFlush is a device whose flushes stop at a gate while there is one.
type gatedFlush struct {
	blockdev.Device
	gate    atomic.Pointer[chan struct{}]
	arrived chan struct{} // a value for each flush that stands there
	flushes atomic.Int64
}

func (g *gatedFlush) Flush() error {
	if gate := g.gate.Load(); gate != nil {
		g.arrived <- struct{}{}
		<-*gate
	}
	g.flushes.Add(1)
	return g.Device.Flush()
}

// An fsync does not return before data is durable that another fsync of the
// file is just making so; and those that came meanwhile share one flush.
func TestFsyncWaitsForTheFlushOfAnother(t *testing.T) {
	dev := &gatedFlush{Device: ext4test.Load(t, ext4test.Mke2fs(t, 16<<20)), arrived: make(chan struct{}, 16)}
	fs, err := Mount(dev, Options{Commit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Unmount(t.Context())
	a, f, err := fs.Create(&Caller{}, RootIno, "f", ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Forget(a.Ino, 1)
	defer f.Release()
	write := func() {
		t.Helper()
		if _, err := f.WriteAtFlags(&Caller{}, make([]byte, 4096), 0, WriteCached); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := fs.Sync(); err != nil { // from here on it is written in place
		t.Fatal(err)
	}
	write()
	gate := make(chan struct{})
	dev.gate.Store(&gate)
	before := dev.flushes.Load()
	const others = 4
	done := make(chan error, 1+others)
	sync := func() { done <- f.Fsync(true) }
	go sync()
	<-dev.arrived
	for range others {
		go sync()
	}
	select {
	case err := <-done:
		t.Errorf("an fsync returned %v before the data was durable", err)
		done <- err
	case <-time.After(50 * time.Millisecond):
	}
	dev.gate.Store(nil)
	close(gate)
	for range 1 + others {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := dev.flushes.Load() - before; n != 1 {
		t.Errorf("%d flushes for one write", n)
	}
}
