package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestKill ends the daemon with SIGKILL at random moments of an untar (and, where
// it gets that far, the removal of the tree and the next untar), with processes that
// write and fsync files, and one that writes files and leaves it at that. After
// the next mount e2fsck has nothing to say, every file whose fsync had returned is
// whole, and so is every file that was closed longer ago than commit=. On copies of
// the dirty image e2fsck and the kernel replay the journal too.
func TestKill(t *testing.T) {
	needMount(t)
	needLoop(t)
	tar := sourceTar(t)
	rounds, longest := 6, 4*time.Second
	if testing.Short() {
		rounds = 2
	}
	if n, err := strconv.Atoi(os.Getenv("EXTFUSED_KILLS")); err == nil {
		rounds = n
	}
	if os.Getenv("EXTFUSED_FULL") != "" {
		longest = 15 * time.Second
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	fsynced, old := 0, 0
	for i := range rounds {
		k := kill{tar: tar, wait: time.Duration(rng.Int63n(int64(longest))), round: i}
		if i%2 == 1 { // there are files older than commit=
			k.wait += killCommit + killSlack
		}
		t.Run(fmt.Sprintf("round %d at %v", i, k.wait), func(t *testing.T) { k.run(t) })
		fsynced, old = fsynced+k.fsynced, old+k.old
	}
	t.Logf("%d kills: %d fsynced files and %d old ones were whole", rounds, fsynced, old)
	if rounds > 4 && (fsynced == 0 || old == 0) {
		t.Error("there was nothing to check in all rounds")
	}
}

const (
	fsyncWriters = 3
	// killCommit is commit= of the rounds, killSlack what a commit may take on a
	// machine that is busy.
	killCommit = time.Second
	killSlack  = 2 * time.Second
)

// kill is one round.
type kill struct {
	tar          string
	wait         time.Duration
	round        int
	fsynced, old int // files that were checked
}

func (k *kill) run(t *testing.T) {
	file := image(t, "3G")
	img := file
	if k.round%5 == 4 {
		img = loopDevice(t, file)
	}
	opts := []string{fmt.Sprintf("commit=%d", killCommit/time.Second)}
	if k.round%5 == 3 {
		opts = append(opts, "data=journal")
	}
	m := mountImage(t, img, opts...)
	logs := t.TempDir()
	load := []*exec.Cmd{exec.Command("sh", "-c", `cd "$1" && i=0 && while mkdir d$i && tar -xf "$2" -C d$i && rm -rf d$i; do i=$((i+1)); done`,
		"sh", m.dir, k.tar)}
	for w := range fsyncWriters {
		load = append(load, exec.Command(os.Args[0], "writer", m.dir, filepath.Join(logs, fmt.Sprint("synced", w))))
	}
	load = append(load, exec.Command(os.Args[0], "writer", m.dir, filepath.Join(logs, "closed")))
	for _, c := range load {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(k.wait)
	killed := time.Now()
	m.kill()
	for _, c := range load {
		c.Wait() // all fail: their file system is gone
	}
	check := func(dir string) {
		t.Helper()
		k.fsynced = 0
		for w := range fsyncWriters {
			k.fsynced += acknowledgedWhole(t, dir, filepath.Join(logs, fmt.Sprint("synced", w)), killed)
		}
		k.old = acknowledgedWhole(t, dir, filepath.Join(logs, "closed"), killed.Add(-killCommit-killSlack))
	}
	if k.round%4 == 0 {
		replayElsewhere(t, img, check)
	}
	// Mounting over the dead mountpoint detaches it.
	again := startMount(t, img, m.dir)
	t.Cleanup(again.cleanup)
	check(again.dir)
	again.umount()
}

// replayElsewhere lets e2fsck and the kernel replay a copy of the image.
func replayElsewhere(t *testing.T, img string, check func(dir string)) {
	t.Helper()
	copyOf := filepath.Join(t.TempDir(), "copy")
	defer os.Remove(copyOf)
	run(t, "cp", "--sparse=always", img, copyOf)
	if out, err := exec.Command("e2fsck", "-p", copyOf).CombinedOutput(); err != nil {
		if x, ok := err.(*exec.ExitError); !ok || x.ExitCode() > 1 {
			t.Fatalf("e2fsck -p: %v\n%s", err, out)
		}
	}
	fsck(t, copyOf)
	run(t, "cp", "--sparse=always", img, copyOf)
	dir, umount := kernelMount(t, copyOf, "")
	check(dir)
	umount()
	fsck(t, copyOf)
}

// acknowledgedWhole checks each file that a writer logged before a point in time,
// and returns how many there were.
func acknowledgedWhole(t *testing.T, dir, log string, before time.Time) (n int) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		return 0 // killed before the first was logged
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, when, whole := strings.Cut(sc.Text(), " ")
		if ns, err := strconv.ParseInt(when, 10, 64); !whole || err != nil || ns >= before.UnixNano() {
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%s was promised: %v", name, err)
		}
		if !bytes.Equal(got, content(name)) {
			t.Fatalf("%s was promised and is not whole: %d bytes, want %d", name, len(got), len(content(name)))
		}
		n++
	}
	return n
}

// content is what the writer writes into a file, by its name.
func content(name string) []byte {
	rng := rand.New(rand.NewSource(int64(len(name))))
	for _, c := range []byte(name) {
		rng = rand.New(rand.NewSource(rng.Int63() + int64(c)))
	}
	b := make([]byte, rng.Intn(100<<10))
	rng.Read(b)
	return b
}

// writerMain is a process of its own: it writes files in dir and names each in log,
// with the time, when it is promised: where log is called "closed" when it was
// closed, else when its fsync, and the directory's, have returned.
func writerMain(dir, log string) int {
	out, err := os.Create(log)
	if err != nil {
		return 1
	}
	d, err := os.Open(dir)
	if err != nil {
		return 1
	}
	kind := filepath.Base(log)
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", kind, i)
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return 0
		}
		if _, err := f.Write(content(name)); err != nil {
			return 0
		}
		if kind != "closed" && f.Sync() != nil || f.Close() != nil {
			return 0
		}
		if kind == "closed" {
			time.Sleep(10 * time.Millisecond)
		} else if d.Sync() != nil {
			return 0
		}
		fmt.Fprintln(out, name, time.Now().UnixNano())
	}
}
