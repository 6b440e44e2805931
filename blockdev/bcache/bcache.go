// Package bcache is the buffer cache: blocks of a device in memory, each at
// most once, found by block number. Whoever holds a pinned Buffer sees what
// everybody else sees of that block.
//
// The hit path takes no lock: buckets are chains of buffers linked by atomic
// pointers, a pin is one atomic add, and an evicted buffer is marked dead so
// that a pin that came too late is noticed and taken back. Insertion, removal
// and eviction take the lock of one shard.
//
// A buffer is evicted only when nobody pins it, it is not dirty, and no
// journal holds it. Those alone count against MaxBytes: what a journal or a
// writer must keep is kept.
//
// The content of a Buffer is not guarded by this package. Its users agree on
// who changes it (for ext4: the holder of a journal handle, under the lock of
// the object the block belongs to).
//
// Lock order:
//
//	Buffer.fill          one reader fills a buffer; held over device reads
//	  shard.mu           membership and eviction; never over I/O
//	    Buffer.Lock      JH, and the copy-out to a write; never over I/O
package bcache

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"extfused/blockdev"
)

// Options bounds a cache.
type Options struct {
	// MaxBytes is how much clean, unpinned content is kept. 0 means
	// DefaultMaxBytes.
	MaxBytes int64
}

// DefaultMaxBytes holds the metadata of a tree of some 500,000 inodes.
const DefaultMaxBytes = 128 << 20

const (
	shardBits  = 6
	shardCount = 1 << shardBits
	maxBuckets = 1 << 20
	minBuckets = 1 << 10
	maxRun     = 1 << 20 // bytes moved by one device operation
)

// Cache holds the blocks of one device.
type Cache struct {
	dev       blockdev.Device
	blockSize int
	blocks    uint64 // whole blocks the device has

	hashShift uint // turns a 64-bit hash into a bucket number
	buckets   []bucket
	shards    [shardCount]shard

	nDirty  atomic.Int64
	staging sync.Pool // *[]byte of maxRun bytes
}

type bucket struct{ head atomic.Pointer[Buffer] }

