package ext4

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// treeOf reads a whole tree: a line for each path, with its content.
func treeOf(fs *FS) ([]string, error) {
	var lines []string
	var walk func(path string, a Attr) error
	walk = func(path string, a Attr) error {
		content := ""
		if a.Mode&ondisk.ModeFmt == ondisk.ModeReg {
			f, err := fs.Open(a.Ino, syscall.O_RDONLY)
			if err != nil {
				return err
			}
			b := make([]byte, a.Size)
			_, err = f.ReadAt(b, 0)
			f.Release()
			if err != nil {
				return err
			}
			content = string(b)
		}
		lines = append(lines, fmt.Sprintf("%s %d %o %d %d %s", path, a.Ino, a.Mode, a.Nlink, a.Size, content))
		if a.Mode&ondisk.ModeFmt != ondisk.ModeDir {
			return nil
		}
		names, err := namesIn(fs, a.Ino)
		if err != nil {
			return err
		}
		for _, n := range names {
			k, err := fs.Lookup(a.Ino, n)
			if err != nil {
				return err
			}
			err = walk(path+"/"+n, k)
			fs.Forget(k.Ino, 1)
			if err != nil {
				return err
			}
		}
		return nil
	}
	a, err := fs.GetAttr(RootIno)
	if err == nil {
		err = walk("", a)
	}
	slices.Sort(lines)
	return lines, err
}

func namesIn(fs *FS, ino ondisk.InodeNumber) (names []string, err error) {
	d, err := fs.OpenDir(ino)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	err = d.ReadDir(0, func(e DirEnt) bool {
		if n := string(e.Name); n != "." && n != ".." {
			names = append(names, n)
		}
		return true
	})
	return names, err
}

// fastCommitted is an image that the kernel left with fast commits.
func fastCommitted(t *testing.T) string {
	t.Helper()
	return ext4test.KernelCrash(t, ext4test.Mke2fs(t, 16<<20, "-b", "1024", "-O", "fast_commit"), "commit=1000", func(dir string) {
		w := &kernelLoad{t: t, dir: dir, rnd: rand.New(rand.NewSource(5))}
		w.run(40)
		w.close()
		syncFS(t, dir)
		w.fsyncAll, w.fast = true, true
		w.run(60)
	})
}

func mountedTree(t *testing.T, dev blockdev.Device, what string) []string {
	t.Helper()
	fs, err := Mount(dev, Options{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	tree, err := treeOf(fs)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Errorf("%s: unmount: %v", what, err)
	}
	return tree
}

// A replay of fast commits that is cut at any write is done again by the next
// mount, and comes to the same.
func TestFastCommitReplayIsAtomic(t *testing.T) {
	base := ext4test.Load(t, fastCommitted(t))
	rec := bdtest.NewRecorder(base)
	want := mountedTree(t, rec, "uncut")
	p := rec.NewPlayer()
	cuts := 0
	for seed := uint64(1); p.Pos() < p.Len(); seed++ {
		if err := p.Advance(p.Pos() + 1); err != nil {
			t.Fatal(err)
		}
		for _, loss := range []bdtest.Loss{{}, {Kind: bdtest.DropAll}, bdtest.RandomLoss(seed)} {
			dev, err := p.State(loss)
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("cut after %d of %d, %v", p.Pos(), p.Len(), loss)
			if got := mountedTree(t, dev, what); !slices.Equal(got, want) {
				t.Fatalf("%s: the tree is another one", what)
			}
			cuts++
			if cuts%10 == 0 {
				ext4test.Fsck(t, ext4test.Save(t, dev))
			}
		}
	}
	if cuts < 30 {
		t.Errorf("only %d cuts", cuts)
	}
}

// Records of any kind with any content give an error or a file system, and no
// more than that.
func FuzzFastCommits(f *testing.F) {
	image := ext4test.Load(f, ext4test.Mke2fs(f, 4<<20, "-b", "1024", "-O", "fast_commit"))
	name := func(parent, ino uint32, n string) []byte {
		return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, parent), ino), n...)
	}
	inode := make([]byte, 4+256)
	binary.LittleEndian.PutUint32(inode, 12)
	binary.LittleEndian.PutUint16(inode[4:], ondisk.ModeReg|0o644)
	binary.LittleEndian.PutUint16(inode[4+0x1a:], 1)
	binary.LittleEndian.PutUint32(inode[4+0x20:], ondisk.InodeExtents)
	rng := make([]byte, 16)
	binary.LittleEndian.PutUint32(rng, 12)
	binary.LittleEndian.PutUint16(rng[8:], 3)
	binary.LittleEndian.PutUint32(rng[12:], 2000)
	f.Add(uint8(journal.FcInode), inode, uint8(journal.FcCreat), name(2, 12, "a"), uint8(journal.FcAddRange), rng)
	f.Add(uint8(journal.FcInode), inode, uint8(journal.FcLink), name(2, 12, "a"), uint8(journal.FcUnlink), name(2, 12, "a"))
	f.Add(uint8(journal.FcDelRange), rng[:12], uint8(journal.FcUnlink), name(2, 11, "lost+found"), uint8(journal.FcInode), inode)
	f.Fuzz(func(t *testing.T, k1 uint8, v1 []byte, k2 uint8, v2 []byte, k3 uint8, v3 []byte) {
		dev := blockdev.NewOverlay(image)
		fs, err := Mount(dev, Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		var fc journal.FastCommits
		for i, v := range [][]byte{v1, v2, v3} {
			fc.Tags = append(fc.Tags, journal.FastCommitRecord{Tag: journal.FastCommitTag([]uint8{k1, k2, k3}[i]), Value: v})
		}
		blocks, err := fs.replayFastCommits(fc)
		if err != nil && blocks != nil {
			t.Error("blocks along with an error")
		}
		for _, b := range blocks {
			if b.Block >= fs.blocks || len(b.Data) != fs.blockSize {
				t.Errorf("block %d of %d bytes", b.Block, len(b.Data))
			}
		}
		fs.Unmount(context.Background())
	})
}
