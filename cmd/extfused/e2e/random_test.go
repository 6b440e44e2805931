package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// longRun tells whether the long forms were asked for.
func longRun() bool { return os.Getenv("EXTFUSED_FULL") != "" }

// number is a number from the environment.
func number(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, v)
	}
	return n
}

// both are the two file systems that are compared.
type both struct {
	t       *testing.T
	kernel  string // directory
	ours    *mount
	umountK func()
	imgK    string
}

func mountBoth(t *testing.T, size string, opts string) *both {
	t.Helper()
	return mountBothWith(t, size, opts, opts)
}

// mountBothWith is mountBoth with other options for the kernel.
func mountBothWith(t *testing.T, size string, opts, kernelOpts string) *both {
	t.Helper()
	needMount(t)
	needLoop(t)
	b := &both{t: t, imgK: mkfsImage(t, size)}
	b.kernel, b.umountK = kernelMount(t, b.imgK, kernelOpts)
	b.ours = mountImage(t, mkfsImage(t, size), opts)
	return b
}

// compare compares the trees: as they are, and extfused's once more as the
// kernel sees it. Both are unmounted and checked.
func (b *both) compare() {
	b.t.Helper()
	syscall.Sync()
	want := fingerprint(b.kernel)
	sameFingerprint(b.t, "extfused", want, fingerprint(b.ours.dir))
	b.umountK()
	fsck(b.t, b.imgK)
	b.ours.umount()
	dir, umount := kernelMount(b.t, b.ours.img, "ro")
	sameFingerprint(b.t, "extfused's image in the kernel", want, fingerprint(dir))
	umount()
	b.t.Logf("%d files compared", len(want))
}

func sameFingerprint(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	all := maps.Clone(want)
	maps.Copy(all, got)
	n := 0
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if want[p] == got[p] {
			continue
		}
		if n++; n <= 10 {
			t.Errorf("%s: %q is\n%s\nwant\n%s", what, p, got[p], want[p])
		}
	}
	if n > 0 {
		t.Fatalf("%s: %d of %d files differ", what, n, len(all))
	}
}

// TestRandomOperations does the same random operations on extfused and on the
// kernel's ext4, and compares each result, and the trees at the end.
//
//	EXTFUSED_OPS   how many; default 10,000, with EXTFUSED_FULL 150,000
//	EXTFUSED_SEED  which; default: a new one each time, printed
//	EXTFUSED_LOG   a file for what was done
func TestRandomOperations(t *testing.T) {
	def := uint64(10000)
	if longRun() {
		def = 150000
	}
	ops, seed := number(t, "EXTFUSED_OPS", def), number(t, "EXTFUSED_SEED", uint64(time.Now().UnixNano()))
	t.Logf("EXTFUSED_SEED=%d EXTFUSED_OPS=%d", seed, ops)
	b := mountBoth(t, "2G", "noatime")
	k, x := newPlayer(b.kernel, seed), newPlayer(b.ours.dir, seed)
	defer k.close()
	defer x.close()
	for n := range ops {
		want := make(chan string)
		go func() { want <- k.step() }()
		got := x.step()
		if w := <-want; got != w {
			x.keepLog(t)
			t.Fatalf("operation %d: extfused %s\nkernel %s\nbefore: %q", n, got, w, x.log[max(0, len(x.log)-9):len(x.log)-1])
		}
	}
	count := map[string]int{}
	for _, s := range x.log {
		var what, last string
		fmt.Sscan(s, &what)
		last = s[len(s)-min(len(s), 2):]
		count[what]++
		if last == "OK" {
			count[what+" OK"]++
		}
	}
	t.Logf("operations: %v", count)
	k.close()
	x.close()
	x.keepLog(t)
	b.compare()
}

// keepLog writes what was done to the file EXTFUSED_LOG, to look into a failure.
func (p *player) keepLog(t *testing.T) {
	t.Helper()
	if path := os.Getenv("EXTFUSED_LOG"); path != "" {
		if err := os.WriteFile(path, []byte(strings.Join(p.log, "\n")), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestRandomThreads does random operations with several threads, each in a
// tree of its own, on both, and compares results and trees.
func TestRandomThreads(t *testing.T) {
	def, threads := uint64(1500), 6
	if longRun() {
		def = 20000
	}
	ops, seed := number(t, "EXTFUSED_OPS", def), number(t, "EXTFUSED_SEED", uint64(time.Now().UnixNano()))
	t.Logf("EXTFUSED_SEED=%d EXTFUSED_OPS=%d in each of %d threads", seed, ops, threads)
	b := mountBoth(t, "2G", "noatime")
	logs := [2][][]string{make([][]string, threads), make([][]string, threads)}
	for side, root := range []string{b.kernel, b.ours.dir} {
		var wg sync.WaitGroup
		for k := range threads {
			dir := filepath.Join(root, fmt.Sprint("thread", k))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				p := newPlayer(dir, seed+uint64(k))
				defer p.close()
				for range ops {
					p.step()
				}
				logs[side][k] = p.log
			})
		}
		wg.Wait()
	}
	for k := range threads {
		for n, want := range logs[0][k] {
			if got := logs[1][k][n]; got != want {
				t.Fatalf("thread %d, operation %d: extfused %s\nkernel %s", k, n, got, want)
			}
		}
	}
	b.compare()
}
