package ext4

import (
	"encoding/binary"

	"extfused/blockdev/bcache"
	"extfused/fs/ondisk"
)

// One quota file: a hidden inode whose blocks are metadata, and its entries in
// core. Everything here runs under quotaState.mu; changes go through a handle.

// dquot is the usage and the limits of one id.
type dquot struct {
	ondisk.Quota
	file  *quotaFile
	blk   uint32 // quota block and byte in it of the entry; 0: there is none yet
	off   int
	dirty bool
}

type quotaFile struct {
	fs     *FS
	i      *Inode // pinned
	head   ondisk.QuotaHeader
	dquots map[uint32]*dquot
}

// openQuotaFile reads a whole quota file.
func (fs *FS) openQuotaFile(ino ondisk.InodeNumber, magic uint32) (*quotaFile, error) {
	i := &Inode{fs: fs, ino: ino}
	if uint32(ino) > fs.inodes {
		return nil, &ondisk.CorruptError{What: "quota inode out of range", Inode: ino}
	}
	if err := fs.loadInode(i); err != nil {
		return nil, err
	}
	q := &quotaFile{fs: fs, i: i, dquots: map[uint32]*dquot{}}
	b, data, err := q.block(nil, 0)
	if err != nil {
		return nil, err
	}
	err = q.head.Decode(data)
	b.Put()
	if err == nil && q.head.Magic != magic {
		err = ondisk.Corrupt("quota file: magic %#x", q.head.Magic)
	}
	if err == nil && uint64(q.head.Blocks)*ondisk.QuotaBlockSize > i.raw.Size() {
		err = ondisk.Corrupt("quota file: %d blocks in %d bytes", q.head.Blocks, i.raw.Size())
	}
	if err == nil {
		err = q.load(ondisk.QuotaRoot, 0, make(map[uint32]bool))
	}
	return q, ondisk.InInode(err, ino)
}

// load reads the entries below a node of the tree.
func (q *quotaFile) load(blk uint32, depth int, seen map[uint32]bool) error {
	if blk == 0 || blk >= q.head.Blocks || seen[blk] {
		return ondisk.Corrupt("quota file: reference to block %d of %d, or a second one", blk, q.head.Blocks)
	}
	seen[blk] = true
	b, data, err := q.block(nil, blk)
	if err != nil {
		return err
	}
	defer b.Put()
	if depth == ondisk.QuotaDepth {
		q.loadEntries(blk, data)
		return nil
	}
	last := uint32(0)
	for ; len(data) > 0; data = data[4:] {
		// At the last level ids that share a data block come in any order.
		child := binary.LittleEndian.Uint32(data)
		if child == 0 || depth == ondisk.QuotaDepth-1 && (child == last || seen[child]) {
			continue
		}
		if err := q.load(child, depth+1, seen); err != nil {
			return err
		}
		last = child
	}
	return nil
}

func (q *quotaFile) loadEntries(blk uint32, data []byte) {
	for k := range ondisk.QuotaEntries {
		off := ondisk.QuotaDataHeader + k*ondisk.QuotaEntrySize
		if isZero(data[off : off+ondisk.QuotaEntrySize]) {
			continue
		}
		d := &dquot{file: q, blk: blk, off: off}
		d.Decode(data[off:])
		q.dquots[d.ID] = d
	}
}

// block is quota block blk: the pinned buffer that it is in, and its bytes; with
// a handle they may be changed, and the caller marks the buffer dirty.
func (q *quotaFile) block(h *handle, blk uint32) (*bcache.Buffer, []byte, error) {
	at := uint64(blk) * ondisk.QuotaBlockSize
	r, err := q.i.mapRun(ondisk.LBlock(at >> q.fs.blockBits))
	if err != nil {
		return nil, nil, err
	}
	if r.st != esWritten {
		return nil, nil, &ondisk.CorruptError{What: "hole in a quota file", Inode: q.i.ino}
	}
	b, err := q.fs.cache.Read(uint64(r.p), nil)
	if err != nil {
		return nil, nil, q.fs.ioError(err)
	}
	if h != nil {
		if err := h.getWrite(b); err != nil {
			b.Put()
			return nil, nil, err
		}
	}
	in := int(at & uint64(q.fs.blockSize-1))
	return b, b.Data()[in : in+ondisk.QuotaBlockSize], nil
}

