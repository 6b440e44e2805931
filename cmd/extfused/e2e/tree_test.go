package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"
	"testing"
)

// entry is all that must be equal of two files.
type entry struct {
	mode     uint32
	uid, gid uint32
	size     int64
	mtime    syscall.Timespec
	nlink    uint64
	rdev     uint64
	target   string
	sum      [32]byte
	first    string // the first path with the same inode: hard links
}

// snapshot reads a tree with content, owners, times and hard links.
// lost+found at its top is left out.
func snapshot(t *testing.T, root string) map[string]entry {
	t.Helper()
	tree := map[string]entry{}
	type job struct{ path, rel string }
	jobs := make(chan job, 64)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var firstErr error
	fail := func(err error) {
		mu.Lock()
		if firstErr == nil {
			firstErr = err
		}
		mu.Unlock()
	}
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range jobs {
				sum, err := hashFile(j.path)
				if err != nil {
					fail(err)
					continue
				}
				mu.Lock()
				e := tree[j.rel]
				e.sum = sum
				tree[j.rel] = e
				mu.Unlock()
			}
		}()
	}
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel == "lost+found" {
			return fs.SkipDir
		}
		e, ino, err := lstat(path, rel == ".")
		if err != nil {
			return err
		}
		if e.nlink > 1 && !d.IsDir() {
			if inodes[ino] == "" {
				inodes[ino] = rel
			}
			e.first = inodes[ino]
		}
		mu.Lock()
		tree[rel] = e
		mu.Unlock()
		if d.Type().IsRegular() {
			jobs <- job{path, rel}
		}
		return nil
	})
	close(jobs)
	wg.Wait()
	if err == nil {
		err = firstErr
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func lstat(path string, top bool) (entry, uint64, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return entry{}, 0, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	e := entry{mode: st.Mode, uid: st.Uid, gid: st.Gid, size: st.Size, mtime: st.Mtim, nlink: uint64(st.Nlink), rdev: uint64(st.Rdev)}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		e.size, e.nlink = 0, 0
		if top {
			e.mtime = syscall.Timespec{}
		}
	case syscall.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return entry{}, 0, err
		}
		e.target = target
	}
	return e, st.Ino, nil
}

func hashFile(path string) (sum [32]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// sameTree fails the test where two snapshots differ.
func sameTree(t *testing.T, what string, want, got map[string]entry) {
	t.Helper()
	var diffs []string
	for p, w := range want {
		g, ok := got[p]
		if w.mtime == (syscall.Timespec{}) {
			g.mtime = w.mtime
		}
		switch {
		case !ok:
			diffs = append(diffs, p+": missing")
		case g != w:
			diffs = append(diffs, fmt.Sprintf("%s: got %+v, want %+v", p, g, w))
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			diffs = append(diffs, p+": should not be there")
		}
	}
	if len(diffs) == 0 {
		return
	}
	sort.Strings(diffs)
	for _, d := range diffs[:min(len(diffs), 20)] {
		t.Errorf("%s: %s", what, d)
	}
	t.Fatalf("%s: %d of %d entries differ", what, len(diffs), len(want))
}
