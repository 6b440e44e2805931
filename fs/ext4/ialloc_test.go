package ext4

import (
	"math/rand"
	"testing"

	"extfused/fs/ondisk"
)

// makeBare allocates an inode without a name; it is deleted again by iput once
// its link is taken away.
func (m *testFS) makeBare(dir *Inode, mode uint32) *Inode {
	m.t.Helper()
	h, err := m.begin(creditsNewInode + creditsOrphan)
	if err != nil {
		m.t.Fatal(err)
	}
	i, err := m.newInode(h, dir, &Caller{UID: 1, GID: 2}, mode)
	if err == nil {
		i.raw.LinksCount = 0
		err = m.orphanAdd(h, i)
	}
	if serr := h.stop(); err == nil {
		err = serr
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return i
}

// Inodes taken and given back in random order leave the counts as they were,
// on an image whose groups are uninitialised at the start.
func TestInodesComeAndGo(t *testing.T) {
	for _, args := range [][]string{nil, {"-b", "1024"}, {"-O", "^flex_bg"}, {"-O", "^has_journal"}, {"-O", "^metadata_csum,uninit_bg"}, {"-t", "ext3"}} {
		t.Run(joinNames(args), func(t *testing.T) {
			m := mountNew(t, 300<<20, append(args, "-N", "3000")...)
			before := m.Statfs()
			dir, err := m.iget(RootIno)
			if err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewSource(1))
			seen := map[ondisk.InodeNumber]bool{}
			var live []*Inode
			for k := 0; k < 4000; k++ {
				if len(live) > 0 && (rnd.Intn(3) == 0 || len(live) > 2000) {
					n := rnd.Intn(len(live))
					delete(seen, live[n].ino)
					m.iput(live[n])
					live[n] = live[len(live)-1]
					live = live[:len(live)-1]
					continue
				}
				mode := uint32(ondisk.ModeReg | 0o644)
				if rnd.Intn(4) == 0 {
					mode = ondisk.ModeFIFO | 0o600
				}
				i := m.makeBare(dir, mode)
				if seen[i.ino] {
					t.Fatalf("inode %d was given twice", i.ino)
				}
				seen[i.ino] = true
				live = append(live, i)
			}
			if got := m.Statfs().FilesFree; got != before.FilesFree-uint64(len(live)) {
				t.Errorf("%d free inodes, want %d", got, before.FilesFree-uint64(len(live)))
			}
			if n := m.Stats().Orphans; int(n) != len(live) {
				t.Errorf("%d orphans, want %d", n, len(live))
			}
			for _, i := range live[:len(live)/2] { // the others are left to the unmount
				m.iput(i)
			}
			m.iput(dir)
			m.remount()
			if after := m.Statfs(); after != before {
				t.Errorf("statfs changed from %+v to %+v", before, after)
			}
		})
	}
}

func TestNoInodesLeft(t *testing.T) {
	m := mountNew(t, 16<<20, "-N", "64")
	dir, err := m.iget(RootIno)
	if err != nil {
		t.Fatal(err)
	}
	defer m.iput(dir)
	free := m.Statfs().FilesFree
	for k := uint64(0); k < free; k++ {
		m.makeBare(dir, ondisk.ModeReg)
	}
	h, err := m.begin(creditsNewInode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.newInode(h, dir, nil, ondisk.ModeReg); err == nil || err.Error() != "no space left on device" {
		t.Errorf("newInode on a file system without inodes: %v", err)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

func TestNextZeroBit(t *testing.T) {
	bm := make([]byte, 64)
	for k := range bm {
		bm[k] = 0xff
	}
	for _, n := range []uint32{0, 5, 63, 64, 65, 130, 511} {
		clearBits(bm, n, 1)
		for from := uint32(0); from <= n; from++ {
			if got, ok := nextZeroBit(bm, from, 512); !ok || got != n {
				t.Fatalf("from %d: %d, %v, want %d", from, got, ok, n)
			}
		}
		if got, ok := nextZeroBit(bm, n+1, 512); ok || got != 512 {
			t.Fatalf("behind %d: %d, %v", n, got, ok)
		}
		if n > 0 {
			if _, ok := nextZeroBit(bm, 0, n); ok {
				t.Fatalf("found a bit beyond the end %d", n)
			}
		}
		setBits(bm, n, 1)
	}
}

func BenchmarkMarkDirty(b *testing.B) {
	m := mountNew(b, 64<<20)
	i, err := m.iget(RootIno)
	if err != nil {
		b.Fatal(err)
	}
	defer m.iput(i)
	h, err := m.begin(10)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := i.markDirty(h); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	h.stop()
}

func BenchmarkNewInodeAndDelete(b *testing.B) {
	m := mountNew(b, 256<<20)
	dir, err := m.iget(RootIno)
	if err != nil {
		b.Fatal(err)
	}
	defer m.iput(dir)
	b.ReportAllocs()
	for b.Loop() {
		m.iput(m.makeBare(dir, ondisk.ModeReg))
	}
}

func BenchmarkIget(b *testing.B) {
	m := mountNew(b, 64<<20)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i, err := m.iget(RootIno)
			if err != nil {
				b.Error(err)
				return
			}
			m.iput(i)
		}
	})
}
