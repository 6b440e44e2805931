package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
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
	"extfused/fs/ondisk"
)

// kinds are the file systems that the workloads run on.
var kinds = []struct {
	mk []string
	o  ext4.Options
}{
	{mk: []string{"-b", "1024", "-J", "size=1"}},
	{mk: []string{"-b", "4096", "-J", "size=4"}},
	{mk: []string{"-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^64bit"}},
	{mk: []string{"-b", "4096", "-J", "size=4", "-I", "512", "-O", "orphan_file"}},
	{mk: []string{"-b", "2048"}},
	{mk: []string{"-b", "1024", "-J", "size=1", "-O", "inline_data,ea_inode,quota"}},
	{mk: []string{"-b", "1024", "-O", "fast_commit", "-J", "size=2"}},
	{mk: []string{"-b", "4096", "-J", "size=4"}, o: ext4.Options{AsyncCommit: true, Data: ext4.DataWriteback}},
	{mk: []string{"-b", "1024", "-J", "size=1"}, o: ext4.Options{Data: ext4.DataJournal}},
	{mk: []string{"-b", "4096", "-J", "size=4", "-O", "orphan_file"}, o: ext4.Options{Data: ext4.DataJournal, AsyncCommit: true}},
	{mk: []string{"-b", "1024", "-J", "size=1", "-O", "inline_data,ea_inode"}},
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
	want, sample := 400, 20
	if testing.Short() {
		want, sample = 60, 3
	}
	want = envInt("CRASH_STATES", want)
	seed := uint64(envInt("CRASH_SEED", int(time.Now().UnixNano())))
	t.Logf("CRASH_SEED=%d", seed)
	r := &run{want: want, sample: envInt("CRASH_ORACLES", sample), hash: maphash.MakeSeed(), seen: map[uint64]bool{}}
	kinds := kinds
	if k := envInt("CRASH_KIND", -1); k >= 0 {
		kinds = kinds[k : k+1]
	}
	quota := max(want/len(kinds)/4, min(want/len(kinds)+1, 60)) // in short runs each kind once
	for round := 0; r.distinct() < want && !t.Failed(); round++ {
		k := kinds[round%len(kinds)]
		before := r.distinct()
		t.Run(fmt.Sprintf("round %d %s data=%d async=%v", round, strings.Join(k.mk, " "), k.o.Data, k.o.AsyncCommit), func(t *testing.T) {
			crashRound(t, k.mk, k.o, seed+uint64(round), min(quota, want-before), r)
		})
		if r.distinct() == before {
			t.Fatal("a round made no state that was not there before")
		}
	}
	t.Logf("%d distinct crash states were recovered, compared and checked (%d more were the same as one of them); e2fsck replayed %d of them too, the kernel %d (it refused %d with a torn asynchronous commit); %d had a torn superblock that these refuse",
		r.distinct(), r.same, r.fsck.Load(), r.kernel.Load(), r.refused.Load(), r.torn)
}

// run is what all rounds share: which states were seen, and the oracles.
type run struct {
	want, sample int
	hash         maphash.Seed

	mu      sync.Mutex
	seen    map[uint64]bool // +checklocks:mu, hashes of whole images
	same    int             // +checklocks:mu
	sampled int             // +checklocks:mu, states that the oracles got
	torn    int             // +checklocks:mu

	fsck, kernel, refused atomic.Int64
	mounts                sync.Mutex // one mount by the kernel at a time
}

func (r *run) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// admit tells whether an image is none that was seen before, and whether the
// oracles are to replay it, too: they get every want/sample-th, save those with a
// torn superblock, which they refuse.
func (r *run) admit(image []byte) (isNew, oracle bool) {
	h := maphash.Bytes(r.hash, image)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[h] {
		r.same++
		return false, false
	}
	r.seen[h] = true
	if !ondisk.VerifySuperBlock(image[ondisk.SuperBlockOffset:]) {
		r.torn++
		return true, false
	}
	if len(r.seen)*r.sample/r.want <= r.sampled {
		return true, false
	}
	r.sampled++
	return true, true
}

