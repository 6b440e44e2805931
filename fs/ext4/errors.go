package ext4

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"extfused/fs/ondisk"
)

// health is what went wrong so far.
type health struct {
	corruptions atomic.Int64 // damage found, each time it was met
	ioErrors    atomic.Int64
	isAborted   atomic.Bool
	reports     sync.WaitGroup // running reportAbort

	mu     sync.Mutex
	logged map[string]bool // +checklocks:mu, messages already given
	first  error           // +checklocks:mu, what made the mount read-only
}

// maxLogged bounds the set of damages that are logged one by one.
const maxLogged = 256

func isCorrupt(err error) bool {
	var c *ondisk.CorruptError
	return errors.As(err, &c)
}

// firstTime tells whether message was not given before, and remembers it.
func (k *health) firstTime(message string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logged[message] || len(k.logged) >= maxLogged {
		return false
	}
	if k.logged == nil {
		k.logged = make(map[string]bool)
	}
	k.logged[message] = true
	return true
}

// corrupt takes notice of damage: it is counted, logged once, recorded in the
// superblock, and errors= decides what follows. It returns err for the caller
// to return; errors that are no damage pass through unnoticed. It may be
// called with any lock below Inode.mu held, and within a handle.
func (fs *FS) corrupt(err error) error {
	var c *ondisk.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	fs.health.corruptions.Add(1)
	if fs.health.firstTime(c.Error()) {
		fs.logf(LevelError, "%v", c)
	}
	if fs.readOnly.Load() {
		return err
	}
	fs.recordError(c)
	switch fs.errorsPolicy() {
	case ErrorsPanic:
		if fs.opts.Panic != nil {
			fs.opts.Panic(err)
		} else {
			panic(err)
		}
	case ErrorsRemountRO:
		if fs.jnl != nil {
			fs.jnl.Abort(err)
		}
		fs.aborted(err)
	}
	return err
}

// errorsPolicy is the mount option, or else the superblock's.
func (fs *FS) errorsPolicy() ErrorsPolicy {
	if fs.opts.Errors != ErrorsDefault {
		return fs.opts.Errors
	}
	switch fs.super.sb.Errors { // never changed while mounted
	case ondisk.ErrorsRO:
		return ErrorsRemountRO
	case ondisk.ErrorsPanic:
		return ErrorsPanic
	}
	return ErrorsContinue
}

// recordError notes damage in the superblock in memory, and sees to it that
// the device learns of it: by a transaction of its own, which may have to wait
// for the caller's handle, or by reportAbort when the journal is aborted.
func (fs *FS) recordError(c *ondisk.CorruptError) {
	now := fs.now().Unix()
	s := &fs.super
	s.mu.Lock()
	noteError(&s.sb, c, now)
	pending := s.errorsPending
	s.errorsPending = true
	s.mu.Unlock()
	if pending || fs.errorsPolicy() != ErrorsContinue {
		return
	}
	fs.health.reports.Add(1)
	go fs.saveErrors()
}

// saveErrors brings the error fields to the device.
func (fs *FS) saveErrors() {
	defer fs.health.reports.Done()
	h, err := fs.begin(creditsSuper)
	if err != nil {
		return
	}
	err = fs.updateSuper(h, func(*ondisk.SuperBlock) { fs.super.errorsPending = false })
	if serr := h.stop(); err == nil {
		err = serr
	}
	if err != nil {
		fs.logf(LevelWarn, "recording the error in the superblock: %v", err)
	}
}

// errcodeCorrupted is EFSCORRUPTED in the numbering of s_last_error_errcode.
const errcodeCorrupted = 16

// noteError fills in the error fields as the kernel does: the first error and
// the last one, with the place as far as it is known.
func noteError(sb *ondisk.SuperBlock, c *ondisk.CorruptError, now int64) {
	lo, hi := uint32(now), uint8(now>>32)
	sb.State |= ondisk.StateError
	sb.ErrorCount++
	sb.LastErrorTimeLo, sb.LastErrorTimeHi = lo, hi
	sb.LastErrorIno, sb.LastErrorBlock = uint32(c.Inode), uint64(c.Block)
	sb.LastErrorErrcode = errcodeCorrupted
	sb.LastErrorLine = 0
	clear(sb.LastErrorFunc[:])
	copy(sb.LastErrorFunc[:31], c.What)
	if sb.FirstErrorTimeLo == 0 && sb.FirstErrorTimeHi == 0 {
		sb.FirstErrorTimeLo, sb.FirstErrorTimeHi = lo, hi
		sb.FirstErrorIno, sb.FirstErrorBlock = uint32(c.Inode), uint64(c.Block)
		sb.FirstErrorErrcode = errcodeCorrupted
		sb.FirstErrorFunc = sb.LastErrorFunc
	}
}

