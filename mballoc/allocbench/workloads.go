package allocbench

import (
	"extfused/mballoc"
)

// fallocate2 of will-it-scale: an unlinked file of the worker's own grows by 8 KiB to 1 MiB and is
// truncated to nothing.
func fallocate2(w *worker) error {
	f := &w.scratch
	w.open(f, w.b.goal(0), 0)
	piece := max(w.b.clusters(8<<10), 1)
	size := max(w.b.clusters(1<<20), piece)
	for !w.b.stop.Load() {
		for f.len < size {
			if err := w.grow(f, piece); err != nil {
				return err
			}
			w.ops++
		}
		if err := w.truncate(f); err != nil {
			return err
		}
	}
	return errStopped
}

// stream writes 24 MiB in pieces of 64 KiB, all workers at once, and removes the file.
func stream(w *worker) error {
	f := &w.scratch
	w.open(f, w.b.goal(0), 0)
	piece := w.b.clusters(64 << 10)
	for f.len < w.b.clusters(24<<20) {
		if w.stopped(true) {
			return errStopped
		}
		if err := w.grow(f, piece); err != nil {
			return err
		}
		w.ops++
	}
	w.close(f)
	if w.rounds == 0 {
		w.note(f)
	}
	return w.truncate(f)
}

// prepareFragmented leaves free what every second 64 KiB file of a full file system had.
func prepareFragmented(b *bench) error {
	n := b.clusters(64 << 10)
	for g := range b.geo.Groups {
		for c := uint32(0); c < b.geo.ClustersPerGroup; c += 2 * n {
			b.disk.SetUsed(g, mballoc.GrpCluster(c), n)
		}
	}
	return nil
}

// fragmented writes 20 MiB in pieces of 2 MiB and removes the file.
func fragmented(w *worker) error {
	f := &w.scratch
	w.open(f, w.b.goal(w.rng.IntN(w.b.cfg.Groups)), 0)
	for range 10 {
		if w.stopped(true) {
			return errStopped
		}
		if err := w.grow(f, w.b.clusters(2<<20)); err != nil {
			return err
		}
		w.ops++
	}
	w.close(f)
	if w.rounds == 0 {
		w.note(f)
	}
	return w.truncate(f)
}

// mixedFiles is how many files a worker of the mixed workload keeps.
const mixedFiles = 200

func prepareMixed(b *bench) error { return b.builtinEntries() }

// mixed is one operation among a worker's files: a new file of a size as in a source tree, an
// append, a rewrite or a removal.
func mixed(w *worker) error {
	if len(w.files) < mixedFiles {
		w.files = append(w.files, &file{})
		w.open(w.files[len(w.files)-1], w.b.goal(w.rng.IntN(w.b.cfg.Groups)), 0)
	}
	f := w.files[w.rng.IntN(len(w.files))]
	var err error
	switch n := w.rng.IntN(10); {
	case n < 5:
		if err = w.truncate(f); err == nil {
			err = w.grow(f, max(w.b.clusters(sizeAt(w.rng.Float64())), 1))
		}
		w.close(f)
	case n < 9 && f.len < w.b.clusters(4<<20):
		err = w.grow(f, w.b.clusters(64<<10))
	default:
		err = w.truncate(f)
	}
	w.ops++
	return err
}
