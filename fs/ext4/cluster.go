package ext4

import (
	"slices"

	"extfused/fs/ondisk"
	"extfused/mballoc"
)

// Clusters of several blocks (feature bigalloc). The bitmaps count clusters,
// extents count blocks. A logical cluster of a file is in one cluster of the
// device, at the same place within it, as soon as one of its blocks is mapped:
// the others then need no allocation. A cluster is free again when the last of
// its blocks is unmapped. Metadata takes a whole cluster for each block.

// clustersOf is how many logical clusters n blocks from l on lie in.
func (fs *FS) clustersOf(l ondisk.LBlock, n uint32) uint32 {
	return uint32((uint64(l)+uint64(n)-1)>>fs.clusterBits - uint64(l)>>fs.clusterBits + 1)
}

// clusterBlocks is how many blocks the clusters have that n blocks from blk on
// lie in.
func (fs *FS) clusterBlocks(blk ondisk.FsBlock, n uint32) int64 {
	first, last := fs.clusterOf(blk), fs.clusterOf(blk+ondisk.FsBlock(n)-1)
	return int64(last-first+1) << fs.clusterBits
}

// mappedIn finds where logical cluster lc is on the device, by what look says
// of each of its blocks.
func (i *Inode) mappedIn(lc uint32, look func(ondisk.LBlock) (esRun, error)) (c mballoc.Cluster, ok bool, err error) {
	start := uint64(lc) << i.fs.clusterBits
	for l := start; l < min(start+1<<i.fs.clusterBits, maxLBlocks); {
		r, err := look(ondisk.LBlock(l))
		if err != nil {
			return 0, false, err
		}
		if r.st != esHole {
			return i.fs.clusterOf(r.p - ondisk.FsBlock(uint64(r.l)-start)), true, nil
		}
		l = r.end()
	}
	return 0, false, nil
}

// impliedRun is the start of a hole whose cluster the file has got already:
// its blocks, up to n, and not beyond the cluster.
func (i *Inode) impliedRun(hole esRun, n uint32) (p ondisk.FsBlock, got uint32, ok bool, err error) {
	bits := i.fs.clusterBits
	if bits == 0 {
		return 0, 0, false, nil
	}
	lc := uint32(hole.l) >> bits
	c, ok, err := i.mappedIn(lc, i.mapRun)
	if !ok || err != nil {
		return 0, 0, false, err
	}
	in := uint32(hole.l) - lc<<bits
	return i.fs.blockOf(c) + ondisk.FsBlock(in), min(n, hole.n, 1<<bits-in), true, nil
}

// clipToClusters shortens a request whose last cluster, not being its first,
// has got blocks behind the hole already.
func (i *Inode) clipToClusters(hole esRun, req *allocReq) error {
	bits := i.fs.clusterBits
	last := (uint64(req.logical) + uint64(req.n) - 1) >> bits
	if bits == 0 || last == uint64(req.logical)>>bits || hole.end() >= (last+1)<<bits {
		return nil
	}
	_, ok, err := i.mappedIn(uint32(last), i.mapRun)
	if ok {
		req.n = uint32(last<<bits - uint64(req.logical))
	}
	return err
}

// unmapped collects the runs that one step has taken out of an extent tree,
// until the tree can be asked what else their clusters hold.
type unmapped struct {
	runs  []esRun
	freed []uint32 // logical clusters, of those that the runs share with others
}

// free frees the clusters that nothing of the file is in any more.
func (u *unmapped) free(h *handle, t *treeOp) error {
	for _, r := range u.runs {
		if t.i.blocksJournaled() {
			for k := range r.n {
				if err := h.revoke(r.p + ondisk.FsBlock(k)); err != nil {
					return err
				}
			}
		}
		if err := u.freeRun(h, t, r); err != nil {
			return err
		}
	}
	return nil
}

func (u *unmapped) freeRun(h *handle, t *treeOp, r esRun) error {
	fs, bits := t.i.fs, t.i.fs.clusterBits
	from, to := uint64(r.l)>>bits, (r.end()-1)>>bits // inclusive
	c := fs.clusterOf(r.p)
	whole := func(lc uint64) bool { return uint64(r.l) <= lc<<bits && r.end() >= (lc+1)<<bits }
	if !whole(from) {
		keep, err := u.keep(t, uint32(from))
		if err != nil {
			return err
		}
		if keep {
			from, c = from+1, c+1
		}
	}
	if from <= to && to > uint64(r.l)>>bits && !whole(to) {
		keep, err := u.keep(t, uint32(to))
		if err != nil {
			return err
		}
		if keep {
			to--
		}
	}
	if from > to {
		return nil
	}
	n := uint32(to - from + 1)
	if err := fs.releaseClusters(h, c, n); err != nil {
		return err
	}
	t.i.addBlocks(-int64(n) << bits)
	return nil
}

// keep tells whether a cluster stays: because something else of the file is in
// it, or because it has been freed already.
func (u *unmapped) keep(t *treeOp, lc uint32) (bool, error) {
	if slices.Contains(u.freed, lc) {
		return true, nil
	}
	_, mapped, err := t.i.mappedIn(lc, func(l ondisk.LBlock) (esRun, error) {
		e, mapped, err := t.Lookup(l)
		if err != nil {
			return esRun{}, err
		}
		r, err := t.i.runOf(e, mapped)
		return r.from(l), err
	})
	if err == nil && !mapped {
		u.freed = append(u.freed, lc)
	}
	return mapped, err
}
