package ext4

import (
	"sync"
	"syscall"

	"extfused/fs/ondisk"
)

// Quotas (features quota and project): how many inodes and bytes each user,
// group and project has, kept in hidden files, in the transaction of what
// changes it. Limits count where the mount asks for them (usrquota, grpquota,
// prjquota), as with the kernel.
//
// Nobody charges by hand. Each in-core inode remembers what it has been charged
// for, and whenever it is written (markDirty), inside the step that changed it,
// the difference goes to the dquots: blocks, owner, group, project, its birth and
// its end. The step's end writes the entries that changed. Handles of two
// transactions are never open at once, so what is written is what the
// transaction knows.

// QuotaKind is one of the three quotas of an inode; kinds can be or'ed as a mask.
type QuotaKind uint8

// The kinds, as bits of Options.QuotaLimits.
const (
	QuotaUser QuotaKind = 1 << iota
	QuotaGroup
	QuotaProject
)

const quotaKinds = 3

// creditsQuota: the entries of two owners of each kind, and a new one of each,
// with its path and its block in the file.
const creditsQuota = quotaKinds*2 + quotaKinds*(ondisk.QuotaDepth+2) + creditsGroup + creditsInode

type quotaState struct {
	mu    sync.Mutex
	on    bool                   // any file is there; constant after mount
	files [quotaKinds]*quotaFile // by kind; nil: none
	dirty []*dquot               // +checklocks:mu
}

// charge is what an inode has been charged for.
type charge struct {
	ids     [quotaKinds]uint32
	inodes  int64 // itself, and attribute values in inodes of their own
	bytes   int64
	started bool // the in-core inode knows
}

// openQuotas reads the quota files of a mount for writing.
func (fs *FS) openQuotas(sb *ondisk.SuperBlock) error {
	if !sb.HasROCompat(ondisk.ROCompatQuota) {
		return nil
	}
	for k, f := range [quotaKinds]struct {
		ino   uint32
		magic uint32
	}{{sb.UsrQuotaInum, ondisk.QuotaMagicUser}, {sb.GrpQuotaInum, ondisk.QuotaMagicGroup}, {sb.PrjQuotaInum, ondisk.QuotaMagicProject}} {
		if f.ino == 0 {
			continue
		}
		q, err := fs.openQuotaFile(ondisk.InodeNumber(f.ino), f.magic)
		if err != nil {
			return fs.report(err)
		}
		fs.quota.files[k], fs.quota.on = q, true
	}
	return nil
}

// counted tells whether an inode counts for quotas: not those of the file
// system itself, and not those of attribute values, which their owners pay.
func (i *Inode) counted() bool {
	return (i.ino == RootIno || i.ino >= i.fs.firstIno) && i.raw.Flags&ondisk.InodeEAInode == 0 && !i.fs.quota.has(i)
}

func (s *quotaState) has(i *Inode) bool {
	for _, f := range s.files {
		if f != nil && f.i.ino == i.ino {
			return true
		}
	}
	return false
}

// wants is what the inode should be charged for as it is now.
func (i *Inode) wants() charge {
	return charge{
		ids:    [quotaKinds]uint32{i.raw.UID(), i.raw.GID(), i.raw.Projid},
		inodes: 1 + i.valueEntries, started: true,
		bytes: int64(i.raw.Sectors(i.fs.hugeFile, i.fs.blockBits)) << 9,
	}
}

// startCharge says that what an inode has by now is in the files already.
func (i *Inode) startCharge() {
	if !i.fs.quota.on {
		return
	}
	if i.fs.eaInode {
		if inode, block, done, err := i.xattrAreas(); err == nil {
			i.valueEntries = int64(len(inode.Inums()) + len(block.Inums()))
			done()
		}
	}
	i.charged = i.wants()
}