// New makes an empty cache of dev in blocks of blockSize bytes, a power of two
// of at least 512. It starts no goroutine.
func New(dev blockdev.Device, blockSize int, o Options) *Cache {
	if blockSize < 512 || blockSize&(blockSize-1) != 0 {
		panic(fmt.Sprintf("bcache: block size %d", blockSize))
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	want := int(o.MaxBytes / int64(blockSize))
	bits := uint(0)
	for 1<<bits < max(minBuckets, min(want, maxBuckets)) {
		bits++
	}
	c := &Cache{
		dev:       dev,
		blockSize: blockSize,
		blocks:    uint64(dev.Size()) / uint64(blockSize),
		hashShift: 64 - bits,
		buckets:   make([]bucket, 1<<bits),
	}
	for i := range c.shards {
		c.shards[i].limit = max(want/shardCount, 1)
	}
	c.staging.New = func() any { b := make([]byte, max(maxRun, blockSize)); return &b }
	return c
}

// BlockSize is in bytes.
func (c *Cache) BlockSize() int { return c.blockSize }

// Device is what the cache reads from and writes to.
func (c *Cache) Device() blockdev.Device { return c.dev }

// bucketOf hashes by multiplication (the golden ratio): neighbours scatter.
func (c *Cache) bucketOf(blk uint64) uint64 {
	return (blk * 0x9E3779B97F4A7C15) >> c.hashShift
}

// find returns blk pinned, or nil. It may miss a buffer that is being inserted
// or whose chain is being changed; shard.find under the lock does not.
func (c *Cache) find(blk uint64) *Buffer {
	for b := c.buckets[c.bucketOf(blk)].head.Load(); b != nil; b = b.next.Load() {
		if b.block == blk {
			if b.pin() {
				return b
			}
			return nil
		}
	}
	return nil
}

// Lookup returns blk pinned if it is cached, or nil. It does no I/O. A block
// that was prefetched and not yet verified does not count as cached.
func (c *Cache) Lookup(blk uint64) *Buffer {
	b := c.find(blk)
	if b != nil && b.state.Load() == stateUnverified {
		b.Put()
		return nil
	}
	return b
}

// Read returns blk pinned, with its content. When the content comes from the
// device, verify (which may be nil) looks at it first; if it refuses, its
// error is returned and nothing is cached. Concurrent readers of a missing
// block do one device read.
func (c *Cache) Read(blk uint64, verify func(data []byte) error) (*Buffer, error) {
	if b := c.find(blk); b != nil {
		if b.state.Load() == stateUptodate {
			return b, nil
		}
		return c.fillPinned(b, verify)
	}
	return c.readMissing(blk, verify)
}

func (c *Cache) readMissing(blk uint64, verify func(data []byte) error) (*Buffer, error) {
	if err := c.inDevice(blk, "read"); err != nil {
		return nil, err
	}
	b, fresh := c.insert(blk, true)
	if !fresh {
		return c.fillPinned(b, verify)
	}
	c.shardOf(blk).misses.Add(1)
	err := b.load(verify)
	b.fill.Unlock()
	return c.loaded(b, err)
}

// fillPinned waits for whoever is reading b, and reads itself if that failed
// or the buffer came from Get or Prefetch.
func (c *Cache) fillPinned(b *Buffer, verify func(data []byte) error) (*Buffer, error) {
	b.fill.Lock()
	err := b.load(verify)
	b.fill.Unlock()
	return c.loaded(b, err)
}

func (c *Cache) loaded(b *Buffer, err error) (*Buffer, error) {
	if err != nil {
		c.dropFailed(b)
		return nil, err
	}
	return b, nil
}

func (c *Cache) inDevice(blk uint64, op string) error {
	if blk < c.blocks {
		return nil
	}
	off := int64(-1) // block numbers of a broken image overflow a byte offset
	if blk < 1<<62/uint64(c.blockSize) {
		off = int64(blk) * int64(c.blockSize)
	}
	return &blockdev.OpError{Op: op, Off: off, Len: int64(c.blockSize), Err: blockdev.ErrRange}
}

// Get returns blk pinned without reading it. A cached block comes as it is;
// one that is not comes zeroed and not up to date: the caller fills it and
// calls SetUptodate before letting anybody find it.
func (c *Cache) Get(blk uint64) (*Buffer, error) {
	b := c.find(blk)
	if b == nil {
		if err := c.inDevice(blk, "write"); err != nil {
			return nil, err
		}
		fresh := false
		if b, fresh = c.insert(blk, false); fresh {
			return b, nil
		}
	}
	if b.state.Load() != stateUptodate {
		b.settle()
	}
	return b, nil
}

// Forget drops what is cached of blocks [blk, blk+n), which have been freed:
// clean or dirty, it will not be written. Buffers that a journal holds are
// left to it; a pinned one stays until its last Put, clean.
func (c *Cache) Forget(blk uint64, n int) {
	if n > len(c.buckets) {
		c.forgetScan(blk, uint64(n))
		return
	}
	for i := range uint64(n) {
		if b := c.find(blk + i); b != nil {
			c.forget(b)
		}
	}
}

func (c *Cache) forgetScan(blk, n uint64) {
	for _, b := range c.collect(func(b *Buffer) bool { return b.block-blk < n }) {
		c.forget(b)
	}
}

// forget drops b, on which the caller has a pin that is used up.
func (c *Cache) forget(b *Buffer) {
	b.Lock()
	free := b.JH == nil
	if free {
		b.setDirty(false)
	}
	b.Unlock()
	if free {
		c.dropIfIdle(b)
		return
	}
	b.Put()
}

// Prefetch reads those of blocks [blk, blk+n) that are not cached, one device
// read for each run of them, and does not report errors: whoever needs the
// block will meet them. It returns when the reads are done. At most a quarter
// of the cache is filled.
func (c *Cache) Prefetch(blk uint64, n int) {
	limit := c.shards[0].limit * shardCount / 4
	n = min(n, max(limit, 1))
	if blk >= c.blocks {
		return
	}
	n = int(min(uint64(n), c.blocks-blk))
	perRun := max(maxRun/c.blockSize, 1)
	run := make([]*Buffer, 0, min(n, perRun))
	for i := range uint64(n) {
		b := c.insertIfMissing(blk + i)
		if b != nil {
			run = append(run, b)
		}
		if len(run) > 0 && (b == nil || len(run) == perRun) {
			c.readRun(run)
			run = run[:0]
		}
	}
	if len(run) > 0 {
		c.readRun(run)
	}
}

func (c *Cache) insertIfMissing(blk uint64) *Buffer {
	if b := c.find(blk); b != nil {
		b.Put()
		return nil
	}
	b, fresh := c.insert(blk, true)
	if !fresh {
		b.Put()
		return nil
	}
	return b
}

// readRun fills fresh adjacent buffers, whose fill locks are held.
func (c *Cache) readRun(run []*Buffer) {
	mem := c.staging.Get().(*[]byte)
	defer c.staging.Put(mem)
	p := (*mem)[:len(run)*c.blockSize]
	_, err := c.dev.ReadAt(p, int64(run[0].block)*int64(c.blockSize))
	for i, b := range run {
		if err == nil {
			copy(b.data, p[i*c.blockSize:])
			b.state.Store(stateUnverified)
			c.shardOf(b.block).misses.Add(1)
		}
		b.fill.Unlock()
		if err != nil {
			c.dropFailed(b)
		} else {
			b.Put()
		}
	}
}

var errShort = errors.New("device gave less than a block")
