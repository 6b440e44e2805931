package crashtest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// wordSize is the unit of content: file id and operation, 4 bytes each.
const wordSize = 8

// node is a file of the model.
type node struct {
	id     uint32
	ino    ondisk.InodeNumber
	kind   byte // 'f', 'd', 'l'
	nlink  int
	size   int64
	words  []uint32 // operation that wrote each word, 0 for zeroes; never changed in place
	target string
	xattrs map[string]string
	kids   map[string]*node
	open   *ext4.File

	lastMeta int // last operation that changed the inode or a name of it
	lastData int // last operation that changed content, size or mapping
}

// version is what a path was after an operation.
type version struct {
	id     uint32
	kind   byte
	nlink  int
	size   int64
	words  []uint32
	target string
	xattrs string
}

// state is the tree after an operation.
type state struct {
	print [32]byte
	paths map[string]version
	byID  map[uint32]version
}

func (n *node) version() version {
	var x []string
	for _, k := range slices.Sorted(maps.Keys(n.xattrs)) {
		x = append(x, k+"="+n.xattrs[k])
	}
	return version{n.id, n.kind, n.nlink, n.size, n.words, n.target, strings.Join(x, ";")}
}

// capture takes the tree below root, and files that are open without a name.
func capture(root *node, orphans []*node) *state {
	s := &state{paths: map[string]version{}, byID: map[uint32]version{}}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		v := n.version()
		s.paths[path], s.byID[v.id] = v, v
		for name, k := range n.kids {
			walk(path+"/"+name, k)
		}
	}
	walk("", root)
	for _, n := range orphans {
		s.byID[n.id] = n.version()
	}
	s.print = fingerprint(s.paths)
	return s
}

// fingerprint sums up names, kinds, links, targets, xattrs and which paths are
// one file; not sizes and content.
func fingerprint(paths map[string]version) [32]byte {
	h := sha256.New()
	first := map[uint32]string{}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		v := paths[p]
		if first[v.id] == "" {
			first[v.id] = p
		}
		fmt.Fprintf(h, "%q %c %d %q %q %q\n", p, v.kind, v.nlink, v.target, v.xattrs, first[v.id])
	}
	return [32]byte(h.Sum(nil))
}

// word is the content of a version at a word's index; past the end zero.
func (v version) word(i int) uint32 {
	if i < len(v.words) && int64(i)*wordSize < v.size {
		return v.words[i]
	}
	return 0
}

// resized returns the words for a new size in bytes: what is cut is gone.
func resized(words []uint32, size int64) []uint32 {
	n := make([]uint32, (size+wordSize-1)/wordSize)
	copy(n, words)
	return n
}
