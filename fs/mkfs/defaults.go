package mkfs

import (
	"crypto/rand"
	"fmt"
	"time"

	"extfused/fs/ondisk"
)

const (
	mib = int64(1) << 20
	tib = int64(1) << 40
)

// usage is a row of mke2fs.conf's fs_types, chosen by size.
type usage struct {
	below      int64 // bytes: sizes under it; 0: any
	blockSize  int
	inodeRatio int64
}

// usages are the types floppy, small, default, big and huge, with the bounds
// that mke2fs has built in.
var usages = []usage{
	{3 * mib, 1024, 8192},
	{512 * mib, 1024, 4096},
	{4 * tib, 4096, 16384},
	{16 * tib, 4096, 32768},
	{0, 4096, 65536},
}

func usageOf(size int64) usage {
	for _, u := range usages {
		if u.below == 0 || size < u.below {
			return u
		}
	}
	panic("mkfs: the last usage takes every size")
}

// journalSizes is the default length of a journal, in blocks, by the number of
// blocks of the file system.
var journalSizes = []struct {
	below  uint64
	blocks uint32
}{
	{2048, 0},
	{32768, 1024},
	{256 << 10, 4096},
	{512 << 10, 8192},
	{4 << 20, 16384},
	{8 << 20, 32768},
	{16 << 20, 65536},
	{32 << 20, 131072},
	{1 << 63, 262144},
}

func defaultJournalBlocks(fsBlocks uint64) uint32 {
	for _, j := range journalSizes {
		if fsBlocks < j.below {
			return j.blocks
		}
	}
	return 0
}

// Bounds of a journal's length in blocks.
const (
	minJournalBlocks = 1024
	maxJournalBlocks = 10240000
)

// pageSize is the granularity that mke2fs gives a file system whose size it
// was not told, the page size of its usual machines.
const pageSize = 4096

// fill puts defaults where a parameter is zero, and refuses what cannot be.
func (p *Params) fill(deviceSize int64) error {
	explicit := p.Size != 0
	if !explicit {
		p.Size = deviceSize
	}
	if p.Size <= 0 || p.Size > deviceSize {
		return fmt.Errorf("size %d does not fit the device of %d bytes", p.Size, deviceSize)
	}
	u := usageOf(p.Size)
	if p.BlockSize == 0 {
		p.BlockSize = u.blockSize
	}
	if err := p.checkClusters(); err != nil {
		return err
	}
	if p.BytesPerInode == 0 {
		p.BytesPerInode = max(u.inodeRatio, int64(p.BlockSize), int64(p.ClusterSize))
	}
	if !explicit && p.BlockSize < pageSize {
		p.Size &^= pageSize - 1
	}
	if p.InodeSize == 0 {
		p.InodeSize = 256
	}
	if p.FlexGroups == 0 {
		p.FlexGroups = 16
	}
	if err := p.check(); err != nil {
		return err
	}
	return p.fillIdentity()
}

func (p *Params) check() error {
	bs := int64(p.BlockSize)
	most := maxClustersPerGroup(p.BlockSize)
	switch {
	case p.InodeSize < ondisk.GoodOldInodeSize || p.InodeSize > p.BlockSize || p.InodeSize&(p.InodeSize-1) != 0:
		return fmt.Errorf("inode size %d: must be a power of two from 128 to the block size", p.InodeSize)
	case p.BytesPerInode < ondisk.MinBlockSize || p.BytesPerInode > 1024*ondisk.MaxBlockSize:
		return fmt.Errorf("%d bytes per inode: must be from 1024 to 67108864", p.BytesPerInode)
	case p.ReservedPercent < 0 || p.ReservedPercent > 50:
		return fmt.Errorf("%g percent of reserved blocks: must be from 0 to 50", p.ReservedPercent)
	case p.BlocksPerGroup != 0 && (p.BlocksPerGroup < 256 || p.BlocksPerGroup > most || p.BlocksPerGroup%8 != 0):
		return fmt.Errorf("%d blocks per group: must be a multiple of 8 from 256 to %d", p.BlocksPerGroup, most)
	case p.FlexGroups&(p.FlexGroups-1) != 0:
		return fmt.Errorf("%d groups per flex group: must be a power of two", p.FlexGroups)
	case p.Inodes > 1<<32-1:
		return fmt.Errorf("%d inodes: at most 4294967295", p.Inodes)
	case p.DescSize != 0 && (p.Features.Incompat&ondisk.Incompat64Bit == 0 || p.DescSize < ondisk.MinDescSize64 || p.DescSize > 1024 || p.DescSize&(p.DescSize-1) != 0):
		return fmt.Errorf("descriptors of %d bytes: must be a power of two from 64 to 1024, and need 64bit", p.DescSize)
	case p.Stride > 1<<16-1:
		return fmt.Errorf("stride of %d blocks: at most 65535", p.Stride)
	case len(p.Label) > 16:
		return fmt.Errorf("label %q: at most 16 bytes", p.Label)
	case p.Size/bs > 1<<32-1 && p.Features.Incompat&ondisk.Incompat64Bit == 0:
		return fmt.Errorf("%d blocks: more than 4294967295 need the 64bit feature", p.Size/bs)
	}
	if p.Size/bs < 16 {
		return fmt.Errorf("%d bytes in blocks of %d: %w", p.Size, bs, ErrTooSmall)
	}
	return p.checkFeatures()
}

