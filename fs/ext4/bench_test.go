package ext4

import (
	"fmt"
	"syscall"
	"testing"

	"extfused/fs/ondisk"
)

// Whole operations in-process, without FUSE: what the kernel would ask for.
func BenchmarkCreate(b *testing.B) {
	m := mountNew(b, 2<<30, "-b", "4096")
	d, err := m.Mkdir(&Caller{}, RootIno, "d", 0o755)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n%5000 == 0 {
			if d, err = m.Mkdir(&Caller{}, RootIno, fmt.Sprint("d", n), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		n++
		_, f, err := m.Create(&Caller{}, d.Ino, fmt.Sprint("f", n), ondisk.ModeReg|0o644, syscall.O_RDWR)
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
}

func BenchmarkCreateUnlink(b *testing.B) {
	m := mountNew(b, 1<<30, "-b", "4096")
	b.ReportAllocs()
	for b.Loop() {
		a, f, err := m.Create(&Caller{}, RootIno, "file", ondisk.ModeReg|0o644, syscall.O_RDWR)
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
		if err := m.Unlink(RootIno, "file"); err != nil {
			b.Fatal(err)
		}
		m.Forget(a.Ino, 1)
	}
}

func BenchmarkWrite4K(b *testing.B) {
	m := mountNew(b, 1<<30, "-b", "4096")
	_, f, err := m.Create(&Caller{}, RootIno, "file", ondisk.ModeReg|0o644, syscall.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Release()
	p := make([]byte, 4096)
	off := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.WriteAt(p, off); err != nil {
			b.Fatal(err)
		}
		off = (off + 4096) % (256 << 20)
	}
}

func BenchmarkCreateWriteSmall(b *testing.B) {
	m := mountNew(b, 4<<30, "-b", "4096", "-N", "1000000")
	d, err := m.Mkdir(&Caller{}, RootIno, "d", 0o755)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 10000)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if n%100 == 0 {
			if d, err = m.Mkdir(&Caller{}, RootIno, fmt.Sprint("d", n), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		n++
		_, f, err := m.Create(&Caller{}, d.Ino, fmt.Sprint("f", n), ondisk.ModeReg|0o644, syscall.O_RDWR)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.WriteAt(p, 0); err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
}
