package ext4

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"time"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// Mount checks the image on dev, replays its journal, finishes what a crash
// interrupted, and starts the file system. dev stays the caller's, who closes
// it after Unmount. A read-only mount writes nothing: what a replay changes
// stays in memory.
func Mount(dev blockdev.Device, o Options) (*FS, error) {
	if err := o.check(dev); err != nil {
		return nil, err
	}
	sb, err := readSuper(dev, superOffset(&o))
	torn := err == errSuperChecksum
	if torn {
		sb, err = loggedSuper(dev, sb, &o)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSuper(sb, dev, &o); err != nil {
		return nil, err
	}
	fs := newFS(sb, o)
	if fs.tornSuper = torn; torn {
		fs.logf(LevelWarn, "the superblock's checksum is wrong: it is taken from the journal")
	}
	if err := fs.chooseDataMode(sb); err != nil {
		return nil, err
	}
	fs.setDevice(dev)
	if err := fs.bringUp(sb); err != nil {
		if fs.jnl != nil {
			fs.jnl.Close()
		}
		fs.stopMMP(true)
		fs.tearDown()
		return nil, err
	}
	return fs, nil
}

// check refuses options that contradict each other or the device.
func (o *Options) check(dev blockdev.Device) error {
	switch {
	case o.NoLoad && !o.ReadOnly:
		return mountErrorf(ErrBadOption, "noload needs ro")
	case !o.ReadOnly && dev.ReadOnly():
		return mountErrorf(ErrReadOnly, "the image cannot be written: mount it with -o ro")
	}
	return nil
}

// superOffset is where the superblock is read from, in bytes.
func superOffset(o *Options) int64 {
	if o.SBBlock != 0 {
		return int64(o.SBBlock) << 10
	}
	return ondisk.SuperBlockOffset
}

// checkSuper decides whether the file system can be mounted as asked.
func checkSuper(sb *ondisk.SuperBlock, dev blockdev.Device, o *Options) error {
	if o.SBBlock != 0 && !o.ReadOnly {
		return mountErrorf(ErrBadOption, "a mount from a backup superblock (sb=) must be ro; e2fsck -b repairs the primary one")
	}
	readOnly, err := checkFeatures(sb)
	if err != nil {
		return err
	}
	if err := sb.Check(dev.Size()); err != nil {
		if errors.Is(err, ondisk.ErrTruncated) {
			return mountErrorf(ErrTooShort, "%v", err)
		}
		return err
	}
	if readOnly != "" && !o.ReadOnly {
		return mountErrorf(ErrReadOnly, "%s allows only a read-only mount: use -o ro", readOnly)
	}
	return nil
}

func newFS(sb *ondisk.SuperBlock, o Options) *FS {
	fs := &FS{geometry: makeGeometry(sb), opts: o, csum: sb.Csum(), stopWork: make(chan struct{})}
	fs.start = fs.now()
	fs.readOnly.Store(o.ReadOnly)
	fs.super.sb = *sb
	maxIdle := o.MaxInodes
	if maxIdle <= 0 {
		maxIdle = defaultMaxInodes
	}
	fs.icache.init(maxIdle)
	return fs
}

// defaultMaxInodes bounds the inodes kept in core that nothing refers to; one
// takes well under 1 KiB.
const defaultMaxInodes = 16384

// setDevice makes everything go through a counter.
func (fs *FS) setDevice(dev blockdev.Device) {
	fs.count = blockdev.NewCounting(dev)
	fs.dev = fs.count
}

// bringUp is the rest of Mount; on error the caller tears down.
func (fs *FS) bringUp(sb *ondisk.SuperBlock) error {
	if err := fs.startMMP(sb); err != nil {
		return err
	}
	jnl, sb, err := fs.openJournal(sb)
	if err != nil {
		return err
	}
	fs.cache = bcache.New(fs.dev, fs.blockSize, bcache.Options{MaxBytes: fs.opts.CacheBytes})
	if err := fs.super.attach(fs, sb); err != nil {
		return fs.ioError(err)
	}
	if err := fs.loadGroups(sb); err != nil {
		return err
	}
	fs.initOps()
	if err := fs.startAllocator(sb); err != nil {
		return err
	}
	fs.overhead = fs.computeOverhead(sb, fs.journalBlocks(sb))
	if fs.opts.ReadOnly {
		return fs.openRoot()
	}
	fs.warnState(sb)
	if err := fs.startJournal(jnl); err != nil {
		return err
	}
	if err := fs.markMounted(); err != nil {
		return fs.report(err)
	}
	if err := fs.openQuotas(sb); err != nil {
		return err
	}
	if err := fs.cleanOrphans(sb); err != nil {
		return err
	}
	if err := fs.openRoot(); err != nil {
		return err
	}
	fs.startWork()
	return nil
}

// openRoot checks that the root directory is one.
func (fs *FS) openRoot() error {
	i, err := fs.iget(RootIno)
	if err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	defer fs.iput(i)
	if !i.isDir() {
		return &ondisk.CorruptError{What: "the root is not a directory", Inode: RootIno}
	}
	return nil
}

// startAllocator makes mballoc from the descriptors' counts.
func (fs *FS) startAllocator(sb *ondisk.SuperBlock) error {
	stripe, tunables, err := fs.opts.allocatorOptions(sb)
	if err != nil {
		return err
	}
	geo := mballoc.Geometry{
		Groups: mballoc.GroupNumber(fs.groupCount), ClustersPerGroup: fs.clustersPerGroup,
		Clusters:      (fs.blocks - uint64(fs.firstDataBlock) + 1<<fs.clusterBits - 1) >> fs.clusterBits,
		BlockSizeBits: fs.blockBits, ClusterBits: fs.clusterBits, FlexSize: 1 << fs.flexBits,
		Stripe: stripe >> fs.clusterBits,
	}
	if fs.opts.Rand != nil {
		geo.CPUs = 1
	}
	a, err := mballoc.New(geo, blockReader{fs}, mballoc.Options{
		RootClusters: sb.ReservedBlocks() >> fs.clusterBits, ReservedClusters: fs.reservedClusters(),
		OnCorrupt: func(e *mballoc.GroupError) {
			if !isCorrupt(e) { // ours were reported where they were found
				fs.corrupt(&ondisk.CorruptError{What: e.Error(), Group: ondisk.GroupNumber(e.Group), HasGroup: true})
			}
		},
	})
	if err != nil {
		return err
	}
	fs.alloc = a
	if err := a.SetAll(tunables); err != nil {
		return mountErrorf(ErrBadOption, "%v", err)
	}
	return nil
}

// allocatorOptions are the stripe width in blocks, and the tunables. stripe=
// counts more than the superblock's stripe width, and that more than its
// stride; one that no group can hold does not count.
func (o *Options) allocatorOptions(sb *ondisk.SuperBlock) (stripe uint32, tunables map[string]string, err error) {
	tunables = maps.Clone(o.Mballoc)
	var option uint32
	if v, ok := tunables["stripe"]; ok {
		delete(tunables, "stripe")
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return 0, nil, mountErrorf(ErrBadOption, "stripe=%s: not a number of blocks", v)
		}
		option = uint32(n)
	}
	for _, stripe := range []uint32{option, sb.RAIDStripeWidth, uint32(sb.RAIDStride)} {
		if stripe > 1 && stripe <= sb.BlocksPerGroup {
			return stripe, tunables, nil
		}
	}
	return 0, tunables, nil
}