// settleQuota charges the difference since the last time; gone: the inode is
// being freed.
func (i *Inode) settleQuota(gone bool) {
	s := &i.fs.quota
	if !s.on || !i.counted() {
		return
	}
	now := i.wants()
	if gone {
		now.inodes, now.bytes = 0, 0
	}
	if now == i.charged {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.settleLocked(now)
}

// settleLocked charges the difference between now and the last time; quota.mu
// is held.
func (i *Inode) settleLocked(now charge) {
	s := &i.fs.quota
	old := i.charged
	for k, f := range s.files {
		if f == nil {
			continue
		}
		if old.ids[k] == now.ids[k] {
			s.addLocked(f, now.ids[k], now.inodes-old.inodes, now.bytes-old.bytes)
			continue
		}
		s.addLocked(f, old.ids[k], -old.inodes, -old.bytes)
		s.addLocked(f, now.ids[k], now.inodes, now.bytes)
	}
	i.charged = now
}

// dquotLocked is the dquot of an id, made if need be.
func (f *quotaFile) dquotLocked(id uint32) *dquot {
	d := f.dquots[id]
	if d == nil {
		d = &dquot{file: f, Quota: ondisk.Quota{ID: id}}
		f.dquots[id] = d
	}
	return d
}

func (s *quotaState) addLocked(f *quotaFile, id uint32, inodes, bytes int64) {
	if inodes == 0 && bytes == 0 {
		return
	}
	d := f.dquotLocked(id)
	now := uint64(f.fs.now().Unix())
	d.Inodes = uint64(max(int64(d.Inodes)+inodes, 0))
	d.Space = uint64(max(int64(d.Space)+bytes, 0))
	d.InodesTime = graceTime(d.Inodes, d.InodesSoft, d.InodesTime, now+uint64(f.head.IGrace))
	d.BlocksTime = graceTime(d.Space, d.BlocksSoft*ondisk.QuotaLimitUnit, d.BlocksTime, now+uint64(f.head.BGrace))
	if !d.dirty {
		d.dirty = true
		s.dirty = append(s.dirty, d)
	}
}

// graceTime is until when a soft limit may be exceeded: 0 while it is not.
func graceTime(usage, soft, old, end uint64) uint64 {
	switch {
	case soft == 0 || usage <= soft:
		return 0
	case old == 0:
		return end
	}
	return old
}

// flushQuota writes the entries that changed, in h. One that finds no room stays
// for the next step.
func (fs *FS) flushQuota(h *handle) error {
	s := &fs.quota
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, d := range s.dirty {
		if err := d.file.write(h, d); err != nil {
			s.dirty = s.dirty[k:]
			if err == syscall.ENOSPC {
				fs.logf(LevelWarn, "quota: no space for the entry of id %d", d.ID)
				return nil
			}
			return fs.report(err)
		}
		d.dirty = false
	}
	s.dirty = s.dirty[:0]
	return nil
}

// quotaRoom is how many of want more blocks the quotas of i allow; EDQUOT if
// none. Who may use the superuser's reserve has no limits.
func (i *Inode) quotaRoom(h *handle, want uint32) (uint32, error) {
	fs := i.fs
	if !fs.quota.on || fs.opts.QuotaLimits == 0 || h.root || !i.counted() {
		return want, nil
	}
	n, now := uint64(want), uint64(fs.now().Unix())
	pending := uint64(max(i.wants().bytes-i.charged.bytes, 0)) // of this step
	err := i.eachLimit(func(d *dquot) {
		space := d.Space + pending
		if hard := d.BlocksHard * ondisk.QuotaLimitUnit; hard > 0 {
			n = min(n, (max(hard, space)-space)>>fs.blockBits)
		}
		if soft := d.BlocksSoft * ondisk.QuotaLimitUnit; soft > 0 && space+n<<fs.blockBits > soft && d.BlocksTime != 0 && now >= d.BlocksTime {
			n = 0
		}
	})
	if n == 0 {
		err = syscall.EDQUOT
	}
	return uint32(n), err
}

// mayOwn tells whether the quotas of i, which is new or gets other owners,
// allow an inode more; EDQUOT.
func (i *Inode) mayOwn(h *handle) error {
	fs := i.fs
	if !fs.quota.on || fs.opts.QuotaLimits == 0 || h.root {
		return nil
	}
	full, now := false, uint64(fs.now().Unix())
	i.eachLimit(func(d *dquot) {
		full = full || d.InodesHard > 0 && d.Inodes >= d.InodesHard ||
			d.InodesSoft > 0 && d.Inodes >= d.InodesSoft && d.InodesTime != 0 && now >= d.InodesTime
	})
	if full {
		return syscall.EDQUOT
	}
	return nil
}

// moveCharge charges other owners for all that i has, before it becomes
// theirs; EDQUOT, with nothing changed, where that takes one of them past a
// limit that counts. The superuser has no limits. The caller holds i.mu
// exclusively and gives i those owners in the same step.
func (i *Inode) moveCharge(c *Caller, ids [quotaKinds]uint32) error {
	s := &i.fs.quota
	if !s.on || !i.counted() {
		return nil
	}
	now := i.wants()
	now.ids = ids
	s.mu.Lock()
	defer s.mu.Unlock()
	if c != nil && c.UID != 0 && !s.fitsLocked(i, now) {
		return syscall.EDQUOT
	}
	i.settleLocked(now)
	return nil
}

// fitsLocked tells whether the limits of those who are new among the owners of
// i allow what it has.
func (s *quotaState) fitsLocked(i *Inode, now charge) bool {
	for k, f := range s.files {
		if f == nil || now.ids[k] == i.charged.ids[k] || i.fs.opts.QuotaLimits&(1<<k) == 0 {
			continue
		}
		d := f.dquots[now.ids[k]]
		if d == nil {
			continue
		}
		t := uint64(i.fs.now().Unix())
		if !within(d.Inodes+uint64(now.inodes), d.InodesHard, d.InodesSoft, d.InodesTime, t) ||
			!within(d.Space+uint64(now.bytes), d.BlocksHard*ondisk.QuotaLimitUnit, d.BlocksSoft*ondisk.QuotaLimitUnit, d.BlocksTime, t) {
			return false
		}
	}
	return true
}

// within tells whether usage is allowed at the time now: no more than the hard
// limit, and no more than the soft one once its time, if it runs, is over.
func within(usage, hard, soft, end, now uint64) bool {
	return (hard == 0 || usage <= hard) && (soft == 0 || usage <= soft || end == 0 || now < end)
}

// eachLimit shows the dquots of i whose limits count.
func (i *Inode) eachLimit(fn func(d *dquot)) error {
	s := &i.fs.quota
	ids := i.wants().ids
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, f := range s.files {
		if f != nil && i.fs.opts.QuotaLimits&(1<<k) != 0 {
			if d := f.dquots[ids[k]]; d != nil {
				fn(d)
			}
		}
	}
	return nil
}
