package allocbench

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"
)

// entry is a file of the archive: its size, and the directory it lies in.
type entry struct {
	size uint64
	dir  int
	top  int // number of the top-level directory below the archive's root
}

// quantiles of the sizes of the 78,579 files of Debian's linux-source-6.1, bytes.
var quantiles = []struct{ q, size float64 }{
	{0, 0}, {0.01, 73}, {0.02, 125}, {0.05, 254}, {0.1, 446}, {0.2, 959}, {0.3, 1621}, {0.4, 2525}, {0.5, 3874}, {0.6, 5910}, {0.7, 9044}, {0.8, 14833},
	{0.9, 28759}, {0.95, 48093}, {0.98, 83945}, {0.99, 124858}, {0.995, 191202}, {0.999, 1120270}, {0.9999, 11394491}, {1, 23944620},
}

// The shape of that tree.
const (
	builtinFiles    = 78579
	builtinDirs     = 5096
	builtinTopLevel = 24
)

// sizeAt is the size below which a share q of the files lies.
func sizeAt(q float64) uint64 {
	for i := 1; i < len(quantiles); i++ {
		a, b := quantiles[i-1], quantiles[i]
		if q <= b.q {
			return uint64(a.size + (b.size-a.size)*(q-a.q)/(b.q-a.q))
		}
	}
	return uint64(quantiles[len(quantiles)-1].size)
}

// builtinEntries makes a tree of that shape; it is the same every time.
func (b *bench) builtinEntries() error {
	x := uint32(1)
	for i := range builtinFiles {
		x = x*1664525 + 1013904223 // Numerical Recipes' generator is random enough
		dir := i * builtinDirs / builtinFiles
		b.entries = append(b.entries, entry{sizeAt(float64(x>>8) / (1 << 24)), dir, dir * builtinTopLevel / builtinDirs})
	}
	return nil
}

func prepareUntar(b *bench) error {
	if b.cfg.Tar == nil {
		return b.builtinEntries()
	}
	dirs, tops := map[string]int{}, map[string]int{}
	for r := tar.NewReader(b.cfg.Tar); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := path.Clean(h.Name)
		dir := path.Dir(name)
		b.entries = append(b.entries, entry{uint64(h.Size), number(dirs, dir), number(tops, topOf(dir))})
	}
	if len(b.entries) == 0 {
		return errors.New("the archive has no regular files")
	}
	return nil
}

// topOf is the directory below the archive's root directory.
func topOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

func number(m map[string]int, key string) int {
	n, ok := m[key]
	if !ok {
		n = len(m)
		m[key] = n
	}
	return n
}

// maxWrite is the largest write that comes through FUSE.
const maxWrite = 1 << 20

// untar creates the worker's share of the files, each written and closed before the next, and then
// removes them. Top-level directories are spread over the flex groups, as Orlov's rule does.
func untar(w *worker) error {
	b := w.b
	share := (len(b.entries) + b.cfg.Procs - 1) / b.cfg.Procs
	entries := b.entries[min(w.id*share, len(b.entries)):min((w.id+1)*share, len(b.entries))]
	if len(w.files) == 0 {
		w.files = make([]*file, len(entries))
		for i := range w.files {
			w.files[i] = &file{}
		}
	}
	if len(entries) == 0 {
		return errStopped
	}
	flexes := (b.cfg.Groups + flexSize - 1) / flexSize
	for i, e := range entries {
		if w.stopped(true) {
			return errStopped
		}
		f := w.files[i]
		w.open(f, b.goal(e.top%flexes*flexSize), 0)
		for left := e.size; left > 0; {
			n := min(left, maxWrite)
			if err := w.grow(f, b.clusters(n)); err != nil {
				return err
			}
			left -= n
		}
		w.close(f)
		w.ops++
	}
	for _, f := range w.files {
		if w.rounds == 0 {
			w.note(f)
		}
	}
	for _, f := range w.files {
		if err := w.truncate(f); err != nil {
			return err
		}
	}
	return nil
}
