package blockdev

import (
	"io"
	"slices"
	"sync"
)

// An Overlay keeps what is written to it in memory, in chunks, and reads the
// rest from its base, or as zeroes if there is none:
//
//	device   |............ region 0 .............|... region 1 ...|
//	region   |chunk|chunk| nil |chunk| nil |  ...   64 of them    |
//	              nil: hidden bit set -> zeroes, clear -> the base
//
// Regions are found in maps, sharded by region number, so memory is used for
// what was written alone and a device of many TiB costs nothing.
const (
	chunkSize    = 4096
	regionChunks = 64
	regionSize   = chunkSize * regionChunks
	overlayParts = 16
)

// Overlay is a copy-on-write device in memory. Its base is never written.
type Overlay struct {
	base   Device // nil: all zeroes
	size   int64
	shards [overlayParts]overlayShard
}

type overlayShard struct {
	mu      sync.RWMutex
	regions map[int64]*region // +checklocks:mu
	_       [32]byte
}

type region struct {
	chunk  [regionChunks]*[chunkSize]byte
	hidden uint64 // bit c: a missing chunk c is zeroes, whatever the base says
}

// NewMem makes a device of size zero bytes in memory.
func NewMem(size int64) *Overlay { return newOverlay(nil, size) }

// NewOverlay makes a writable view of base whose changes stay in memory.
// Closing the overlay closes base.
func NewOverlay(base Device) *Overlay { return newOverlay(base, base.Size()) }

func newOverlay(base Device, size int64) *Overlay {
	o := &Overlay{base: base, size: size}
	for i := range o.shards {
		o.shards[i].regions = make(map[int64]*region)
	}
	return o
}

func (o *Overlay) shard(reg int64) *overlayShard { return &o.shards[reg%overlayParts] }

func (o *Overlay) Size() int64    { return o.size }
func (o *Overlay) ReadOnly() bool { return false }
func (o *Overlay) Flush() error   { return nil }

// Close forgets what was written.
func (o *Overlay) Close() error {
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		clear(s.regions)
		s.mu.Unlock()
	}
	if o.base != nil {
		return o.base.Close()
	}
	return nil
}

// MemoryUsed is the number of bytes held for changed chunks.
func (o *Overlay) MemoryUsed() int64 {
	var n int64
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.RLock()
		for _, r := range s.regions {
			for _, c := range r.chunk {
				if c != nil {
					n += chunkSize
				}
			}
		}
		s.mu.RUnlock()
	}
	return n
}

// span cuts [off, off+n) at the end of the region off lies in.
func span(off, n int64) (reg, within, length int64) {
	reg, within = off/regionSize, off%regionSize
	return reg, within, min(n, regionSize-within)
}

func (o *Overlay) ReadAt(p []byte, off int64) (int, error) {
	p, end := clipRead(p, off, o.size)
	done := 0
	for done < len(p) {
		reg, within, n := span(off+int64(done), int64(len(p)-done))
		m, err := o.readRegion(p[done:done+int(n)], reg, within)
		done += m
		if err != nil {
			return done, err
		}
	}
	return done, end
}

func (o *Overlay) readRegion(p []byte, reg, within int64) (int, error) {
	s := o.shard(reg)
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.regions[reg]
	if r == nil {
		return o.readBase(p, reg*regionSize+within)
	}
	done := 0
	for done < len(p) {
		c, from := within/chunkSize, within%chunkSize
		n := min(int64(len(p)-done), chunkSize-from)
		part := p[done : done+int(n)]
		switch {
		case r.chunk[c] != nil:
			copy(part, r.chunk[c][from:])
		case r.hidden>>c&1 != 0:
			clear(part)
		default:
			if m, err := o.readBase(part, reg*regionSize+within); err != nil {
				return done + m, err
			}
		}
		done, within = done+int(n), within+n
	}
	return done, nil
}

// readBase fills p, which lies inside the device.
func (o *Overlay) readBase(p []byte, off int64) (int, error) {
	if o.base == nil {
		clear(p)
		return len(p), nil
	}
	n, err := o.base.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == io.EOF {
		err = opError("read", off, int64(len(p)), io.ErrUnexpectedEOF)
	}
	return n, err
}

func (o *Overlay) WriteAt(p []byte, off int64) (int, error) {
	if err := checkRange("write", off, int64(len(p)), o.size); err != nil {
		return 0, err
	}
	done := 0
	for done < len(p) {
		reg, within, n := span(off+int64(done), int64(len(p)-done))
		if err := o.writeRegion(p[done:done+int(n)], reg, within); err != nil {
			return done, err
		}
		done += int(n)
	}
	return done, nil
}

