package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"syscall"
	"testing"

	"extfused/fs/ondisk"
)

// Many goroutines at once, in their own directories and in a shared one, with
// syncs in between: no error that is not to be expected, and e2fsck agrees.
func TestParallelWork(t *testing.T) {
	for _, args := range [][]string{{"-b", "4096"}, {"-b", "1024", "-J", "size=1"}, {"-O", "^has_journal"}} {
		t.Run(joinNames(args), func(t *testing.T) {
			m := mountNew(t, 128<<20, args...)
			before := m.Statfs()
			shared, err := m.Mkdir(&Caller{}, RootIno, "shared", 0o755)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for g := 0; g < 6; g++ {
				wg.Add(1)
				go func() {
					defer wg.Done()
					w := &stressWorker{t: t, m: m, g: g, shared: shared.Ino, rnd: rand.New(rand.NewSource(int64(g)))}
					w.run(250)
				}()
			}
			wg.Wait()
			if err := m.Rmdir(RootIno, "shared"); err != nil {
				t.Error(err)
			}
			m.Forget(shared.Ino, 1)
			m.remount()
			if after := m.Statfs(); after != before {
				t.Errorf("statfs changed from %+v to %+v", before, after)
			}
		})
	}
}

type stressWorker struct {
	t      *testing.T
	m      *testFS
	g      int
	shared ondisk.InodeNumber
	own    ondisk.InodeNumber
	rnd    *rand.Rand
	names  []string
}

// run works in a directory of its own and removes everything at the end.
func (w *stressWorker) run(steps int) {
	dir := fmt.Sprintf("own%d", w.g)
	a, err := w.m.Mkdir(&Caller{}, RootIno, dir, 0o755)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.own = a.Ino
	for k := 0; k < steps; k++ {
		if err := w.step(k); err != nil {
			w.t.Errorf("worker %d, step %d: %v", w.g, k, err)
			return
		}
	}
	for _, n := range w.names {
		if err := w.m.Unlink(w.own, n); err != nil {
			w.t.Errorf("unlink: %v", err)
		}
	}
	w.m.Unlink(w.shared, "common") // whoever comes last finds it gone
	if err := w.m.Rmdir(RootIno, dir); err != nil {
		w.t.Errorf("rmdir: %v", err)
	}
	w.m.Forget(w.own, 1)
}

func (w *stressWorker) step(k int) error {
	switch c := w.rnd.Intn(10); {
	case c < 5 || len(w.names) == 0:
		return w.create(fmt.Sprintf("f%d", k))
	case c < 7:
		n := w.rnd.Intn(len(w.names))
		name := w.names[n]
		w.names = append(w.names[:n], w.names[n+1:]...)
		return w.m.Unlink(w.own, name)
	case c < 9:
		// by way of the shared directory, where all fight for one name
		n := w.rnd.Intn(len(w.names))
		name := w.names[n]
		w.names = append(w.names[:n], w.names[n+1:]...)
		return w.m.Rename(&Caller{}, w.own, name, w.shared, "common", 0)
	}
	return w.m.Sync()
}

func (w *stressWorker) create(name string) error {
	a, f, err := w.m.Create(&Caller{UID: uint32(w.g)}, w.own, name, ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		return err
	}
	defer w.m.Forget(a.Ino, 1)
	defer f.Release()
	w.names = append(w.names, name)
	p := bytes.Repeat([]byte{byte(w.g)}, 1+w.rnd.Intn(60000))
	if _, err := f.WriteAt(p, int64(w.rnd.Intn(10000))); err != nil {
		return err
	}
	if w.rnd.Intn(10) == 0 {
		return f.Fsync(false)
	}
	return nil
}

// A full file system says ENOSPC, takes no harm, and what is deleted can be
// used again at once although its transaction has not committed.
func TestFillAndEmpty(t *testing.T) {
	for _, args := range [][]string{{"-b", "4096", "-m", "0"}, {"-b", "1024"}, {"-O", "^has_journal"}} {
		t.Run(joinNames(args), func(t *testing.T) {
			m := mountNew(t, 24<<20, args...)
			before := m.Statfs()
			d, err := m.Mkdir(&Caller{}, RootIno, "d", 0o755)
			if err != nil {
				t.Fatal(err)
			}
			for round := 0; round < 3; round++ {
				var written uint64
				n := 0
				for ; ; n++ {
					k, err := m.writeFile(d.Ino, fmt.Sprintf("fill%d", n), 300000)
					written += uint64(k)
					if errors.Is(err, syscall.ENOSPC) {
						n++
						break
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if room := before.BlocksFree * uint64(before.BlockSize); written < room*8/10 {
					t.Errorf("round %d: ENOSPC after %d of %d bytes", round, written, room)
				}
				for k := 0; k < n; k++ {
					if err := m.Unlink(d.Ino, fmt.Sprintf("fill%d", k)); err != nil && err != syscall.ENOENT {
						t.Fatal(err)
					}
				}
			}
			if err := m.Rmdir(RootIno, "d"); err != nil {
				t.Fatal(err)
			}
			m.Forget(d.Ino, 1)
			m.remount()
			if after := m.Statfs(); after != before {
				t.Errorf("statfs changed from %+v to %+v", before, after)
			}
		})
	}
}

// writeFile makes a file of n zero bytes; the result tells how many there was
// room for.
func (m *testFS) writeFile(dir ondisk.InodeNumber, name string, n int) (int, error) {
	a, f, err := m.Create(&Caller{}, dir, name, ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer m.Forget(a.Ino, 1)
	defer f.Release()
	return f.WriteAt(make([]byte, n), 0)
}
