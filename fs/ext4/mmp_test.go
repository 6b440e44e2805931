package ext4

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

const fastSecond = 100 * time.Millisecond

func mmpBlock(t *testing.T, dev blockdev.Device) (m ondisk.MMP) {
	t.Helper()
	sb, err := readSuper(dev, ondisk.SuperBlockOffset)
	mustOK(t, err)
	b := make([]byte, sb.BlockSize())
	if _, err := dev.ReadAt(b, int64(sb.MMPBlock)<<sb.BlockBits()); err != nil {
		t.Fatal(err)
	}
	mustOK(t, m.Decode(b))
	if c := sb.Csum(); !c.VerifyMMP(b[:ondisk.MMPSize]) {
		t.Error("MMP block with a wrong checksum")
	}
	return m
}

// The sequence moves while mounted; a second mount, ours or the kernel's, is
// refused; after the unmount everything is clean.
func TestMMP(t *testing.T) {
	for _, args := range [][]string{{"-O", "mmp"}, {"-b", "1024", "-O", "mmp,^metadata_csum", "-E", "mmp_update_interval=1"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			image := ext4test.Mke2fs(t, 16<<20, args...)
			m := mountImage(t, image, Options{mmpSecond: fastSecond})
			first := mmpBlock(t, m.dev)
			if first.Seq == 0 || first.Seq > ondisk.MMPSeqMax {
				t.Errorf("sequence %#x while mounted", first.Seq)
			}
			time.Sleep(7 * fastSecond)
			if now := mmpBlock(t, m.dev); now.Seq == first.Seq || now.Seq == ondisk.MMPSeqClean {
				t.Errorf("the sequence stays at %#x", now.Seq)
			}
			_, err := Mount(blockdev.NewOverlay(m.dev), Options{mmpSecond: fastSecond})
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "another host") {
				t.Errorf("the second mount: %v", err)
			}
			ro, err := Mount(blockdev.NewReadOnly(m.dev), Options{ReadOnly: true, NoLoad: true, mmpSecond: fastSecond})
			mustOK(t, err)
			mustOK(t, ro.Unmount(context.Background()))
			m.mkfile("file").WriteAt(block(10_000, 1), 0)
			m.unmount()
			dev := ext4test.Load(t, image)
			if now := mmpBlock(t, dev); now.Seq != ondisk.MMPSeqClean {
				t.Errorf("sequence %#x after the unmount", now.Seq)
			}
			ext4test.KernelMount(t, image, "ro", func(string) {})
		})
	}
}

// A host that died left its number standing: it is waited for, once. One that
// checks the file system is not.
func TestMMPLeftBehind(t *testing.T) {
	dev := ext4test.Load(t, ext4test.Mke2fs(t, 16<<20, "-O", "mmp"))
	sb, err := readSuper(dev, ondisk.SuperBlockOffset)
	mustOK(t, err)
	c := sb.Csum()
	put := func(seq uint32, change func(m *ondisk.MMP)) {
		m := mmpBlock(t, dev)
		m.Seq = seq
		if change != nil {
			change(&m)
		}
		b := make([]byte, ondisk.MMPSize)
		m.Encode(b)
		c.SetMMP(b)
		poke(t, dev, int64(sb.MMPBlock)<<sb.BlockBits(), b...)
	}
	put(1234, nil)
	start := time.Now()
	fs, err := Mount(dev, Options{mmpSecond: fastSecond})
	mustOK(t, err)
	if took := time.Since(start); took < 2*11*fastSecond {
		t.Errorf("waited %v, less than twice 11 intervals", took)
	}
	// Somebody else writes while we are late: no more writing by us.
	put(77, func(m *ondisk.MMP) { copy(m.NodeName[:], "other\x00") })
	if fs.stillMine() {
		t.Error("the block of another host was taken for ours")
	}
	if !fs.ReadOnly() {
		t.Error("two hosts write")
	}
	fs.Unmount(context.Background())
	if now := mmpBlock(t, dev); now.Seq != 77 {
		t.Errorf("their block was overwritten by %#x", now.Seq)
	}
	put(ondisk.MMPSeqFsck, nil)
	if _, err := Mount(dev, Options{mmpSecond: fastSecond}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "e2fsck") {
		t.Errorf("while e2fsck runs: %v", err)
	}
	poke(t, dev, int64(sb.MMPBlock)<<sb.BlockBits()+8, 0xff, 0xff)
	if _, err := Mount(dev, Options{}); !isCorrupt(err) {
		t.Errorf("with a damaged block: %v", err)
	}
	poke(t, dev, int64(sb.MMPBlock)<<sb.BlockBits(), 0)
	if _, err := Mount(dev, Options{}); !isCorrupt(err) {
		t.Errorf("without the magic: %v", err)
	}
}

// In real time: the kernel sees that we are there, and we that it is.
func TestMMPAgainstKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("waits as long as the kernel does")
	}
	t.Parallel()
	image := ext4test.Mke2fs(t, 16<<20, "-O", "mmp", "-E", "mmp_update_interval=1")
	ext4test.KernelMount(t, image, "", func(string) {
		base, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: true})
		if err != nil {
			t.Skipf("the image is not to be had while the kernel has it: %v", err)
		}
		defer base.Close()
		if fs, err := Mount(blockdev.NewOverlay(base), Options{}); !errors.Is(err, ErrInUse) {
			t.Errorf("while the kernel has it mounted: %v", err)
			if err == nil {
				fs.Unmount(context.Background())
			}
		}
	})
	m := mountImage(t, image, Options{})
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", image, dir).CombinedOutput(); err == nil {
		exec.Command("umount", dir).Run()
		t.Errorf("the kernel mounts what we have mounted: %s", out)
	}
	m.unmount()
}
