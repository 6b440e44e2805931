package ext4

import (
	"math/rand"
	"sync"
	"testing"
	"time"

	"extfused/fs/ondisk"
)

// esModel is what the cache may say of each block; -1 = nothing known.
type esModel struct {
	st []int
	p  []ondisk.FsBlock
}

func (m *esModel) set(r esRun) {
	for k := uint32(0); k < r.n; k++ {
		b := int(r.l) + int(k)
		m.st[b], m.p[b] = int(r.st), 0
		if r.st != esHole {
			m.p[b] = r.p + ondisk.FsBlock(k)
		}
	}
}

func checkES(t *testing.T, c *esCache, e *extentStatus, m *esModel, seed int64, step int) {
	t.Helper()
	for k := 1; k < len(e.runs); k++ {
		if e.runs[k-1].end() > uint64(e.runs[k].l) || e.runs[k-1].follows(e.runs[k]) {
			t.Fatalf("seed %d step %d: runs %v and %v overlap or are one", seed, step, e.runs[k-1], e.runs[k])
		}
	}
	for b := range m.st {
		r, ok := e.lookup(c, ondisk.LBlock(b))
		if ok != (m.st[b] >= 0) {
			t.Fatalf("seed %d step %d: block %d known=%v, model %d", seed, step, b, ok, m.st[b])
		}
		if ok && (int(r.st) != m.st[b] || r.st != esHole && r.p != m.p[b] || int(r.l) != b) {
			t.Fatalf("seed %d step %d: block %d is %v, model %d at %d", seed, step, b, r, m.st[b], m.p[b])
		}
	}
}

func TestExtentStatusAgainstModel(t *testing.T) {
	const blocks = 120
	for seed := int64(1); seed <= 40; seed++ {
		rng := rand.New(rand.NewSource(seed))
		c, e := newESCache(1<<20), &extentStatus{}
		m := &esModel{st: make([]int, blocks), p: make([]ondisk.FsBlock, blocks)}
		for b := range m.st {
			m.st[b] = -1
		}
		for step := 0; step < 400; step++ {
			l := rng.Intn(blocks)
			n := 1 + rng.Intn(min(20, blocks-l))
			if rng.Intn(4) == 0 {
				e.remove(c, ondisk.LBlock(l), uint64(l+n))
				for b := l; b < l+n; b++ {
					m.st[b] = -1
				}
			} else {
				r := esRun{l: ondisk.LBlock(l), n: uint32(n), st: extentState(rng.Intn(3))}
				if r.st != esHole { // mostly one straight line, so that runs join
					r.p = ondisk.FsBlock(1000 + l + 500*rng.Intn(2))
				}
				e.insert(c, r)
				m.set(r)
			}
			checkES(t, c, e, m, seed, step)
		}
		e.drop(c)
		if st := c.stats(); st.Bytes != 0 || st.Inodes != 0 {
			t.Fatalf("seed %d: %d bytes in %d inodes after drop", seed, st.Bytes, st.Inodes)
		}
	}
}

func TestExtentStatusAtTheLastBlocks(t *testing.T) {
	c, e := newESCache(0), &extentStatus{}
	e.insert(c, esRun{l: 0, n: 1<<32 - 1, st: esHole})
	e.insert(c, esRun{l: 1<<32 - 2, n: 1, st: esWritten, p: 7})
	if r, ok := e.lookup(c, 1<<32-2); !ok || r.st != esWritten || r.n != 1 {
		t.Fatalf("last block: %v %v", r, ok)
	}
	if r, ok := e.lookup(c, 5); !ok || r.st != esHole || r.end() != 1<<32-2 {
		t.Fatalf("hole before it: %v %v", r, ok)
	}
}

