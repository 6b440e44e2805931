package blockdev_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
)

func image(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string, o blockdev.OpenOptions) blockdev.Device {
	t.Helper()
	d, err := blockdev.OpenFile(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// loop attaches a loop device for the length of the test.
func loop(t *testing.T, path string, flags ...string) string {
	t.Helper()
	args := append(flags, "--find", "--show", path)
	out, err := exec.Command("losetup", args...).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup -d %s: %v: %s", dev, err, out)
		}
	})
	return dev
}

func TestConformance(t *testing.T) {
	const size = 2<<20 + 12345
	section := func(d blockdev.Device, off, n int64) blockdev.Device {
		s, err := blockdev.NewSection(d, off, n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	file := func() blockdev.Device { return open(t, image(t, size), blockdev.OpenOptions{}) }
	for name, mk := range map[string]func() blockdev.Device{
		"File":        file,
		"Mem":         func() blockdev.Device { return blockdev.NewMem(size) },
		"Overlay":     func() blockdev.Device { return blockdev.NewOverlay(file()) },
		"Section":     func() blockdev.Device { return section(file(), 4567, 1<<20+77) },
		"SectionMem":  func() blockdev.Device { return section(blockdev.NewMem(size), 1<<20, -1) },
		"Counting":    func() blockdev.Device { return blockdev.NewCounting(file()) },
		"OverlayOver": func() blockdev.Device { return blockdev.NewOverlay(blockdev.NewOverlay(blockdev.NewMem(size))) },
	} {
		t.Run(name, func(t *testing.T) { bdtest.Run(t, mk) })
	}
	t.Run("Block", func(t *testing.T) {
		dev := loop(t, image(t, 4<<20))
		bdtest.Run(t, func() blockdev.Device { return open(t, dev, blockdev.OpenOptions{}) })
	})
}

func TestSectionMustFit(t *testing.T) {
	m := blockdev.NewMem(1000)
	for _, c := range [][2]int64{{-1, 10}, {0, 1001}, {990, 11}, {1001, -1}, {1 << 62, 1 << 62}} {
		if _, err := blockdev.NewSection(m, c[0], c[1]); err == nil {
			t.Errorf("section %v of 1000 bytes was accepted", c)
		}
	}
}

func TestOverlayLeavesItsBaseAlone(t *testing.T) {
	base := blockdev.NewMem(1 << 20)
	want := bytes.Repeat([]byte("base"), 1<<18)
	if _, err := base.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	o := blockdev.NewOverlay(blockdev.NewReadOnly(base))
	if _, err := o.WriteAt([]byte("mine"), 6000); err != nil {
		t.Fatal(err)
	}
	if err := o.Zero(100000, 500000); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<20)
	if _, err := base.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatal("the base was changed")
	}
	if _, err := o.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	copy(want[6000:], "mine")
	clear(want[100000:600000])
	if !bytes.Equal(got, want) {
		t.Fatal("the overlay shows something else")
	}
	if m := o.MemoryUsed(); m == 0 || m > 16<<10 {
		t.Fatalf("%d bytes of memory for one small write and the edges of a zeroed range", m)
	}
}

func TestHugeMemDevice(t *testing.T) {
	const size = 16 << 40
	m := blockdev.NewMem(size)
	for off := int64(0); off < size; off += size / 1000 {
		if _, err := m.WriteAt([]byte{1}, off); err != nil {
			t.Fatal(err)
		}
	}
	if u := m.MemoryUsed(); u > 8<<20 {
		t.Fatalf("%d bytes for 1000 single ones", u)
	}
	if err := m.Zero(1, size-1); err != nil {
		t.Fatal(err)
	}
	if u := m.MemoryUsed(); u > 8<<10 {
		t.Fatalf("%d bytes left after zeroing", u)
	}
	p := []byte{9}
	if _, err := m.ReadAt(p, 0); err != nil || p[0] != 1 {
		t.Fatalf("byte 0 is %d, %v", p[0], err)
	}
}

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

