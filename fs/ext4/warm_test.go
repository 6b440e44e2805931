package ext4

import (
	"fmt"
	"testing"
	"time"

	"extfused/fs/ext4/ext4test"
	"extfused/mballoc"
)

// usedImage is an image whose groups are all partly used.
func usedImage(t *testing.T) string {
	path := ext4test.Mke2fs(t, 256<<20, "-b", "1024", "-m", "0")
	m := mountImage(t, path, Options{})
	for k := range 200 {
		f := m.mkfileIn(RootIno, fmt.Sprint(k))
		if err := f.Allocate(0, 1<<20, 0); err != nil {
			t.Fatal(err)
		}
		f.Release()
	}
	for k := 0; k < 200; k += 4 {
		mustOK(t, m.Unlink(RootIno, fmt.Sprint(k)))
	}
	m.unmount()
	return path
}

func (m *testFS) unread() (n int) {
	for g := range mballoc.GroupNumber(m.groupCount) {
		if m.alloc.Unread(g) {
			n++
		}
	}
	return n
}

// TestWarmGroups: the background pass looks at every group that has something
// once, in batches with a rest after each, and stops when it is told to.
func TestWarmGroups(t *testing.T) {
	path := usedImage(t)
	m := mountImage(t, path, Options{NoPrefetch: true})
	all := m.unread()
	if all < 16 {
		t.Fatalf("only %d of %d groups are worth reading", all, m.groupCount)
	}
	var pauses []time.Duration
	m.warmGroups(func(d time.Duration) bool {
		pauses = append(pauses, d)
		return len(pauses) < 2 // one batch
	})
	batch := m.alloc.Tunables().MbPrefetch
	if left := m.unread(); left >= all || left < all-batch {
		t.Errorf("after one batch of %d: %d of %d groups unread", batch, left, all)
	}
	m.warmGroups(func(d time.Duration) bool { pauses = append(pauses, d); return true })
	if left := m.unread(); left != 0 {
		t.Errorf("%d groups unread after the pass", left)
	}
	for k, d := range pauses {
		if d < warmPause || k == 0 && d != warmAfter {
			t.Errorf("pause %d is %v", k, d)
		}
	}
	reads, buddies := m.count.Stats().Reads, m.alloc.Stats().Buddies
	m.warmGroups(func(time.Duration) bool { return true })
	if r, b := m.count.Stats().Reads, m.alloc.Stats().Buddies; r != reads || b != buddies {
		t.Errorf("a second pass reads %d times and builds %d buddies", r-reads, b-buddies)
	}
}

// TestWarmInTheBackground: a mount does it by itself, and its end does not wait
// for the rest of the groups.
func TestWarmInTheBackground(t *testing.T) {
	path := usedImage(t)
	m := mountImage(t, path, Options{warmAfter: time.Millisecond})
	deadline := time.Now().Add(time.Minute)
	for m.unread() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d groups unread after a minute", m.unread())
		}
		time.Sleep(time.Millisecond)
	}
	m.opts.warmAfter = time.Hour
	m.remount()
	start := time.Now()
	m.unmount()
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("the unmount took %v", d)
	}
}
