package ext4

import (
	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// A superblock is two sectors, and a power cut may leave one of them old and one
// new. Without metadata_csum that does no harm: all that ever changes is in the
// first one. With it the checksum, in the second, is wrong then, and ext4 and we
// refuse such an image.
//
// So wherever we write the superblock home, the log holds the same version,
// committed, until that write is durable. For what transactions do to it that is
// so anyway; the writes of mount and unmount, which e2fsprogs and the kernel do
// directly, we log, too, each as the only content of its transaction. A mount
// that finds a wrong checksum looks for the journal by what the superblock says
// nevertheless - descriptors, inode and log have checksums of their own - and
// takes the superblock that the log has; without one the image is refused.
//
// The order at mount is: log (the superblock says clean; whoever cares for no more
// than that drops the log, and loses nothing), home, then everything else. At
// unmount: everything else home, the log empty; log, home, log empty.

// loggedSuper is the superblock that the journal has, for one whose checksum is
// wrong; errSuperChecksum if there is none.
func loggedSuper(dev blockdev.Device, torn *ondisk.SuperBlock, o *Options) (*ondisk.SuperBlock, error) {
	if o.SBBlock != 0 || o.NoLoad || !torn.HasCompat(ondisk.CompatHasJournal) || checkSuper(torn, dev, o) != nil {
		return nil, errSuperChecksum
	}
	fs := newFS(torn, *o)
	fs.setDevice(dev)
	p, err := fs.journalParams(torn)
	if err != nil {
		return nil, errSuperChecksum
	}
	j, err := journal.Open(p)
	if err != nil {
		return nil, errSuperChecksum
	}
	b, err := j.Logged(uint64(ondisk.SuperBlockOffset / fs.blockSize))
	if err != nil || b == nil {
		return nil, errSuperChecksum
	}
	b = b[ondisk.SuperBlockOffset%fs.blockSize:]
	sb := new(ondisk.SuperBlock)
	if sb.Decode(b) != nil || !ondisk.VerifySuperBlock(b) || sb.UUID != torn.UUID ||
		sb.JournalInum != torn.JournalInum || makeGeometry(sb) != makeGeometry(torn) {
		return nil, errSuperChecksum
	}
	return sb, nil
}

// changeSuper changes the superblock where nothing else is going on, durably: at
// mount and at unmount.
func (fs *FS) changeSuper(change func(sb *ondisk.SuperBlock)) error {
	if fs.jnl == nil || !fs.csum.Metadata() {
		return fs.writeSuperDirect(change)
	}
	if err := fs.logSuper(change); err != nil {
		return err
	}
	if err := fs.jnl.Commit(); err != nil {
		return err
	}
	return fs.writeSuperDirect(nil)
}

// logSuper is the first half of changeSuper.
func (fs *FS) logSuper(change func(sb *ondisk.SuperBlock)) error {
	h, err := fs.begin(creditsSuper)
	if err != nil {
		return err
	}
	err = fs.updateSuper(h, func(sb *ondisk.SuperBlock) {
		change(sb)
		sb.SetWtime(fs.now())
	})
	return first(err, h.stop())
}
