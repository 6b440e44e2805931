package allocbench

import (
	"errors"
	"math/rand/v2"

	"extfused/mballoc"
)

// worker is one process of the workload.
type worker struct {
	b       *bench
	id      int
	rng     *rand.Rand
	ops     uint64
	rounds  int
	files   []*file // files that outlive a round
	scratch file
	_       [64]byte
}

// file is what ext4 would know of a file: its extents and the allocator's state.
type file struct {
	ino     uint32
	state   mballoc.InodeState
	len     uint32 // clusters
	extents []mballoc.Result
	req     mballoc.Request
}

func newWorker(b *bench, id int) *worker {
	return &worker{b: b, id: id, rng: rand.New(rand.NewPCG(b.cfg.Seed, uint64(id)))}
}

// errStopped ends a worker whose time is over.
var errStopped = errors.New("time is over")

// run repeats the workload's round until the time is over; the first round of a workload that is
// looked at once runs to its end.
func (w *worker) run(wl workload) error {
	for {
		err := wl.round(w)
		w.rounds++
		if err == errStopped || err == nil && w.b.stop.Load() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// stopped is whether to end; a first round is completed when it is the one that is reported.
func (w *worker) stopped(first bool) bool { return w.b.stop.Load() && !(first && w.rounds == 0) }

// open makes the file a new, empty one.
func (w *worker) open(f *file, goal mballoc.Cluster, flags mballoc.Flags) {
	f.ino = w.b.nextIno.Add(1)
	f.len, f.extents = 0, f.extents[:0]
	f.req = mballoc.Request{Ino: f.ino, State: &f.state, Goal: goal, HasGoal: true, Flags: mballoc.Data | flags, Writer: uint32(w.id)}
}

// grow appends n clusters to the file. When the file system is full but for a commit it commits;
// when it is really full it returns the error.
func (w *worker) grow(f *file, n uint32) error {
	end := f.len + n
	for f.len < end {
		r := &f.req
		r.Logical, r.Len = mballoc.LCluster(f.len), end-f.len
		r.Size = uint64(end) << w.b.geo.BlockSizeBits
		if h := w.b.hooks.allocate; h != nil {
			h(w, r)
		}
		tx := w.b.journal.Begin(w.id)
		res, err := w.b.a.Allocate(tx, r)
		w.b.journal.End(w.id)
		if err != nil {
			var full *mballoc.NoSpaceError
			if errors.As(err, &full) && full.Pending > 0 {
				w.b.journal.Commit(nil)
				continue
			}
			return err
		}
		f.add(res)
	}
	return nil
}

// add enters a run at the end of the file.
func (f *file) add(res mballoc.Result) {
	f.len += res.Len
	last := res.Start + mballoc.Cluster(res.Len) - 1
	f.req.Left = mballoc.Neighbour{Logical: mballoc.LCluster(f.len - 1), Physical: last, Valid: true}
	if k := len(f.extents); k > 0 && f.extents[k-1].Start+mballoc.Cluster(f.extents[k-1].Len) == res.Start {
		f.extents[k-1].Len += res.Len
		return
	}
	f.extents = append(f.extents, res)
}

// truncate frees all of the file.
func (w *worker) truncate(f *file) error {
	w.b.a.DiscardInode(&f.state)
	for _, e := range f.extents {
		if h := w.b.hooks.free; h != nil {
			h(w, e.Len)
		}
		tx := w.b.journal.Begin(w.id)
		err := w.b.a.Free(tx, e.Start, e.Len, 0)
		w.b.journal.End(w.id)
		if err != nil {
			return err
		}
	}
	f.len, f.extents = 0, f.extents[:0]
	f.req.Left.Valid = false
	return nil
}

// close is the last close of a writer.
func (w *worker) close(f *file) { w.b.a.DiscardInode(&f.state) }

// note adds a file to the report's layout figures.
func (w *worker) note(f *file) {
	l := &w.b.layout
	l.Lock()
	defer l.Unlock()
	r := &l.report
	r.Files++
	r.Extents += uint64(len(f.extents))
	r.MaxExtents = max(r.MaxExtents, len(f.extents))
	if len(f.extents) > 1 {
		r.Fragmented++
	}
	per := uint64(w.b.geo.ClustersPerGroup)
	for _, e := range f.extents {
		l.blocks += uint64(e.Len)
		for g := uint64(e.Start) / per; g <= (uint64(e.Start)+uint64(e.Len)-1)/per; g++ {
			l.touched[g] = true
		}
	}
}

// clusters is how many clusters hold that many bytes.
func (b *bench) clusters(bytes uint64) uint32 {
	return uint32((bytes + uint64(b.cfg.BlockSize) - 1) >> b.geo.BlockSizeBits)
}

// goal is where ext4 looks for the data of files in a directory of group g: in the second group of
// its flex group, as the first holds metadata.
func (b *bench) goal(g int) mballoc.Cluster {
	g = min(g/flexSize*flexSize+1, b.cfg.Groups-1)
	return mballoc.Cluster(g) * mballoc.Cluster(b.geo.ClustersPerGroup)
}
