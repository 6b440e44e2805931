package ext4

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

var (
	hostileRounds = flag.Int("hostile", 40, "damaged images of each kind in TestHostileImages")
	hostileSeed   = flag.Uint64("hostile-seed", 1, "seed of TestHostileImages")
)

const (
	hostileTime   = 20 * time.Second // the most a damaged image may take
	hostileMemory = 512 << 20        // bytes of heap it may leave behind
)

// Whatever an image says, there is no panic, no endless loop, and no memory
// eaten. Without metadata_csum, which would catch nearly all of it.
func TestHostileImages(t *testing.T) {
	rounds := *hostileRounds
	if testing.Short() {
		rounds = 8
	}
	for _, args := range [][]string{
		{"-b", "1024", "-O", "^metadata_csum"},
		{"-b", "4096", "-O", "^metadata_csum,inline_data,ea_inode", "-I", "256"},
		{"-b", "1024", "-O", "^metadata_csum,bigalloc,quota", "-C", "4096"},
		{"-t", "ext3", "-b", "1024", "-I", "128"},
		{"-b", "2048", "-O", "^metadata_csum,orphan_file,meta_bg,^resize_inode,large_dir,project"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			bases, blocks := hostileBase(t, args)
			mounted := 0
			for round := range rounds {
				if hostileRound(t, bases[round%2], blocks, rand.New(rand.NewPCG(*hostileSeed, uint64(round))), round) {
					mounted++
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d of %d could be mounted", mounted, rounds)
			if mounted < rounds/2 {
				t.Errorf("only %d of %d could be mounted", mounted, rounds)
			}
		})
	}
}

// keepOpen is a device that others use, too.
type keepOpen struct{ blockdev.Device }

func (keepOpen) Close() error { return nil }

// hostileRound damages a copy of base in a few places and uses it, if it can be
// mounted.
func hostileRound(t *testing.T, base blockdev.Device, blocks []int64, rng *rand.Rand, round int) (mounted bool) {
	dev := blockdev.NewOverlay(keepOpen{base})
	var what []string
	for range 1 + rng.IntN(4) {
		what = append(what, damage(t, dev, blocks, rng))
	}
	done := make(chan string, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		mounted = useHostile(dev, rng)
		done <- ""
	}()
	select {
	case msg := <-done:
		if msg != "" {
			t.Errorf("round %d, %q: %s", round, what, msg)
		}
	case <-time.After(hostileTime):
		buf := make([]byte, 1<<20)
		t.Fatalf("round %d, %q: not done after %v\n%s", round, what, hostileTime, buf[:runtime.Stack(buf, true)])
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > hostileMemory {
		runtime.GC()
		runtime.ReadMemStats(&m)
	}
	if m.HeapAlloc > hostileMemory {
		t.Errorf("round %d, %q: %d MiB of heap", round, what, m.HeapAlloc>>20)
	}
	return mounted
}

// damage changes one field somewhere in the metadata, and tells what it did.
func damage(t *testing.T, dev blockdev.Device, blocks []int64, rng *rand.Rand) string {
	bs := blocks[0]
	at := ondisk.SuperBlockOffset + rng.Int64N(ondisk.SuperBlockSize)
	if rng.IntN(5) > 0 {
		at = blocks[1+rng.IntN(len(blocks)-1)]*bs + rng.Int64N(bs)
	}
	size := int64(1) << rng.IntN(3)
	at &^= size - 1
	v := []uint32{0, 1, 2, 0x7f, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, rng.Uint32(), rng.Uint32N(1000)}[rng.IntN(13)]
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	_, err := dev.WriteAt(b[:size], at)
	mustOK(t, err)
	return fmt.Sprintf("%d bytes at %d (block %d + %#x): %#x", size, at, at/bs, at%bs, v)
}

// marker fills files, so that their blocks are not taken for metadata.
var marker = bytes.Repeat([]byte("marker! "), 8192)

// hostileBase makes an image with something of everything, clean, and as a crash
// leaves it. blocks are the block size and then the blocks with metadata.
func hostileBase(t *testing.T, args []string) (bases [2]blockdev.Device, blocks []int64) {
	m := mountNew(t, 24<<20, args...)
	for d := range 3 {
		dir, err := m.Mkdir(nil, RootIno, fmt.Sprint("dir", d), 0o755)
		mustOK(t, err)
		for k := range 150 {
			a, f, err := m.Create(nil, dir.Ino, fmt.Sprintf("a rather long name of a file, number %d", k), 0o644, syscall.O_RDWR)
			mustOK(t, err)
			for piece := range int64(k % 8) {
				_, err = f.WriteAt(marker[:3000], piece*20_000)
				mustOK(t, err)
			}
			f.Release()
			_ = m.SetXattr(nil, a.Ino, "user.small", []byte("x"), 0)
			if k%10 == 0 {
				_ = m.SetXattr(nil, a.Ino, "user.large", marker[:600+k*20], 0)
			}
		}
		_, err = m.Symlink(nil, dir.Ino, "link", marker[:40+200*d])
		mustOK(t, err)
	}
	m.unmount()
	bases[0] = ext4test.Load(t, m.path)
	dev := ext4test.Load(t, m.path)
	fs, err := Mount(dev, Options{})
	mustOK(t, err)
	_, f, err := fs.Create(nil, RootIno, "orphan", 0o644, syscall.O_RDWR)
	mustOK(t, err)
	_, err = f.WriteAt(marker, 0)
	mustOK(t, err)
	mustOK(t, fs.Unlink(RootIno, "orphan"))
	mustOK(t, fs.Sync())
	bases[1] = ext4test.Load(t, ext4test.Save(t, dev)) // as it is now: the journal is to be replayed
	f.Release()
	mustOK(t, fs.Unmount(t.Context()))
	sb := fs.Super()
	bs := int64(sb.BlockSize())
	blocks = []int64{bs}
	buf := make([]byte, bs)
	for n := range dev.Size() / bs {
		_, err := bases[1].ReadAt(buf, n*bs)
		mustOK(t, err)
		if !bytes.Equal(buf, make([]byte, bs)) && !bytes.Contains(buf, marker[:512]) {
			blocks = append(blocks, n)
		}
	}
	if len(blocks) < 50 {
		t.Fatalf("%d blocks of metadata", len(blocks))
	}
	return bases, blocks
}

// useHostile does what programs do; what fails, fails.
func useHostile(dev blockdev.Device, rng *rand.Rand) bool {
	fs, err := Mount(dev, Options{Errors: ErrorsContinue})
	if err != nil {
		return false
	}
	defer fs.Unmount(context.Background())
	walkHostile(fs, RootIno, 0, rng)
	for k := range 20 {
		name := fmt.Sprint("new", k)
		_, f, err := fs.Create(nil, RootIno, name, 0o644, syscall.O_RDWR)
		if err != nil {
			continue
		}
		_, _ = f.WriteAt(marker[:rng.IntN(len(marker))], rng.Int64N(1<<20))
		_ = f.Allocate(rng.Int64N(1<<20), 1+rng.Int64N(1<<18), []uint32{0, FallocPunchHole | FallocKeepSize, FallocZeroRange}[rng.IntN(3)])
		if k%5 == 0 {
			_ = f.Fsync(false)
		}
		f.Release()
		_ = fs.Rename(nil, RootIno, name, RootIno, fmt.Sprint("other", k%7), 0)
		_, _ = fs.Mkdir(nil, RootIno, fmt.Sprint("newdir", k), 0o755)
	}
	fs.Statfs()
	_ = fs.EachFile(func(*FileLayout) error { return nil })
	_ = fs.FreeRuns(func(ondisk.FsBlock, uint64) error { return nil })
	_ = fs.Sync()
	return true
}

// walkHostile reads everything below dir, and changes and removes some of it.
func walkHostile(fs *FS, dir ondisk.InodeNumber, depth int, rng *rand.Rand) {
	d, err := fs.OpenDir(dir)
	if err != nil || depth > 5 {
		return
	}
	defer d.Release()
	names := map[string]ondisk.InodeNumber{}
	_ = d.ReadDir(0, func(e DirEnt) bool {
		names[string(e.Name)] = e.Ino
		return len(names) < 1000
	})
	for name, ino := range names {
		if name == "." || name == ".." {
			continue
		}
		a, err := fs.Lookup(dir, name)
		if err != nil {
			continue
		}
		fileHostile(fs, dir, name, a, rng)
		if a.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			walkHostile(fs, ino, depth+1, rng)
		}
		fs.Forget(a.Ino, 1)
	}
}

func fileHostile(fs *FS, dir ondisk.InodeNumber, name string, a Attr, rng *rand.Rand) {
	list := make([]byte, 4096)
	n, _ := fs.ListXattr(nil, a.Ino, list)
	for _, x := range bytes.Split(list[:max(n, 0)], []byte{0}) {
		_, _ = fs.GetXattr(a.Ino, string(x), make([]byte, 65536))
	}
	_, _ = fs.Readlink(a.Ino)
	if f, err := fs.Open(a.Ino, syscall.O_RDWR); err == nil {
		_, _ = f.ReadAt(make([]byte, 200_000), 0)
		_, _ = f.ReadAt(make([]byte, 5000), max(0, int64(a.Size)-5000))
		_, _ = f.Seek(0, 3)
		_, _ = f.Seek(0, 4)
		if rng.IntN(4) == 0 {
			_, _ = f.WriteAt(marker[:5000], rng.Int64N(200_000))
		}
		f.Release()
	}
	switch rng.IntN(8) {
	case 0:
		_, _ = fs.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize, Size: uint64(rng.IntN(100_000))})
	case 1:
		_ = fs.Unlink(dir, name)
	case 2:
		_ = fs.Rmdir(dir, name)
	case 3:
		_ = fs.SetXattr(nil, a.Ino, "user.new", marker[:rng.IntN(3000)], 0)
	case 4:
		_ = fs.RemoveXattr(nil, a.Ino, "user.large")
	case 5:
		_, _ = fs.Link(a.Ino, dir, name+"2")
	}
}
