package ext4

import (
	"errors"
	"slices"
	"sync"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

// Extended attributes: in the inode's own place of the table first, in a block
// of their own if they do not fit. Inodes with the same attributes in their
// blocks share one, which counts them.
//
// An inode's attributes are guarded by Inode.mu. A shared block is changed by
// nobody; only its count is, under the lock of the block's shard (xattrShares),
// which is taken within a handle, or without, and above mballoc's locks. Whoever
// is alone with a block may change it, under that lock too, since another inode
// may be about to share it.

// xattrShards is a power of two.
const xattrShards = 16

// maxShares bounds the blocks of a shard that are remembered for sharing.
const maxShares = 256

// xattrShares finds blocks with given attributes, and guards their counts.
type xattrShares struct {
	shards [xattrShards]xattrShard
	mu     sync.Mutex
	byHash map[uint32]ondisk.FsBlock // +checklocks:mu
}

type xattrShard struct {
	mu sync.Mutex
	_  [56]byte
}

// lock locks the counts of block blk; the returned mutex is to be unlocked.
func (s *xattrShares) lock(blk ondisk.FsBlock) *sync.Mutex {
	m := &s.shards[uint64(blk)%xattrShards].mu
	m.Lock()
	return m
}

// remember makes a block findable. Blocks with hash 0 are not to be shared.
func (s *xattrShares) remember(hash uint32, blk ondisk.FsBlock) {
	if hash == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash == nil || len(s.byHash) >= maxShares*xattrShards {
		s.byHash = make(map[uint32]ondisk.FsBlock)
	}
	s.byHash[hash] = blk
}

// forget takes a block out that is changed or freed.
func (s *xattrShares) forget(hash uint32, blk ondisk.FsBlock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash[hash] == blk {
		delete(s.byHash, hash)
	}
}

func (s *xattrShares) find(hash uint32) (ondisk.FsBlock, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blk, ok := s.byHash[hash]
	return blk, ok
}

// GetXattr copies an attribute's value to dst and returns its length; with an
// empty dst it only returns the length, and ERANGE with the length if dst is
// too short. ENODATA: there is none. EOPNOTSUPP: a name ext4 does not know.
func (fs *FS) GetXattr(ino ondisk.InodeNumber, name string, dst []byte) (int, error) {
	n, err := parseXattrName(name)
	if err != nil {
		return 0, fs.report(err)
	}
	i, err := fs.iget(ino)
	if err != nil {
		return 0, err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	value, err := i.xattrValue(n)
	if err == nil && isACL(n) {
		var acl xattr.ACL
		if acl, err = xattr.ParseDisk(value); err == nil {
			value = acl.Wire()
		}
	}
	if err != nil {
		return 0, fs.report(err)
	}
	if len(dst) > 0 && len(dst) < len(value) {
		return len(value), syscall.ERANGE
	}
	copy(dst, value)
	return len(value), nil
}

// parseXattrName splits a caller's name. system.data is the file system's own:
// of that prefix there are only the ACLs.
func parseXattrName(full string) (xattr.Name, error) {
	n, err := xattr.ParseName(full)
	if err == nil && n.Index == ondisk.XattrIndexSystem {
		err = xattr.ErrNamespace
	}
	return n, err
}

func isACL(n xattr.Name) bool { return n == xattr.ACLAccess || n == xattr.ACLDefault }

// xattrAreas shows the attributes of an inode: views of the table's bytes, and
// of the block's if there is one. done is to be called when they have been
// looked at; until then the block's count stands still.
func (i *Inode) xattrAreas() (inode, block xattr.Area, done func(), err error) {
	tb, slot, err := i.tableBuffer()
	if err != nil {
		return inode, block, nil, err
	}
	inode = xattr.Inode(i.xattrTail(slot))
	if err := inode.Check(); err != nil {
		tb.Put()
		return inode, block, nil, i.fs.corrupt(ondisk.InInode(err, i.ino))
	}
	blk := i.raw.FileACL()
	if blk == 0 {
		return inode, block, tb.Put, nil
	}
	xb, err := i.readXattrBlock(blk)
	if err != nil {
		tb.Put()
		return inode, block, nil, err
	}
	mu := i.fs.ops.xattrs.lock(blk)
	done = func() { mu.Unlock(); xb.Put(); tb.Put() }
	if block, err = xattr.Block(xb.Data()); err != nil {
		done()
		return inode, block, nil, i.fs.corrupt(ondisk.AtBlock(err, blk))
	}
	return inode, block, done, nil
}

// xattrTail is the part of an inode's bytes that attributes may take.
func (i *Inode) xattrTail(slot []byte) []byte {
	if len(slot) <= ondisk.GoodOldInodeSize {
		return nil
	}
	return slot[ondisk.GoodOldInodeSize+int(i.raw.ExtraIsize):]
}

// readXattrBlock returns an attribute block pinned, verified when it comes from
// the device.
func (i *Inode) readXattrBlock(blk ondisk.FsBlock) (*bcache.Buffer, error) {
	fs := i.fs
	if !fs.validBlocks(blk, 1) {
		return nil, fs.corrupt(&ondisk.CorruptError{What: "attribute block outside of the file system", Inode: i.ino, Block: blk})
	}
	b, err := fs.cache.Read(uint64(blk), func(data []byte) error {
		if !fs.csum.VerifyXattrBlock(blk, data) {
			return ondisk.Corrupt("attribute block with a wrong checksum")
		}
		a, err := xattr.Block(data)
		if err != nil {
			return err
		}
		return a.Check()
	})
	if err != nil {
		return nil, fs.report(ondisk.AtBlock(ondisk.InInode(err, i.ino), blk))
	}
	return b, nil
}

// xattrValue returns a copy of an attribute's value as it is stored. The caller
// holds i.mu.
func (i *Inode) xattrValue(n xattr.Name) ([]byte, error) {
	if i.noXattrs.Load() {
		return nil, xattr.ErrNotFound
	}
	inode, block, done, err := i.xattrAreas()
	if err != nil {
		return nil, err
	}
	if i.raw.FileACL() == 0 && inode.Empty() {
		i.noXattrs.Store(true)
	}
	area, e, ok := xattr.Get(inode, block, n)
	value := append([]byte(nil), area.Value(e)...)
	done()
	switch {
	case !ok:
		return nil, xattr.ErrNotFound
	case e.Inum != 0:
		return i.fs.valueOfInode(&e)
	}
	return value, nil
}

// ListXattr copies the names of all attributes, each ended by a NUL, to dst and
// returns the length; with an empty dst only that, and ERANGE with the length
// if dst is too short. Only the superuser sees the trusted ones.
func (fs *FS) ListXattr(c *Caller, ino ondisk.InodeNumber, dst []byte) (int, error) {
	i, err := fs.iget(ino)
	if err != nil {
		return 0, err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.noXattrs.Load() {
		return 0, nil
	}
	inode, block, done, err := i.xattrAreas()
	if err != nil {
		return 0, err
	}
	defer done()
	root := c == nil || c.UID == 0
	var list []byte
	add := func(e xattr.Entry) bool {
		if e.Name.Listed() && (root || !e.Name.Trusted()) {
			list = append(append(list, e.Name.String()...), 0)
		}
		return true
	}
	inode.Each(add)
	block.Each(add)
	if len(dst) > 0 && len(dst) < len(list) {
		return len(list), syscall.ERANGE
	}
	copy(dst, list)
	return len(list), nil
}

// SetXattr sets an attribute; flags are setxattr(2)'s (xattr.Create: EEXIST,
// xattr.Replace: ENODATA). ENOSPC: it does not fit. Setting an access ACL sets
// the permission bits, and one that says no more than they do is not stored.
func (fs *FS) SetXattr(c *Caller, ino ondisk.InodeNumber, name string, value []byte, flags uint32) error {
	n, err := parseXattrName(name)
	if err != nil {
		return fs.report(err)
	}
	if len(value) > xattr.MaxValue {
		return syscall.E2BIG
	}
	if value == nil {
		value = []byte{}
	}
	return fs.changeXattr(c, ino, value, func(h *handle, i, large *Inode) error {
		if isACL(n) {
			return i.setACL(h, n, value)
		}
		return i.storeXattr(h, n, value, large, int(flags))
	})
}

// RemoveXattr removes an attribute. ENODATA: there is none.
func (fs *FS) RemoveXattr(c *Caller, ino ondisk.InodeNumber, name string) error {
	n, err := parseXattrName(name)
	if err != nil {
		return fs.report(err)
	}
	return fs.changeXattr(c, ino, nil, func(h *handle, i, _ *Inode) error { return i.setXattr(h, n, nil, 0) })
}

// changeXattr runs change in a handle with the inode locked; ctime follows.
// When value does not fit the inode's areas, and may be in an inode of its own
// (feature ea_inode), that is made, and change gets it.
func (fs *FS) changeXattr(c *Caller, ino ondisk.InodeNumber, value []byte, change func(h *handle, i, large *Inode) error) error {
	i, err := fs.iget(ino)
	if err != nil {
		return err
	}
	defer fs.iput(i)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.raw.Flags&(ondisk.InodeImmutable|ondisk.InodeAppend) != 0 {
		return syscall.EPERM
	}
	err = i.changeXattrOnce(c, nil, change)
	if fs.eaInode && value != nil && errors.Is(err, xattr.ErrNoSpace) {
		large, lerr := i.newValueInode(c, value)
		if lerr != nil {
			return fs.report(lerr)
		}
		err = i.changeXattrOnce(c, large, change)
		fs.iput(large)
	}
	return fs.report(err)
}

func (i *Inode) changeXattrOnce(c *Caller, large *Inode, change func(h *handle, i, large *Inode) error) error {
	return i.fs.step(creditsXattr+i.valueCredits(), func(h *handle) error {
		h.root = i.fs.mayUseRoot(c)
		if err := change(h, i, large); err != nil {
			return err
		}
		i.raw.SetCtime(i.fs.timestamp())
		return i.markDirty(h)
	})
}

// setXattr sets an attribute to a value as it is stored, or removes it if the
// value is nil (creditsXattr). The caller holds i.mu and marks i dirty.
func (i *Inode) setXattr(h *handle, n xattr.Name, value []byte, flags int) error {
	return i.storeXattr(h, n, value, nil, flags)
}

// storeXattr is setXattr; large, if it is not nil, holds the value.
func (i *Inode) storeXattr(h *handle, n xattr.Name, value []byte, large *Inode, flags int) error {
	buf := i.fs.ops.bufs.Get().(*[]byte)
	defer i.fs.ops.bufs.Put(buf)
	tail, block, err := i.copyXattrs(*buf)
	if err != nil {
		return err
	}
	inodeArea, blockArea := xattr.Inode(tail), xattr.Area{}
	if i.raw.FileACL() == 0 {
		blockArea = xattr.InitBlock(block)
	} else if blockArea, err = xattr.Block(block); err != nil {
		return err
	}
	u := valueUse{before: inodeArea.Inums(), charge: -i.valueCharge(inodeArea, blockArea)}
	u.entries = -len(u.before) - len(blockArea.Inums())
	var ch xattr.Change
	switch {
	case value == nil:
		ch, err = xattr.Remove(inodeArea, blockArea, n)
	case large != nil:
		u.added = large
		ch, err = xattr.Store(inodeArea, blockArea, n, large.asValue(), flags)
	default:
		ch, err = xattr.Set(inodeArea, blockArea, n, value, flags)
	}
	if err != nil {
		return err
	}
	u.charge += i.valueCharge(inodeArea, blockArea)
	u.entries += len(inodeArea.Inums()) + len(blockArea.Inums())
	if ch.Block {
		if err := i.putXattrBlock(h, block, blockArea, &u); err != nil {
			return err
		}
	}
	i.noXattrs.Store(false)
	i.addBlocks(u.charge)
	i.valueEntries += int64(u.entries)
	if ch.Inode {
		if err := i.editSlot(h, func(slot []byte) error { copy(i.xattrTail(slot), tail); return nil }); err != nil {
			return err
		}
		if u.added != nil && slices.Contains(inodeArea.Inums(), uint32(u.added.ino)) {
			u.counted = 1
		}
		if err := i.fs.dropValues(h, u.before, inodeArea.Inums()); err != nil {
			return err
		}
	}
	if u.counted == 0 {
		return nil
	}
	return large.changeValueRefs(h, 1)
}

// copyXattrs copies the attributes in the inode, and those in the block, if
// there is one, to two pieces of buf, which has room for any block and inode.
func (i *Inode) copyXattrs(buf []byte) (tail, block []byte, err error) {
	tb, slot, err := i.tableBuffer()
	if err != nil {
		return nil, nil, err
	}
	defer tb.Put()
	old := i.xattrTail(slot)
	if err := xattr.Inode(old).Check(); err != nil {
		return nil, nil, ondisk.InInode(err, i.ino)
	}
	block = buf[:i.fs.blockSize]
	tail = append([]byte(nil), old...)
	blk := i.raw.FileACL()
	if blk == 0 {
		return tail, block, nil
	}
	xb, err := i.readXattrBlock(blk)
	if err != nil {
		return nil, nil, err
	}
	defer xb.Put()
	mu := i.fs.ops.xattrs.lock(blk)
	copy(block, xb.Data())
	mu.Unlock()
	return tail, block, nil
}

// putXattrBlock makes content the inode's attribute block: none if it is empty,
// another inode's if there is one like it, the old one if nobody else has it,
// else a new one.
func (i *Inode) putXattrBlock(h *handle, content []byte, area xattr.Area, u *valueUse) error {
	old := i.raw.FileACL()
	if area.Empty() {
		if old == 0 {
			return nil
		}
		return i.dropXattrBlock(h, old)
	}
	shared, err := i.shareXattrBlock(h, area, xattr.BlockHash(content))
	if err != nil {
		return err
	}
	if shared { // that block has counted its values already
		return nil
	}
	if u.added != nil && slices.Contains(area.Inums(), uint32(u.added.ino)) {
		u.counted = 1
	}
	if old != 0 {
		if done, err := i.rewriteXattrBlock(h, old, content); done || err != nil {
			return err
		}
	}
	b, err := i.fs.newMetaBlock(h, i, 0)
	if err != nil {
		return err
	}
	defer b.Put()
	blk := ondisk.FsBlock(b.Block())
	copy(b.Data(), content)
	xattr.SetRefcount(b.Data(), 1)
	if err := i.writeXattrBlock(h, b); err != nil {
		return err
	}
	if err := i.fs.keepValues(h, area.Inums(), u.added); err != nil {
		return err
	}
	if err := i.fs.noteExtAttr(h); err != nil {
		return err
	}
	return i.switchXattrBlock(h, old, blk)
}

// noteExtAttr sets the feature without which e2fsck takes attribute blocks for
// damage. A superblock of revision 0 becomes one that can have features.
func (fs *FS) noteExtAttr(h *handle) error {
	fs.super.mu.Lock()
	has := fs.super.sb.HasCompat(ondisk.CompatExtAttr)
	fs.super.mu.Unlock()
	if has {
		return nil
	}
	return fs.updateSuper(h, func(sb *ondisk.SuperBlock) {
		sb.FeatureCompat |= uint32(ondisk.CompatExtAttr)
		makeDynamic(sb)
	})
}

// writeXattrBlock hands a block to the journal, and makes it findable.
func (i *Inode) writeXattrBlock(h *handle, b *bcache.Buffer) error {
	blk := ondisk.FsBlock(b.Block())
	i.fs.csum.SetXattrBlock(blk, b.Data())
	i.fs.ops.xattrs.remember(xattr.BlockHash(b.Data()), blk)
	return h.dirty(b)
}

// switchXattrBlock makes blk, which counts this inode already, the attribute
// block instead of old.
func (i *Inode) switchXattrBlock(h *handle, old, blk ondisk.FsBlock) error {
	if old != 0 {
		if err := i.dropXattrBlock(h, old); err != nil {
			return err
		}
	}
	i.raw.SetFileACL(blk)
	i.addMeta(1)
	return nil
}

// rewriteXattrBlock changes the inode's block in place, if nobody else has it.
func (i *Inode) rewriteXattrBlock(h *handle, blk ondisk.FsBlock, content []byte) (bool, error) {
	b, err := i.readXattrBlock(blk)
	if err != nil {
		return false, err
	}
	defer b.Put()
	mu := i.fs.ops.xattrs.lock(blk)
	defer mu.Unlock()
	if xattr.Refcount(b.Data()) != 1 {
		return false, nil
	}
	if err := h.getWrite(b); err != nil {
		return false, err
	}
	i.fs.ops.xattrs.forget(xattr.BlockHash(b.Data()), blk)
	before := inumsOf(b.Data())
	copy(b.Data(), content)
	xattr.SetRefcount(b.Data(), 1)
	if err := i.writeXattrBlock(h, b); err != nil {
		return true, err
	}
	return true, i.fs.dropValues(h, before, inumsOf(content))
}

// shareXattrBlock makes a block of another inode with the same attributes this
// one's too.
func (i *Inode) shareXattrBlock(h *handle, area xattr.Area, hash uint32) (bool, error) {
	blk, ok := i.fs.ops.xattrs.find(hash)
	if !ok || hash == 0 || blk == i.raw.FileACL() {
		return false, nil
	}
	b, err := i.readXattrBlock(blk)
	if err != nil {
		return false, err
	}
	defer b.Put()
	taken, err := i.takeXattrBlock(h, b, area, hash)
	if err != nil || !taken {
		return false, err
	}
	return true, i.switchXattrBlock(h, i.raw.FileACL(), blk)
}

// takeXattrBlock counts one more user of a block, if it is still what it was
// when it was found.
func (i *Inode) takeXattrBlock(h *handle, b *bcache.Buffer, area xattr.Area, hash uint32) (bool, error) {
	blk := ondisk.FsBlock(b.Block())
	mu := i.fs.ops.xattrs.lock(blk)
	defer mu.Unlock()
	if now, ok := i.fs.ops.xattrs.find(hash); !ok || now != blk {
		return false, nil
	}
	theirs, err := xattr.Block(b.Data())
	n := xattr.Refcount(b.Data())
	if err != nil || n >= ondisk.XattrRefcountMax || !xattr.SameAttributes(theirs, area) {
		return false, nil
	}
	if err := h.getWrite(b); err != nil {
		return false, err
	}
	xattr.SetRefcount(b.Data(), n+1)
	i.fs.csum.SetXattrBlock(blk, b.Data())
	return true, h.dirty(b)
}

// dropXattrBlock ends the inode's use of a block; the last user frees it.
func (i *Inode) dropXattrBlock(h *handle, blk ondisk.FsBlock) error {
	b, err := i.readXattrBlock(blk)
	if err != nil {
		return err
	}
	defer b.Put()
	mu := i.fs.ops.xattrs.lock(blk)
	defer mu.Unlock()
	if n := xattr.Refcount(b.Data()); n > 1 {
		if err := h.getWrite(b); err != nil {
			return err
		}
		xattr.SetRefcount(b.Data(), n-1)
		i.fs.csum.SetXattrBlock(blk, b.Data())
		if err := h.dirty(b); err != nil {
			return err
		}
		i.addMeta(-1)
	} else {
		i.fs.ops.xattrs.forget(xattr.BlockHash(b.Data()), blk)
		if err := i.fs.dropValues(h, inumsOf(b.Data()), nil); err != nil {
			return err
		}
		if err := i.freeRun(h, blk, 1, true); err != nil {
			return err
		}
	}
	i.raw.SetFileACL(0)
	return nil
}

// dropXattrs frees the attribute block, and the inodes of values, of an inode
// that is being deleted (creditsXattr and valueCredits).
func (i *Inode) dropXattrs(h *handle) error {
	if err := i.dropOwnValues(h); err != nil {
		return err
	}
	if blk := i.raw.FileACL(); blk != 0 {
		return i.dropXattrBlock(h, blk)
	}
	return nil
}

// xattrCredits is what changing an attribute that i may have takes, on top of
// the inode.
func (i *Inode) xattrCredits() int {
	if i.noXattrs.Load() {
		return 0
	}
	return creditsXattr + i.valueCredits()
}

// dropCapability removes the file's capabilities, as a write does.
func (i *Inode) dropCapability(h *handle) error {
	err := i.setXattrIfAny(h, xattr.Capability)
	if xattr.IsNotFound(err) {
		return nil
	}
	return i.fs.report(err)
}

func (i *Inode) setXattrIfAny(h *handle, n xattr.Name) error {
	if _, err := i.xattrValue(n); err != nil {
		return err
	}
	return i.setXattr(h, n, nil, 0)
}