// readJournalInode reads the journal's inode straight from the device: the
// descriptors have not been loaded, since the replay may change them.
func (fs *FS) readJournalInode(sb *ondisk.SuperBlock, ino ondisk.InodeNumber) (*Inode, error) {
	if uint32(ino) > fs.inodes {
		return nil, &ondisk.CorruptError{What: "inode number out of range", Inode: ino}
	}
	g, idx := fs.groupOf(ino)
	block := make([]byte, fs.blockSize)
	if err := fs.readRaw(fs.descBlock(sb, uint32(g)/sb.DescPerBlock()), block); err != nil {
		return nil, err
	}
	d := ondisk.GroupDescAt(block, uint32(g)%sb.DescPerBlock(), fs.descSize)
	if err := fs.checkDesc(g, d); err != nil {
		return nil, ondisk.InGroup(err, g)
	}
	if err := fs.readRaw(d.InodeTable()+ondisk.FsBlock(idx/fs.inodesPerBlock), block); err != nil {
		return nil, err
	}
	off := int(idx%fs.inodesPerBlock) * fs.inodeSize
	i := &Inode{fs: fs, ino: ino}
	if err := fs.checkInode(i, block[off:off+fs.inodeSize]); err != nil {
		return nil, ondisk.InInode(err, ino)
	}
	if !i.isReg() {
		return nil, &ondisk.CorruptError{What: "the journal is not a regular file", Inode: ino}
	}
	i.seed = fs.csum.InodeSeed(ino, i.raw.Generation)
	return i, nil
}

