package ext4

import (
	"errors"
	"fmt"
	"testing"

	"extfused/blockdev/bdtest"
	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// Every write of the superblock, at mount, by a checkpoint and at unmount, is cut
// between its two sectors, both ways, with everything else durable or not. The
// next mount, read-only or not, is whole again.
func TestTornSuperblock(t *testing.T) {
	for _, args := range [][]string{{"-b", "1024"}, {"-b", "4096"}, {"-b", "4096", "-O", "metadata_csum_seed,orphan_file"}} {
		rec := bdtest.NewRecorder(ext4test.Load(t, ext4test.Mke2fs(t, 32<<20, args...)))
		var synced []int // position of the record when file k was synced
		for round := range 2 {
			fs, err := Mount(rec, Options{})
			mustOK(t, err)
			for k := range 3 {
				mustOK(t, writeSynced(fs, fmt.Sprint("f", round, k), []byte("content")))
				synced = append(synced, len(rec.Log()))
			}
			mustOK(t, fs.Unmount(t.Context()))
		}
		torn := 0
		for pos, op := range rec.Log() {
			const start, half = ondisk.SuperBlockOffset, ondisk.SuperBlockSize / 2
			if op.Kind != bdtest.OpWrite || op.Off > start || op.Off+op.Len < start+2*half {
				continue
			}
			for _, loss := range []bdtest.Loss{{Kind: bdtest.KeepAll}, {Kind: bdtest.DropAll}} {
				for sector := range int64(2) {
					dev, err := rec.CrashImage(pos, loss)
					mustOK(t, err)
					at := start + half*sector
					_, err = dev.WriteAt(op.Data[at-op.Off:][:half], at)
					mustOK(t, err)
					if _, err := readSuper(dev, start); err == errSuperChecksum {
						torn++
					}
					for _, ro := range []bool{true, false} {
						fs, err := Mount(dev, Options{ReadOnly: ro})
						if err != nil {
							t.Fatalf("%v, operation %d, sector %d, read-only %v: %v", args, pos, sector, ro, err)
						}
						for k, p := range synced {
							if b, err := readPath(fs, fmt.Sprint("f", k/3, k%3)); p <= pos && (err != nil || string(b) != "content") {
								t.Errorf("%v, operation %d, sector %d: a synced file holds %q (%v)", args, pos, sector, b, err)
							}
						}
						mustOK(t, fs.Unmount(t.Context()))
					}
					ext4test.Fsck(t, ext4test.Save(t, dev))
				}
			}
		}
		t.Logf("%v: %d torn superblocks", args, torn)
		if torn < 10 {
			t.Errorf("%v: only %d torn superblocks were tried", args, torn)
		}
	}
}

// A superblock with a wrong checksum, of which the log knows nothing, is not
// believed.
func TestBadSuperblockIsRefused(t *testing.T) {
	dev := ext4test.Load(t, ext4test.Mke2fs(t, 32<<20))
	poke(t, dev, ondisk.SuperBlockOffset+0x34, 77) // s_mnt_count
	if _, err := Mount(dev, Options{}); !errors.Is(err, errSuperChecksum) {
		t.Errorf("mount: %v", err)
	}
}
