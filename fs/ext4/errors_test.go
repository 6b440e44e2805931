package ext4

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bdtest"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// poke changes bytes of a device.
func poke(t *testing.T, dev blockdev.Device, off int64, b ...byte) {
	t.Helper()
	if _, err := dev.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

func TestMountRefuses(t *testing.T) {
	good := ext4test.Mke2fs(t, 64<<20)
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dev blockdev.Device)
		kind   error
		text   string
	}{
		{"zeroes", func(t *testing.T, dev blockdev.Device) { dev.Zero(0, 4096) }, ErrNotExt4, "not an ext4 image"},
		{"partition table", func(t *testing.T, dev blockdev.Device) {
			dev.Zero(0, 4096)
			poke(t, dev, 446+4, 0x83)
			poke(t, dev, 446+12, 1)
			poke(t, dev, 510, 0x55, 0xaa)
		}, ErrNotExt4, "partition table"},
		{"unknown incompat", func(t *testing.T, dev blockdev.Device) { setIncompat(t, dev, 1<<29) }, ErrUnsupported, "FEATURE_I29"},
		{"casefold", func(t *testing.T, dev blockdev.Device) { setIncompat(t, dev, 1<<17) }, ErrUnsupported, "casefold"},
		{"unknown ro_compat", func(t *testing.T, dev blockdev.Device) { setROCompat(t, dev, 1<<29) }, ErrReadOnly, "FEATURE_R29"},
		{"superblock checksum", func(t *testing.T, dev blockdev.Device) { poke(t, dev, 1024+0x78, 'x') }, nil, "checksum"},
		{"descriptor checksum", func(t *testing.T, dev blockdev.Device) {
			sb, err := readSuper(dev, ondisk.SuperBlockOffset)
			if err != nil {
				t.Fatal(err)
			}
			poke(t, dev, int64(sb.DescBlock(0))<<sb.BlockBits()+0x18, 0xde, 0xad)
		}, nil, "group descriptor: checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := ext4test.Load(t, good)
			c.damage(t, dev)
			_, err := Mount(dev, Options{})
			switch {
			case err == nil:
				t.Fatal("was mounted")
			case c.kind != nil && !errors.Is(err, c.kind):
				t.Errorf("kind of %q is not %q", err, c.kind)
			case c.kind == nil && !isCorrupt(err):
				t.Errorf("%q is no corruption", err)
			case !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n"):
				t.Errorf("message %q does not tell %q in one line", err, c.text)
			}
		})
	}
}

func changeSuper(t *testing.T, dev blockdev.Device, change func(*ondisk.SuperBlock)) {
	t.Helper()
	sb, err := readSuper(dev, ondisk.SuperBlockOffset)
	if err != nil {
		t.Fatal(err)
	}
	change(sb)
	b := make([]byte, ondisk.SuperBlockSize)
	sb.Encode(b)
	ondisk.SetSuperBlockCsum(b)
	poke(t, dev, ondisk.SuperBlockOffset, b...)
}

func setIncompat(t *testing.T, dev blockdev.Device, bit ondisk.IncompatFeatures) {
	changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.SetIncompat(bit, true) })
}

func setROCompat(t *testing.T, dev blockdev.Device, bit ondisk.ROCompatFeatures) {
	changeSuper(t, dev, func(sb *ondisk.SuperBlock) { sb.SetROCompat(bit, true) })
}