// journalBlocks is the length of an internal journal, for statfs.
func (fs *FS) journalBlocks(sb *ondisk.SuperBlock) uint64 {
	if !sb.HasCompat(ondisk.CompatHasJournal) || sb.JournalInum == 0 || sb.OverheadClusters != 0 {
		return 0
	}
	i, err := fs.readJournalInode(sb, ondisk.InodeNumber(sb.JournalInum))
	if err != nil {
		return 0
	}
	return i.raw.Size() >> fs.blockBits
}

// markMounted writes the superblock of a file system that is in use: with a
// journal it needs recovery from now on, without one it is not valid. Times
// and counts are the kernel's.
//
// That the journal was aborted in an earlier mount is taken note of: the file system
// has errors from now on.
func (fs *FS) markMounted() error {
	errno := int32(0)
	if fs.jnl != nil {
		errno = fs.jnl.Errno()
	}
	err := fs.changeSuper(func(sb *ondisk.SuperBlock) {
		if fs.jnl != nil {
			sb.SetIncompat(ondisk.IncompatRecover, true)
			sb.SetROCompat(ondisk.ROCompatOrphanPresent, sb.HasCompat(ondisk.CompatOrphanFile))
		} else {
			sb.State &^= ondisk.StateValid
		}
		if errno != 0 {
			sb.State |= ondisk.StateError
		}
		sb.MntCount++
		if sb.MaxMntCount == 0 {
			sb.MaxMntCount = 0xffff
		}
		sb.SetMtime(fs.now())
		if fs.opts.LastMounted != "" {
			clear(sb.LastMounted[:])
			copy(sb.LastMounted[:len(sb.LastMounted)-1], fs.opts.LastMounted)
		}
	})
	if err != nil || errno == 0 {
		return err
	}
	fs.logf(LevelWarn, "the journal was aborted in an earlier mount (errno %d): e2fsck is advised", -errno)
	return fs.jnl.ClearErrno()
}

// warnState tells the operator what the superblock says of the time before: a
// writable mount goes on all the same, as the kernel's does. What it finds not
// cleanly unmounted, without a journal, stays marked so until e2fsck looks.
func (fs *FS) warnState(sb *ondisk.SuperBlock) {
	const advice = "running e2fsck is recommended"
	now := fs.now()
	interval := time.Duration(sb.Checkinterval) * time.Second
	fs.unchecked = sb.State&ondisk.StateValid == 0
	switch {
	case fs.unchecked:
		fs.logf(LevelWarn, "the file system was not cleanly unmounted, %s", advice)
	case sb.State&ondisk.StateError != 0:
		fs.logf(LevelWarn, "the file system has errors (%d recorded)%s, %s", sb.ErrorCount, lastError(sb), advice)
	case sb.MaxMntCount > 0 && sb.MaxMntCount < 0x8000 && sb.MntCount >= sb.MaxMntCount:
		fs.logf(LevelWarn, "mounted %d times since the last check, %s", sb.MntCount, advice)
	case interval > 0 && !sb.Lastcheck().Add(interval).After(now):
		fs.logf(LevelWarn, "last checked at %v, %s", sb.Lastcheck().UTC().Format(time.DateTime), advice)
	}
}

