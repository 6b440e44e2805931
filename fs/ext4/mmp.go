package ext4

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"extfused/fs/ondisk"
)

// Multiple mount protection (feature mmp): whoever writes to the file system
// keeps a sequence number in a block of its own moving, so that a second host
// that shares the device sees it move, and stays away. The rules and the
// intervals are the kernel's (fs/ext4/mmp.c); a mount that is read-only neither
// looks nor writes, as there.
//
// The block is read and written straight on the device, outside of the journal
// and of the cache.

// Intervals in seconds: what is written at least, and what a second host waits
// at most and at least before it believes that nobody is there.
const (
	mmpUpdateInterval   = 5
	mmpMinCheckInterval = 5
	mmpMaxCheckInterval = 300
	mmpCheckMult        = 2  // updates that a check interval spans
	mmpMaxExtraWait     = 60 // on top of the check interval
)

// mmpState is the keeping alive of one mount.
type mmpState struct {
	off    int64 // of the block on the device, bytes; 0: no mmp
	block  []byte
	mine   ondisk.MMP
	stop   chan struct{}
	done   sync.WaitGroup
	second time.Duration // what counts as a second: tests have less time
}

// startMMP makes sure that no other host has the file system, and says from
// then on that this one does. ErrInUse.
func (fs *FS) startMMP(sb *ondisk.SuperBlock) error {
	if !sb.HasIncompat(ondisk.IncompatMMP) || fs.opts.ReadOnly {
		return nil
	}
	if blk := sb.MMPBlock; blk < uint64(sb.FirstDataBlock) || blk >= fs.blocks {
		return ondisk.Corrupt("superblock: MMP block %d is outside the file system", blk)
	}
	m := &fs.mmp
	m.second = time.Second
	if fs.opts.mmpSecond != 0 {
		m.second = fs.opts.mmpSecond
	}
	m.block = make([]byte, fs.blockSize)
	at := int64(sb.MMPBlock) << fs.blockBits
	found, err := fs.readMMP(at)
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	check := max(int(sb.MMPInterval), mmpMinCheckInterval, int(found.CheckInterval))
	switch found.Seq {
	case ondisk.MMPSeqClean:
	case ondisk.MMPSeqFsck:
		return mountErrorf(ErrInUse, "mmp: e2fsck is running on the file system, or was interrupted%s", mmpWho(&found))
	default:
		wait = time.Duration(min(2*check+1, check+mmpMaxExtraWait)) * m.second
		fs.logf(LevelWarn, "mmp: not cleanly unmounted%s: waiting %v to see whether it is in use", mmpWho(&found), wait)
		if err := fs.awaitMMP(at, found.Seq, wait); err != nil {
			return err
		}
	}
	return fs.claimMMP(sb, at, wait)
}

// awaitMMP waits, and looks whether the sequence still stands at seq.
func (fs *FS) awaitMMP(at int64, seq uint32, wait time.Duration) error {
	time.Sleep(wait)
	now, err := fs.readMMP(at)
	if err == nil && now.Seq != seq {
		err = mountErrorf(ErrInUse, "mmp: the device is active on another host%s", mmpWho(&now))
	}
	return err
}

// claimMMP writes a number of our own, waits whether somebody else does the
// same, and then keeps it moving.
func (fs *FS) claimMMP(sb *ondisk.SuperBlock, at int64, wait time.Duration) error {
	m := &fs.mmp
	update := int(sb.MMPInterval)
	if update == 0 {
		update = mmpUpdateInterval
	}
	m.mine = ondisk.MMP{Magic: ondisk.MMPMagic, Seq: rand.Uint32N(ondisk.MMPSeqMax) + 1,
		CheckInterval: uint16(max(mmpCheckMult*update, mmpMinCheckInterval))}
	host, _ := os.Hostname()
	copy(m.mine.NodeName[:len(m.mine.NodeName)-1], host)
	copy(m.mine.BdevName[:len(m.mine.BdevName)-1], fmt.Sprintf("extfused pid %d", os.Getpid()))
	if err := fs.writeMMP(at); err != nil {
		return err
	}
	if err := fs.awaitMMP(at, m.mine.Seq, wait); err != nil {
		return err
	}
	m.off, m.stop = at, make(chan struct{})
	m.done.Add(1)
	go fs.keepMMP(time.Duration(update) * m.second)
	return nil
}

