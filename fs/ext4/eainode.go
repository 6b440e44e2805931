package ext4

import (
	"bytes"
	"slices"
	"sync"
	"syscall"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

// Values of attributes in inodes of their own (feature ea_inode): a regular
// file without a name, with the flag EA_INODE, that entries point to. It counts
// them: the low half of the count is i_version's, the high half stands in
// place of the ctime, and the crc32c of the value in place of the atime. An
// entry in an attribute block that several inodes share counts once. Equal values
// of different files share an inode, where one is remembered (valueShares).
//
// The kernel's fs/ext4/xattr.c is the source of the format. Old Lustre images
// have such inodes without count and hash, with the owner in place of the
// mtime: those are read, and go with their one owner.
//
// A value inode is written, and made durable with an orphan's protection,
// before the step that gives it to its owner. Its mu is below a handle in the
// lock order: whoever holds it does nothing but read or change the count.

// valueUse is what one change of attributes does to value inodes.
type valueUse struct {
	before  []uint32 // that entries in the inode pointed to
	added   *Inode   // that the new entry points to; may be nil
	counted int      // 1: that entry is one that counts
	entries int      // by which the number of such entries of the owner changes
	charge  int64    // blocks, by which the owner's i_blocks changes
}

// maxValueCredits bounds what is asked for beforehand; what is missing is
// borrowed (handle.getWrite).
const maxValueCredits = 32

// valueCredits is what changing attributes of i takes for value inodes.
func (i *Inode) valueCredits() int {
	if !i.fs.eaInode {
		return 0
	}
	return maxValueCredits
}

// valueOfInode reads a value that is the content of an inode of its own.
func (fs *FS) valueOfInode(e *xattr.Entry) ([]byte, error) {
	ino := ondisk.InodeNumber(e.Inum)
	if e.Size > xattr.MaxValue {
		return nil, &ondisk.CorruptError{What: "attribute value too long", Inode: ino}
	}
	i, err := fs.igetValue(ino)
	if err != nil {
		return nil, err
	}
	defer fs.iput(i)
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.raw.Size() < uint64(e.Size) {
		return nil, &ondisk.CorruptError{What: "the inode of an attribute's value is too short", Inode: ino}
	}
	value := make([]byte, e.Size)
	if _, err = i.readLocked(value, 0); err != nil {
		return nil, err
	}
	if !i.lustreValue() && i.raw.AtimeLo != ondisk.CRC32C(fs.csum.Seed(), value) {
		return nil, &ondisk.CorruptError{What: "attribute value with a wrong checksum", Inode: ino}
	}
	if !i.lustreValue() {
		fs.ops.values.remember(i.raw.AtimeLo, ino)
	}
	return value, nil
}

// maxValues bounds the values that are remembered for sharing.
const maxValues = 4096

// valueShares finds the inode of a value. Its lock is below all others.
type valueShares struct {
	mu     sync.Mutex
	byHash map[uint32]ondisk.InodeNumber // +checklocks:mu
}

func (s *valueShares) remember(crc uint32, ino ondisk.InodeNumber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash == nil || len(s.byHash) >= maxValues {
		s.byHash = make(map[uint32]ondisk.InodeNumber)
	}
	s.byHash[crc] = ino
}

// forget takes out an inode that nothing points to any more.
func (s *valueShares) forget(crc uint32, ino ondisk.InodeNumber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash[crc] == ino {
		delete(s.byHash, crc)
	}
}

func (s *valueShares) find(crc uint32) (ondisk.InodeNumber, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ino, ok := s.byHash[crc]
	return ino, ok
}

// sharedValue returns an inode that holds value already, pinned; nil if none is
// known. One that owner points to already is left out: how its entries count
// relies on an added one being new to it.
func (owner *Inode) sharedValue(value []byte) *Inode {
	fs := owner.fs
	ino, ok := fs.ops.values.find(ondisk.CRC32C(fs.csum.Seed(), value))
	if !ok || owner.pointsTo(ino) {
		return nil
	}
	i, err := fs.igetValue(ino)
	if err != nil {
		return nil
	}
	if !i.holdsValue(value) {
		fs.iput(i)
		return nil
	}
	return i
}

// pointsTo tells whether an attribute's value is in inode ino; true, too, if
// that cannot be found out.
func (i *Inode) pointsTo(ino ondisk.InodeNumber) bool {
	inode, block, done, err := i.xattrAreas()
	if err != nil {
		return true
	}
	defer done()
	return slices.Contains(inode.Inums(), uint32(ino)) || slices.Contains(block.Inums(), uint32(ino))
}

func (i *Inode) holdsValue(value []byte) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.lustreValue() || i.valueRefs() == 0 || i.raw.Size() != uint64(len(value)) {
		return false
	}
	has := make([]byte, len(value))
	n, err := i.readLocked(has, 0)
	return err == nil && n == len(has) && bytes.Equal(has, value)
}

