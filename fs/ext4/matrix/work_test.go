package matrix

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"sort"
	"strings"
)

// target is a file system that the workload runs on: ours in process, or the
// kernel's at a mountpoint. Paths are relative.
type target interface {
	mkdir(p string) error
	write(p string, off int64, b []byte) error // creates
	truncate(p string, size int64) error
	symlink(to, p string) error
	link(old, p string) error
	rename(old, p string) error
	remove(p string) error
	setXattr(p, name string, value []byte) error
}

// node is what the model knows of a file.
type node struct {
	kind   byte // 'd', 'f', 'l'
	data   []byte
	links  int
	xattrs map[string]string
}

// model is a target in memory, which tells how the tree has to look.
type model struct{ nodes map[string]*node }

func newModel() *model {
	return &model{map[string]*node{".": {kind: 'd', links: 3}, "lost+found": {kind: 'd', links: 2}}} // lost+found counts
}

func (m *model) add(p string, n *node) error {
	n.xattrs = map[string]string{}
	m.nodes[p] = n
	return nil
}

func (m *model) mkdir(p string) error {
	m.nodes[path.Dir(p)].links++
	return m.add(p, &node{kind: 'd', links: 2})
}

func (m *model) write(p string, off int64, b []byte) error {
	if m.nodes[p] == nil {
		m.add(p, &node{kind: 'f', links: 1})
	}
	n := m.nodes[p]
	if end := int(off) + len(b); end > len(n.data) {
		n.data = append(n.data, make([]byte, end-len(n.data))...)
	}
	copy(n.data[off:], b)
	return nil
}

func (m *model) truncate(p string, size int64) error {
	n := m.nodes[p]
	n.data = append(n.data[:min(len(n.data), int(size))], make([]byte, max(0, int(size)-len(n.data)))...)
	return nil
}

func (m *model) symlink(to, p string) error {
	return m.add(p, &node{kind: 'l', links: 1, data: []byte(to)})
}

func (m *model) link(old, p string) error {
	m.nodes[old].links++
	m.nodes[p] = m.nodes[old]
	return nil
}

// rename takes the entries below a directory along, and its parents' links.
func (m *model) rename(old, p string) error {
	if n := m.nodes[p]; n != nil {
		n.links--
	}
	m.nodes[p] = m.nodes[old]
	delete(m.nodes, old)
	if m.nodes[p].kind != 'd' {
		return nil
	}
	m.nodes[path.Dir(old)].links--
	m.nodes[path.Dir(p)].links++
	for q, n := range m.nodes {
		if rest, ok := strings.CutPrefix(q, old+"/"); ok {
			delete(m.nodes, q)
			m.nodes[p+"/"+rest] = n
		}
	}
	return nil
}

func (m *model) remove(p string) error {
	if m.nodes[p].kind == 'd' {
		m.nodes[path.Dir(p)].links--
	}
	m.nodes[p].links--
	delete(m.nodes, p)
	return nil
}

func (m *model) setXattr(p, name string, value []byte) error {
	m.nodes[p].xattrs[name] = string(value)
	return nil
}

// line tells all of a node that both sides have to agree on.
func line(p string, kind byte, links int, data []byte, xattrs map[string]string) string {
	names := make([]string, 0, len(xattrs))
	for n := range xattrs {
		names = append(names, fmt.Sprintf("%s=%x", n, hash([]byte(xattrs[n]))))
	}
	sort.Strings(names)
	return fmt.Sprintf("%s %c links %d size %d %x %v", p, kind, links, len(data), hash(data), names)
}

func (m *model) lines() []string {
	var out []string
	for p, n := range m.nodes {
		if p != "lost+found" {
			out = append(out, line(p, n.kind, n.links, n.data, n.xattrs))
		}
	}
	sort.Strings(out)
	return out
}

// limits are what a row's image allows.
type limits struct {
	blockSize int
	names     int // of the large directory
	value     int // bytes of a large attribute
}

// both runs an operation on the file system and in the model.
type both struct {
	t   target
	m   *model
	err error
}

func (b *both) do(what string, err error) bool {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s: %w", what, err)
	}
	return b.err == nil
}

func (b *both) mkdir(p string) {
	if b.err == nil && b.do("mkdir "+p, b.t.mkdir(p)) {
		b.m.mkdir(p)
	}
}

func (b *both) write(p string, off int64, d []byte) {
	if b.err == nil && b.do(fmt.Sprintf("write %s at %d", p, off), b.t.write(p, off, d)) {
		b.m.write(p, off, d)
	}
}

func (b *both) truncate(p string, size int64) {
	if b.err == nil && b.do("truncate "+p, b.t.truncate(p, size)) {
		b.m.truncate(p, size)
	}
}

func (b *both) symlink(to, p string) {
	if b.err == nil && b.do("symlink "+p, b.t.symlink(to, p)) {
		b.m.symlink(to, p)
	}
}

