package mkfs

import (
	"encoding/binary"
	"fmt"

	"extfused/fs/ondisk"
)

// blockMap maps a file without extents: twelve blocks from the inode, then
// through one, two and three levels of indirect blocks. Blocks are taken one
// by one, each as near behind its neighbour in the map as possible, and a block
// of the map when the first one below it comes.
type blockMap struct {
	l     *layout
	goal  ondisk.FsBlock // where the first block is looked for
	per   uint64         // entries of an indirect block
	root  [15]uint32
	nodes map[uint32][]uint32
}

// direct is how many blocks an inode maps itself.
const direct = 12

func (m *blockMap) fill(f *file, n uint64) error {
	m.nodes = map[uint32][]uint32{}
	for i := range n {
		at, err := m.add(i)
		if err != nil {
			return err
		}
		if k := len(f.runs) - 1; k >= 0 && f.runs[k].end() == ondisk.FsBlock(at) {
			f.runs[k].n++
		} else {
			f.runs = append(f.runs, run{ondisk.FsBlock(at), 1})
		}
	}
	return nil
}

// add allocates logical block i, and what maps it.
func (m *blockMap) add(i uint64) (uint32, error) {
	if i < direct {
		return m.rootEntry(int(i))
	}
	i -= direct
	span := m.per
	for level := range 3 {
		if i < span {
			return m.below(level, i, span)
		}
		i -= span
		span *= m.per
	}
	return 0, fmt.Errorf("a file of %d blocks: too many for a block map", i)
}

// below goes down from the inode's entry for level (0: indirect) to block i of
// the span blocks that this one maps.
func (m *blockMap) below(level int, i, span uint64) (uint32, error) {
	at, err := m.rootEntry(direct + level)
	for err == nil && span > 1 {
		span /= m.per
		at, err = m.nodeEntry(at, int(i/span))
		i %= span
	}
	return at, err
}

// rootEntry is entry k of the inode, allocated behind the one before it.
func (m *blockMap) rootEntry(k int) (uint32, error) {
	goal := m.goal
	if k > 0 {
		goal = ondisk.FsBlock(m.root[k-1])
	}
	return m.entry(&m.root[k], goal)
}

// nodeEntry is entry k of an indirect block, allocated behind the one before
// it, or behind the block itself.
func (m *blockMap) nodeEntry(node uint32, k int) (uint32, error) {
	entries, ok := m.nodes[node]
	if !ok {
		entries = make([]uint32, m.per)
		m.nodes[node] = entries
	}
	goal := node
	if k > 0 {
		goal = entries[k-1]
	}
	return m.entry(&entries[k], ondisk.FsBlock(goal))
}

func (m *blockMap) entry(e *uint32, goal ondisk.FsBlock) (uint32, error) {
	if *e != 0 {
		return *e, nil
	}
	r, err := m.l.takeRuns(goal, 1)
	if err != nil {
		return 0, err
	}
	*e = uint32(r[0].start)
	return *e, nil
}

// encode is the content of an indirect block.
func (m *blockMap) encode(entries []uint32) []byte {
	b := make([]byte, 0, 4*len(entries))
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint32(b, e)
	}
	return b
}
