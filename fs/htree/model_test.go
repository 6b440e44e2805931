package htree

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"extfused/fs/ondisk"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the model test, 0: from the clock")

// shape is one kind of file system and of names.
type shape struct {
	params Params
	ops    int
	namer  func(r *rand.Rand) string
	room   int // blocks, 0: no limit
}

func (s *shape) String() string {
	p := s.params
	return fmt.Sprintf("bs%d,csum=%v,index=%v,large=%v,hash%d", p.BlockSize, p.HasCsum, p.DirIndex, p.LargeDir, p.HashVersion)
}

// namesOf draws from n names, whose lengths are between 1 and long.
func namesOf(n, long int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		i := r.IntN(n)
		k := rand.New(rand.NewPCG(uint64(i), 7)).IntN(long)
		return fmt.Sprintf("%x%s", i, strings.Repeat("n", k))[:min(MaxNameLen, k+len(fmt.Sprintf("%x", i)))]
	}
}

func collisions(t testing.TB) []string {
	b, err := os.ReadFile("testdata/legacy_collisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// collidingNames mixes names of one legacy hash with others.
func collidingNames(t testing.TB) func(*rand.Rand) string {
	same, other := collisions(t), namesOf(300, 30)
	return func(r *rand.Rand) string {
		if r.IntN(3) == 0 {
			return other(r)
		}
		return same[r.IntN(len(same))]
	}
}

// TestModel runs random operations beside a map.
func TestModel(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	md4 := func(bs int) Params {
		return Params{BlockSize: bs, HasCsum: true, FileType: true, DirIndex: true, HashVersion: ondisk.HashHalfMD4}
	}
	plain := func(bs int) Params { return Params{BlockSize: bs, HasCsum: bs > 1024, FileType: true} }
	tea := Params{BlockSize: 2048, DirIndex: true, HashVersion: ondisk.HashTea, Unsigned: true, LargeDir: true}
	legacy := func(bs int) Params { return Params{BlockSize: bs, HasCsum: true, DirIndex: true, FileType: true} }
	deep := md4(1024)
	deep.LargeDir = true
	shapes := []shape{
		{md4(1024), 6000, namesOf(500, 255), 0},
		{md4(1024), 6000, namesOf(40, 20), 0},
		{md4(4096), 20000, namesOf(5000, 40), 0},
		{md4(4096), 20000, namesOf(5000, 40), 20},
		{md4(16384), 10000, namesOf(5000, 40), 0},
		{md4(65536), 10000, namesOf(9000, 60), 0},
		{plain(1024), 4000, namesOf(200, 200), 0},
		{plain(4096), 4000, namesOf(600, 40), 0},
		{plain(65536), 3000, namesOf(2000, 255), 0},
		{tea, 10000, namesOf(3000, 100), 0},
		{legacy(1024), 8000, collidingNames(t), 0},
		{legacy(4096), 8000, collidingNames(t), 0},
		{deep, 15000, namesOf(3000, 255), 0},
	}
	for i := range shapes {
		s := &shapes[i]
		t.Run(s.String(), func(t *testing.T) { newModel(t, s, seed+uint64(i)).run() })
	}
}

// reader is someone who lists the directory while it changes.
type reader struct {
	cookie uint64
	stayed map[string]bool // names there since it began: seen or not
	seen   map[string]int
}

type model struct {
	t       *testing.T
	s       *shape
	r       *rand.Rand
	d       *Dir
	m       *memStore
	names   map[string]ondisk.InodeNumber
	readers []*reader
	grow    bool
}

func newModel(t *testing.T, s *shape, seed uint64) *model {
	m := newMemStore(t, s.params.BlockSize)
	m.room = s.room
	s.params.MaxInode = 1 << 20
	s.params.HashSeed = [4]uint32{uint32(seed), 2, 3, 4}
	d := &Dir{Params: &s.params, Store: m, Ino: 2}
	if err := d.InitEmpty(2, 5); err != nil {
		t.Fatal(err)
	}
	m.end()
	return &model{t: t, s: s, r: rand.New(rand.NewPCG(seed, 1)), d: d, m: m,
		names: map[string]ondisk.InodeNumber{".": 2, "..": 5}, grow: true}
}

func (m *model) run() {
	for i := range m.s.ops {
		if i%(m.s.ops/6+1) == 0 {
			m.grow = !m.grow || i == 0
			m.check()
		}
		m.step()
		m.m.end()
		if m.d.NBlocks != ondisk.LBlock(len(m.m.blocks)) {
			m.t.Fatalf("NBlocks %d, store has %d", m.d.NBlocks, len(m.m.blocks))
		}
	}
	m.check()
	for range 200 {
		m.read()
	}
	m.t.Logf("%d names, %d blocks, indexed %v", len(m.names), len(m.m.blocks), m.d.Indexed)
}

func (m *model) step() {
	name := m.s.namer(m.r)
	ino := ondisk.InodeNumber(m.r.IntN(1<<20) + 1)
	switch k := m.r.IntN(100); {
	case k < 10:
		m.lookup(name)
	case k < 15:
		m.set(name, ino)
	case k < 17:
		m.set("..", ino)
	case k < 27:
		m.read()
	case k < 80 == m.grow:
		m.insert(name, ino)
	default:
		m.remove(name)
	}
}

// typeOf gives each inode number a type, so that types are checked as well.
func (m *model) typeOf(ino ondisk.InodeNumber) uint8 {
	if !m.s.params.FileType {
		return ondisk.FtUnknown
	}
	return uint8(ino%7) + 1
}

func (m *model) lookup(name string) {
	ino, ft, err := m.d.Lookup(name)
	want, ok := m.names[name]
	if !ok {
		if err != ErrNotFound {
			m.t.Fatalf("Lookup(%q) = %d, %v; it is not there", name, ino, err)
		}
		return
	}
	if err != nil || ino != want || ft != m.typeOf(want) && name[0] != '.' {
		m.t.Fatalf("Lookup(%q) = %d, %d, %v; want %d", name, ino, ft, err, want)
	}
}

func (m *model) set(name string, ino ondisk.InodeNumber) {
	err := m.d.Set(name, ino, m.typeOf(ino))
	if _, ok := m.names[name]; !ok {
		if err != ErrNotFound {
			m.t.Fatalf("Set(%q): %v", name, err)
		}
		return
	}
	if err != nil {
		m.t.Fatalf("Set(%q): %v", name, err)
	}
	m.names[name] = ino
}

func (m *model) insert(name string, ino ondisk.InodeNumber) {
	err := m.d.Insert(name, ino, m.typeOf(ino))
	if _, ok := m.names[name]; ok {
		if err != ErrExist {
			m.t.Fatalf("Insert(%q) over an existing one: %v", name, err)
		}
		return
	}
	if m.s.room != 0 && errors.Is(err, errNoSpace) {
		return
	}
	if err != nil {
		m.t.Fatalf("Insert(%q): %v", name, err)
	}
	m.names[name] = ino
}

func (m *model) remove(name string) {
	err := m.d.Delete(name)
	if _, ok := m.names[name]; !ok {
		if err != ErrNotFound {
			m.t.Fatalf("Delete(%q): %v", name, err)
		}
		return
	}
	if err != nil {
		m.t.Fatalf("Delete(%q): %v", name, err)
	}
	delete(m.names, name)
	for _, r := range m.readers {
		delete(r.stayed, name)
		delete(r.seen, name)
	}
}

// read lets one of three readers go on by a few names.
func (m *model) read() {
	if len(m.readers) < 3 {
		r := &reader{stayed: map[string]bool{}, seen: map[string]int{}}
		for name := range m.names {
			r.stayed[name] = true
		}
		m.readers = append(m.readers, r)
	}
	i := m.r.IntN(len(m.readers))
	r := m.readers[i]
	room := 1 + m.r.IntN(1+len(m.names)/4)
	full := false
	err := m.d.ReadDir(r.cookie, func(e Entry) bool {
		if room == 0 {
			full = true
			return false
		}
		room--
		m.seen(r, e)
		return true
	})
	if err != nil {
		m.t.Fatalf("ReadDir: %v", err)
	}
	if full {
		return
	}
	for name := range r.stayed {
		if r.seen[name] == 0 {
			m.t.Fatalf("a reader missed %q, which was there all the time", name)
		}
	}
	m.readers = slices.Delete(m.readers, i, i+1)
}

func (m *model) seen(r *reader, e Entry) {
	name := string(e.Name)
	if e.Next <= r.cookie || e.Next >= EOFCookie {
		m.t.Fatalf("cookie %#x after %#x", e.Next, r.cookie)
	}
	r.cookie = e.Next
	if r.seen[name]++; r.seen[name] > 1 {
		m.t.Fatalf("a reader saw %q twice", name)
	}
	if ino := m.names[name]; ino != e.Ino {
		m.t.Fatalf("ReadDir: %q is inode %d, want %d", name, e.Ino, ino)
	}
}

func (m *model) check() {
	names := checkTree(m.t, m.d, m.m)
	if len(names) != len(m.names) {
		m.t.Fatalf("%d names, want %d", len(names), len(m.names))
	}
	for name, ino := range m.names {
		if names[name] != ino {
			m.t.Fatalf("%q is inode %d, want %d", name, names[name], ino)
		}
	}
	empty, err := m.d.Empty()
	if err != nil || empty != (len(m.names) == 2) {
		m.t.Fatalf("Empty() = %v, %v with %d names", empty, err, len(m.names))
	}
}
