package blockdev

import "sync/atomic"

// DeviceStats counts what went through a Counting device. Bytes are those
// that were really moved; an operation that failed is counted, and is also one
// of Errors.
type DeviceStats struct {
	Reads, ReadBytes       uint64
	Writes, WriteBytes     uint64
	Flushes                uint64
	Discards, DiscardBytes uint64
	Zeroes, ZeroBytes      uint64
	Errors                 uint64
}

// Counting counts the operations of the device it wraps. Its counters are
// plain atomics: one system call costs a hundred times more than one of them.
type Counting struct {
	dev Device
	c   struct {
		reads, readBytes       atomic.Uint64
		writes, writeBytes     atomic.Uint64
		flushes                atomic.Uint64
		discards, discardBytes atomic.Uint64
		zeroes, zeroBytes      atomic.Uint64
		errors                 atomic.Uint64
	}
}

// NewCounting wraps dev. Closing it closes dev.
func NewCounting(dev Device) *Counting { return &Counting{dev: dev} }

// Stats reads the counters; each is exact, together they are of no one moment.
func (c *Counting) Stats() DeviceStats {
	return DeviceStats{
		Reads: c.c.reads.Load(), ReadBytes: c.c.readBytes.Load(),
		Writes: c.c.writes.Load(), WriteBytes: c.c.writeBytes.Load(),
		Flushes:  c.c.flushes.Load(),
		Discards: c.c.discards.Load(), DiscardBytes: c.c.discardBytes.Load(),
		Zeroes: c.c.zeroes.Load(), ZeroBytes: c.c.zeroBytes.Load(),
		Errors: c.c.errors.Load(),
	}
}

func (c *Counting) failed(err error) error {
	if err != nil {
		c.c.errors.Add(1)
	}
	return err
}

func (c *Counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.dev.ReadAt(p, off)
	c.c.reads.Add(1)
	c.c.readBytes.Add(uint64(n))
	if err != nil && n == 0 && len(p) > 0 && off < c.dev.Size() {
		c.c.errors.Add(1)
	}
	return n, err
}

func (c *Counting) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.dev.WriteAt(p, off)
	c.c.writes.Add(1)
	c.c.writeBytes.Add(uint64(n))
	return n, c.failed(err)
}

func (c *Counting) Flush() error {
	c.c.flushes.Add(1)
	return c.failed(c.dev.Flush())
}

func (c *Counting) Discard(off, n int64) error {
	err := c.dev.Discard(off, n)
	c.c.discards.Add(1)
	if err == nil {
		c.c.discardBytes.Add(uint64(n))
	}
	return c.failed(err)
}

func (c *Counting) Zero(off, n int64) error {
	err := c.dev.Zero(off, n)
	c.c.zeroes.Add(1)
	if err == nil {
		c.c.zeroBytes.Add(uint64(n))
	}
	return c.failed(err)
}

func (c *Counting) Size() int64    { return c.dev.Size() }
func (c *Counting) ReadOnly() bool { return c.dev.ReadOnly() }
func (c *Counting) Close() error   { return c.dev.Close() }
