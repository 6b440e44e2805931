package ext4

import (
	"fmt"
	"syscall"
	"testing"

	"extfused/fs/ondisk"
)

// benchDir mounts a fresh image with a directory in it.
func benchDir(b *testing.B, size int64) (*testFS, ondisk.InodeNumber) {
	m := mountNew(b, size, "-N", "2000000")
	a, err := m.Mkdir(nil, RootIno, "bench", 0o755)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return m, a.Ino
}

func (m *testFS) benchCreate(b *testing.B, dir ondisk.InodeNumber, name string, data []byte) ondisk.InodeNumber {
	a, f, err := m.Create(nil, dir, name, 0o644, syscall.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	if len(data) > 0 {
		if _, err := f.WriteAtFlags(nil, data, 0, WriteCached); err != nil {
			b.Fatal(err)
		}
	}
	f.Release()
	m.Forget(a.Ino, 1)
	return a.Ino
}

func BenchmarkLookup(b *testing.B) {
	m, dir := benchDir(b, 1<<30)
	for k := 0; k < 1000; k++ {
		m.benchCreate(b, dir, fmt.Sprint("file", k), nil)
	}
	b.ResetTimer()
	for k := 0; b.Loop(); k++ {
		a, err := m.Lookup(dir, "file500")
		if err != nil {
			b.Fatal(err)
		}
		m.Forget(a.Ino, 1)
	}
	b.StopTimer()
}

// BenchmarkFallocate2 is will-it-scale's: 8 KiB pieces up to 1 MiB, then cut
// to nothing; one operation is one call of either kind.
func BenchmarkFallocate2(b *testing.B) {
	m, dir := benchDir(b, 4<<30)
	_, f, err := m.Create(nil, dir, "file", 0o644, syscall.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	m.Unlink(dir, "file")
	cut := &SetAttr{Valid: SetSize}
	for k := 0; b.Loop(); k++ {
		if k%129 == 128 {
			_, err = m.SetAttr(nil, f.i.ino, cut)
		} else {
			err = f.Allocate(int64(k%129)*8192, 8192, 0)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	f.Release()
}

func BenchmarkOverwrite4K(b *testing.B) {
	m, dir := benchDir(b, 1<<30)
	_, f, err := m.Create(nil, dir, "file", 0o644, syscall.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	f.WriteAt(make([]byte, 1<<20), 0)
	p := make([]byte, 4096)
	b.ResetTimer()
	for k := 0; b.Loop(); k++ {
		if _, err := f.WriteAtFlags(nil, p, int64(k%256)*4096, WriteCached); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	f.Release()
}

func BenchmarkWrite1M(b *testing.B) {
	m, dir := benchDir(b, 64<<30)
	_, f, err := m.Create(nil, dir, "file", 0o644, syscall.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for k := 0; b.Loop(); k++ {
		if _, err := f.WriteAtFlags(nil, p, int64(k%1024)<<20, WriteCached); err != nil {
			b.Fatal(err)
		}
		if k%1024 == 1023 {
			b.StopTimer()
			m.SetAttr(nil, f.i.ino, &SetAttr{Valid: SetSize})
			b.StartTimer()
		}
	}
	b.StopTimer()
	f.Release()
}

// BenchmarkAppendFsync is 4 KiB appended, the mtime that the kernel sends, and an
// fsync, on a device in memory: what we add to the device's own time.
func BenchmarkAppendFsync(b *testing.B) {
	m := mountNew(b, 256<<20)
	f := m.mkfile("f")
	defer f.Release()
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		if _, err := f.WriteAtFlags(nil, buf, int64(k%10000)<<12, WriteCached); err != nil {
			b.Fatal(err)
		}
		if _, err := m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetMtime | SetCtime, Mtime: Time{Sec: int64(k)}, Ctime: Time{Sec: int64(k)}}); err != nil {
			b.Fatal(err)
		}
		if err := f.Fsync(false); err != nil {
			b.Fatal(err)
		}
	}
}
