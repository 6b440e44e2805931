package ext4

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// Modes that contradict each other or the image are refused by name.
func TestModesRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		mk   []string
		text string
	}{
		{o: Options{AsyncCommit: true}, text: "journal_async_commit needs data=writeback"},
		{o: Options{Data: DataJournal}, mk: []string{"-O", "^has_journal"}, text: "data=journal needs a journal"},
	} {
		_, err := Mount(ext4test.Load(t, ext4test.Mke2fs(t, 8<<20, c.mk...)), c.o)
		if !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// data= goes before the superblock's default.
func TestDefaultDataMode(t *testing.T) {
	for _, c := range []struct {
		defm uint32
		o    DataMode
		want DataMode
	}{
		{0, DataDefault, DataOrdered},
		{ondisk.DefmDataJournal, DataDefault, DataJournal},
		{ondisk.DefmDataWriteback, DataDefault, DataWriteback},
		{ondisk.DefmDataJournal, DataOrdered, DataOrdered},
	} {
		dev := ext4test.Load(t, ext4test.Mke2fs(t, 8<<20))
		changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.DefaultMountOpts |= c.defm })
		fs, err := Mount(dev, Options{Data: c.o})
		if err != nil {
			t.Fatal(err)
		}
		if fs.dataMode != c.want {
			t.Errorf("default %#x, option %d: mode %d, want %d", c.defm, c.o, fs.dataMode, c.want)
		}
		if err := fs.Unmount(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// How many flushes a write and its fsync take: the commit's two, one with an
// asynchronous commit, none without barriers.
func TestFlushesPerFsync(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want int64
	}{
		{Options{}, 2},
		{Options{AsyncCommit: true, Data: DataWriteback}, 1},
		{Options{NoBarrier: true}, 0},
	} {
		c.o.Commit = 1 << 40
		m := mountImage(t, ext4test.Mke2fs(t, 32<<20), c.o)
		_, f, err := m.Create(&Caller{}, RootIno, "f", ondisk.ModeReg|0o644, syscall.O_RDWR)
		if err != nil {
			t.Fatal(err)
		}
		const n = 50
		before := m.Stats()
		for k := range int64(n) {
			if _, err := f.WriteAt(make([]byte, 4096), k<<12); err != nil {
				t.Fatal(err)
			}
			if err := f.Fsync(false); err != nil {
				t.Fatal(err)
			}
		}
		after := m.Stats()
		flushes, commits := after.Device.Flushes-before.Device.Flushes, after.Journal.Commits-before.Journal.Commits
		if int64(flushes) > c.want*n+c.want || int64(flushes) < c.want*n || commits < n {
			t.Errorf("%+v: %d flushes and %d commits for %d fsyncs", c.o, flushes, commits, n)
		}
		f.Release()
		m.unmount()
	}
}
