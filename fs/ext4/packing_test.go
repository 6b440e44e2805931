package ext4

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// user is somebody without a right to the reserved blocks.
var user = &Caller{UID: 1000, GID: 1000}

// mkfileIn makes a file of the user's, which the test releases.
func (m *testFS) mkfileIn(dir ondisk.InodeNumber, name string) *File {
	m.t.Helper()
	a, f, err := m.Create(user, dir, name, 0o644, syscall.O_RDWR)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Forget(a.Ino, 1)
	return f
}

// mkdirs makes n directories.
func (m *testFS) mkdirs(n int) (dirs []ondisk.InodeNumber) {
	m.t.Helper()
	for k := range n {
		a, err := m.Mkdir(user, RootIno, fmt.Sprintf("dir%d", k), 0o755)
		if err != nil {
			m.t.Fatal(err)
		}
		m.Forget(a.Ino, 1)
		dirs = append(dirs, a.Ino)
	}
	return dirs
}

// layouts are those of all regular files of users.
func (m *testFS) layouts() (list []FileLayout) {
	m.t.Helper()
	err := m.EachFile(func(l *FileLayout) error {
		if l.Mode&ondisk.ModeFmt == ondisk.ModeReg && l.Ino >= m.firstIno {
			c := *l
			c.Extents = slices.Clone(l.Extents)
			list = append(list, c)
		}
		return nil
	})
	mustOK(m.t, err)
	return list
}

// groupsOf is the number of groups that files have blocks in.
func (m *testFS) groupsOf(list []FileLayout) int {
	groups := map[uint64]bool{}
	for _, l := range list {
		for _, e := range l.Extents {
			for k := range uint64(e.Len) {
				groups[(uint64(e.Physical)+k-uint64(m.firstDataBlock))/uint64(m.blocksPerGroup)] = true
			}
		}
	}
	return len(groups)
}

// TestSmallFilesOnAnImage: 2000 files of 100 KB, written and closed one after
// the other in 20 directories, touch at most 5 groups more than the least
// possible, and each is in one piece.
func TestSmallFilesOnAnImage(t *testing.T) {
	m := mountNew(t, 6<<30, "-b", "4096")
	data := block(100_000, 7)
	dirs := m.mkdirs(20)
	for k := range 2000 {
		f := m.mkfileIn(dirs[k%len(dirs)], fmt.Sprint(k))
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		f.Release()
	}
	list := m.layouts()
	blocks, broken := uint64(0), 0
	for _, l := range list {
		if l.NonContiguous {
			broken++
		}
		for _, e := range l.Extents {
			blocks += uint64(e.Len)
		}
	}
	least := int((blocks + uint64(m.blocksPerGroup) - 1) / uint64(m.blocksPerGroup))
	got := m.groupsOf(list)
	t.Logf("%d files, %d blocks: %d groups, the least is %d; %d not contiguous", len(list), blocks, got, least, broken)
	if len(list) != 2000 || got > least+5 || broken > 0 {
		t.Errorf("%d files, %d groups for %d, %d not contiguous", len(list), got, least, broken)
	}
}