// crashRound records one workload and cuts it in quota places.
func crashRound(t *testing.T, mk []string, o ext4.Options, seed uint64, quota int, r *run) {
	base := blockdev.NewMem(imageSize)
	format(t, base, mk)
	kernel := r.kernelKnows(t, base)
	rec := bdtest.NewRecorder(base)
	o.CacheBytes = 8 << 20
	fs, err := ext4.Mount(rec, o)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(seed, rec, fs)
	stop := w.syncAside(t, seed)
	defer stop()
	if err := w.run(250); err != nil {
		t.Fatalf("%v\nthe last operations:\n%s", err, strings.Join(w.trace[max(0, len(w.trace)-10):], "\n"))
	}
	stop()
	for len(w.opened) > 0 {
		w.closeOrphan()
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	cutAll(t, w, o, quota, seed, r, kernel)
}

// kernelKnows tells whether the kernel mounts images of a kind when they are
// fresh; some features depend on how it was built.
func (r *run) kernelKnows(t *testing.T, fresh blockdev.Device) bool {
	if _, err := os.Stat("/dev/loop-control"); err != nil || os.Geteuid() != 0 {
		t.Log("no loop devices: the kernel is not asked")
		return false
	}
	dir := t.TempDir()
	image := make([]byte, imageSize)
	if _, err := fresh.ReadAt(image, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	img := filepath.Join(dir, "fresh")
	if err := dump(image, img); err != nil {
		t.Fatal(err)
	}
	if err := r.kernelMounts(img, dir); err != nil {
		t.Logf("the kernel is not asked, as it does not mount such an image when it is fresh: %v", err)
		return false
	}
	return true
}

// cutter goes through the record once, with a Player of its own, and checks
// every stride-th of the chosen positions, beginning with its number.
type cutter struct {
	w              *workload
	r              *run
	mode           ext4.DataMode
	async          bool
	kernel         bool // the kernel is asked, too
	seed           uint64
	number, stride int
	skip, perPos   int
	dir            string
	image          []byte // of the state at hand, before anybody recovered it
	failed         *atomic.Bool
}

// cutAll cuts a record in about quota places, in parallel.
func cutAll(t *testing.T, w *workload, o ext4.Options, quota int, seed uint64, r *run, kernel bool) {
	n := w.rec.NewPlayer().Len()
	var wg sync.WaitGroup
	var failed atomic.Bool
	for i := range runtime.NumCPU() {
		c := &cutter{w: w, r: r, mode: o.Data, async: o.AsyncCommit, kernel: kernel, seed: seed, number: i, stride: runtime.NumCPU(), dir: t.TempDir(), failed: &failed,
			skip: max(1, n/quota), perPos: max(1, (quota+n-1)/n), image: make([]byte, imageSize)}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.run(); err != nil {
				failed.Store(true)
				t.Error(err)
			}
		}()
	}
	wg.Wait()
}

func (c *cutter) run() error {
	p := c.w.rec.NewPlayer()
	exp := &expectation{states: c.w.states, synced: map[uint32]int{}, mode: c.mode}
	for pos := 0; pos < p.Len() && !c.failed.Load(); pos++ {
		op := p.Next()
		exp = exp.see(op)
		if err := p.Advance(pos + 1); err != nil {
			return err
		}
		for _, loss := range c.losses(pos, op) {
			dev, err := p.State(loss)
			if err != nil {
				return err
			}
			if err := c.checkState(dev, exp); err != nil {
				lo, hi := max(0, exp.lo-1), min(len(c.w.trace), exp.hi)
				return fmt.Errorf("seed %d, cut after %d of %d, %v: %w\nthe operations in question:\n%s",
					c.seed, pos+1, p.Len(), loss, err, strings.Join(c.w.trace[min(lo, hi):hi], "\n"))
			}
		}
	}
	return nil
}

// losses are what this cutter lets writes suffer at a position: nothing at those
// that are another cutter's or not chosen. A write of the superblock is torn in
// any case.
func (c *cutter) losses(pos int, op bdtest.Op) (list []bdtest.Loss) {
	if pos%c.skip == 0 && pos/c.skip%c.stride == c.number {
		for v := range c.perPos {
			loss := bdtest.Loss{}
			if v > 0 || pos/c.skip/c.stride%2 == 1 {
				loss = bdtest.RandomLoss(c.seed*1000003 + uint64(pos*c.perPos+v))
			}
			list = append(list, loss)
		}
	}
	const super = ondisk.SuperBlockOffset
	if pos%c.stride == c.number && op.Kind == bdtest.OpWrite && op.Off < super+ondisk.SuperBlockSize && op.Off+op.Len > super {
		for v := range uint64(3) {
			list = append(list, bdtest.Loss{Kind: bdtest.TearLast, Seed: c.seed + v})
		}
	}
	return list
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
			n.all = max(n.all, m.content)
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

// checkState recovers one state and checks it, if it is a new one.
func (c *cutter) checkState(dev blockdev.Device, exp *expectation) error {
	if _, err := dev.ReadAt(c.image, 0); err != nil {
		return err
	}
	isNew, oracle := c.r.admit(c.image)
	if !isNew {
		return nil
	}
	ours, err := recoverTree(dev)
	if err != nil {
		return err
	}
	if err := exp.check(ours); err != nil {
		return err
	}
	if oracle {
		if err := c.askOracles(ours); err != nil {
			return err
		}
	}
	if _, err := dev.ReadAt(c.image, 0); err != nil {
		return err
	}
	img := filepath.Join(c.dir, "image")
	if err := dump(c.image, img); err != nil {
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

// dump writes an image to a file, holes where it is zero.
func dump(image []byte, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const piece = 64 << 10
	zero := make([]byte, piece)
	for off := 0; off < len(image); off += piece {
		b := image[off:min(off+piece, len(image))]
		if bytes.Equal(b, zero[:len(b)]) {
			continue
		}
		if _, err := f.WriteAt(b, int64(off)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(len(image)))
}

// askOracles lets e2fsck, and where there are loop devices the kernel, recover
// the state; both must come to the tree that we did.
func (c *cutter) askOracles(ours *recovered) error {
	img := filepath.Join(c.dir, "oracle")
	if err := dump(c.image, img); err != nil {
		return err
	}
	if out, err := exec.Command("e2fsck", "-fy", img).CombinedOutput(); err != nil {
		if x, ok := err.(*exec.ExitError); !ok || x.ExitCode() > 1 {
			return fmt.Errorf("e2fsck's own replay: %v\n%s", err, out)
		}
	}
	if err := sameTree(img, ours); err != nil {
		return fmt.Errorf("after e2fsck's replay: %w", err)
	}
	c.r.fsck.Add(1)
	if !c.kernel {
		return nil
	}
	if err := dump(c.image, img); err != nil {
		return err
	}
	if err := c.r.kernelMounts(img, c.dir); err != nil {
		if c.async && errors.Is(err, errRefused) {
			c.r.refused.Add(1)
			return nil
		}
		return err
	}
	if err := sameTree(img, ours); err != nil {
		return fmt.Errorf("after the kernel's replay: %w", err)
	}
	c.r.kernel.Add(1)
	return nil
}

// errRefused: the kernel does not mount a state. With asynchronous commits that is
// to be expected where the commit block is whole and a block before it is not: the
// kernel verifies logged blocks only when it has begun to replay, and gives up.
var errRefused = errors.New("the kernel's mount")

// kernelMounts lets the kernel mount an image below dir, and unmount it.
func (r *run) kernelMounts(img, dir string) error {
	mnt := filepath.Join(dir, "mnt")
	if err := os.MkdirAll(mnt, 0o755); err != nil {
		return err
	}
	r.mounts.Lock()
	defer r.mounts.Unlock()
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", img, mnt).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %v: %s", errRefused, err, out)
	}
	if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
		syscall.Unmount(mnt, syscall.MNT_DETACH)
		return fmt.Errorf("umount: %v: %s", err, out)
	}
	return nil
}

// sameTree reads an image that somebody else recovered, and compares.
func sameTree(img string, ours *recovered) error {
	b, err := os.ReadFile(img)
	if err != nil {
		return err
	}
	dev := blockdev.NewMem(int64(len(b)))
	if _, err := dev.WriteAt(b, 0); err != nil {
		return err
	}
	theirs, err := recoverTree(dev)
	if err != nil {
		return err
	}
	return theirs.compare(ours)
}
