package ext4

import (
	"strings"
	"syscall"

	"extfused/fs/ondisk"
)

// Label is the name of the file system, "" if it has none.
func (fs *FS) Label() string {
	sb := fs.Super()
	label, _, _ := strings.Cut(string(sb.VolumeName[:]), "\x00")
	return label
}

// SetLabel names the file system, in the primary superblock and then in its
// copies; a copy that is damaged stays as it is. EINVAL for more
// than 16 bytes, EROFS.
func (fs *FS) SetLabel(label string) error {
	var name [16]byte
	if len(label) > len(name) {
		return syscall.EINVAL
	}
	copy(name[:], label)
	err := fs.step(creditsSuper, func(h *handle) error {
		return fs.updateSuper(h, func(sb *ondisk.SuperBlock) { sb.VolumeName = name })
	})
	sb := fs.Super()
	for g := ondisk.GroupNumber(1); err == nil && int(g) < len(fs.groups); g++ {
		if sb.HasSuper(g) {
			err = fs.updateCopy(sb.GroupFirstBlock(g), func(sb *ondisk.SuperBlock) { sb.VolumeName = name })
		}
	}
	return err
}

// updateCopy changes the copy of the superblock in block blk.
func (fs *FS) updateCopy(blk ondisk.FsBlock, change func(sb *ondisk.SuperBlock)) error {
	b, err := fs.cache.Read(uint64(blk), nil)
	if err != nil {
		return err
	}
	defer b.Put()
	var sb ondisk.SuperBlock
	data := b.Data()[:ondisk.SuperBlockSize]
	if sb.Decode(data) != nil || !ondisk.VerifySuperBlock(data) {
		fs.logf(LevelWarn, "block %d: the copy of the superblock is damaged, and left alone", blk)
		return nil
	}
	return fs.step(creditsSuper, func(h *handle) error {
		if err := h.getWrite(b); err != nil {
			return err
		}
		change(&sb)
		sb.Encode(data)
		ondisk.SetSuperBlockCsum(data)
		return h.dirty(b)
	})
}

// SetGeneration sets i_generation. EPERM for others than the owner; ENOTTY where
// checksums are seeded with it (metadata_csum), as in ext4.
func (fs *FS) SetGeneration(c *Caller, ino ondisk.InodeNumber, generation uint32) error {
	i, err := fs.iget(ino)
	if err != nil {
		return err
	}
	defer fs.iput(i)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case c != nil && c.UID != 0 && c.UID != i.raw.UID():
		return syscall.EPERM
	case fs.csum.Metadata():
		return syscall.ENOTTY
	}
	return fs.step(creditsInode, func(h *handle) error {
		i.raw.Generation = generation
		i.raw.SetCtime(fs.timestamp())
		return i.markDirty(h)
	})
}
