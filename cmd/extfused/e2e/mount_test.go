package e2e

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestReadOnlyChangesNothing: after a clean unmount, a read-only mount that
// reads everything leaves content and mtime of the image as they were.
func TestReadOnlyChangesNothing(t *testing.T) {
	needMount(t)
	img := mkfsImage(t, "256M")
	m := mountImage(t, img)
	makeTree(t, filepath.Join(m.dir, "tree"))
	m.umount()
	sum, st := imageSum(t, img)
	m = mountImage(t, img, "ro")
	snapshot(t, m.dir)
	if err := os.WriteFile(filepath.Join(m.dir, "x"), nil, 0o644); err == nil {
		t.Error("a read-only mount takes a new file")
	}
	m.umount()
	sum2, st2 := imageSum(t, img)
	if sum != sum2 {
		t.Error("the read-only mount changed the image")
	}
	if !st.ModTime().Equal(st2.ModTime()) {
		t.Error("the read-only mount changed the image's mtime")
	}
}

func imageSum(t *testing.T, img string) ([32]byte, os.FileInfo) {
	t.Helper()
	sum, err := hashFile(img)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(img)
	if err != nil {
		t.Fatal(err)
	}
	return sum, st
}

// TestDirtyReadOnly: a read-only mount of a dirty image replays in memory.
func TestDirtyReadOnly(t *testing.T) {
	needMount(t)
	img := image(t, "256M")
	m := mountImage(t, img)
	makeTree(t, filepath.Join(m.dir, "tree"))
	want := snapshot(t, m.dir)
	run(t, bin, "sync", m.dir)
	m.kill()
	m.cleanup()
	sum := sha256.Sum256(readFile(t, img))
	ro := startMount(t, img, t.TempDir(), "ro")
	sameTree(t, "read-only, replayed in memory", want, snapshot(t, ro.dir))
	run(t, bin, "umount", ro.dir)
	ro.wait()
	if sha256.Sum256(readFile(t, img)) != sum {
		t.Error("the read-only mount changed the dirty image")
	}
	rw := mountImage(t, img)
	sameTree(t, "after the replay", want, snapshot(t, rw.dir))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTwoDaemons: a second writer is refused and told who holds the image.
func TestTwoDaemons(t *testing.T) {
	needMount(t)
	for _, device := range []bool{false, true} {
		t.Run("device="+strconv.FormatBool(device), func(t *testing.T) {
			img := image(t, "64M")
			if device {
				needLoop(t)
				img = loopDevice(t, img)
			}
			m := mountImage(t, img)
			out, err := exec.Command(bin, "mount", img, t.TempDir()).CombinedOutput()
			if err == nil {
				t.Fatal("a second daemon mounted the image")
			}
			if bytes.Count(out, []byte("\n")) != 1 || !strings.Contains(string(out), img) {
				t.Errorf("the refusal is not one line that names the image:\n%s", out)
			}
			if pid := strconv.Itoa(m.cmd.Process.Pid); !device && !strings.Contains(string(out), pid) {
				t.Errorf("the refusal does not name the holder %s:\n%s", pid, out)
			}
		})
	}
}

// TestFio writes with verification, by four jobs in every way fio knows, and
// verifies again after a remount.
func TestFio(t *testing.T) {
	needMount(t)
	needProgram(t, "fio")
	for _, v := range []struct{ name, engine, direct string }{
		{"buffered", "psync", "0"}, {"direct", "psync", "1"}, {"mmap", "mmap", "0"}, {"libaio", "libaio", "1"},
	} {
		t.Run(v.name, func(t *testing.T) {
			img := image(t, "512M")
			m := mountImage(t, img)
			args := []string{"--name=v", "--directory=" + m.dir, "--rw=randwrite", "--bs=4k", "--size=32m", "--numjobs=4",
				"--ioengine=" + v.engine, "--direct=" + v.direct, "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--randseed=7"}
			run(t, "fio", append(args, "--do_verify=1")...)
			m.umount()
			again := startMount(t, img, m.dir)
			t.Cleanup(again.cleanup)
			run(t, "fio", append(args, "--verify_only")...)
			again.umount()
		})
	}
}

// TestSignals: SIGTERM, SIGINT and umount(8) all leave a clean image.
func TestSignals(t *testing.T) {
	needMount(t)
	for _, sig := range []string{"TERM", "INT"} {
		t.Run(sig, func(t *testing.T) {
			img := image(t, "128M")
			m := mountImage(t, img)
			makeTree(t, filepath.Join(m.dir, "tree"))
			run(t, "kill", "-"+sig, strconv.Itoa(m.cmd.Process.Pid))
			m.wait()
			fsck(t, img)
		})
	}
	t.Run("umount(8)", func(t *testing.T) {
		img := image(t, "128M")
		m := mountImage(t, img)
		makeTree(t, filepath.Join(m.dir, "tree"))
		run(t, "umount", m.dir)
		m.wait()
		fsck(t, img)
	})
}
