package crashtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4"
)

// images are the file systems that the workloads run on.
var images = [][]string{
	{"-b", "1024", "-J", "size=1"},
	{"-b", "4096", "-J", "size=4"},
	{"-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^64bit"},
	{"-b", "4096", "-J", "size=4", "-I", "512"},
}

const imageSize = 16 << 20

func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

func TestCrash(t *testing.T) {
	if _, err := exec.LookPath("e2fsck"); err != nil {
		t.Skip("e2fsck is not installed")
	}
	states := envInt("CRASH_STATES", 400)
	seed := uint64(envInt("CRASH_SEED", int(time.Now().UnixNano())))
	t.Logf("CRASH_SEED=%d", seed)
	o := &oracles{left: int64(envInt("CRASH_ORACLES", 10))}
	done := 0
	for round := 0; done < states && !t.Failed(); round++ {
		mk := images[round%len(images)]
		quota := min(states-done, max(states/len(images), 100))
		t.Run(fmt.Sprintf("round %d %s", round, strings.Join(mk, " ")), func(t *testing.T) {
			done += crashRound(t, mk, seed+uint64(round), quota, o)
		})
	}
	t.Logf("%d crash states were recovered, compared and checked; e2fsck replayed %d of them too, the kernel %d", done, o.fsck.Load(), o.kernel.Load())
}