// readMMP reads the block from the device.
func (fs *FS) readMMP(at int64) (m ondisk.MMP, err error) {
	b := make([]byte, fs.blockSize)
	if n, err := fs.dev.ReadAt(b, at); n < len(b) {
		return m, fs.ioError(err)
	}
	if err := m.Decode(b); err != nil {
		return m, ondisk.AtBlock(err, ondisk.FsBlock(at>>fs.blockBits))
	}
	if !fs.csum.VerifyMMP(b[:ondisk.MMPSize]) {
		return m, ondisk.AtBlock(ondisk.Corrupt("MMP block: checksum is wrong"), ondisk.FsBlock(at>>fs.blockBits))
	}
	return m, nil
}

// writeMMP writes our state of it.
func (fs *FS) writeMMP(at int64) error {
	m := &fs.mmp
	m.mine.Time = uint64(fs.now().Unix())
	m.mine.Encode(m.block)
	fs.csum.SetMMP(m.block[:ondisk.MMPSize])
	if _, err := fs.dev.WriteAt(m.block, at); err != nil {
		return fs.ioError(err)
	}
	return fs.dev.Flush()
}

// keepMMP moves the sequence every so often until it is stopped. When it comes
// so late that another host may have taken over, it looks before it writes.
func (fs *FS) keepMMP(every time.Duration) {
	m := &fs.mmp
	defer m.done.Done()
	t := time.NewTicker(every)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
		}
		late := time.Since(last)
		if late > time.Duration(m.mine.CheckInterval)*m.second && !fs.stillMine() {
			return
		}
		last = time.Now()
		took := int(mmpCheckMult * late / m.second)
		m.mine.CheckInterval = uint16(max(min(took, mmpMaxCheckInterval), mmpMinCheckInterval))
		if m.mine.Seq++; m.mine.Seq > ondisk.MMPSeqMax {
			m.mine.Seq = 1
		}
		if err := fs.writeMMP(m.off); err != nil {
			fs.logf(LevelError, "mmp: the block could not be written: %v", err)
		}
	}
}

// stillMine looks whether the block holds what was written last. If it does
// not, two hosts write to the file system, and this one stops.
func (fs *FS) stillMine() bool {
	m := &fs.mmp
	now, err := fs.readMMP(m.off)
	if err == nil && now.Seq == m.mine.Seq && now.NodeName == m.mine.NodeName {
		return true
	}
	if err == nil {
		err = fmt.Errorf("mmp: the file system is in use by another host too%s", mmpWho(&now))
	}
	m.off = 0 // the block is theirs
	fs.deviceFailed(err)
	return false
}

// stopMMP ends the keeping alive; clean says that the block is to tell so.
func (fs *FS) stopMMP(clean bool) error {
	m := &fs.mmp
	if m.stop == nil {
		return nil
	}
	close(m.stop)
	m.done.Wait()
	m.stop = nil
	if !clean || m.off == 0 {
		return nil
	}
	m.mine.Seq = ondisk.MMPSeqClean
	return fs.writeMMP(m.off)
}

// mmpWho says who wrote the block last.
func mmpWho(m *ondisk.MMP) string {
	text := func(b []byte) string {
		b, _, _ = bytes.Cut(b, []byte{0})
		return string(b)
	}
	return fmt.Sprintf(" (host %q, device %q, last seen %s)", text(m.NodeName[:]), text(m.BdevName[:]),
		time.Unix(int64(m.Time), 0).UTC().Format(time.DateTime))
}