// igetValue is iget for the inode of a value, pinned. It does not wait for one
// that is being deleted, which a handle must not, and which nothing points to
// unless its count was wrong.
func (fs *FS) igetValue(ino ondisk.InodeNumber) (*Inode, error) {
	if ino < fs.firstIno || uint32(ino) > fs.inodes {
		return nil, &ondisk.CorruptError{What: "attribute value in an inode out of range", Inode: ino}
	}
	i, err := fs.igetNow(ino)
	if err == syscall.ESTALE {
		return nil, &ondisk.CorruptError{What: "attribute value in an inode that is free", Inode: ino}
	}
	if err != nil {
		return nil, err
	}
	if i.raw.Flags&ondisk.InodeEAInode == 0 || !i.isReg() {
		fs.iput(i)
		return nil, &ondisk.CorruptError{What: "not the inode of an attribute's value", Inode: ino}
	}
	return i, nil
}

// lustreValue tells whether the inode is of the old kind, without a count.
func (i *Inode) lustreValue() bool {
	return i.raw.CtimeLo|i.raw.VersionLo == 0 && i.raw.MtimeLo != 0
}

// newValueInode makes the inode of a value of owner's, pinned, with no
// reference: it is on the orphan list, and the last iput frees it unless
// it is counted before.
func (owner *Inode) newValueInode(c *Caller, value []byte) (*Inode, error) {
	fs := owner.fs
	var i *Inode
	err := fs.step(creditsNewInode+creditsOrphan, func(h *handle) (err error) {
		h.root = fs.mayUseRoot(c)
		if i, err = owner.allocValueInode(h, c); err != nil {
			return err
		}
		i.raw.LinksCount = 0
		return first(fs.orphanAdd(h, i), i.markDirty(h))
	})
	if err == nil {
		err = i.fillValue(c, value)
	}
	if err != nil {
		fs.iput(i)
		return nil, err
	}
	return i, nil
}

// allocValueInode takes a number near owner's.
func (owner *Inode) allocValueInode(h *handle, c *Caller) (*Inode, error) {
	fs := owner.fs
	g, _ := fs.groupOf(owner.ino)
	ino, b, err := fs.allocInode(h, g, false)
	if err != nil {
		return nil, err
	}
	defer b.Put()
	i := &Inode{fs: fs, ino: ino}
	fs.initInode(i, nil, ondisk.ModeReg|0o600, c)
	i.raw.SetUID(owner.raw.UID())
	i.raw.SetGID(owner.raw.GID())
	i.raw.Flags |= ondisk.InodeEAInode
	i.noXattrs.Store(true)
	if err := fs.icache.insertNew(i); err != nil {
		return nil, fs.corrupt(err)
	}
	if err := i.writeNew(h, b); err != nil {
		fs.icache.remove(i)
		return nil, err
	}
	return i, nil
}

// fillValue writes the value and what the inode says of it.
func (i *Inode) fillValue(c *Caller, value []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	flags := WriteCached // the times are not times
	if i.fs.mayUseRoot(c) {
		flags |= writeRoot
	}
	if n, err := i.writeLocked(value, 0, flags); err != nil || n < len(value) {
		return first(err, syscall.ENOSPC)
	}
	i.fs.alloc.DiscardInode(&i.pa)
	crc := ondisk.CRC32C(i.fs.csum.Seed(), value)
	i.raw.AtimeLo, i.raw.AtimeExtra = crc, 0
	if i.raw.Fits(ondisk.EndAtimeExtra) {
		i.raw.AtimeExtra = crc >> 31 // seconds without a sign
	}
	i.setValueRefs(0)
	return i.fs.step(creditsInode, func(h *handle) error { return i.markDirty(h) })
}