// crashRound records one workload and cuts it in quota places.
func crashRound(t *testing.T, mk []string, seed uint64, quota int, o *oracles) int {
	base := blockdev.NewMem(imageSize)
	format(t, base, mk)
	rec := bdtest.NewRecorder(base)
	fs, err := ext4.Mount(rec, ext4.Options{CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(seed, rec, fs)
	if err := w.run(250); err != nil {
		t.Fatalf("%v\nthe last operations:\n%s", err, strings.Join(w.trace[max(0, len(w.trace)-10):], "\n"))
	}
	for len(w.opened) > 0 {
		w.closeOrphan()
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	return cutAll(t, w, quota, seed, o)
}

// cutter goes through the record once, with a Player of its own, and checks
// every stride-th of the chosen positions, beginning with its number.
type cutter struct {
	t              *testing.T
	w              *workload
	o              *oracles
	seed           uint64
	number, stride int
	skip, perPos   int
	dir            string
	failed         *atomic.Bool
}

// cutAll cuts a record in about quota places, in parallel.
func cutAll(t *testing.T, w *workload, quota int, seed uint64, o *oracles) int {
	n := w.rec.NewPlayer().Len()
	var wg sync.WaitGroup
	var failed atomic.Bool
	var done atomic.Int64
	for i := range runtime.NumCPU() {
		c := &cutter{t: t, w: w, o: o, seed: seed, number: i, stride: runtime.NumCPU(), dir: t.TempDir(), failed: &failed,
			skip: max(1, n/quota), perPos: max(1, (quota+n-1)/n)}
		wg.Add(1)
		go func() {
			defer wg.Done()
			k, err := c.run()
			done.Add(int64(k))
			if err != nil {
				failed.Store(true)
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	return int(done.Load())
}

func (c *cutter) run() (n int, err error) {
	p := c.w.rec.NewPlayer()
	exp := &expectation{states: c.w.states, synced: map[uint32]int{}}
	for pos := 0; pos < p.Len() && !c.failed.Load(); pos++ {
		exp = exp.see(p.Next())
		if err := p.Advance(pos + 1); err != nil {
			return n, err
		}
		if pos%c.skip != 0 || pos/c.skip%c.stride != c.number {
			continue
		}
		for v := range c.perPos {
			loss := bdtest.Loss{}
			if v > 0 {
				loss = bdtest.RandomLoss(c.seed*1000003 + uint64(pos*c.perPos+v))
			}
			dev, err := p.State(loss)
			if err != nil {
				return n, err
			}
			if err := checkState(c.dir, dev, exp, c.o); err != nil {
				lo, hi := max(0, exp.lo-1), min(len(c.w.trace), exp.hi)
				return n, fmt.Errorf("seed %d, cut after %d of %d, %v: %w\nthe operations in question:\n%s",
					c.seed, pos+1, p.Len(), loss, err, strings.Join(c.w.trace[min(lo, hi):hi], "\n"))
			}
			n++
		}
	}
	return n, nil
}

// see takes the marks of the record in.
func (e *expectation) see(op bdtest.Op) *expectation {
	if op.Kind != bdtest.OpMark {
		return e
	}
	n := *e
	switch m := op.Note.(type) {
	case started:
		n.hi = int(m)
	case promise:
		n.lo = max(n.lo, m.tree)
		if m.id == 0 {
			n.all = m.content
			break
		}
		n.synced = map[uint32]int{m.id: m.content}
		for id, k := range e.synced {
			if id != m.id {
				n.synced[id] = k
			}
		}
	}
	return &n
}

// checkState recovers one state and checks it.
func checkState(dir string, dev blockdev.Device, exp *expectation, o *oracles) error {
	if o.take() {
		if err := o.replay(dir, dev, exp); err != nil {
			return err
		}
	}
	r, err := recoverTree(dev)
	if err != nil {
		return err
	}
	if err := exp.check(r); err != nil {
		return err
	}
	img := filepath.Join(dir, "image")
	if err := dump(dev, img); err != nil {
		return err
	}
	if out, err := exec.Command("e2fsck", "-fn", img).CombinedOutput(); err != nil {
		return fmt.Errorf("e2fsck -fn: %v\n%s", err, out)
	}
	return nil
}

// recoverTree mounts, reads and unmounts.
func recoverTree(dev blockdev.Device) (*recovered, error) {
	fs, err := ext4.Mount(dev, ext4.Options{CacheBytes: 8 << 20})
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	r, err := readTree(fs)
	if e := fs.Unmount(context.Background()); err == nil && e != nil {
		err = fmt.Errorf("unmount: %w", e)
	}
	return r, err
}

func format(t *testing.T, dev blockdev.Device, mk []string) {
	t.Helper()
	img := filepath.Join(t.TempDir(), "image")
	args := append(append([]string{"-q", "-F"}, mk...), img, strconv.Itoa(imageSize>>10)+"k")
	if out, err := exec.Command("mkfs.ext4", args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	b, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

// dump writes a device to a file, holes where it is zero.
func dump(dev blockdev.Device, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < dev.Size(); off += int64(len(buf)) {
		if _, err := dev.ReadAt(buf, off); err != nil {
			return err
		}
		if bytes.Equal(buf, zero) {
			continue
		}
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return f.Truncate(dev.Size())
}

// oracles replay a sample of the states too.
type oracles struct {
	left         int64
	fsck, kernel atomic.Int64
}

func (o *oracles) take() bool { return atomic.AddInt64(&o.left, -1) >= 0 }

// replay lets e2fsck, and where there are loop devices the kernel, recover a
// copy of the state; both must give a tree that is allowed.
func (o *oracles) replay(dir string, dev blockdev.Device, exp *expectation) error {
	img := filepath.Join(dir, "oracle")
	if err := dump(dev, img); err != nil {
		return err
	}
	if out, err := exec.Command("e2fsck", "-fy", img).CombinedOutput(); err != nil {
		if x, ok := err.(*exec.ExitError); !ok || x.ExitCode() > 1 {
			return fmt.Errorf("e2fsck's own replay: %v\n%s", err, out)
		}
	}
	if err := readOracle(img, exp); err != nil {
		return fmt.Errorf("after e2fsck's replay: %w", err)
	}
	o.fsck.Add(1)
	if _, err := os.Stat("/dev/loop-control"); err != nil || os.Geteuid() != 0 {
		return nil
	}
	if err := dump(dev, img); err != nil {
		return err
	}
	if err := kernelReplay(dir, img); err != nil {
		return err
	}
	if err := readOracle(img, exp); err != nil {
		return fmt.Errorf("after the kernel's replay: %w", err)
	}
	o.kernel.Add(1)
	return nil
}

func kernelReplay(dir, img string) error {
	mnt := filepath.Join(dir, "mnt")
	if err := os.MkdirAll(mnt, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", img, mnt).CombinedOutput(); err != nil {
		return fmt.Errorf("the kernel's mount: %v: %s", err, out)
	}
	if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
		syscall.Unmount(mnt, syscall.MNT_DETACH)
		return fmt.Errorf("umount: %v: %s", err, out)
	}
	return nil
}

// readOracle reads an image that somebody else recovered.
func readOracle(img string, exp *expectation) error {
	b, err := os.ReadFile(img)
	if err != nil {
		return err
	}
	dev := blockdev.NewMem(int64(len(b)))
	if _, err := dev.WriteAt(b, 0); err != nil {
		return err
	}
	r, err := recoverTree(dev)
	if err != nil {
		return err
	}
	return exp.check(r)
}
