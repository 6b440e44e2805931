package ext4

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// The kernel writes a file back in several requests at once, and they arrive in
// any order: the later part of a file may have to be placed before the earlier.

// pieces are the requests for a file of a size: whole pages, no longer than
// most, each at most ahead places from where it would be in order.
func pieces(rng *rand.Rand, size, most int64, ahead int) (list [][2]int64) {
	for off := int64(0); off < size; {
		n := most
		if rng.IntN(4) == 0 { // written back while it grew
			n = (1 + rng.Int64N(most>>12)) << 12
		}
		n = min(n, size-off)
		list = append(list, [2]int64{off, n})
		off += n
	}
	for k := range list {
		o := min(k+rng.IntN(ahead+1), len(list)-1)
		list[k], list[o] = list[o], list[k]
	}
	return list
}

// pieceSizes are those of a source tree: mostly small, some of a few MiB.
func pieceSize(rng *rand.Rand, k int) int64 {
	switch {
	case k%16 == 5:
		return 1<<20 + rng.Int64N(12<<20)
	case k%4 == 1:
		return 64<<10 + rng.Int64N(1<<20)
	default:
		return 1 + rng.Int64N(64<<10)
	}
}

// broken are the files that lie in more than one piece.
func (m *testFS) broken() (list []FileLayout) {
	for _, l := range m.layouts() {
		if l.NonContiguous {
			list = append(list, l)
		}
	}
	return list
}

func (m *testFS) wantContiguous(most int) {
	m.t.Helper()
	list := m.broken()
	m.t.Logf("%d files are not contiguous", len(list))
	if len(list) <= most {
		return
	}
	m.t.Errorf("%d files are not contiguous, at most %d may be", len(list), most)
	for _, l := range list[:min(len(list), 10)] {
		m.t.Logf("inode %d, %d bytes: %v", l.Ino, l.Size, l.Extents)
	}
}

// TestPiecesOutOfOrder: files that are written one after the other, each in
// pieces that arrive in any order, are contiguous, whether or not transactions
// commit and other files are made between two pieces. The exceptions are files
// at the end of a group, and those whose first piece made them look small.
func TestPiecesOutOfOrder(t *testing.T) {
	for _, c := range []struct {
		name          string
		most          int64 // bytes in a request
		ahead         int   // how many requests are under way
		others, syncs bool
		broken        int // files that may be, of 300
	}{
		{"large requests", 1 << 20, 12, false, false, 2},
		{"large requests, commits", 1 << 20, 3, false, true, 2},
		{"small requests", 128 << 10, 12, false, false, 3},
		{"tiny requests, commits", 16 << 10, 4, false, true, 15},
		{"large requests, other files", 1 << 20, 12, true, true, 2},
		{"small requests, other files", 128 << 10, 4, true, true, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mountNew(t, 2<<30, "-b", "4096")
			rng := rand.New(rand.NewPCG(11, uint64(c.most)))
			data := block(1<<20, 1)
			dirs := m.mkdirs(8)
			for k := range 300 {
				f := m.mkfileIn(dirs[k/40], fmt.Sprint(k))
				for j, p := range pieces(rng, pieceSize(rng, k), c.most, c.ahead) {
					if _, err := f.WriteAtFlags(nil, data[:p[1]], p[0], WriteCached); err != nil {
						t.Fatal(err)
					}
					if c.syncs && rng.Int64N(8<<20) < p[1] {
						mustOK(t, m.Sync())
					}
					if c.others && j == 0 {
						o := m.mkfileIn(dirs[k/40], fmt.Sprint("other", k))
						if _, err := o.WriteAtFlags(nil, data[:1+rng.IntN(30<<10)], 0, WriteCached); err != nil {
							t.Fatal(err)
						}
						o.Release()
					}
				}
				f.Release()
			}
			m.wantContiguous(c.broken)
		})
	}
}

// TestPiecesAtOnce is the same with the pieces of a file written by as many
// goroutines as there are requests under way; the scheduler decides which of
// them make a file look small at first, or grow twice.
func TestPiecesAtOnce(t *testing.T) {
	m := mountNew(t, 2<<30, "-b", "4096")
	rng := rand.New(rand.NewPCG(12, 1))
	data := block(1<<20, 1)
	dirs := m.mkdirs(8)
	for k := range 300 {
		f := m.mkfileIn(dirs[k/40], fmt.Sprint(k))
		todo := make(chan [2]int64)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for p := range todo {
					if _, err := f.WriteAtFlags(nil, data[:p[1]], p[0], WriteCached); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for _, p := range pieces(rng, pieceSize(rng, k), 256<<10, 4) {
			todo <- p
		}
		close(todo)
		wg.Wait()
		f.Release()
	}
	m.wantContiguous(12)
}