// aborted makes the file system read-only after the journal gave up, or what
// else errors= says, once.
func (fs *FS) aborted(cause error) {
	fs.health.reports.Add(1) // before isAborted can be seen: who sees it may wait
	if !fs.health.isAborted.CompareAndSwap(false, true) {
		fs.health.reports.Done()
		return
	}
	damage := isCorrupt(cause)
	if !damage {
		fs.health.ioErrors.Add(1)
	}
	fs.readOnly.Store(true)
	fs.health.mu.Lock()
	fs.health.first = cause
	fs.health.mu.Unlock()
	if fs.stopped.Load() != 0 {
		fs.health.reports.Done()
		return
	}
	go fs.reportAbort(cause)
	if !damage && fs.errorsPolicy() == ErrorsPanic && fs.opts.Panic != nil {
		fs.opts.Panic(cause)
	}
}

// reportAbort tells the operator and the superblock. It does I/O, so it runs
// apart from whoever met the error, who may hold locks.
func (fs *FS) reportAbort(cause error) {
	defer fs.health.reports.Done()
	fs.logf(LevelError, "remounting read-only: %v", cause)
	fs.super.mu.Lock()
	errs := fs.super.sb
	fs.super.mu.Unlock()
	err := fs.patchSuperOnDisk(func(sb *ondisk.SuperBlock) { copyErrors(sb, &errs) })
	if err != nil {
		fs.logf(LevelError, "recording the error in the superblock: %v", err)
	}
	if fs.opts.OnRemountRO != nil {
		fs.opts.OnRemountRO(cause)
	}
}

// copyErrors takes the error fields and the error state over.
func copyErrors(dst, src *ondisk.SuperBlock) {
	dst.State |= ondisk.StateError
	dst.ErrorCount = src.ErrorCount
	dst.FirstErrorTimeLo, dst.FirstErrorTimeHi = src.FirstErrorTimeLo, src.FirstErrorTimeHi
	dst.FirstErrorIno, dst.FirstErrorBlock = src.FirstErrorIno, src.FirstErrorBlock
	dst.FirstErrorFunc, dst.FirstErrorLine, dst.FirstErrorErrcode = src.FirstErrorFunc, src.FirstErrorLine, src.FirstErrorErrcode
	dst.LastErrorTimeLo, dst.LastErrorTimeHi = src.LastErrorTimeLo, src.LastErrorTimeHi
	dst.LastErrorIno, dst.LastErrorBlock = src.LastErrorIno, src.LastErrorBlock
	dst.LastErrorFunc, dst.LastErrorLine, dst.LastErrorErrcode = src.LastErrorFunc, src.LastErrorLine, src.LastErrorErrcode
}

// writable tells whether changes are allowed: nil, EIO after Shutdown, EROFS.
func (fs *FS) writable() error {
	if fs.stopped.Load() != 0 {
		return ErrShutdown
	}
	if fs.readOnly.Load() {
		return syscall.EROFS
	}
	return nil
}

// stoppedErr is EIO after Shutdown or an abort: durability cannot be promised.
func (fs *FS) stoppedErr() error {
	if fs.stopped.Load() != 0 || fs.health.isAborted.Load() {
		return syscall.EIO
	}
	return nil
}

// mayEvict tells whether unlinked inodes can be freed.
func (fs *FS) mayEvict() bool { return fs.stopped.Load() == 0 && !fs.readOnly.Load() }

// ReadOnly tells whether the file system is read-only, by option or by error.
func (fs *FS) ReadOnly() bool { return fs.readOnly.Load() }

// Err is what made the mount read-only, nil if nothing did.
func (fs *FS) Err() error {
	fs.health.mu.Lock()
	defer fs.health.mu.Unlock()
	return fs.health.first
}