// checkClusters refuses block and cluster sizes that cannot be.
func (p *Params) checkClusters() error {
	bs := p.BlockSize
	bigalloc := p.Features.ROCompat&ondisk.ROCompatBigalloc != 0
	switch {
	case bs < ondisk.MinBlockSize || bs > ondisk.MaxBlockSize || bs&(bs-1) != 0:
		return fmt.Errorf("block size %d: must be a power of two from 1024 to 65536", bs)
	case p.ClusterSize != 0 && !bigalloc && p.ClusterSize != bs:
		return fmt.Errorf("cluster size %d: needs bigalloc", p.ClusterSize)
	case p.ClusterSize == 0 && bigalloc:
		p.ClusterSize = 16 * bs
	case p.ClusterSize == 0:
		p.ClusterSize = bs
	case bigalloc && p.ClusterSize <= bs:
		return fmt.Errorf("cluster size %d: must be larger than the block size", p.ClusterSize)
	}
	if c := p.ClusterSize; c > maxClusterSize || c&(c-1) != 0 {
		return fmt.Errorf("cluster size %d: must be a power of two up to %d", c, maxClusterSize)
	}
	return nil
}

// maxClusterSize is the greatest cluster in bytes: 2^29 with s_log_cluster_size
// at most 19 above 1 KiB.
const maxClusterSize = 1 << 29

// Features that the layout knows how to make.
const (
	CanCompat = ondisk.CompatHasJournal | ondisk.CompatExtAttr | ondisk.CompatResizeInode | ondisk.CompatDirIndex |
		ondisk.CompatSparseSuper2 | ondisk.CompatFastCommit | ondisk.CompatStableInodes | ondisk.CompatOrphanFile
	CanIncompat = ondisk.IncompatFiletype | ondisk.IncompatExtents | ondisk.Incompat64Bit | ondisk.IncompatFlexBG |
		ondisk.IncompatCsumSeed | ondisk.IncompatLargeDir | ondisk.IncompatMetaBG | ondisk.IncompatMMP | ondisk.IncompatEAInode |
		ondisk.IncompatInlineData | ondisk.IncompatEncrypt | ondisk.IncompatCasefold
	CanROCompat = ondisk.ROCompatSparseSuper | ondisk.ROCompatLargeFile | ondisk.ROCompatHugeFile |
		ondisk.ROCompatGDTCsum | ondisk.ROCompatDirNlink | ondisk.ROCompatExtraIsize | ondisk.ROCompatMetadataCsum |
		ondisk.ROCompatQuota | ondisk.ROCompatProject | ondisk.ROCompatBigalloc | ondisk.ROCompatVerity
)

// Can are the features that Format knows how to make.
var Can = ondisk.Features{Compat: CanCompat, Incompat: CanIncompat, ROCompat: CanROCompat}

// need is a feature that makes no sense, or no sound file system, without
// another one.
type need struct{ feature, needs ondisk.Features }