// lastError says what the superblock remembers of the last error.
func lastError(sb *ondisk.SuperBlock) string {
	if sb.ErrorCount == 0 {
		return ""
	}
	what, _, _ := strings.Cut(string(sb.LastErrorFunc[:]), "\x00")
	at := time.Unix(int64(sb.LastErrorTimeHi)<<32|int64(sb.LastErrorTimeLo), 0).UTC().Format(time.DateTime)
	return fmt.Sprintf(", the last at %s: %s (inode %d, block %d)", at, what, sb.LastErrorIno, sb.LastErrorBlock)
}

// startWork spawns the background work of a mount: learning what groups have
// free, and the write-back of a mount without a journal.
func (fs *FS) startWork() {
	if !fs.opts.NoPrefetch {
		fs.work.Add(1)
		go func() {
			defer fs.work.Done()
			fs.warmGroups(fs.pause)
		}()
	}
	if fs.jnl != nil {
		return
	}
	every := fs.opts.Commit
	if every <= 0 {
		every = defaultCommit
	}
	fs.work.Add(1)
	go func() {
		defer fs.work.Done()
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-fs.stopWork:
				return
			case <-t.C:
				fs.writeBackUnlogged()
			}
		}
	}()
}

// Unmount commits and checkpoints everything, leaves the journal empty and
// the superblock clean, and flushes the device, which it does not close. No
// operation may be running or come later. The second call returns what the
// first one did. ctx is not looked at: half an unmount helps nobody.
func (fs *FS) Unmount(ctx context.Context) error {
	fs.unmountOnce.Do(func() { fs.unmountErr = fs.unmount() })
	return fs.unmountErr
}

func (fs *FS) unmount() error {
	close(fs.stopWork)
	fs.work.Wait()
	if !fs.opts.ReadOnly && fs.stopped.Load() == 0 {
		fs.evictUnlinked()
		if err := fs.writeLazies(); err != nil {
			fs.logf(LevelWarn, "writing times at unmount: %v", err)
		}
	}
	fs.health.reports.Wait()
	err := fs.closeJournal()
	fs.health.reports.Wait() // closing may have failed and reported
	err = first(err, fs.stopMMP(fs.stopped.Load() == 0))
	fs.readOnly.Store(true)
	fs.tearDown()
	return err
}

// unmounted makes the superblock that of a file system that is not in use.
func (fs *FS) unmounted(sb *ondisk.SuperBlock) {
	sb.SetIncompat(ondisk.IncompatRecover, false)
	if fs.orphans.file.entries() == 0 {
		sb.SetROCompat(ondisk.ROCompatOrphanPresent, false)
	}
	if !fs.unchecked {
		sb.State |= ondisk.StateValid
	}
	sb.KbytesWritten += fs.count.Stats().WriteBytes >> 10
	fs.syncCounts(sb)
}

// tearDown drops what the mount holds in memory.
func (fs *FS) tearDown() {
	if fs.super.buf != nil {
		fs.super.buf.Put()
		fs.super.buf = nil
	}
	fs.orphans.file.put()
	fs.putGroups()
}

// evictUnlinked frees the inodes without links that something still refers
// to: the kernel sends no forgets when a FUSE mount ends.
func (fs *FS) evictUnlinked() {
	for k := range fs.icache.shards {
		for _, i := range fs.icache.shards[k].takeUnlinked() {
			fs.evict(i)
		}
	}
}

// takeUnlinked puts all live inodes without links into state evicting.
func (sh *icacheShard) takeUnlinked() (list []*Inode) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, i := range sh.m {
		if i.state == inodeLive && i.raw.LinksCount == 0 {
			sh.idleDelLocked(i)
			i.state = inodeEvicting
			list = append(list, i)
		}
	}
	return list
}

// Shutdown stops the file system as EXT4_IOC_SHUTDOWN does, for tests of
// crashes: afterwards every operation fails with EIO and nothing is written
// any more, except what the mode says. Unmount is still to be called.
func (fs *FS) Shutdown(mode ShutdownMode) error {
	var err error
	if mode != ShutdownNoLogFlush && !fs.readOnly.Load() {
		err = fs.Sync()
	}
	if fs.stopped.CompareAndSwap(0, 1+int32(mode)) && fs.jnl != nil {
		fs.jnl.Abort(errShutdown)
	}
	return err
}

var errShutdown = fmt.Errorf("on request: %w", syscall.ESHUTDOWN)
