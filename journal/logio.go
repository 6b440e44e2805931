package journal

import (
	"io"
	"sort"

	"extfused/blockdev"
)

// Run is a piece of the log's place: Len blocks from Block of the device on.
type Run struct {
	Block uint64
	Len   uint32
}

// logMap turns blocks of the log into places on its device. It is constant.
type logMap struct {
	dev       blockdev.Device
	blockSize int
	runs      []Run
	starts    []uint32 // first log block of each run
	total     uint32   // blocks of all runs
}

// newLogMap checks that the runs lie on the device and number at most 2^32-1
// blocks.
func newLogMap(dev blockdev.Device, blockSize int, runs []Run) (*logMap, error) {
	if blockSize <= 0 {
		return nil, superError("block size %d", blockSize)
	}
	m := &logMap{dev: dev, blockSize: blockSize, runs: runs, starts: make([]uint32, len(runs))}
	devBlocks := uint64(max(dev.Size(), 0)) / uint64(blockSize)
	total := uint64(0)
	for i, r := range runs {
		if uint64(r.Len) > devBlocks || r.Block > devBlocks-uint64(r.Len) {
			return nil, &CorruptError{What: "the log reaches beyond its device", Block: uint32(total),
				Home: r.Block, HasHome: true}
		}
		m.starts[i] = uint32(total)
		if total += uint64(r.Len); total > 1<<32-1 {
			return nil, superError("log has more than 2^32 blocks")
		}
	}
	m.total = uint32(total)
	if m.total == 0 {
		return nil, superError("the log has no blocks")
	}
	return m, nil
}

// place returns the byte offset of log block blk, and how many blocks from it
// on are adjacent. blk is less than total.
func (m *logMap) place(blk uint32) (off int64, n uint32) {
	i := 0
	if len(m.runs) > 1 {
		i = sort.Search(len(m.starts), func(i int) bool { return m.starts[i] > blk }) - 1
		for m.runs[i].Len == 0 {
			i-- // an empty run shares its start with the next one
		}
	}
	skip := blk - m.starts[i]
	return int64(m.runs[i].Block+uint64(skip)) * int64(m.blockSize), m.runs[i].Len - skip
}

// read fills p, whole blocks, from the log blocks that follow blk. It does not
// wrap: the caller stays below the end of the log.
func (m *logMap) read(p []byte, blk uint32) error {
	return m.each(p, blk, func(part []byte, off int64) error {
		n, err := m.dev.ReadAt(part, off)
		if n == len(part) {
			return nil
		}
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// write writes p, whole blocks, to the log blocks that follow blk.
func (m *logMap) write(p []byte, blk uint32) error {
	return m.each(p, blk, func(part []byte, off int64) error {
		_, err := m.dev.WriteAt(part, off)
		return err
	})
}

func (m *logMap) each(p []byte, blk uint32, fn func(part []byte, off int64) error) error {
	for len(p) > 0 {
		if blk >= m.total {
			return &CorruptError{What: "access beyond the end of the log", Block: blk}
		}
		off, run := m.place(blk)
		n := len(p)
		if most := int64(run) * int64(m.blockSize); int64(n) > most {
			n = int(most)
		}
		if err := fn(p[:n], off); err != nil {
			return err
		}
		blk += uint32(n / m.blockSize)
		p = p[n:]
	}
	return nil
}

// contains says whether blk of the file system belongs to the log; only
// meaningful when both are on the same device.
func (m *logMap) contains(blk uint64) bool {
	for _, r := range m.runs {
		if blk-r.Block < uint64(r.Len) {
			return true
		}
	}
	return false
}