// needs are the rules of mke2fs, and those of the kernel that mke2fs leaves to
// e2fsck.
var needs = []need{
	{ondisk.Features{Compat: ondisk.CompatResizeInode}, ondisk.Features{ROCompat: ondisk.ROCompatSparseSuper}},
	{ondisk.Features{Compat: ondisk.CompatFastCommit}, ondisk.Features{Compat: ondisk.CompatHasJournal}},
	{ondisk.Features{Compat: ondisk.CompatOrphanFile}, ondisk.Features{Compat: ondisk.CompatHasJournal}},
	{ondisk.Features{Incompat: ondisk.Incompat64Bit}, ondisk.Features{Incompat: ondisk.IncompatExtents}},
	{ondisk.Features{Incompat: ondisk.IncompatCsumSeed}, ondisk.Features{ROCompat: ondisk.ROCompatMetadataCsum}},
	{ondisk.Features{ROCompat: ondisk.ROCompatBigalloc}, ondisk.Features{Incompat: ondisk.IncompatExtents}},
	{ondisk.Features{ROCompat: ondisk.ROCompatProject}, ondisk.Features{ROCompat: ondisk.ROCompatQuota}},
	{ondisk.Features{ROCompat: ondisk.ROCompatVerity}, ondisk.Features{Incompat: ondisk.IncompatExtents}},
	{ondisk.Features{Compat: ondisk.CompatStableInodes}, ondisk.Features{Compat: ondisk.CompatExtAttr}},
}

func has(f, all ondisk.Features) bool { return without(all, f) == ondisk.Features{} }

func (p *Params) checkFeatures() error {
	f := p.Features
	if cannot := without(f, Can); cannot != (ondisk.Features{}) {
		return fmt.Errorf("making a file system with %s is not supported", cannot)
	}
	for _, n := range needs {
		if has(f, n.feature) && !has(f, n.needs) {
			return fmt.Errorf("%s needs %s", n.feature, n.needs)
		}
	}
	switch {
	case p.Revision0 && (f != ondisk.Features{} || p.InodeSize != ondisk.GoodOldInodeSize):
		return fmt.Errorf("a file system of revision 0 has inodes of 128 bytes and no features, and %s asked for", orNothing(f))
	case f.Compat&ondisk.CompatResizeInode != 0 && f.Incompat&ondisk.IncompatMetaBG != 0:
		return fmt.Errorf("resize_inode and meta_bg exclude each other")
	case p.InodeSize == ondisk.GoodOldInodeSize && f.Incompat&ondisk.IncompatInlineData != 0:
		return fmt.Errorf("inline_data needs inodes of more than 128 bytes")
	case p.InodeSize == ondisk.GoodOldInodeSize && f.ROCompat&ondisk.ROCompatProject != 0:
		return fmt.Errorf("project needs inodes of more than 128 bytes")
	case p.Backups != nil && f.Compat&ondisk.CompatSparseSuper2 == 0:
		return fmt.Errorf("num_backup_sb needs sparse_super2")
	case p.ResizeTo.N != 0 && f.Compat&ondisk.CompatResizeInode == 0:
		return fmt.Errorf("resize needs resize_inode")
	case p.OrphanSize.N != 0 && f.Compat&ondisk.CompatOrphanFile == 0:
		return fmt.Errorf("orphan_file_size needs orphan_file")
	case p.Quotas != nil && f.ROCompat&ondisk.ROCompatQuota == 0:
		return fmt.Errorf("quotatype needs quota")
	case p.MMPInterval != 0 && f.Incompat&ondisk.IncompatMMP == 0:
		return fmt.Errorf("mmp_update_interval needs mmp")
	}
	return nil
}

func orNothing(f ondisk.Features) string {
	if s := f.String(); s != "" {
		return s + " was"
	}
	return "larger inodes were"
}

func (p *Params) fillIdentity() error {
	if p.Time.IsZero() {
		p.Time = time.Now()
	}
	for _, u := range []*ondisk.UUID{&p.UUID, &p.HashSeed} {
		if *u != (ondisk.UUID{}) {
			continue
		}
		if _, err := rand.Read(u[:]); err != nil {
			return fmt.Errorf("random UUID: %w", err)
		}
		u[6] = u[6]&0x0f | 0x40 // version 4
		u[8] = u[8]&0x3f | 0x80 // variant
	}
	return nil
}
