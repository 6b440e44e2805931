package ext4

import (
	"encoding/binary"
	"sync"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// superState is the superblock in memory and its buffer. The counts of free
// blocks and inodes in it are brought up to date at sync and unmount only, as
// in the kernel: the group descriptors are what counts.
type superState struct {
	mu  sync.Mutex
	sb  ondisk.SuperBlock // +checklocks:mu
	buf *bcache.Buffer    // pinned for the life of the mount
	off int               // of the superblock in the buffer, bytes

	errorsPending bool // +checklocks:mu, error fields changed since the last write
}

// readSuper reads and decodes the superblock at byte off of dev.
func readSuper(dev blockdev.Device, off int64) (*ondisk.SuperBlock, error) {
	b := make([]byte, ondisk.SuperBlockSize)
	if n, err := dev.ReadAt(b, off); n < len(b) {
		if off+int64(len(b)) > dev.Size() {
			return nil, mountErrorf(ErrNotExt4, "not an ext4 image: too small for a superblock")
		}
		return nil, err
	}
	sb := new(ondisk.SuperBlock)
	if err := sb.Decode(b); err != nil {
		return nil, mountErrorf(ErrNotExt4, "not an ext4 image%s", guessContent(dev))
	}
	if !ondisk.VerifySuperBlock(b) {
		return sb, errSuperChecksum
	}
	return sb, nil
}

// errSuperChecksum comes from readSuper together with what could be decoded.
var errSuperChecksum = ondisk.Corrupt("superblock: checksum is wrong (try sb= with a backup, or e2fsck)")

// guessContent says what an image seems to be that has no superblock.
func guessContent(dev blockdev.Device) string {
	var b [512 + 8]byte
	if n, _ := dev.ReadAt(b[:], 0); n < len(b) {
		return ""
	}
	switch {
	case string(b[512:520]) == "EFI PART":
		return ": it holds a GPT partition table (use offset= to name a partition's first byte)"
	case b[510] == 0x55 && b[511] == 0xaa && plausibleMBR(b[446:510]):
		return ": it holds a partition table (use offset= to name a partition's first byte)"
	}
	return ""
}

// plausibleMBR tells whether the four partition entries look like such: boot
// flags are 0 or 0x80 and at least one has a type and a length.
func plausibleMBR(p []byte) bool {
	used := false
	for k := 0; k < 4; k++ {
		e := p[16*k : 16*k+16]
		if e[0]&0x7f != 0 {
			return false
		}
		used = used || (e[4] != 0 && binary.LittleEndian.Uint32(e[12:]) != 0)
	}
	return used
}

// attach pins the superblock's buffer and takes sb over.
func (s *superState) attach(fs *FS, sb *ondisk.SuperBlock) error {
	s.sb = *sb
	fs.largeFile.Store(sb.HasROCompat(ondisk.ROCompatLargeFile) && sb.RevLevel != ondisk.RevGoodOld)
	blk := uint64(ondisk.SuperBlockOffset / fs.blockSize)
	s.off = ondisk.SuperBlockOffset % fs.blockSize
	b, err := fs.cache.Read(blk, nil)
	s.buf = b
	return err
}

// bytes are the superblock's own within its buffer.
func (s *superState) bytes() []byte { return s.buf.Data()[s.off : s.off+ondisk.SuperBlockSize] }

// encodeLocked writes sb to the buffer, checksum included.
func (s *superState) encodeLocked() {
	s.sb.Encode(s.bytes())
	ondisk.SetSuperBlockCsum(s.bytes())
}

// updateSuper changes the superblock within a handle.
func (fs *FS) updateSuper(h *handle, change func(sb *ondisk.SuperBlock)) error {
	s := &fs.super
	if err := h.getWrite(s.buf); err != nil {
		return err
	}
	s.mu.Lock()
	change(&s.sb)
	s.encodeLocked()
	s.mu.Unlock()
	return h.dirty(s.buf)
}

// makeDynamic makes a superblock of revision 0 one that can have features.
func makeDynamic(sb *ondisk.SuperBlock) {
	if sb.RevLevel == ondisk.RevGoodOld {
		sb.RevLevel, sb.FirstIno, sb.InodeSize = ondisk.RevDynamic, ondisk.GoodOldFirstIno, ondisk.GoodOldInodeSize
	}
}

// noteLargeFile sets the feature without which e2fsck takes the high half of a
// file's size for damage, once there is a file longer than MaxSmallFile.
func (fs *FS) noteLargeFile(h *handle) error {
	if fs.largeFile.Load() {
		return nil
	}
	err := fs.updateSuper(h, func(sb *ondisk.SuperBlock) {
		makeDynamic(sb)
		sb.SetROCompat(ondisk.ROCompatLargeFile, true)
	})
	if err == nil {
		fs.largeFile.Store(true)
	}
	return err
}

// setLastOrphan is updateSuper for s_last_orphan alone, which is hot.
func (fs *FS) setLastOrphan(h *handle, ino ondisk.InodeNumber) error {
	s := &fs.super
	if err := h.getWrite(s.buf); err != nil {
		return err
	}
	s.mu.Lock()
	s.sb.LastOrphan = uint32(ino)
	binary.LittleEndian.PutUint32(s.bytes()[0xe8:], uint32(ino))
	ondisk.SetSuperBlockCsum(s.bytes())
	s.mu.Unlock()
	return h.dirty(s.buf)
}

// writeSuperDirect changes the superblock and writes it home at once, outside
// of any transaction: where there is no journal, or nothing that a torn write
// could spoil (see supertear.go); change is nil where the buffer has what is to
// be written.
func (fs *FS) writeSuperDirect(change func(sb *ondisk.SuperBlock)) error {
	s := &fs.super
	s.mu.Lock()
	if change != nil {
		change(&s.sb)
		s.sb.SetWtime(fs.now())
		s.encodeLocked()
	}
	b := append([]byte(nil), s.bytes()...)
	s.mu.Unlock()
	if _, err := fs.dev.WriteAt(b, ondisk.SuperBlockOffset); err != nil {
		return err
	}
	return fs.flushDevice()
}

// patchSuperOnDisk changes the superblock as it stands on the device,
// leaving alone what transactions may have changed in memory: for recording
// errors once the journal is dead.
func (fs *FS) patchSuperOnDisk(change func(sb *ondisk.SuperBlock)) error {
	b := make([]byte, ondisk.SuperBlockSize)
	if n, err := fs.dev.ReadAt(b, ondisk.SuperBlockOffset); n < len(b) {
		return err
	}
	var sb ondisk.SuperBlock
	if err := sb.Decode(b); err != nil {
		return err
	}
	change(&sb)
	sb.Encode(b)
	ondisk.SetSuperBlockCsum(b)
	if _, err := fs.dev.WriteAt(b, ondisk.SuperBlockOffset); err != nil {
		return err
	}
	return fs.flushDevice()
}

// syncCounts brings the totals of a superblock up to date.
func (fs *FS) syncCounts(sb *ondisk.SuperBlock) {
	sb.SetFreeClusters(uint64(max(fs.freeClusters.Load(), 0)))
	sb.FreeInodesCount = uint32(max(fs.freeInodes.Load(), 0))
}

// Super is a copy of the superblock as it is in memory, with the counts of
// this moment.
func (fs *FS) Super() ondisk.SuperBlock {
	fs.super.mu.Lock()
	sb := fs.super.sb
	fs.super.mu.Unlock()
	fs.syncCounts(&sb)
	return sb
}

// checkFeatures decides what the features allow; it returns readOnly with the
// reason when the image can be read but not changed.
func checkFeatures(sb *ondisk.SuperBlock) (readOnly string, err error) {
	f := sb.Features()
	if f.Incompat&ondisk.IncompatJournalDev != 0 {
		return "", mountErrorf(ErrUnsupported, "this is an external journal, not a file system")
	}
	if f.ROCompat&ondisk.ROCompatBigalloc != 0 && f.Incompat&ondisk.IncompatExtents == 0 {
		return "", mountErrorf(ErrUnsupported, "bigalloc without extent: block maps cannot tell clusters")
	}
	f.ROCompat &^= ondisk.ROCompatOrphanPresent // orphan.go knows
	refuse, ro := f.Unsupported()
	if len(refuse) > 0 {
		return "", mountErrorf(ErrUnsupported, "unsupported feature %s", joinNames(refuse))
	}
	if len(ro) > 0 {
		return "feature " + joinNames(ro), nil
	}
	return "", nil
}