// change changes quota block blk.
func (q *quotaFile) change(h *handle, blk uint32, fn func(data []byte)) error {
	b, data, err := q.block(h, blk)
	if err != nil {
		return err
	}
	defer b.Put()
	fn(data)
	return h.dirty(b)
}

// write writes a dquot's entry, which it gets if it has none.
func (q *quotaFile) write(h *handle, d *dquot) error {
	if d.blk == 0 {
		if err := q.addEntry(h, d); err != nil {
			return err
		}
	}
	return q.change(h, d.blk, func(data []byte) {
		d.Encode(data[d.off:])
		if d.Quota == (ondisk.Quota{}) {
			binary.LittleEndian.PutUint64(data[d.off+0x40:], 1) // id 0 with nothing is told from an unused entry
		}
	})
}

func (q *quotaFile) writeHead(h *handle) error {
	return q.change(h, 0, func(data []byte) { q.head.Encode(data) })
}

// newBlock takes a zeroed block at the end of the file.
func (q *quotaFile) newBlock(h *handle) (uint32, error) {
	blk := q.head.Blocks
	at := uint64(blk) * ondisk.QuotaBlockSize
	r, err := q.i.mapRun(ondisk.LBlock(at >> q.fs.blockBits))
	if err != nil {
		return 0, err
	}
	if r.st == esHole {
		b, err := q.i.allocDirBlock(h, r.l)
		if err != nil {
			return 0, err
		}
		err = h.dirty(b)
		b.Put()
		if err != nil {
			return 0, err
		}
	}
	q.head.Blocks++
	q.i.raw.SetSize(max(q.i.raw.Size(), at+ondisk.QuotaBlockSize))
	if err := q.i.markDirty(h); err != nil {
		return 0, err
	}
	return blk, q.change(h, blk, func(data []byte) { clear(data) })
}

// addEntry finds a place for d's entry and leads the tree to it.
func (q *quotaFile) addEntry(h *handle, d *dquot) error {
	blk := q.head.FreeEntry
	if blk == 0 {
		var err error
		if blk, err = q.newBlock(h); err != nil {
			return err
		}
		q.head.FreeEntry = blk
	}
	off, next := 0, uint32(0)
	err := q.change(h, blk, func(data []byte) {
		for k := 0; k < ondisk.QuotaEntries && off == 0; k++ {
			if at := ondisk.QuotaDataHeader + k*ondisk.QuotaEntrySize; isZero(data[at : at+ondisk.QuotaEntrySize]) {
				off = at
			}
		}
		n := binary.LittleEndian.Uint16(data[8:]) + 1
		binary.LittleEndian.PutUint16(data[8:], n)
		if next = blk; n >= ondisk.QuotaEntries || off == 0 { // full: off the list
			next = binary.LittleEndian.Uint32(data)
			clear(data[:8])
		}
	})
	if err != nil {
		return err
	}
	if off == 0 || next >= q.head.Blocks {
		return &ondisk.CorruptError{What: "quota file: the list of blocks with room is wrong", Inode: q.i.ino}
	}
	if next != blk {
		q.head.FreeEntry = next
		if next != 0 {
			if err := q.change(h, next, func(data []byte) { clear(data[4:8]) }); err != nil { // prev_free
				return err
			}
		}
	}
	if err := q.leadTo(h, d.ID, blk); err != nil {
		return err
	}
	d.blk, d.off = blk, off
	return q.writeHead(h)
}

// leadTo makes the tree lead from id to a data block.
func (q *quotaFile) leadTo(h *handle, id, blk uint32) error {
	node := uint32(ondisk.QuotaRoot)
	for depth := range ondisk.QuotaDepth {
		at := 4 * int(id>>(24-8*depth)&0xff)
		b, data, err := q.block(h, node)
		if err != nil {
			return err
		}
		child := binary.LittleEndian.Uint32(data[at:])
		b.Put()
		if depth < ondisk.QuotaDepth-1 && child != 0 {
			node = child
			continue
		}
		if child = blk; depth < ondisk.QuotaDepth-1 {
			if child, err = q.newBlock(h); err != nil {
				return err
			}
		}
		if err := q.change(h, node, func(data []byte) { binary.LittleEndian.PutUint32(data[at:], child) }); err != nil {
			return err
		}
		node = child
	}
	return nil
}
