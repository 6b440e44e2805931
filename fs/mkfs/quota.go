package mkfs

import (
	"encoding/binary"
	"slices"

	"extfused/fs/ondisk"
)

// QuotaType says whose usage is counted.
type QuotaType int

// The types, in the order of their files.
const (
	UserQuota QuotaType = iota
	GroupQuota
	ProjectQuota
)

// Inode numbers kept for the quotas of users and groups. That of projects has
// the first free one.
const (
	userQuotaIno  = ondisk.InodeNumber(3)
	groupQuotaIno = ondisk.InodeNumber(4)
)

// A quota file of format vfsv1 consists of 1 KiB blocks whatever the block size
// of the file system: a header, the root of a tree with one level for each
// byte of an id, inner nodes, and leaves with the entries. Facts from the
// kernel's fs/quota and quota(5).
//
//	block 0    magic, version, then grace times, flags, blocks, free lists
//	block 1    root: 256 block numbers by the id's highest byte
//	block 2-4  the nodes on the way to the ids below 256
//	block 5    leaf: header of 16 bytes, entries of 72 bytes
//	block 6-   the nodes on the way to a greater id, whose entry is in block 5, too
const (
	quotaBlock     = 1024
	quotaVersion   = 1
	quotaGrace     = 7 * 24 * 3600 // seconds
	quotaLeafBlock = 5
	quotaLeafHead  = 16
	quotaEntrySize = 72
)

var quotaMagics = [...]uint32{0xd9c01f11, 0xd9c01927, 0xd9c03f14}

// quotaFile is one of the files.
type quotaFile struct {
	kind QuotaType
	ino  ondisk.InodeNumber
}

// quotaTypes are the types asked for.
func (l *layout) quotaTypes() []QuotaType {
	if l.p.Quotas != nil {
		types := slices.Clone(l.p.Quotas)
		slices.Sort(types)
		return slices.Compact(types)
	}
	types := []QuotaType{UserQuota, GroupQuota}
	if l.sb.HasROCompat(ondisk.ROCompatProject) {
		types = append(types, ProjectQuota)
	}
	return types
}

// placeQuotas makes the quota files.
func (l *layout) placeQuotas() error {
	if !l.sb.HasROCompat(ondisk.ROCompatQuota) {
		return nil
	}
	for _, kind := range l.quotaTypes() {
		ino := userQuotaIno
		switch kind {
		case UserQuota:
			l.sb.UsrQuotaInum = uint32(ino)
		case GroupQuota:
			ino = groupQuotaIno
			l.sb.GrpQuotaInum = uint32(ino)
		case ProjectQuota:
			l.last++
			ino = l.last
			l.sb.PrjQuotaInum = uint32(ino)
		}
		l.quotas = append(l.quotas, quotaFile{kind, ino})
		n := ceilDiv(uint64(len(l.quotaContent(kind))), uint64(l.sb.BlockSize()))
		if err := l.place(ino, l.sb.GroupFirstBlock(0), n); err != nil {
			return err
		}
		l.orderQuotaBlocks(l.files[ino])
	}
	return nil
}

// orderQuotaBlocks puts the root behind what it first pointed to, as it is
// written after that, where a block of the file system holds nothing else.
func (l *layout) orderQuotaBlocks(f *file) {
	if l.sb.BlockSize() != quotaBlock || len(f.runs) != 1 {
		return
	}
	at, n := f.runs[0].start, f.runs[0].n
	if l.ratio != 1 { // within a cluster each block has its place, but the extents do not meet
		f.runs = []run{{at, 2}, {at + 2, n - 2}}
		return
	}
	f.runs = []run{{at, 1}, {at + quotaLeafBlock, 1}, {at + 1, quotaLeafBlock - 1}}
	if n > quotaLeafBlock+1 {
		f.runs = append(f.runs, run{at + quotaLeafBlock + 1, n - quotaLeafBlock - 1})
	}
	if f.blocks != nil {
		for i := range n {
			f.blocks.root[i] = uint32(f.at(i))
		}
	}
}

// quotaOf is the index of the quota file with inode ino, or -1.
func (l *layout) quotaOf(ino ondisk.InodeNumber) int {
	return slices.IndexFunc(l.quotas, func(q quotaFile) bool { return q.ino == ino })
}

// quotaUse is what an id has used.
type quotaUse struct {
	id            uint32
	inodes, bytes uint64
}

// quotaUsage counts the directories, whose owners may differ.
func (l *layout) quotaUsage(kind QuotaType) []quotaUse {
	bytes := func(ino ondisk.InodeNumber) uint64 { return l.wholeClusters(l.files[ino].size()) << l.sb.BlockBits() }
	rootID := uint32(0)
	switch kind {
	case UserQuota:
		rootID = l.p.RootUID
	case GroupQuota:
		rootID = l.p.RootGID
	}
	lost := quotaUse{0, 1, bytes(lostFoundIno)}
	if rootID == 0 {
		return []quotaUse{{0, 2, lost.bytes + bytes(ondisk.RootIno)}}
	}
	return []quotaUse{lost, {rootID, 1, bytes(ondisk.RootIno)}}
}

// quotaContent is the content of a file.
func (l *layout) quotaContent(kind QuotaType) []byte {
	le := binary.LittleEndian
	b := make([]byte, quotaBlock*(quotaLeafBlock+1))
	entries := l.quotaUsage(kind)
	for _, u := range entries {
		b = addQuotaPath(b, u.id)
	}
	head := []uint32{quotaMagics[kind], quotaVersion, quotaGrace, quotaGrace, 0, uint32(len(b) / quotaBlock), 0, quotaLeafBlock}
	for i, v := range head {
		le.PutUint32(b[4*i:], v)
	}
	leaf := b[quotaLeafBlock*quotaBlock:]
	le.PutUint16(leaf[8:], uint16(len(entries)))
	for i, u := range entries {
		e := leaf[quotaLeafHead+i*quotaEntrySize:]
		le.PutUint32(e, u.id)
		le.PutUint64(e[24:], u.inodes)
		le.PutUint64(e[48:], u.bytes)
	}
	return b
}

// addQuotaPath makes the way from the root to the leaf for id, and appends the
// nodes that it needs. The first id is 0, whose nodes have their places.
func addQuotaPath(b []byte, id uint32) []byte {
	le := binary.LittleEndian
	node := 1
	for shift := 24; shift > 0; shift -= 8 {
		slot := node*quotaBlock + 4*int(id>>shift&0xff)
		next := int(le.Uint32(b[slot:]))
		if next == 0 && id == 0 {
			next = node + 1
		} else if next == 0 {
			next = len(b) / quotaBlock
			b = append(b, make([]byte, quotaBlock)...)
		}
		le.PutUint32(b[slot:], uint32(next))
		node = next
	}
	le.PutUint32(b[node*quotaBlock+4*int(id&0xff):], quotaLeafBlock)
	return b
}

func (w *writer) quotaFiles() error {
	bs := w.l.sb.BlockSize()
	for _, q := range w.l.quotas {
		content := w.l.quotaContent(q.kind)
		content = append(content, make([]byte, (bs-len(content)%bs)%bs)...)
		for i := 0; i < len(content); i += bs {
			if err := w.writeBlock(w.l.files[q.ino].at(uint64(i/bs)), content[i:i+bs]); err != nil {
				return err
			}
		}
	}
	return nil
}