func TestFileBecomesSparseAgain(t *testing.T) {
	path := image(t, 8<<20)
	d := open(t, path, blockdev.OpenOptions{})
	defer d.Close()
	if _, err := d.WriteAt(bytes.Repeat([]byte{1}, 8<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	full := blocksOf(t, path)
	if err := d.Zero(0, 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(4<<20, 4<<20); errors.Is(err, blockdev.ErrNotSupported) {
		t.Skip("no holes on this file system")
	} else if err != nil {
		t.Fatal(err)
	}
	if now := blocksOf(t, path); now > full/10 {
		t.Fatalf("%d bytes on the host, %d before", now, full)
	}
}

func TestCreateWithSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	if _, err := blockdev.OpenFile(path, blockdev.OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing image: %v", err)
	}
	d := open(t, path, blockdev.OpenOptions{Create: true, Size: 5 << 30})
	defer d.Close()
	if d.Size() != 5<<30 || blocksOf(t, path) > 1<<20 {
		t.Fatalf("size %d, %d bytes used", d.Size(), blocksOf(t, path))
	}
}

func TestLocks(t *testing.T) {
	path := image(t, 1<<20)
	rw, ro := blockdev.OpenOptions{}, blockdev.OpenOptions{ReadOnly: true}
	refused := func(o blockdev.OpenOptions) {
		t.Helper()
		d, err := blockdev.OpenFile(path, o)
		if err == nil {
			d.Close()
			t.Fatal("the second opener was let in")
		}
		var iu *blockdev.InUseError
		if !errors.As(err, &iu) || !errors.Is(err, syscall.EBUSY) || !blockdev.InUse(err) {
			t.Fatalf("error %v", err)
		}
		if iu.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Fatalf("%v does not name process %d", err, os.Getpid())
		}
	}
	w := open(t, path, rw)
	refused(rw)
	refused(ro)
	open(t, path, blockdev.OpenOptions{ReadOnly: true, NoLock: true}).Close()
	refused(rw) // closing another descriptor did not drop the lock
	w.Close()
	r1, r2 := open(t, path, ro), open(t, path, ro)
	refused(rw)
	r1.Close()
	refused(rw)
	r2.Close()
	open(t, path, rw).Close()
	if _, err := blockdev.OpenFile(path, blockdev.OpenOptions{NoLock: true}); err == nil {
		t.Fatal("writing without a lock was allowed")
	}
}

// TestHolderInAnotherProcess runs this test binary again as the holder.
func TestHolderInAnotherProcess(t *testing.T) {
	if path := os.Getenv("BLOCKDEV_TEST_HOLD"); path != "" {
		open(t, path, blockdev.OpenOptions{})
		fmt.Println("held")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	path := image(t, 1<<20)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolderInAnotherProcess$")
	cmd.Env = append(os.Environ(), "BLOCKDEV_TEST_HOLD="+path)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if b := make([]byte, 4); true {
		if _, err := io.ReadFull(out, b); err != nil || string(b) != "held" {
			t.Fatalf("child said %q, %v", b, err)
		}
	}
	_, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
	var iu *blockdev.InUseError
	if !errors.As(err, &iu) || iu.PID != cmd.Process.Pid || iu.Comm == "" {
		t.Fatalf("%v; the holder is %d", err, cmd.Process.Pid)
	}
}

func TestLoopAttachedFileIsInUse(t *testing.T) {
	path := image(t, 1<<20)
	dev := loop(t, path)
	_, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
	if !blockdev.InUse(err) || !strings.Contains(err.Error(), dev) {
		t.Fatalf("opening the file behind %s: %v", dev, err)
	}
}

// Two writers must not meet through two names of the same bytes, whichever
// comes first.
func TestLoopDeviceOfALockedFileIsInUse(t *testing.T) {
	path := image(t, 1<<20)
	d := open(t, path, blockdev.OpenOptions{})
	dev := loop(t, path)
	for _, ro := range []bool{false, true} {
		_, err := blockdev.OpenFile(dev, blockdev.OpenOptions{ReadOnly: ro})
		var iu *blockdev.InUseError
		if !errors.As(err, &iu) || iu.PID != os.Getpid() {
			t.Fatalf("read-only %v: %s, whose file is locked: %v", ro, dev, err)
		}
	}
	open(t, dev, blockdev.OpenOptions{ReadOnly: true, NoLock: true}).Close()
	d.Close()
	open(t, dev, blockdev.OpenOptions{}).Close()
}

func TestBlockDeviceIsExclusive(t *testing.T) {
	dev := loop(t, image(t, 4<<20))
	d := open(t, dev, blockdev.OpenOptions{})
	if d.Size() != 4<<20 {
		t.Fatalf("size %d", d.Size())
	}
	_, err := blockdev.OpenFile(dev, blockdev.OpenOptions{})
	var iu *blockdev.InUseError
	if !errors.As(err, &iu) || iu.PID != os.Getpid() {
		t.Fatalf("second opener: %v", err)
	}
	d.Close()
	r := open(t, dev, blockdev.OpenOptions{ReadOnly: true})
	defer r.Close()
	if _, err := r.WriteAt([]byte{1}, 0); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("write: %v", err)
	}
}

func TestMountedBlockDeviceNamesTheMount(t *testing.T) {
	path := image(t, 8<<20)
	if out, err := exec.Command("mke2fs", "-q", "-F", path).CombinedOutput(); err != nil {
		t.Skipf("mke2fs: %v: %s", err, out)
	}
	dev, at := loop(t, path), t.TempDir()
	if out, err := exec.Command("mount", "-o", "ro", dev, at).CombinedOutput(); err != nil {
		t.Skipf("no mounts here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", at).Run(); err != nil {
			t.Error(err)
		}
	})
	_, err := blockdev.OpenFile(dev, blockdev.OpenOptions{})
	if !blockdev.InUse(err) || !strings.Contains(err.Error(), at) {
		t.Fatalf("opening a mounted device: %v", err)
	}
}