// An image cut short is refused; an unknown ro_compat feature mounts ro.
func TestMountShortAndReadOnly(t *testing.T) {
	dev := ext4test.Load(t, ext4test.Mke2fs(t, 64<<20))
	short, err := blockdev.NewSection(dev, 0, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Mount(short, Options{ReadOnly: true}); !errors.Is(err, ErrTooShort) {
		t.Errorf("half an image: %v", err)
	}
	setROCompat(t, dev, 1<<29)
	fs, err := Mount(dev, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.Unmount(context.Background()); err != nil {
		t.Error(err)
	}
}

// badBitmap is an image whose group 0 has a damaged inode bitmap.
func badBitmap(t *testing.T) *blockdev.Overlay {
	t.Helper()
	path := ext4test.Mke2fs(t, 300<<20, "-g", "8192")
	dev := ext4test.Load(t, path)
	fs, err := Mount(dev, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	off := int64(fs.groups[0].desc.InodeBitmap()) << fs.blockBits
	if err := fs.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	poke(t, dev, off+1, 0xff)
	return dev
}

// Damage found while running is recorded; errors= decides the rest.
func TestErrorsPolicy(t *testing.T) {
	for _, policy := range []ErrorsPolicy{ErrorsContinue, ErrorsRemountRO, ErrorsPanic} {
		dev := badBitmap(t)
		told, panicked := make(chan error, 1), 0
		fs, err := Mount(dev, Options{
			Errors:      policy,
			OnRemountRO: func(cause error) { told <- cause },
			Panic:       func(error) { panicked++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		dir, err := fs.iget(RootIno)
		if err != nil {
			t.Fatal(err)
		}
		h, err := fs.begin(creditsNewInode)
		if err != nil {
			t.Fatal(err)
		}
		i, err := fs.newInode(h, dir, nil, ondisk.ModeReg)
		if err == nil {
			i.raw.LinksCount = 0
			if g, _ := fs.groupOf(i.ino); g == 0 {
				t.Errorf("inode %d was taken from the damaged group", i.ino)
			}
		}
		h.stop()
		if policy == ErrorsContinue && err != nil {
			t.Errorf("continue: %v", err)
		}
		if policy == ErrorsRemountRO {
			select {
			case cause := <-told:
				if !isCorrupt(cause) {
					t.Errorf("told %v", cause)
				}
			case <-time.After(10 * time.Second):
				t.Error("nobody was told of the remount")
			}
			if _, err := fs.begin(1); err != syscall.EROFS {
				t.Errorf("a handle after the error: %v", err)
			}
		}
		if (policy == ErrorsPanic) != (panicked == 1) {
			t.Errorf("policy %d: panicked %d times", policy, panicked)
		}
		fs.iput(i)
		fs.iput(dir)
		fs.Unmount(context.Background())
		sb, err := readSuper(dev, ondisk.SuperBlockOffset)
		if err != nil {
			t.Fatal(err)
		}
		if sb.ErrorCount != 1 || sb.State&ondisk.StateError == 0 || sb.FirstErrorTimeLo == 0 || sb.LastErrorBlock == 0 {
			t.Errorf("policy %d: %d errors recorded, state %#x, at %d, block %d", policy, sb.ErrorCount, sb.State, sb.FirstErrorTimeLo, sb.LastErrorBlock)
		}
	}
}

// A device whose writes fail turns the mount read-only, everybody who waits
// for durability hears of it, and what is on the device is consistent.
func TestWriteErrors(t *testing.T) {
	mem := ext4test.Load(t, ext4test.Mke2fs(t, 64<<20))
	dev := bdtest.NewFault(mem)
	fs, err := Mount(dev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &testFS{FS: fs, t: t}
	dir, err := fs.iget(RootIno)
	if err != nil {
		t.Fatal(err)
	}
	m.makeBare(dir, ondisk.ModeReg)
	dev.Add(bdtest.Rule{Ops: bdtest.OpWrite})
	if err := fs.Sync(); err != syscall.EIO {
		t.Errorf("sync on a dead device: %v", err)
	}
	if err := fs.Sync(); err != syscall.EIO {
		t.Errorf("sync on a dead device, again: %v", err)
	}
	if _, err := fs.begin(1); err != syscall.EROFS {
		t.Errorf("a handle on a dead device: %v", err)
	}
	if err := fs.Unmount(context.Background()); err == nil {
		t.Error("unmount of a dead device succeeded")
	}
	dev.Heal()
	again, err := Mount(mem, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Unmount(context.Background()); err != nil {
		t.Fatal(err)
	}
	ext4test.Fsck(t, ext4test.Save(t, mem))
}
