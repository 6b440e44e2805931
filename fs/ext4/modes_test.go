package ext4

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// Modes that we do not have are refused by name.
func TestDataModesRefused(t *testing.T) {
	dev := ext4test.Load(t, ext4test.Mke2fs(t, 8<<20))
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{Data: DataJournal}, "data=journal"},
		{Options{AsyncCommit: true}, "journal_async_commit needs data=writeback"},
	} {
		_, err := Mount(dev, c.o)
		if !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// A superblock that wants data=journal is told of, and a file with chattr +j
// is not written past the journal.
func TestJournalDataIsNotSilent(t *testing.T) {
	image := ext4test.Mke2fs(t, 16<<20)
	m := mountImage(t, image, Options{})
	if err := writeSynced(m.FS, "j", []byte("logged")); err != nil {
		t.Fatal(err)
	}
	m.unmount()
	ext4test.DebugfsW(t, image, fmt.Sprintf("set_inode_field /j flags %#x", ondisk.InodeExtents|ondisk.InodeJournalData))
	dev := ext4test.Load(t, image)
	changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.DefaultMountOpts |= ondisk.DefmDataJournal })
	var log []string
	fs, err := Mount(dev, Options{Logf: func(_ Level, format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Unmount(t.Context())
	if !strings.Contains(strings.Join(log, "\n"), "data=journal") {
		t.Errorf("the log is silent: %q", log)
	}
	a, err := fs.Lookup(RootIno, "j")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Open(a.Ino, syscall.O_RDWR); err != syscall.EOPNOTSUPP {
		t.Errorf("open for writing: %v", err)
	}
	set := SetAttr{Valid: SetFlags, Flags: ondisk.InodeJournalData}
	if _, err := fs.SetAttr(&Caller{}, RootIno, &set); err != syscall.EOPNOTSUPP {
		t.Errorf("chattr +j: %v", err)
	}
	if b, err := readPath(fs, "j"); err != nil || string(b) != "logged" {
		t.Errorf("reading: %q, %v", b, err)
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
