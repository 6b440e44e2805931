// Package simdisk is the other side of the allocator's two interfaces without a file system: block
// bitmaps in memory, and transactions that are no more than a number. Tests and benchmarks of
// mballoc run on it.
package simdisk

import (
	"bytes"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"extfused/mballoc"
)

// Disk holds the "on-disk" bitmaps. A group's bitmap exists only once it is partly used, so a disk
// of 131,072 groups is cheap.
type Disk struct {
	geo    mballoc.Geometry
	groups []group
	tid    atomic.Uint32

	// ReadErr, if set, is asked before every ReadBitmap.
	ReadErr func(g mballoc.GroupNumber) error
	// MarkErr, if set, is asked before every MarkUsed and MarkFree.
	MarkErr func(g mballoc.GroupNumber) error

	Reads, Prefetches atomic.Uint64 // bitmaps read; groups prefetched
}

type group struct {
	bits []byte // nil: all free or all used, as free says
	free atomic.Uint32
	len  uint32
}

// New makes a disk with all clusters free and transaction 1 running.
func New(geo mballoc.Geometry) *Disk {
	d := &Disk{geo: geo, groups: make([]group, geo.Groups)}
	left := geo.Clusters
	for i := range d.groups {
		n := uint32(min(left, uint64(geo.ClustersPerGroup)))
		d.groups[i].len = n
		d.groups[i].free.Store(n)
		left -= uint64(n)
	}
	d.tid.Store(1)
	return d
}

// Fill makes every cluster of a group used. Only before an allocator sees the disk, as SetUsed.
func (d *Disk) Fill(g mballoc.GroupNumber) {
	d.groups[g].bits = nil
	d.groups[g].free.Store(0)
}

// SetUsed marks clusters used that are free.
func (d *Disk) SetUsed(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) {
	if err := d.mark(g, start, n, true); err != nil {
		panic(err)
	}
}

// SetFree marks clusters free that are used.
func (d *Disk) SetFree(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) {
	if err := d.mark(g, start, n, false); err != nil {
		panic(err)
	}
}

// TID is the running transaction.
func (d *Disk) TID() uint32 { return d.tid.Load() }

// NextTID ends the running transaction, starts the next and returns the one that ended.
func (d *Disk) NextTID() uint32 { return d.tid.Add(1) - 1 }

// Used tells whether a cluster is in use on disk. Not safe while marks run.
func (d *Disk) Used(g mballoc.GroupNumber, c uint32) bool {
	gr := &d.groups[g]
	if gr.bits == nil {
		return gr.free.Load() == 0
	}
	return gr.bits[c/8]>>(c%8)&1 != 0
}

// ReadBitmap implements mballoc.GroupReader.
func (d *Disk) ReadBitmap(g mballoc.GroupNumber, dst []byte) error {
	if d.ReadErr != nil {
		if err := d.ReadErr(g); err != nil {
			return err
		}
	}
	d.Reads.Add(1)
	gr := &d.groups[g]
	if gr.bits != nil {
		copy(dst, gr.bits)
		return nil
	}
	fill := byte(0)
	if gr.free.Load() == 0 {
		fill = 0xff
	}
	for i := range dst {
		dst[i] = fill
	}
	return nil
}

// FreeClusters implements mballoc.GroupReader.
func (d *Disk) FreeClusters(g mballoc.GroupNumber) uint32 { return d.groups[g].free.Load() }

// Uninit implements mballoc.GroupReader: groups that were never written cost no read.
func (d *Disk) Uninit(g mballoc.GroupNumber) bool { return false }

// Prefetch implements mballoc.GroupReader; there is nothing to read ahead.
func (d *Disk) Prefetch(g mballoc.GroupNumber, n int) { d.Prefetches.Add(uint64(n)) }