func (o *Overlay) writeRegion(p []byte, reg, within int64) error {
	s := o.shard(reg)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regions[reg]
	if r == nil {
		r = new(region)
		s.regions[reg] = r
	}
	for len(p) > 0 {
		c, from := within/chunkSize, within%chunkSize
		n := min(int64(len(p)), chunkSize-from)
		if err := o.ownChunk(r, reg, c, n == chunkSize); err != nil {
			return err
		}
		copy(r.chunk[c][from:], p[:n])
		p, within = p[n:], within+n
	}
	return nil
}

// ownChunk gives region r a chunk c of its own, with the content it has now
// unless it is about to be overwritten whole.
func (o *Overlay) ownChunk(r *region, reg, c int64, whole bool) error {
	if r.chunk[c] != nil {
		return nil
	}
	b := new([chunkSize]byte)
	if !whole && o.base != nil && r.hidden>>c&1 == 0 {
		off := reg*regionSize + c*chunkSize
		if _, err := o.readBase(b[:min(chunkSize, o.size-off)], off); err != nil {
			return err
		}
	}
	r.chunk[c] = b
	return nil
}

// Discard frees the memory of the range; it reads as zeroes afterwards.
func (o *Overlay) Discard(off, n int64) error {
	if err := checkRange("discard", off, n, o.size); err != nil {
		return err
	}
	return o.Zero(off, n)
}

func (o *Overlay) Zero(off, n int64) error {
	if err := checkRange("zero", off, n, o.size); err != nil {
		return err
	}
	if o.base == nil && n > regionSize {
		var err error
		if off, n, err = o.zeroInside(off, n); err != nil {
			return err
		}
	}
	for n > 0 {
		reg, within, m := span(off, n)
		if err := o.zeroRegion(reg, within, m); err != nil {
			return err
		}
		off, n = off+m, n-m
	}
	return nil
}

// zeroInside drops the whole regions of a range of a device without a base,
// by looking at those that exist, and zeroes what comes before them; the
// range after them is returned.
func (o *Overlay) zeroInside(off, n int64) (int64, int64, error) {
	first, last := (off+regionSize-1)/regionSize, (off+n)/regionSize
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.Lock()
		for reg := range s.regions {
			if reg >= first && reg < last {
				delete(s.regions, reg)
			}
		}
		s.mu.Unlock()
	}
	if head := first*regionSize - off; head > 0 {
		if err := o.zeroRegion(off/regionSize, off%regionSize, head); err != nil {
			return 0, 0, err
		}
	}
	return last * regionSize, off + n - last*regionSize, nil
}

func (o *Overlay) zeroRegion(reg, within, n int64) error {
	s := o.shard(reg)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regions[reg]
	if r == nil {
		if o.base == nil {
			return nil
		}
		r = new(region)
		s.regions[reg] = r
	}
	for n > 0 {
		c, from := within/chunkSize, within%chunkSize
		m := min(n, chunkSize-from)
		if err := o.zeroChunk(r, reg, c, from, m); err != nil {
			return err
		}
		within, n = within+m, n-m
	}
	return nil
}

func (o *Overlay) zeroChunk(r *region, reg, c, from, n int64) error {
	gone := r.chunk[c] == nil && (o.base == nil || r.hidden>>c&1 != 0)
	switch {
	case gone:
	case n == chunkSize:
		r.chunk[c], r.hidden = nil, r.hidden|1<<c
	default:
		if err := o.ownChunk(r, reg, c, false); err != nil {
			return err
		}
		clear(r.chunk[c][from : from+n])
	}
	return nil
}

// Changed lists, ascending, the offsets of all chunks of ChangedUnit bytes that
// may differ from the base.
func (o *Overlay) Changed() []int64 {
	var offs []int64
	for i := range o.shards {
		s := &o.shards[i]
		s.mu.RLock()
		for reg, r := range s.regions {
			for c := range r.chunk {
				if r.chunk[c] != nil || r.hidden>>c&1 != 0 {
					offs = append(offs, reg*regionSize+int64(c)*chunkSize)
				}
			}
		}
		s.mu.RUnlock()
	}
	slices.Sort(offs)
	return offs
}

// ChangedUnit is the size of what Changed lists.
const ChangedUnit = chunkSize
