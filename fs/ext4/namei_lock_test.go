package ext4

import (
	"fmt"
	"math/rand"
	"sync"
	"syscall"
	"testing"
	"time"

	"extfused/fs/ondisk"
)

// bareInodes are inodes that only have a number and a lock.
func bareInodes(n int) []*Inode {
	list := make([]*Inode, n)
	for k := range list {
		list[k] = &Inode{ino: ondisk.InodeNumber(k + 1)}
	}
	return list
}

// tuples calls fn with every sequence of four of the inodes and nil, with
// repetitions.
func tuples(list []*Inode, fn func(t [4]*Inode)) {
	all := append([]*Inode{nil}, list...)
	n := len(all)
	for k := 0; k < n*n*n*n; k++ {
		fn([4]*Inode{all[k%n], all[k/n%n], all[k/n/n%n], all[k/n/n/n]})
	}
}

func distinct(t [4]*Inode) map[*Inode]bool {
	set := map[*Inode]bool{}
	for _, i := range t {
		if i != nil {
			set[i] = true
		}
	}
	return set
}

// heldExactly fails unless just the inodes of the set are locked.
func heldExactly(t *testing.T, list []*Inode, want map[*Inode]bool, what string) {
	t.Helper()
	for _, i := range list {
		free := i.mu.TryLock()
		if free {
			i.mu.Unlock()
		}
		if free == want[i] {
			t.Fatalf("%s: inode %d locked: %v, wanted %v", what, i.ino, !free, want[i])
		}
	}
}

func TestLockSetAllPermutations(t *testing.T) {
	list := bareInodes(4)
	tuples(list, func(tu [4]*Inode) {
		var s lockSet
		s.lock(tu[:]...)
		for k := 1; k < s.n; k++ {
			if s.held[k-1].ino >= s.held[k].ino {
				t.Fatalf("%v: not in order", tu)
			}
		}
		heldExactly(t, list, distinct(tu), fmt.Sprint("lock ", tu))
		s.unlock()
		heldExactly(t, list, nil, fmt.Sprint("unlock ", tu))
	})
}

// TestLockSetAdd locks two and adds two, in all permutations, with each
// possible inode held by somebody else: add then fails and takes nothing, or
// would have to wait in order, which is not tried here.
func TestLockSetAdd(t *testing.T) {
	list := bareInodes(5)
	tuples(list[:4], func(tu [4]*Inode) {
		var s lockSet
		s.lock(tu[:2]...)
		if !s.add(tu[2:]...) {
			t.Fatalf("%v: add failed with nobody in the way", tu)
		}
		heldExactly(t, list, distinct(tu), fmt.Sprint("add ", tu))
		s.unlock()
		for _, other := range list[:4] {
			before := distinct([4]*Inode{tu[0], tu[1]})
			if before[other] || !distinct(tu)[other] {
				continue
			}
			s.lock(tu[:2]...)
			if other.ino < s.highest() {
				other.mu.Lock()
				if s.add(tu[2:]...) {
					t.Fatalf("%v: add got a lock that is taken", tu)
				}
				other.mu.Unlock()
				heldExactly(t, list, before, fmt.Sprint("failed add ", tu))
			}
			s.unlock()
		}
	})
}

// TestLockSetNoDeadlock has goroutines lock random tuples in both ways.
func TestLockSetNoDeadlock(t *testing.T) {
	list := bareInodes(6)
	var inside [6]int32
	var wg sync.WaitGroup
	for g := 0; g < 8; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(g)))
			for k := 0; k < 5000; k++ {
				var tu [4]*Inode
				for j := range tu {
					tu[j] = list[rng.Intn(len(list))]
				}
				var s lockSet
				s.lock(tu[:2]...)
				if !s.add(tu[2:]...) {
					s.unlock()
					s.lock(tu[:]...)
				}
				for _, i := range s.held[:s.n] {
					inside[i.ino-1]++ // the race detector sees two at once
				}
				s.unlock()
			}
		}()
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("deadlock")
	}
}

// hammer is many goroutines on a few directories and names.
type hammer struct {
	t     *testing.T
	m     *testFS
	dirs  []ondisk.InodeNumber
	names int
}

func (h *hammer) must(what string, err error, allowed ...error) bool {
	if err == nil {
		return true
	}
	for _, a := range allowed {
		if err == a {
			return false
		}
	}
	h.t.Errorf("%s: %v", what, err)
	return false
}