func (d *Disk) mark(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32, used bool) error {
	gr := &d.groups[g]
	if uint32(start)+n > gr.len || n == 0 {
		return fmt.Errorf("simdisk: group %d: mark %d+%d of %d", g, start, n, gr.len)
	}
	if gr.bits == nil {
		gr.bits = make([]byte, d.geo.ClustersPerGroup/8)
		if gr.free.Load() == 0 {
			for i := range gr.bits {
				gr.bits[i] = 0xff
			}
		}
	}
	if !flip(gr.bits, uint32(start), n, used) {
		return fmt.Errorf("simdisk: group %d: clusters %d+%d are not all %v", g, start, n, map[bool]string{true: "free", false: "used"}[used])
	}
	if used {
		gr.free.Add(-n)
	} else {
		gr.free.Add(n)
	}
	return nil
}

// flip sets or clears n bits from start; it changes nothing and reports false when one of them is
// so already.
func flip(b []byte, start, n uint32, used bool) bool {
	want := byte(0)
	if !used {
		want = 0xff
	}
	each(start, n, func(i uint32, mask byte) bool {
		if (b[i]^want)&mask != 0 {
			n = 0
		}
		return n != 0
	})
	if n == 0 {
		return false
	}
	each(start, n, func(i uint32, mask byte) bool { b[i] ^= mask; return true })
	return true
}

// each calls fn with every byte and the bits in it that [start, start+n) covers.
func each(start, n uint32, fn func(i uint32, mask byte) bool) {
	for n > 0 {
		off := start & 7
		k := min(8-off, n)
		if !fn(start>>3, byte((1<<k-1)<<off)) {
			return
		}
		start, n = start+k, n-k
	}
}

// CountUsed is the number of used clusters of a group by its bits. Not safe while marks run.
func (d *Disk) CountUsed(g mballoc.GroupNumber) uint32 {
	gr := &d.groups[g]
	if gr.bits == nil {
		return gr.len - gr.free.Load()
	}
	var c int
	for _, b := range gr.bits {
		c += bits.OnesCount8(b)
	}
	return uint32(c)
}

// Tx is a Marker: a handle of a transaction.
type Tx struct {
	D  *Disk
	ID uint32
}

// Begin joins the running transaction.
func (d *Disk) Begin() *Tx { return &Tx{d, d.TID()} }

// TID implements mballoc.Marker.
func (t *Tx) TID() uint32 { return t.ID }

// MarkUsed implements mballoc.Marker.
func (t *Tx) MarkUsed(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) error {
	return t.mark(g, start, n, true)
}

// MarkFree implements mballoc.Marker.
func (t *Tx) MarkFree(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32) error {
	return t.mark(g, start, n, false)
}

func (t *Tx) mark(g mballoc.GroupNumber, start mballoc.GrpCluster, n uint32, used bool) error {
	if t.D.MarkErr != nil {
		if err := t.D.MarkErr(g); err != nil {
			return err
		}
	}
	return t.D.mark(g, start, n, used)
}

// Journal makes commits wait for the operations in progress, as a journal waits for its handles: Op
// runs fn inside the running transaction, Commit ends that and releases what it freed.
type Journal struct {
	D  *Disk
	A  *mballoc.Allocator
	mu sync.RWMutex
	cm sync.Mutex // one commit at a time
}

// Op runs fn with a handle.
func (j *Journal) Op(fn func(*Tx) error) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return fn(j.D.Begin())
}

// Commit commits the running transaction.
func (j *Journal) Commit(discard func(start mballoc.Cluster, n uint32)) {
	j.cm.Lock()
	defer j.cm.Unlock()
	j.mu.Lock()
	tid := j.D.NextTID()
	j.mu.Unlock()
	j.A.Committed(tid, discard)
}

// Bitmap returns a copy of a group's on-disk bitmap. Not safe while marks run.
func (d *Disk) Bitmap(g mballoc.GroupNumber) []byte {
	b := make([]byte, d.geo.ClustersPerGroup/8)
	if gr := &d.groups[g]; gr.bits != nil {
		copy(b, gr.bits)
	} else if gr.free.Load() == 0 {
		for i := range b {
			b[i] = 0xff
		}
	}
	return b
}

// Equal compares a group's on-disk bitmap with want. Not safe while marks run.
func (d *Disk) Equal(g mballoc.GroupNumber, want []byte) bool {
	if gr := &d.groups[g]; gr.bits != nil {
		return bytes.Equal(gr.bits, want)
	}
	return bytes.Equal(d.Bitmap(g), want)
}
