package ext4

import (
	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// ErrNoJournal: the file system has no journal to look into.
var ErrNoJournal = &MountError{Kind: ErrUnsupported, Msg: "the file system has no journal"}

// JournalParams finds the journal of the image on dev, without a mount and
// without writing. With an external journal o.JournalDev is its device. A wrong
// checksum of the superblock, as a torn write leaves it, is no obstacle.
func JournalParams(dev blockdev.Device, o Options) (journal.Params, error) {
	o.ReadOnly = true
	sb, err := readSuper(dev, superOffset(&o))
	if err != nil && err != errSuperChecksum {
		return journal.Params{}, err
	}
	if err := checkSuper(sb, dev, &o); err != nil {
		return journal.Params{}, err
	}
	if !sb.HasCompat(ondisk.CompatHasJournal) {
		return journal.Params{}, ErrNoJournal
	}
	fs := newFS(sb, o)
	fs.setDevice(dev)
	return fs.journalParams(sb)
}
