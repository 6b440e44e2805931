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

// SetLabel names the file system, in the primary superblock. EINVAL for more
// than 16 bytes, EROFS.
func (fs *FS) SetLabel(label string) error {
	var name [16]byte
	if len(label) > len(name) {
		return syscall.EINVAL
	}
	copy(name[:], label)
	return fs.step(creditsSuper, func(h *handle) error {
		return fs.updateSuper(h, func(sb *ondisk.SuperBlock) { sb.VolumeName = name })
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