func (b *both) link(old, p string) {
	if b.err == nil && b.do("link "+p, b.t.link(old, p)) {
		b.m.link(old, p)
	}
}

func (b *both) rename(old, p string) {
	if b.err == nil && b.do("rename "+old, b.t.rename(old, p)) {
		b.m.rename(old, p)
	}
}

func (b *both) remove(p string) {
	if b.err == nil && b.do("remove "+p, b.t.remove(p)) {
		b.m.remove(p)
	}
}

func (b *both) setXattr(p, name string, v []byte) {
	if b.err == nil && b.do("setxattr "+p, b.t.setXattr(p, name, v)) {
		b.m.setXattr(p, name, v)
	}
}

func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// first is the workload on a fresh image.
func first(b *both, l limits) {
	nested(b)
	contents(b)
	small(b)
	names(b, l)
	attributes(b, l)
}

// nested makes directories in directories, with a file in each.
func nested(b *both) {
	p := "nested"
	for i := range 12 {
		b.mkdir(p)
		b.write(p+"/file", 0, []byte(strings.Repeat("x", 10*i)))
		p += fmt.Sprintf("/d%d", i)
	}
}

// contents makes a large file in pieces, and a sparse one.
func contents(b *both) {
	big := noise(1, 3<<20)
	for off := 0; off < len(big); off += 100003 {
		b.write("big", int64(off), big[off:min(off+100003, len(big))])
	}
	b.write("big", 1234567, []byte("overwritten"))
	for i, off := range []int64{0, 1<<20 + 13, 9 << 20, 10<<20 - 1} {
		b.write("sparse", off, noise(uint64(10+i), 5000))
	}
	b.truncate("sparse", 12<<20+7)
	b.write("shrunk", 0, noise(20, 300000))
	b.truncate("shrunk", 12345)
	b.truncate("shrunk", 20000)
}

// small makes 200 small files, removes every second one, and renames over
// others.
func small(b *both) {
	b.mkdir("small")
	for i := range 200 {
		b.write(fmt.Sprintf("small/%03d", i), 0, noise(uint64(i), i*37))
	}
	for i := 0; i < 200; i += 2 {
		b.remove(fmt.Sprintf("small/%03d", i))
	}
	for i := 1; i < 60; i += 2 {
		b.write("small/new", 0, noise(uint64(1000+i), 5*i))
		b.rename("small/new", fmt.Sprintf("small/%03d", i))
	}
	b.mkdir("small/empty")
	b.rename("small/empty", "moved")
	b.mkdir("small/gone")
	b.remove("small/gone")
}

// names makes symlinks of every kind, the longest names, hard links, and a
// large directory.
func names(b *both, l limits) {
	for _, n := range []int{1, 59, 60, 61, 4000} {
		if n < l.blockSize {
			b.symlink(strings.Repeat("t", n), fmt.Sprintf("symlink%d", n))
		}
	}
	b.write(strings.Repeat("n", 255), 0, []byte("long name"))
	b.write("with\nodd \xff\x01bytes", 0, nil)
	b.mkdir("many")
	b.write("many/first", 0, []byte("one of many"))
	for i := range l.names {
		p := fmt.Sprintf("many/name-%05d", i)
		if i%20 == 0 {
			b.write(p, 0, nil)
		} else {
			b.link("many/first", p)
		}
	}
	for i := 0; i < l.names; i += 3 {
		b.remove(fmt.Sprintf("many/name-%05d", i))
	}
}

func attributes(b *both, l limits) {
	b.setXattr("big", "user.small", []byte("value"))
	b.setXattr("big", "user.empty", nil)
	b.setXattr("small/001", "user.large", noise(30, l.value))
	b.setXattr("nested", "user.dir", noise(31, 100))
	b.setXattr("nested", "user.dir", noise(32, 40))
}

// second changes what the other side has made.
func second(b *both, l limits) {
	b.write("big", 3<<20-5, noise(40, 100000))
	b.write("sparse", 5<<20, noise(41, 70000))
	b.truncate("sparse", 11<<20)
	b.remove("shrunk")
	for i := 61; i < 100; i += 2 {
		b.remove(fmt.Sprintf("small/%03d", i))
	}
	for i := range 50 {
		b.write(fmt.Sprintf("small/more-%d", i), 0, noise(uint64(50+i), 3000))
	}
	for i := 1; i < l.names; i += 3 {
		b.remove(fmt.Sprintf("many/name-%05d", i))
	}
	for i := range l.names / 10 {
		b.link("many/first", fmt.Sprintf("many/again-%05d", i))
	}
	b.rename("nested/d0/d1", "moved/deep")
	b.remove(strings.Repeat("n", 255))
	b.setXattr("small/003", "user.large", noise(33, l.value))
	b.setXattr("big", "user.small", bytes.Repeat([]byte("longer "), 20))
}
