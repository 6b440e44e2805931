package ext4

import (
	"fmt"

	"extfused/blockdev"
	"extfused/fs/ondisk"
	"extfused/journal"
)

// The second part of what talks to the journal: finding, replaying, starting
// and closing it.

// defaultCommit is how long a change may wait for its commit.
const defaultCommit = journal.DefaultCommitInterval

// openJournal finds the journal and replays it if it must be. It returns the
// superblock as it is after the replay, and the journal, nil if there is none
// or it is not to be used.
func (fs *FS) openJournal(sb *ondisk.SuperBlock) (*journal.Journal, *ondisk.SuperBlock, error) {
	dirty := sb.HasIncompat(ondisk.IncompatRecover) || fs.tornSuper
	if !sb.HasCompat(ondisk.CompatHasJournal) {
		if dirty {
			return nil, nil, ondisk.Corrupt("superblock: needs recovery, but there is no journal")
		}
		return nil, sb, nil
	}
	if fs.opts.NoLoad || (fs.opts.ReadOnly && !dirty) {
		return nil, sb, nil
	}
	if fs.opts.ReadOnly {
		fs.setDevice(blockdev.NewOverlay(fs.dev))
	}
	p, err := fs.journalParams(sb)
	if err != nil {
		return nil, nil, err
	}
	j, err := journal.Open(p)
	if err != nil {
		return nil, nil, err
	}
	if dirty {
		sb, err = fs.recoverJournal(j)
	} else {
		err = j.Wipe()
	}
	if err != nil {
		return nil, nil, err
	}
	if fs.opts.ReadOnly {
		return nil, sb, nil
	}
	return j, sb, nil
}

// recoverJournal replays, and reads the superblock again, which the replay may
// have changed.
func (fs *FS) recoverJournal(j *journal.Journal) (*ondisk.SuperBlock, error) {
	j.OnFastCommit(fs.replayFastCommits)
	if _, err := j.Recover(); err != nil {
		return nil, fmt.Errorf("journal recovery: %w", err)
	}
	sb, err := readSuper(fs.dev, superOffset(&fs.opts))
	if err != nil {
		return nil, err
	}
	if err := checkSuper(sb, fs.dev, &fs.opts); err != nil {
		return nil, err
	}
	fs.geometry, fs.csum = makeGeometry(sb), sb.Csum()
	fs.super.sb = *sb
	fs.logf(LevelInfo, "journal replayed")
	return sb, nil
}

// journalParams says where the journal is.
func (fs *FS) journalParams(sb *ondisk.SuperBlock) (journal.Params, error) {
	p := journal.Params{
		FsDev: fs.dev, FsBlocks: fs.blocks, BlockSize: fs.blockSize, UUID: sb.UUID,
		Options: journal.Options{
			CommitInterval: fs.opts.Commit, NoBarrier: fs.opts.NoBarrier, AsyncCommit: fs.opts.AsyncCommit,
			MinBatch: fs.opts.MinBatch, MaxBatch: fs.opts.MaxBatch,
		},
	}
	if sb.JournalInum == 0 {
		if fs.opts.JournalDev == nil {
			return p, mountErrorf(ErrBadOption, "the journal is on another device, with UUID %s: name it with -o journal_path=", formatUUID(sb.JournalUUID))
		}
		if err := (ExternalJournal{UUID: sb.JournalUUID}).check(fs.opts.JournalDev); err != nil {
			return p, err
		}
		p.LogDev = fs.opts.JournalDev
		p.Runs = journal.ExternalRuns(p.LogDev, fs.blockSize)
		p.SuperBlock = journal.ExternalSuperBlock(fs.blockSize)
		return p, nil
	}
	i, err := fs.readJournalInode(sb, ondisk.InodeNumber(sb.JournalInum))
	if err != nil {
		return p, fmt.Errorf("journal inode: %w", err)
	}
	runs, err := fs.inodeRuns(i)
	if err != nil {
		return p, fmt.Errorf("journal: %w", err)
	}
	for _, r := range runs {
		p.Runs = append(p.Runs, journal.Run(r))
	}
	return p, nil
}

// startJournal starts jnl, if there is one, over the cache.
func (fs *FS) startJournal(jnl *journal.Journal) error {
	if jnl == nil {
		return nil
	}
	if err := jnl.SetFeatures(fs.journalFeatures()); err != nil {
		return err
	}
	jnl.SetCache(fs.cache)
	jnl.OnCommit(func(tid journal.TID, err error) {
		if err == nil {
			fs.committed(uint32(tid))
		}
	})
	jnl.OnAbort(fs.aborted)
	if err := jnl.Start(); err != nil {
		return err
	}
	fs.jnl = jnl
	return nil
}

// journalFeatures are the features that the log should have, as the kernel
// chooses them: revokes always, wide block numbers where the file system has
// them, and checksums where the metadata has some, or where commits without an
// ordering flush need them.
func (fs *FS) journalFeatures() (journal.FeatureCompat, journal.FeatureIncompat) {
	f := journal.IncompatRevoke
	if fs.super.sb.HasIncompat(ondisk.Incompat64Bit) {
		f |= journal.Incompat64Bit
	}
	if fs.csum.Metadata() || fs.opts.AsyncCommit {
		f |= journal.IncompatCsumV3
	}
	if fs.opts.AsyncCommit {
		f |= journal.IncompatAsyncCommit
	}
	return 0, f
}

// closeJournal brings everything home, and says in the superblock that it is.
func (fs *FS) closeJournal() error {
	switch {
	case fs.opts.ReadOnly:
		return nil
	case fs.jnl != nil:
		return fs.closeLog()
	case fs.stopped.Load() != 0:
		return nil
	}
	if err := fs.syncUnlogged(); err != nil || fs.writable() != nil {
		return err
	}
	return fs.writeSuperDirect(fs.unmounted)
}

// closeLog empties the log before the superblock's last change, since with that
// change at home nobody need look at the log any more.
func (fs *FS) closeLog() error {
	logged := fs.csum.Metadata() && fs.writable() == nil
	if logged && fs.jnl.Flush() == nil {
		if err := fs.logSuper(fs.unmounted); err != nil {
			fs.jnl.Close()
			return err
		}
	}
	err := fs.jnl.Close()
	if err != nil || logged || fs.writable() != nil {
		return err
	}
	return fs.writeSuperDirect(fs.unmounted)
}