func TestNotWritable(t *testing.T) {
	dev := loop(t, image(t, 4096), "--read-only")
	_, err := blockdev.OpenFile(dev, blockdev.OpenOptions{})
	var nw *blockdev.NotWritableError
	if !errors.As(err, &nw) || !strings.Contains(err.Error(), "cannot be opened for writing") {
		t.Fatalf("read-only device: %v", err)
	}
}

func TestOpenRefusesOtherKinds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), fifo, "/dev/null"} {
		if d, err := blockdev.OpenFile(path, blockdev.OpenOptions{}); err == nil {
			d.Close()
			t.Errorf("%s was opened as a device", path)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name %s", err, path)
		}
	}
}

func TestErrorsCarryTheirPlace(t *testing.T) {
	path := image(t, 1<<20)
	d := open(t, path, blockdev.OpenOptions{ReadOnly: true})
	defer d.Close()
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	_, err := d.ReadAt(make([]byte, 512), 4096)
	var oe *blockdev.OpError
	if !errors.As(err, &oe) || oe.Op != "read" || oe.Off != 4096 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("a read of what was cut off: %v", err)
	}
}

// TestFullHost fills a small tmpfs under a sparse image.
func TestFullHost(t *testing.T) {
	at := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "none", at).CombinedOutput(); err != nil {
		t.Skipf("no mounts here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", at).Run(); err != nil {
			t.Error(err)
		}
	})
	d := open(t, filepath.Join(at, "image"), blockdev.OpenOptions{Create: true, Size: 16 << 20})
	defer d.Close()
	_, err := d.WriteAt(make([]byte, 4<<20), 8192)
	var oe *blockdev.OpError
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &oe) || oe.Op != "write" || oe.Off != 8192 {
		t.Fatalf("writing to a full host: %v", err)
	}
}

func TestCounting(t *testing.T) {
	c := blockdev.NewCounting(blockdev.NewMem(1 << 20))
	var d blockdev.Device = c
	p := make([]byte, 100)
	_, e1 := d.WriteAt(p, 0)
	_, e2 := d.ReadAt(p, 50)
	_, bad := d.WriteAt(p, 1<<20)
	for _, err := range []error{e1, e2, d.Flush(), d.Zero(0, 10), d.Discard(20, 30)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := blockdev.DeviceStats{Reads: 1, ReadBytes: 100, Writes: 2, WriteBytes: 100, Flushes: 1,
		Discards: 1, DiscardBytes: 30, Zeroes: 1, ZeroBytes: 10, Errors: 1}
	if got := c.Stats(); got != want || bad == nil {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}