// The bound holds all the time but for what is being added, and when nobody
// adds anything it holds exactly.
func TestExtentStatusShrinks(t *testing.T) {
	const workers, runs = 4, 64
	c := newESCache(100 * esRunBytes)
	limit := c.max + workers*2*runs*esRunBytes // append may double a list
	es := make([]extentStatus, 50)
	var wg sync.WaitGroup
	for w := 0; w < workers; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(w)))
			for k := 0; k < 20000; k++ {
				e := &es[rng.Intn(len(es))]
				l := ondisk.LBlock(rng.Intn(runs) * 2)
				if rng.Intn(3) == 0 {
					e.remove(c, l, uint64(l)+1)
				} else {
					e.insert(c, esRun{l: l, n: 1, st: esWritten, p: ondisk.FsBlock(l)})
				}
				if r, ok := e.lookup(c, l); ok && r.p != ondisk.FsBlock(l) {
					t.Errorf("block %d maps to %d", l, r.p)
				}
				if n := c.bytes.Load(); n > limit {
					t.Errorf("%d bytes in the midst of it, the bound is %d and %d workers add to that", n, c.max, workers)
					return
				}
			}
		}()
	}
	wg.Wait()
	st := c.stats()
	if st.Shrunk == 0 || st.Scans == 0 {
		t.Fatalf("the shrinker never ran: %+v", st)
	}
	var bytes int64
	for k := range es {
		bytes += es[k].bytes
	}
	if bytes != st.Bytes {
		t.Fatalf("lists hold %d bytes, the account says %d", bytes, st.Bytes)
	}
	if st.Bytes > c.max {
		t.Fatalf("%d bytes kept, bound %d", st.Bytes, c.max)
	}
	for k := range es {
		es[k].drop(c)
	}
	if st := c.stats(); st.Bytes != 0 || st.Inodes != 0 {
		t.Fatalf("%d bytes in %d inodes after drop", st.Bytes, st.Inodes)
	}
}

// spread fills lists of the cache, of k runs each, until the bound is near.
func spread(c *esCache, k int) []*extentStatus {
	var lists []*extentStatus
	for {
		e := &extentStatus{}
		for l := range k {
			e.insert(c, esRun{l: ondisk.LBlock(2 * l), n: 1, st: esWritten, p: ondisk.FsBlock(2 * l)})
		}
		lists = append(lists, e)
		if c.bytes.Load()+e.bytes > c.max {
			return lists
		}
	}
}

// A list that grows past the bound while the shrinker can have no other one
// goes itself: whether it grows by a run that is new, or by one cut in two.
func TestExtentStatusBoundWithOthersInUse(t *testing.T) {
	for name, grow := range map[string]func(c *esCache, e *extentStatus, k ondisk.LBlock){
		"insert": func(c *esCache, e *extentStatus, k ondisk.LBlock) {
			e.insert(c, esRun{l: 2 * k, n: 1, st: esWritten, p: 7})
		},
		"remove": func(c *esCache, e *extentStatus, k ondisk.LBlock) {
			if k == 0 {
				e.insert(c, esRun{l: 0, n: 1 << 20, st: esHole})
			}
			e.remove(c, 2*k+1, uint64(2*k+2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newESCache(1000 * esRunBytes)
			lists := spread(c, 50)
			before := c.bytes.Load()
			for _, e := range lists { // in the midst of a lookup
				e.mu.rlock()
				defer e.mu.runlock(lockPlain)
			}
			grown := &extentStatus{}
			for k := range ondisk.LBlock(500) {
				grow(c, grown, k)
				if n := c.bytes.Load(); n > c.max || n < before {
					t.Fatalf("%d bytes after run %d; bound %d, of which others use %d", n, k, c.max, before)
				}
			}
			if st := c.stats(); st.Shrunk == 0 || st.Scans == 0 {
				t.Errorf("nothing was dropped: %+v", st)
			}
		})
	}
}

// The list that grew goes even if the shrinker could not have it either,
// because somebody looked something up in it.
func TestExtentStatusBoundWithAllInUse(t *testing.T) {
	c := newESCache(1000 * esRunBytes)
	lists := spread(c, 50)
	before := c.bytes.Load()
	for _, e := range lists {
		e.mu.rlock()
		defer e.mu.runlock(lockPlain)
	}
	grown := &extentStatus{}
	grown.mu.lock()
	for l := range ondisk.LBlock(1000) {
		grown.replaceLocked(2*l, uint64(2*l+1), &esRun{l: 2 * l, n: 1, st: esWritten, p: 7})
	}
	if !grown.accountLocked(c) {
		t.Fatal("1000 runs more are within the bound")
	}
	grown.mu.unlock()
	grown.mu.rlock()
	c.scanNs.Store(0)
	go func() {
		for c.scanNs.Load() == 0 { // the shrinker is not done yet
			time.Sleep(time.Millisecond)
		}
		grown.mu.runlock(lockPlain)
	}()
	c.reclaim(grown)
	if n := c.bytes.Load(); n != before {
		t.Errorf("%d bytes; bound %d, of which the lists in use have %d", n, c.max, before)
	}
	if _, ok := grown.lookup(c, 0); ok {
		t.Error("the list is still there")
	}
}

func BenchmarkExtentStatusLookup(b *testing.B) {
	c, e := newESCache(0), &extentStatus{}
	e.insert(c, esRun{l: 0, n: 1000, st: esWritten, p: 5000})
	b.ReportAllocs()
	for k := 0; k < b.N; k++ {
		e.lookup(c, ondisk.LBlock(k%1000))
	}
}