// valueCharge is what i_blocks of an inode counts for the values that its
// entries have in inodes of their own, in blocks: whole clusters, whether the
// value is shared or not.
func (i *Inode) valueCharge(areas ...xattr.Area) (blocks int64) {
	if !i.fs.eaInode {
		return 0
	}
	for _, a := range areas {
		a.Each(func(e xattr.Entry) bool {
			if e.Inum != 0 {
				bits := i.fs.blockBits + i.fs.clusterBits
				blocks += (int64(e.Size) + 1<<bits - 1) >> bits << i.fs.clusterBits
			}
			return true
		})
	}
	return blocks
}

// asValue is the value for an entry.
func (i *Inode) asValue() xattr.Stored {
	return xattr.Stored{Inum: uint32(i.ino), Size: uint32(i.raw.Size()), CRC: i.raw.AtimeLo}
}

// valueRefs is the number of entries that point to the inode.
func (i *Inode) valueRefs() uint64 { return uint64(i.raw.CtimeLo)<<32 | uint64(i.raw.VersionLo) }

func (i *Inode) setValueRefs(n uint64) {
	i.raw.VersionLo = uint32(n)
	i.raw.CtimeLo, i.raw.CtimeExtra = uint32(n>>32), 0
}

// changeValueRefs counts entries up or down. With the last one the inode goes
// on the orphan list, and the last iput frees it.
func (i *Inode) changeValueRefs(h *handle, by int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.valueRefs()
	if i.lustreValue() && by < 0 {
		n = 1
	}
	if by < 0 && n == 0 {
		return i.fs.corrupt(&ondisk.CorruptError{What: "inode of an attribute's value has too low a reference count", Inode: i.ino})
	}
	n += uint64(int64(by))
	i.setValueRefs(n)
	if by > 0 {
		i.fs.ops.values.remember(i.raw.AtimeLo, i.ino)
	}
	switch {
	case n == 0:
		i.fs.ops.values.forget(i.raw.AtimeLo, i.ino)
		i.raw.LinksCount = 0
		if err := i.fs.orphanAdd(h, i); err != nil {
			return err
		}
	case i.raw.LinksCount == 0:
		i.raw.LinksCount = 1
		if err := i.fs.orphanDel(h, i); err != nil {
			return err
		}
	}
	return i.markDirty(h)
}

// changeValue counts entries that point to inode ino up or down. An inode that
// cannot be what it should is damage that has been reported; the change of
// the attributes goes on.
func (fs *FS) changeValue(h *handle, ino uint32, by int) error {
	i, err := fs.igetValue(ondisk.InodeNumber(ino))
	if err != nil {
		if isCorrupt(err) {
			fs.corrupt(err)
			return nil
		}
		return err
	}
	h.later = append(h.later, i)
	return i.changeValueRefs(h, by)
}

// keepValues counts one more entry for each inode of list but one entry of
// added, which the caller counts.
func (fs *FS) keepValues(h *handle, list []uint32, added *Inode) error {
	for _, ino := range list {
		if added != nil && ino == uint32(added.ino) {
			added = nil
			continue
		}
		if err := fs.changeValue(h, ino, 1); err != nil {
			return err
		}
	}
	return nil
}

// dropValues counts one entry less for each inode of before that is not in
// after.
func (fs *FS) dropValues(h *handle, before, after []uint32) error {
	after = slices.Clone(after)
	for _, ino := range before {
		if k := slices.Index(after, ino); k >= 0 {
			after = slices.Delete(after, k, k+1)
			continue
		}
		if err := fs.changeValue(h, ino, -1); err != nil {
			return err
		}
	}
	return nil
}

// dropOwnValues drops the values of the entries in an inode that is being
// deleted, and takes the entries out, so that a second attempt finds nothing.
func (i *Inode) dropOwnValues(h *handle) error {
	if !i.fs.eaInode {
		return nil
	}
	b, slot, err := i.tableBuffer()
	if err != nil {
		return err
	}
	list := xattr.Inode(i.xattrTail(slot)).Inums()
	defer b.Put()
	if len(list) == 0 {
		return nil
	}
	if err := i.clearOwnXattrs(h, b, slot); err != nil {
		return err
	}
	return i.fs.dropValues(h, list, nil)
}

func (i *Inode) clearOwnXattrs(h *handle, b *bcache.Buffer, slot []byte) error {
	if err := h.getWrite(b); err != nil {
		return err
	}
	clear(i.xattrTail(slot))
	i.encode(slot)
	return h.dirty(b)
}

// inumsOf lists the value inodes of an attribute block.
func inumsOf(block []byte) []uint32 {
	a, err := xattr.Block(block)
	if err != nil {
		return nil
	}
	return a.Inums()
}
