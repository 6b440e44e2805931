package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"
	"time"

	"extfused/fs/ext4/ext4test"
)

func never() error { return nil }

// TestTrimRanges: each free byte in the range is trimmed once, and nothing else
// is touched.
func TestTrimRanges(t *testing.T) {
	for _, size := range []string{"1024", "4096"} {
		t.Run(size, func(t *testing.T) {
			m := mountNew(t, 200<<20, "-b", size)
			data := block(3<<20, 5)
			f := m.mkfile("f")
			if _, err := f.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			const half = 100 << 20
			free := m.Statfs().BlocksFree << m.blockBits
			a, err := m.Trim(TrimRange{Len: half}, never)
			mustOK(t, err)
			b, err := m.Trim(TrimRange{Start: half, Len: math.MaxUint64}, never)
			mustOK(t, err)
			if a == 0 || b == 0 || a+b > free || a+b < free*9/10 { // what is preallocated is free, too
				t.Errorf("%d + %d bytes trimmed of %d free ones", a, b, free)
			}
			if s := m.Stats(); uint64(s.DiscardedBytes) != a+b || s.DiscardCalls == 0 {
				t.Errorf("%d bytes in %d calls", s.DiscardedBytes, s.DiscardCalls)
			}
			got := make([]byte, len(data))
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("a trim changed a file (%v)", err)
			}
			for _, r := range []TrimRange{{Start: 200 << 20, Len: 1 << 20}, {Len: 100}, {Len: half, MinLen: 1 << 40}} {
				_, err := m.Trim(r, never)
				mustErr(t, fmt.Sprint(r), err, syscall.EINVAL)
			}
			stop := errors.New("stop")
			if _, err := m.Trim(TrimRange{Len: half, MinLen: 0}, func() error { return stop }); !errors.Is(err, stop) {
				t.Errorf("a stopped trim: %v", err)
			}
		})
	}
}

// TestTrimReadOnly: EROFS.
func TestTrimReadOnly(t *testing.T) {
	m := mountImage(t, ext4test.Mke2fs(t, 32<<20), Options{ReadOnly: true})
	_, err := m.Trim(TrimRange{Len: math.MaxUint64}, never)
	mustErr(t, "trim", err, syscall.EROFS)
}

// TestTrimUnderLoad: trims and discards while files come and go never hit a
// block in use, with a journal and without.
func TestTrimUnderLoad(t *testing.T) {
	for _, c := range []struct {
		name    string
		discard bool // then what is freed needs no trim
		args    []string
	}{
		{"trim", false, nil}, {"discard", true, nil},
		{"trim without a journal", false, []string{"-O", "^has_journal"}}, {"discard without a journal", true, []string{"-O", "^has_journal"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mountImage(t, ext4test.Mke2fs(t, 64<<20, c.args...), Options{Discard: c.discard})
			done := make(chan struct{})
			var writers, trimmer sync.WaitGroup
			for w := range 4 {
				writers.Go(func() { m.churnAndVerify(t, w) })
			}
			trimmer.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					// Time for others to take what is about to be discarded, if they can.
					wait := func() error { time.Sleep(300 * time.Microsecond); return nil }
					if _, err := m.Trim(TrimRange{Len: math.MaxUint64}, wait); err != nil {
						t.Error(err)
						return
					}
				}
			})
			writers.Wait()
			close(done)
			trimmer.Wait()
			if s := m.Stats(); s.DiscardCalls == 0 {
				t.Error("nothing was discarded")
			}
		})
	}
}

// churnAndVerify writes files, reads them back from the device when others have
// come and gone, and removes them.
func (m *testFS) churnAndVerify(t *testing.T, w int) {
	var open []*File
	var want [][]byte
	for round := range 60 {
		name := fmt.Sprintf("w%d-%d", w, round)
		a, f, err := m.Create(nil, RootIno, name, 0o644, syscall.O_RDWR)
		if err != nil {
			t.Error(err)
			return
		}
		m.Forget(a.Ino, 1)
		data := block(20_000+round*3000, uint64(w)<<32|uint64(round))
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Error(err)
			return
		}
		open, want = append(open, f), append(want, data)
		if len(open) < 5 {
			continue
		}
		got := make([]byte, len(want[0]))
		if _, err := open[0].ReadAt(got, 0); err != nil || !bytes.Equal(got, want[0]) {
			t.Errorf("%s: another content than was written (%v)", name, err)
		}
		if err := m.Unlink(RootIno, fmt.Sprintf("w%d-%d", w, round-4)); err != nil {
			t.Error(err)
		}
		open[0].Release()
		open, want = open[1:], want[1:]
	}
	for _, f := range open {
		f.Release()
	}
}