func (h *hammer) run(seed int64, steps int) {
	rng := rand.New(rand.NewSource(seed))
	dir := func() ondisk.InodeNumber { return h.dirs[rng.Intn(len(h.dirs))] }
	name := func() string { return fmt.Sprintf("n%d", rng.Intn(h.names)) }
	m := h.m
	for k := 0; k < steps && !h.t.Failed(); k++ {
		switch rng.Intn(12) {
		case 0, 1, 2:
			a, f, err := m.Create(nil, dir(), name(), 0o644, syscall.O_RDWR)
			if h.must("create", err, syscall.EEXIST) {
				p := make([]byte, 1+rng.Intn(20000))
				if _, err := f.WriteAt(p, int64(rng.Intn(50000))); err != nil {
					h.t.Errorf("write: %v", err)
				}
				f.Release()
				m.Forget(a.Ino, 1)
			}
		case 3:
			a, err := m.Mkdir(nil, dir(), name(), 0o755)
			if h.must("mkdir", err, syscall.EEXIST) {
				m.Forget(a.Ino, 1)
			}
		case 4, 5:
			h.must("unlink", m.Unlink(dir(), name()), syscall.ENOENT, syscall.EISDIR)
		case 6:
			h.must("rmdir", m.Rmdir(dir(), name()), syscall.ENOENT, syscall.ENOTDIR, syscall.ENOTEMPTY)
		case 7, 8:
			flags := []uint32{0, 0, RenameExchange, RenameNoReplace}[rng.Intn(4)]
			h.must("rename", m.Rename(nil, dir(), name(), dir(), name(), flags),
				syscall.ENOENT, syscall.EISDIR, syscall.ENOTDIR, syscall.ENOTEMPTY, syscall.EEXIST, syscall.EINVAL)
		case 9:
			a, err := m.Lookup(dir(), name())
			if h.must("lookup", err, syscall.ENOENT) {
				if a.Mode&ondisk.ModeFmt == ondisk.ModeReg {
					if f, err := m.Open(a.Ino, syscall.O_RDWR); h.must("open", err) {
						f.ReadAt(make([]byte, 10000), 0)
						h.must("fallocate", f.Allocate(int64(rng.Intn(1<<20)), 8192, uint32(rng.Intn(2))))
						if rng.Intn(20) == 0 {
							h.must("fsync", f.Fsync(false))
						}
						f.Release()
					}
					_, err := m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize, Size: uint64(rng.Intn(40000))})
					h.must("truncate", err)
				}
				m.Forget(a.Ino, 1)
			}
		case 10:
			a, err := m.Lookup(dir(), name())
			if h.must("lookup", err, syscall.ENOENT) {
				b, err := m.Link(a.Ino, dir(), name())
				if h.must("link", err, syscall.EEXIST, syscall.ENOENT, syscall.EPERM) {
					m.Forget(b.Ino, 1)
				}
				m.Forget(a.Ino, 1)
			}
		case 11:
			d, err := m.OpenDir(dir())
			if h.must("opendir", err) {
				h.must("readdir", d.ReadDir(0, func(e DirEnt) bool { return true }))
				d.Release()
			}
		}
	}
}

// TestHammer has many goroutines make, move, link and remove the same names in
// the same directories; then the image must be whole and every inode freed
// that has no name.
func TestHammer(t *testing.T) {
	for _, args := range [][]string{nil, {"-O", "^has_journal"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 256<<20, args...)
			h := &hammer{t: t, m: m, names: 40}
			for k := 0; k < 3; k++ {
				a, err := m.Mkdir(nil, RootIno, fmt.Sprintf("dir%d", k), 0o755)
				if err != nil {
					t.Fatal(err)
				}
				h.dirs = append(h.dirs, a.Ino)
			}
			steps := 3000
			if testing.Short() {
				steps = 500
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				var wg sync.WaitGroup
				for g := 0; g < 12; g++ {
					wg.Add(1)
					go func() { defer wg.Done(); h.run(int64(g+1), steps) }()
				}
				wg.Wait()
			}()
			select {
			case <-done:
			case <-time.After(5 * time.Minute):
				panic("hammer: an operation hangs") // shows all goroutines
			}
			if n := m.Stats().Orphans; n != 0 {
				t.Errorf("%d orphans are left with nothing open", n)
			}
		})
	}
}
