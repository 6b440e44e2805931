package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKill ends the daemon with SIGKILL at random moments of an untar, with a
// second process that writes and fsyncs files. After the next mount e2fsck has
// nothing to say and every file whose fsync had returned is whole; on copies
// of the dirty image e2fsck and the kernel replay the journal too.
func TestKill(t *testing.T) {
	needMount(t)
	needLoop(t)
	tar := sourceTar(t)
	rounds, longest := 20, 3*time.Second
	if os.Getenv("EXTFUSED_FULL") != "" {
		longest = 15 * time.Second
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for i := range rounds {
		wait := time.Duration(rng.Int63n(int64(longest)))
		device := i%5 == 4
		t.Run(fmt.Sprintf("round %d at %v", i, wait), func(t *testing.T) { killRound(t, tar, wait, i, device) })
	}
}

func killRound(t *testing.T, tar string, wait time.Duration, round int, device bool) {
	file := image(t, "3G")
	img := file
	if device {
		img = loopDevice(t, file)
	}
	m := mountImage(t, img)
	log := filepath.Join(t.TempDir(), "acknowledged")
	untar := exec.Command("tar", "-xf", tar, "-C", m.dir)
	writer := exec.Command(os.Args[0], "writer", m.dir, log)
	for _, c := range []*exec.Cmd{untar, writer} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(wait)
	m.kill()
	untar.Wait() // both fail: their file system is gone
	writer.Wait()

	if round%4 == 0 {
		replayElsewhere(t, img, log)
	}
	// Mounting over the dead mountpoint detaches it.
	again := startMount(t, img, m.dir)
	t.Cleanup(again.cleanup)
	acknowledgedWhole(t, again.dir, log)
	again.umount()
}

// replayElsewhere lets e2fsck and the kernel replay a copy of the image.
func replayElsewhere(t *testing.T, img, log string) {
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
	acknowledgedWhole(t, dir, log)
	umount()
	fsck(t, copyOf)
}

// acknowledgedWhole checks each file that the writer logged.
func acknowledgedWhole(t *testing.T, dir, log string) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		return // killed before the first fsync returned
	}
	defer f.Close()
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); n++ {
		name, _, _ := strings.Cut(sc.Text(), " ")
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%s was fsynced: %v", name, err)
		}
		if !bytes.Equal(got, content(name)) {
			t.Fatalf("%s was fsynced and is not whole: %d bytes, want %d", name, len(got), len(content(name)))
		}
	}
	t.Logf("%d fsynced files are whole", n)
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

// writerMain is a process of its own: it writes and fsyncs files in dir and
// names each in log when its fsync, and the directory's, have returned.
func writerMain(dir, log string) int {
	out, err := os.Create(log)
	if err != nil {
		return 1
	}
	d, err := os.Open(dir)
	if err != nil {
		return 1
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("synced-%d", i)
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return 0
		}
		if _, err := f.Write(content(name)); err != nil {
			return 0
		}
		if f.Sync() != nil || f.Close() != nil || d.Sync() != nil {
			return 0
		}
		fmt.Fprintln(out, name)
	}
}
