package populate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// duringFill are the features that the superblock does without while the image
// is filled: nobody else looks at it yet, and it can be made again.
var duringFill = ondisk.Features{
	Compat:   ondisk.CompatHasJournal | ondisk.CompatFastCommit | ondisk.CompatOrphanFile,
	Incompat: ondisk.IncompatMMP,
}

// Image mounts the file system on dev, calls fill with it, and leaves it as one
// that has never been mounted. A zero clock is the time of day; with another
// one the same fill gives the same bytes.
func Image(dev blockdev.Device, clock time.Time, fill func(*ext4.FS) error) error {
	before, err := readSuper(dev)
	if err != nil {
		return err
	}
	sb := *before
	sb.FeatureCompat &^= uint32(duringFill.Compat)
	sb.FeatureIncompat &^= uint32(duringFill.Incompat)
	if err := writeSuper(dev, &sb); err != nil {
		return err
	}
	if err := mounted(dev, clock, fill); err != nil {
		return err
	}
	after, err := readSuper(dev)
	if err != nil {
		return err
	}
	after.FeatureCompat |= before.FeatureCompat & uint32(duringFill.Compat)
	after.FeatureIncompat |= before.FeatureIncompat & uint32(duringFill.Incompat)
	after.MntCount, after.MtimeLo, after.MtimeHi = 0, 0, 0
	after.WtimeLo, after.WtimeHi = before.WtimeLo, before.WtimeHi
	// What a cache wrote twice depends on the moment; what has been filled does not.
	after.KbytesWritten = before.KbytesWritten + (before.FreeBlocks()-min(after.FreeBlocks(), before.FreeBlocks()))*uint64(after.BlockSize())/1024
	if err := writeSuper(dev, after); err != nil {
		return err
	}
	return dev.Flush()
}

func mounted(dev blockdev.Device, clock time.Time, fill func(*ext4.FS) error) error {
	var problem error
	o := ext4.Options{
		Errors: ext4.ErrorsRemountRO,
		Logf: func(l ext4.Level, format string, args ...any) {
			if l == ext4.LevelError && problem == nil {
				problem = fmt.Errorf(format, args...)
			}
		},
	}
	if !clock.IsZero() {
		o.Now = func() time.Time { return clock }
		o.Rand = rand.New(rand.NewPCG(uint64(clock.Unix()), 0)).Uint32
	}
	m, err := ext4.Mount(dev, o)
	if err != nil {
		return err
	}
	err = fill(m)
	if uerr := m.Unmount(context.Background()); err == nil {
		err = uerr
	}
	if err == nil {
		err = problem
	}
	return err
}

func readSuper(dev blockdev.Device) (*ondisk.SuperBlock, error) {
	b := make([]byte, ondisk.SuperBlockSize)
	if _, err := dev.ReadAt(b, ondisk.SuperBlockOffset); err != nil {
		return nil, err
	}
	sb := &ondisk.SuperBlock{}
	return sb, sb.Decode(b)
}

func writeSuper(dev blockdev.Device, sb *ondisk.SuperBlock) error {
	b := make([]byte, ondisk.SuperBlockSize)
	sb.Encode(b)
	ondisk.SetSuperBlockCsum(b)
	_, err := dev.WriteAt(b, ondisk.SuperBlockOffset)
	return err
}
