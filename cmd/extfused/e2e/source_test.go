package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// source is the tree that the untar tests work on, unpacked once for all tests.
var source struct {
	sync.Once
	tar  string
	tree string
	why  string
}

// sourceTar returns the path of an uncompressed tar, or skips the test.
func sourceTar(t *testing.T) string {
	t.Helper()
	source.Do(func() { source.tar, source.why = findTar() })
	if source.why != "" {
		t.Skip(source.why)
	}
	return source.tar
}

func findTar() (path, why string) {
	if p := os.Getenv("EXTFUSED_TAR"); p != "" {
		return p, ""
	}
	const xz = "/usr/src/linux-source-6.1.tar.xz"
	if _, err := os.Stat(xz); err != nil {
		return "", "no source tree's tar: set EXTFUSED_TAR or install linux-source-6.1"
	}
	path = filepath.Join(work, "linux.tar")
	out, err := os.Create(path)
	if err != nil {
		return "", err.Error()
	}
	defer out.Close()
	cmd := exec.Command("xz", "-dc", xz)
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		return "", fmt.Sprintf("xz -dc %s: %v", xz, err)
	}
	return path, ""
}

// hostTree unpacks the tar on the host's file system and returns its snapshot.
// tar leaves some directories with the time of the unpacking: those that the
// archive comes back to after it has left them. Their times are zero here, and
// sameTree does not compare them.
func hostTree(t *testing.T, tar string) map[string]entry {
	t.Helper()
	dir, start := t.TempDir(), time.Now()
	run(t, "tar", "-xf", tar, "-C", dir)
	tree := snapshot(t, dir)
	for p, e := range tree {
		if e.mode&syscall.S_IFMT == syscall.S_IFDIR && !time.Unix(e.mtime.Unix()).Before(start.Add(-time.Second)) {
			e.mtime = syscall.Timespec{}
			tree[p] = e
		}
	}
	return tree
}