// TestInterleavedWritersOnAnImage: eight files written at once, 24 MB each in
// pieces of 64 KiB, have at most 5 extents each.
func TestInterleavedWritersOnAnImage(t *testing.T) {
	for _, size := range []string{"4096", "65536"} {
		t.Run(size, func(t *testing.T) {
			m := mountNew(t, 2<<30, "-b", size)
			var wg sync.WaitGroup
			for k := range 8 {
				f := m.mkfileIn(RootIno, fmt.Sprint(k))
				wg.Go(func() {
					defer f.Release()
					data := block(64<<10, uint64(k))
					for off := int64(0); off < 24<<20; off += int64(len(data)) {
						if _, err := f.WriteAt(data, off); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			var counts []int
			for _, l := range m.layouts() {
				counts = append(counts, len(l.Extents))
				if len(l.Extents) > 5 {
					t.Errorf("inode %d has %d extents: %v", l.Ino, len(l.Extents), l.Extents)
				}
			}
			t.Logf("extents: %v", counts)
			if len(counts) != 8 {
				t.Errorf("%d files", len(counts))
			}
		})
	}
}

// TestLargeFilesOnAnImage: 500 files of about 2 MB, written in pieces one after
// the other, lie one behind the other: what is between the first and the last
// of a group is full.
func TestLargeFilesOnAnImage(t *testing.T) {
	m := mountNew(t, 4<<30, "-b", "4096")
	data := block(300_000, 3)
	for k := range 500 {
		f := m.mkfileIn(RootIno, fmt.Sprint(k))
		for off := int64(0); off < 2_000_000+int64(k)*100; off += int64(len(data)) {
			if _, err := f.WriteAt(data, off); err != nil {
				t.Fatal(err)
			}
		}
		f.Release()
	}
	var all []FileExtent
	for _, l := range m.layouts() {
		all = append(all, l.Extents...)
	}
	slices.SortFunc(all, func(a, b FileExtent) int { return int(a.Physical) - int(b.Physical) })
	holes, blocks := 0, uint64(0)
	for k, e := range all {
		blocks += uint64(e.Len)
		if k > 0 && all[k-1].Physical+ondisk.FsBlock(all[k-1].Len) != e.Physical {
			holes++
		}
	}
	least := int((blocks + uint64(m.blocksPerGroup) - 1) / uint64(m.blocksPerGroup))
	t.Logf("%d extents, %d holes between them, %d groups at least", len(all), holes, least)
	if len(all) > 500+2*least || holes > 2*least {
		t.Errorf("%d extents for 500 files, %d holes in %d groups", len(all), holes, least)
	}
}

// TestFillOneGroup: 8 writers of 8 KiB pieces fill a one-group image of 100 MB:
// it ends, at least 99.9 % of the available blocks hold data, and what is freed
// can be used after a commit.
func TestFillOneGroup(t *testing.T) {
	m := mountNew(t, 100<<20, "-b", "4096")
	if m.groupCount != 1 {
		t.Fatalf("%d groups", m.groupCount)
	}
	available := m.Statfs().BlocksAvail
	var wg sync.WaitGroup
	for k := range 8 {
		f := m.mkfileIn(RootIno, fmt.Sprint(k))
		wg.Go(func() {
			defer f.Release()
			data := block(8<<10, uint64(k))
			for off := int64(0); ; {
				n, err := f.WriteAt(data, off)
				off += int64(n)
				if err != nil {
					mustErr(t, "a full file system", err, syscall.ENOSPC)
					return
				}
			}
		})
	}
	wg.Wait()
	var blocks uint64
	for _, l := range m.layouts() {
		for _, e := range l.Extents {
			blocks += uint64(e.Len)
		}
	}
	left := m.Statfs().BlocksAvail
	t.Logf("%d of %d available blocks hold data (%.2f %%), %d are left", blocks, available, 100*float64(blocks)/float64(available), left)
	if float64(blocks) < 0.999*float64(available) {
		t.Errorf("only %d of %d available blocks hold data", blocks, available)
	}
	// Who got how much is the scheduler's business.
	held, err := m.Lookup(RootIno, "3")
	mustOK(t, err)
	m.Forget(held.Ino, 1)
	mustOK(t, m.Unlink(RootIno, "3"))
	mustOK(t, m.Sync())
	f := m.mkfileIn(RootIno, "again")
	defer f.Release()
	for off := int64(0); off < int64(held.Size)-(256<<10); off += 64 << 10 {
		if n, err := f.WriteAt(block(64<<10, 9), off); err != nil || n != 64<<10 {
			t.Fatalf("after %d bytes were freed and committed: at %d: %d, %v", held.Size, off, n, err)
		}
	}
}

// TestFragmentedImage: on a full image of files of 64 KB every second one is
// removed; 20 MB in pieces of 2 MB then take bounded work, with few groups
// (where mb_optimize_scan is off) as with many.
func TestFragmentedImage(t *testing.T) {
	for _, size := range []int64{1 << 30, 4 << 30} {
		if testing.Short() && size > 1<<30 {
			t.Log("short: 1 GB only")
			break
		}
		t.Run(fmt.Sprint(size>>30, " GB"), func(t *testing.T) { fragmentedImage(t, size) })
	}
}

func fragmentedImage(t *testing.T, size int64) {
	m := mountNew(t, size, "-b", "4096", "-i", "32768", "-m", "0")
	dirs := m.mkdirs(64)
	files := 0
	for ; ; files++ {
		f := m.mkfileIn(dirs[files%64], fmt.Sprint(files))
		err := f.Allocate(0, 64<<10, 0)
		f.Release()
		if errors.Is(err, syscall.ENOSPC) {
			mustOK(t, m.Unlink(dirs[files%64], fmt.Sprint(files)))
			break
		}
		mustOK(t, err)
	}
	for k := 0; k < files; k += 2 {
		mustOK(t, m.Unlink(dirs[k%64], fmt.Sprint(k)))
	}
	mustOK(t, m.Sync())
	before := m.alloc.Stats()
	f := m.mkfileIn(RootIno, "pieces")
	defer f.Release()
	for k := range int64(10) {
		if n, err := f.WriteAt(block(2<<20, uint64(k)), k*2<<20); err != nil || n != 2<<20 {
			t.Fatalf("piece %d: %d, %v", k, n, err)
		}
	}
	s := m.alloc.Stats()
	searches := s.Success - before.Success - (s.PreallocHits - before.PreallocHits)
	scanned, considered := s.ExtentsScanned-before.ExtentsScanned, uint64(0)
	for cr := range s.Criteria {
		now, then := s.Criteria[cr], before.Criteria[cr]
		considered += now.GroupsConsidered - then.GroupsConsidered
		t.Logf("%-14v %4d hits, %5d groups considered, %5d extents compared, %4d useless loops", mballoc.Criterion(cr), now.Hits-then.Hits,
			now.GroupsConsidered-then.GroupsConsidered, now.ExtentsScanned-then.ExtentsScanned, now.UselessLoops-then.UselessLoops)
	}
	l, err := m.FileLayout(f.i.ino)
	mustOK(t, err)
	t.Logf("%d files; %d searches looked at %d groups and compared %d extents; the file has %d extents", files, searches, considered, scanned, len(l.Extents))
	maxToScan := uint64(mballoc.DefaultTunables(m.alloc.Geometry()).MbMaxToScan)
	if searches == 0 || searches > 400 || scanned > searches*(maxToScan+uint64(m.groupCount)) || considered > searches*5*uint64(m.groupCount) {
		t.Errorf("%d searches, %d groups, %d extents", searches, considered, scanned)
	}
	if len(l.Extents) > 400 { // 320 runs of 64 KB would do
		t.Errorf("%d extents for 20 MB in free runs of 64 KB", len(l.Extents))
	}
}
