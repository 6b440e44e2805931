package ext4

import (
	"context"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
)

// testFS is a mounted image whose test ends with an unmount and e2fsck, which
// nobody can forget.
type testFS struct {
	*FS
	t    ext4test.TB
	path string
	dev  blockdev.Device
	opts Options
}

// mountNew makes an image with mke2fs and mounts it.
func mountNew(t ext4test.TB, size int64, args ...string) *testFS {
	t.Helper()
	return mountImage(t, ext4test.Mke2fs(t, size, args...), Options{})
}

// mountImage mounts an image file; at the end of the test it is unmounted and
// checked.
func mountImage(t ext4test.TB, path string, o Options) *testFS {
	t.Helper()
	m := &testFS{t: t, path: path, opts: o}
	if o.Logf == nil {
		m.opts.Logf = func(l Level, format string, args ...any) { t.Logf(format, args...) }
	}
	m.mount()
	t.Cleanup(m.finish)
	return m
}

func (m *testFS) mount() {
	m.t.Helper()
	dev, err := blockdev.OpenFile(m.path, blockdev.OpenOptions{ReadOnly: m.opts.ReadOnly})
	if err != nil {
		m.t.Fatal(err)
	}
	fs, err := Mount(dev, m.opts)
	if err != nil {
		dev.Close()
		m.t.Fatalf("mount: %v", err)
	}
	m.FS, m.dev = fs, dev
}

// unmount ends the mount and checks the image; mount makes it live again.
func (m *testFS) unmount() {
	m.t.Helper()
	if m.FS == nil {
		return
	}
	err := m.FS.Unmount(context.Background())
	cerr := m.dev.Close()
	m.FS = nil
	if err != nil || cerr != nil {
		m.t.Fatalf("unmount: %v, close: %v", err, cerr)
	}
	ext4test.Fsck(m.t, m.path)
}

// remount is unmount, e2fsck, mount.
func (m *testFS) remount() {
	m.t.Helper()
	m.unmount()
	m.mount()
}

func (m *testFS) finish() {
	m.t.Helper()
	if !m.t.Failed() || m.FS != nil {
		m.unmount()
	}
}

var _ ext4test.TB = (*testing.T)(nil)
