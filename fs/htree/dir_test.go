package htree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"extfused/fs/ondisk"
)

// defaults is what mkfs.ext4 makes, with blocks of bs bytes.
func defaults(bs int) *Params {
	return &Params{
		BlockSize: bs, MaxInode: 1 << 30, HasCsum: true, FileType: true, DirIndex: true,
		HashVersion: ondisk.HashHalfMD4, HashSeed: [4]uint32{1, 2, 3, 4},
	}
}

func newDir(t testing.TB, p *Params) (*Dir, *memStore) {
	m := newMemStore(t, p.BlockSize)
	d := &Dir{Params: p, Store: m, Ino: 12}
	if err := d.InitEmpty(12, 2); err != nil {
		t.Fatal(err)
	}
	m.end()
	return d, m
}

func fill(t testing.TB, d *Dir, m *memStore, n int, format string) {
	for i := range n {
		if err := d.Insert(fmt.Sprintf(format, i), ondisk.InodeNumber(i+20), ondisk.FtRegFile); err != nil {
			t.Fatalf("name %d: %v", i, err)
		}
		m.end()
	}
}

// list reads the whole directory, at most batch names a call.
func list(t testing.TB, d *Dir, batch int) (names []string) {
	for cookie, n := uint64(0), 0; ; n = 0 {
		err := d.ReadDir(cookie, func(e Entry) bool {
			if n++; n > batch {
				return false
			}
			names, cookie = append(names, string(e.Name)), e.Next
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		if n <= batch {
			return names
		}
	}
}

// TestIndexGrowth fills a directory until the index has all its levels and no
// room, then empties it: with two levels, and at the first names of a third.
func TestIndexGrowth(t *testing.T) {
	for _, large := range []bool{false, true} {
		t.Run(fmt.Sprintf("large_dir=%v", large), func(t *testing.T) {
			p := defaults(1024)
			p.LargeDir = large
			d, m := newDir(t, p)
			long := strings.Repeat("x", 240)
			n := 0
			for ; !large || m.blocks[0][30] < 2; n++ {
				err := d.Insert(fmt.Sprintf("%s%d", long, n), 20, ondisk.FtRegFile)
				m.end()
				if err == ErrDirFull && !large {
					break
				}
				if err != nil {
					t.Fatalf("name %d: %v", n, err)
				}
			}
			if got := len(checkTree(t, d, m)); got != n+2 {
				t.Fatalf("%d names after %d inserts", got, n)
			}
			if large { // a few turns in the third level
				fill(t, d, m, 2000, "third-level-%d")
				checkTree(t, d, m)
				for i := range 2000 {
					if err := d.Delete(fmt.Sprintf("third-level-%d", i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := len(list(t, d, 1000)); got != n+2 {
				t.Fatalf("%d names listed, want %d", got, n+2)
			}
			for i := range n {
				if err := d.Delete(fmt.Sprintf("%s%d", long, i)); err != nil {
					t.Fatalf("delete %d: %v", i, err)
				}
			}
			if empty, err := d.Empty(); err != nil || !empty {
				t.Fatalf("Empty() = %v, %v", empty, err)
			}
			t.Logf("%d names, %d blocks, %d levels", n, len(m.blocks), m.blocks[0][30]+1)
		})
	}
}

// TestNoSpace lets the store refuse a new block at each place where one is
// asked for: no name is lost, and the insert works once there is room.
func TestNoSpace(t *testing.T) {
	p := defaults(1024)
	d, m := newDir(t, p)
	refused := 0
	for i := range 9000 {
		name := fmt.Sprintf("%0200d", i)
		m.room = len(m.blocks)
		for {
			err := d.Insert(name, 99, ondisk.FtRegFile)
			m.end()
			if err == nil {
				break
			}
			if !errors.Is(err, errNoSpace) {
				t.Fatal(err)
			}
			refused++
			if _, _, err := d.Lookup(name); err != ErrNotFound {
				t.Fatalf("Lookup after a refused insert: %v", err)
			}
			if refused%100 == 0 {
				if got := len(checkTree(t, d, m)); got != i+2 {
					t.Fatalf("%d names, want %d", got, i+2)
				}
			}
			m.room++
		}
	}
	if refused < 1000 {
		t.Fatalf("only %d refusals", refused)
	}
	checkTree(t, d, m)
}

// TestCookiesSurviveConversion lists half of a one-block directory, converts
// it to an index and splits it, and lists the rest.
func TestCookiesSurviveConversion(t *testing.T) {
	d, m := newDir(t, defaults(1024))
	fill(t, d, m, 40, "first-%d")
	if d.Indexed {
		t.Fatal("indexed too early")
	}
	seen := map[string]int{}
	var cookie uint64
	read := func(n int) {
		if err := d.ReadDir(cookie, func(e Entry) bool {
			if n == 0 {
				return false
			}
			n--
			seen[string(e.Name)]++
			cookie = e.Next
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	read(22)
	fill(t, d, m, 500, "second-%d")
	if !d.Indexed {
		t.Fatal("not indexed")
	}
	read(1 << 30)
	for i := range 40 {
		if n := seen[fmt.Sprintf("first-%d", i)]; n != 1 {
			t.Errorf("first-%d listed %d times", i, n)
		}
	}
	if seen["."] != 1 || seen[".."] != 1 {
		t.Error(". or .. not listed once")
	}
}

// TestEmitCollisions checks the rule for names that agree in all 63 bits.
func TestEmitCollisions(t *testing.T) {
	group := func() *lister {
		li := &lister{}
		for _, n := range []string{"c", "a", "d", "b"} {
			li.names = append(li.names, found{pos: 77<<32 | 5, name: []byte(n)})
		}
		li.names = append(li.names, found{pos: 77<<32 | 7, name: []byte("after")})
		return li
	}
	want := []string{"a", "b", "c", "d", "after"}
	for skip := range want {
		li, cookie := group(), uint64(0)
		n := 0
		li.emit(func(e Entry) bool {
			if n == skip {
				return false
			}
			n++
			cookie = e.Next
			return true
		})
		li = group()
		li.cookie = cookie
		var got []string
		li.emit(func(e Entry) bool { got = append(got, string(e.Name)); return true })
		if !slices.Equal(got, want[skip:]) {
			t.Errorf("after %d names: %v, want %v", skip, got, want[skip:])
		}
	}
}

func TestNames(t *testing.T) {
	d, m := newDir(t, defaults(4096))
	long := strings.Repeat("n", 256)
	for name, want := range map[string]error{
		"": ErrInvalidName, ".": ErrInvalidName, "..": ErrInvalidName, "a/b": ErrInvalidName, "a\x00": ErrInvalidName, long: ErrNameTooLong,
	} {
		if err := d.Insert(name, 20, 1); err != want {
			t.Errorf("Insert(%.9q): %v, want %v", name, err, want)
		}
	}
	if _, _, err := d.Lookup(long); err != ErrNameTooLong {
		t.Errorf("Lookup of 256 bytes: %v", err)
	}
	for _, name := range []string{".", ".."} {
		if err := d.Delete(name); err != ErrInvalidName {
			t.Errorf("Delete(%q): %v", name, err)
		}
	}
	for _, n := range []int{0, 3000} { // linear, then indexed
		fill(t, d, m, n, "name-%d")
		if ino, _, err := d.Lookup("."); ino != 12 || err != nil {
			t.Errorf("Lookup(.) = %d, %v", ino, err)
		}
		if err := d.Set("..", ondisk.InodeNumber(30+n), ondisk.FtDir); err != nil {
			t.Error(err)
		}
		m.end()
		if ino, ft, err := d.Lookup(".."); ino != ondisk.InodeNumber(30+n) || ft != ondisk.FtDir || err != nil {
			t.Errorf("Lookup(..) = %d, %d, %v", ino, ft, err)
		}
	}
}

// TestIndexWithoutFeature reads a tree as the chain of blocks it also is.
func TestIndexWithoutFeature(t *testing.T) {
	p := defaults(1024)
	p.HasCsum = false
	d, m := newDir(t, p)
	fill(t, d, m, 2000, "name-%d")
	q := *p
	q.DirIndex = false
	d.Params = &q
	if got := len(list(t, d, 7)); got != 2002 {
		t.Fatalf("%d names listed", got)
	}
	if _, _, err := d.Lookup("name-1234"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Lookup("name-nothing"); err != ErrNotFound {
		t.Fatal(err)
	}
	if empty, err := d.Empty(); empty || err != nil {
		t.Fatalf("Empty() = %v, %v", empty, err)
	}
	if err := d.Insert("one more", 20, ondisk.FtRegFile); err != nil {
		t.Fatal(err)
	}
	if d.Indexed {
		t.Error("the INDEX flag outlived a change of the blocks")
	}
}

// TestAllocs: looking up allocates nothing, linear or indexed.
func TestAllocs(t *testing.T) {
	for _, n := range []int{20, 5000} {
		d, m := newDir(t, defaults(4096))
		fill(t, d, m, n, "some-name-%d")
		if got := testing.AllocsPerRun(100, func() {
			d.Lookup("some-name-7")
			d.Lookup("not-there")
			d.Lookup("..")
		}); got != 0 {
			t.Errorf("%d names: Lookup allocates %v times", n, got)
		}
		if got := testing.AllocsPerRun(100, func() {
			d.Insert("another", 20, 1)
			d.Delete("another")
		}); got != 0 {
			t.Errorf("%d names: Insert and Delete allocate %v times", n, got)
		}
	}
}
