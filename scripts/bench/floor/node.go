package main

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// chunkSize is the unit in which file data is kept.
const chunkSize = 64 << 10

// node is a file or a directory. mu guards everything below it.
type node struct {
	id     uint64
	parent uint64
	nlook  atomic.Int64
	gone   atomic.Bool

	mu struct {
		sync.RWMutex
		attr    fuse.Attr
		names   map[string]*node // directories
		order   []string         // directories: names in order of creation, "" where removed
		index   map[string]int
		chunks  [][]byte // files
		target  []byte   // symlinks
		removed int
	}
}

func (n *node) isDir() bool { return n.mu.attr.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// addLocked enters a child.
func (n *node) addLocked(name string, c *node) {
	n.mu.names[name] = c
	n.mu.index[name] = len(n.mu.order)
	n.mu.order = append(n.mu.order, name)
}

// dropLocked removes a name; the slot stays, so that readdir positions do.
func (n *node) dropLocked(name string) {
	delete(n.mu.names, name)
	n.mu.order[n.mu.index[name]] = ""
	delete(n.mu.index, name)
	n.mu.removed++
	if len(n.mu.names) == 0 {
		n.mu.order, n.mu.removed = n.mu.order[:0], 0
	}
}

// writeLocked copies data to off and grows the file.
func (n *node) writeLocked(data []byte, off uint64) {
	end := off + uint64(len(data))
	for len(data) > 0 {
		i, o := int(off/chunkSize), int(off%chunkSize)
		n.growLocked(i + 1)
		if n.mu.chunks[i] == nil {
			n.mu.chunks[i] = make([]byte, chunkFor(o+len(data)))
		}
		if need := min(o+len(data), chunkSize); need > len(n.mu.chunks[i]) {
			c := make([]byte, chunkFor(need))
			copy(c, n.mu.chunks[i])
			n.mu.chunks[i] = c
		}
		k := copy(n.mu.chunks[i][o:], data)
		data, off = data[k:], off+uint64(k)
	}
	if end > n.mu.attr.Size {
		n.mu.attr.Size = end
	}
	n.mu.attr.Blocks = (n.mu.attr.Size + 511) / 512
}

// chunkFor is the buffer for a chunk that holds n bytes: small files shall not
// cost 64 KiB each.
func chunkFor(n int) int {
	for s := 4096; s < chunkSize; s *= 2 {
		if n <= s {
			return s
		}
	}
	return chunkSize
}

func (n *node) growLocked(chunks int) {
	for len(n.mu.chunks) < chunks {
		n.mu.chunks = append(n.mu.chunks, nil)
	}
}

// readLocked fills p from off; holes are zeroes.
func (n *node) readLocked(p []byte, off uint64) int {
	if off >= n.mu.attr.Size {
		return 0
	}
	p = p[:min(uint64(len(p)), n.mu.attr.Size-off)]
	total := len(p)
	for len(p) > 0 {
		i, o := int(off/chunkSize), int(off%chunkSize)
		k := min(chunkSize-o, len(p))
		copied := 0
		if i < len(n.mu.chunks) && o < len(n.mu.chunks[i]) {
			copied = copy(p[:k], n.mu.chunks[i][o:])
		}
		clear(p[copied:k])
		p, off = p[k:], off+uint64(k)
	}
	return total
}

func (n *node) truncateLocked(size uint64) {
	if keep := int((size + chunkSize - 1) / chunkSize); keep < len(n.mu.chunks) {
		clear(n.mu.chunks[keep:])
		n.mu.chunks = n.mu.chunks[:keep]
	}
	if i, o := int(size/chunkSize), int(size%chunkSize); i < len(n.mu.chunks) && o < len(n.mu.chunks[i]) {
		clear(n.mu.chunks[i][o:])
	}
	n.mu.attr.Size = size
	n.mu.attr.Blocks = (size + 511) / 512
}

func setTimes(a *fuse.Attr, in *fuse.SetAttrIn) {
	now := time.Now()
	if t, ok := in.GetATime(); ok {
		a.SetTimes(&t, nil, nil)
	}
	if t, ok := in.GetMTime(); ok {
		a.SetTimes(nil, &t, nil)
	}
	a.SetTimes(nil, nil, &now)
}
