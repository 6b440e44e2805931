package ext4

import (
	"fmt"

	"extfused/blockdev"
	"extfused/fs/ondisk"
)

// A journal on a device of its own: the superblock names it by UUID
// (s_journal_uuid), and by the number that its device had once (s_journal_dev).

// ExternalJournal is how a superblock names its external journal.
type ExternalJournal struct {
	UUID [16]byte
	Dev  uint32 // device number in the kernel's 32-bit encoding; 0 if unknown
}

// FindExternalJournal tells what journal the file system on dev wants; ok is
// false if it has none of that kind.
func FindExternalJournal(dev blockdev.Device, o Options) (j ExternalJournal, ok bool, err error) {
	sb, err := readSuper(dev, superOffset(&o))
	if err == errSuperChecksum { // the mount decides
		err = nil
	}
	if err != nil || !sb.HasCompat(ondisk.CompatHasJournal) || sb.JournalInum != 0 {
		return j, false, err
	}
	return ExternalJournal{UUID: sb.JournalUUID, Dev: sb.JournalDev}, true, nil
}

// Is tells whether dev is that journal.
func (j ExternalJournal) Is(dev blockdev.Device) bool { return j.check(dev) == nil }

// check says why dev is not that journal.
func (j ExternalJournal) check(dev blockdev.Device) error {
	sb, err := readSuper(dev, ondisk.SuperBlockOffset)
	switch {
	case err != nil:
		return mountErrorf(ErrBadOption, "the journal device: %v", err)
	case !sb.HasIncompat(ondisk.IncompatJournalDev):
		return mountErrorf(ErrBadOption, "the journal device holds a file system, not a journal")
	case sb.UUID != j.UUID:
		return mountErrorf(ErrBadOption, "the journal device is another one: it has UUID %s, wanted is %s", formatUUID(sb.UUID), formatUUID(j.UUID))
	}
	return nil
}

func formatUUID(u [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func (j ExternalJournal) String() string { return formatUUID(j.UUID) }
