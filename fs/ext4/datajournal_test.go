package ext4

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// magicData is content in which every 1024 bytes begin with the journal's magic
// number: logged, each block must be escaped.
func magicData(n int, seed int64) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	for k := 0; k+4 <= n; k += 1024 {
		binary.BigEndian.PutUint32(b[k:], journal.Magic)
	}
	return b
}

// readsAs fails unless the file has the content.
func readsAs(t *testing.T, f *File, want []byte) {
	t.Helper()
	got := make([]byte, len(want)+1)
	n, err := f.ReadAt(got, 0)
	if err != nil || !bytes.Equal(got[:n], want) {
		t.Fatalf("%d bytes are read, %d were written, and they differ (%v)", n, len(want), err)
	}
}

// onDisk tells whether the device itself has the content at the file's place.
func onDisk(t *testing.T, f *File, want []byte) bool {
	t.Helper()
	f.i.mu.RLock()
	defer f.i.mu.RUnlock()
	got := make([]byte, len(want))
	for at := 0; at < len(want); {
		r, n, err := f.i.mapBytes(uint64(at), len(want)-at)
		mustOK(t, err)
		mustOK(t, f.fs.readData(got[at:at+n], f.fs.byteOf(r, uint64(at))))
		at += n
	}
	return bytes.Equal(got, want)
}

// With data=journal content is in the log, and only there, when fsync returns;
// the kernel's replay and e2fsck's bring it home as ours does, escapes included.
func TestDataJournalReplay(t *testing.T) {
	for _, args := range [][]string{{"-b", "1024"}, {"-b", "4096", "-O", "^metadata_csum,^64bit"}, {"-b", "4096"}} {
		image := ext4test.Mke2fs(t, 48<<20, args...)
		dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{})
		mustOK(t, err)
		fs, err := Mount(dev, Options{Data: DataJournal, Commit: time.Hour})
		mustOK(t, err)
		_, f, err := fs.Create(&Caller{}, RootIno, "f", ondisk.ModeReg|0o644, syscall.O_RDWR)
		mustOK(t, err)
		want := magicData(100_000, 1)
		for _, at := range []int{0, 50_000, 3000} { // new, appended, over the old
			end := min(len(want), at+50_000)
			_, err := f.WriteAt(want[at:end], int64(at))
			mustOK(t, err)
		}
		readsAs(t, f, want)
		mustOK(t, f.Fsync(true))
		if onDisk(t, f, want) {
			t.Error("the data is at home before any checkpoint: it was not logged")
		}
		mustOK(t, fs.Shutdown(ShutdownNoLogFlush))
		fs.Unmount(t.Context())
		mustOK(t, dev.Close())

		fsck := filepath.Join(t.TempDir(), "fsck")
		ext4test.Copy(t, image, fsck)
		// 1: it has repaired something, to wit replayed.
		if out, err := exec.Command(ext4test.Tool(t, "e2fsck"), "-fy", fsck).CombinedOutput(); err != nil {
			if x, ok := err.(*exec.ExitError); !ok || x.ExitCode() != 1 {
				t.Fatalf("e2fsck -fy: %v\n%s", err, out)
			}
		}
		for _, path := range []string{fsck, image} {
			m := mountImage(t, path, Options{ReadOnly: true})
			got, err := readPath(m.FS, "f")
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v, %s: %d bytes after the replay, want %d (%v)", args, path, len(got), len(want), err)
			}
			m.finish()
		}
		ext4test.KernelMount(t, image, "", func(dir string) {
			if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: the kernel replays %d bytes, want %d (%v)", args, len(got), len(want), err)
			}
		})
		ext4test.Fsck(t, image)
	}
}

// chattr +j is for one file: what is written while it is set is logged, what is
// written before and after goes straight to its place, and is never overtaken by
// what the log had.
func TestJournalDataFlag(t *testing.T) {
	m := mountImage(t, ext4test.Mke2fs(t, 32<<20), Options{Commit: time.Hour})
	f := m.mkfile("f")
	set := func(flags uint32) {
		t.Helper()
		_, err := m.SetAttr(&Caller{}, f.Ino(), &SetAttr{Valid: SetFlags, Flags: flags | ondisk.InodeExtents})
		mustOK(t, err)
	}
	for round := range 3 {
		plain, logged := magicData(30_000, int64(2*round)), magicData(30_000, int64(2*round+1))
		_, err := f.WriteAt(plain, 0)
		mustOK(t, err)
		if !onDisk(t, f, plain) {
			t.Fatal("without the flag data goes to its place at once")
		}
		set(ondisk.InodeJournalData)
		readsAs(t, f, plain)
		_, err = f.WriteAt(logged, 0)
		mustOK(t, err)
		readsAs(t, f, logged)
		if onDisk(t, f, logged) {
			t.Fatal("with the flag data was not logged")
		}
		set(0)
		if !onDisk(t, f, logged) {
			t.Fatal("the flag is gone, and the data still in the log")
		}
		readsAs(t, f, logged)
	}
	set(ondisk.InodeJournalData)
	a, g, err := m.Create(&Caller{}, RootIno, "g", ondisk.ModeReg|0o644, syscall.O_RDWR)
	mustOK(t, err)
	if a.Flags&ondisk.InodeJournalData != 0 {
		t.Error("the root has no such flag to inherit")
	}
	g.Release()
	m.Forget(a.Ino, 1)
	f.Release()
}

// Freed blocks that were logged are revoked, in as many transactions as that
// takes, and another file that gets them keeps its data over a replay.
func TestDataJournalRevokes(t *testing.T) {
	image := ext4test.Mke2fs(t, 40<<20, "-b", "1024", "-J", "size=1")
	m := mountImage(t, image, Options{Commit: time.Hour})
	f := m.mkfile("logged")
	_, err := m.SetAttr(&Caller{}, f.Ino(), &SetAttr{Valid: SetFlags, Flags: ondisk.InodeExtents | ondisk.InodeJournalData})
	mustOK(t, err)
	const size = 24 << 20
	buf := magicData(1<<20, 3)
	for at := int64(0); at < size; at += int64(len(buf)) {
		_, err := f.WriteAt(buf, at)
		mustOK(t, err)
	}
	before := m.Stats().Journal
	_, err = m.SetAttr(&Caller{}, f.Ino(), &SetAttr{Valid: SetSize, Size: 1000})
	mustOK(t, err)
	mustOK(t, m.Sync())
	after := m.Stats().Journal
	if n := after.Revokes - before.Revokes; n < size/1024*9/10 {
		t.Errorf("%d revokes for %d logged blocks", n, size/1024)
	}
	if after.Commits-before.Commits < 3 {
		t.Errorf("%d commits: one transaction cannot hold that many revokes", after.Commits-before.Commits)
	}
	g := m.mkfile("plain")
	want := make([]byte, size)
	rand.New(rand.NewSource(4)).Read(want)
	_, err = g.WriteAt(want, 0)
	mustOK(t, err)
	mustOK(t, g.Fsync(false))
	readsAs(t, g, want)
	readsAs(t, f, buf[:1000])
	f.Release()
	g.Release()
	mustOK(t, m.Shutdown(ShutdownNoLogFlush))
	m.FS.Unmount(t.Context())
	m.dev.Close()
	m.mount()
	if got, err := readPath(m.FS, "plain"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after the replay the new owner's data differs (%v)", err)
	}
}
