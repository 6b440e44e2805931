package htree

import (
	"errors"
	"testing"

	"extfused/fs/ondisk"
)

var errTooMuch = errors.New("more block reads than any operation needs")

// fuzzStore gives raw blocks and counts how often they are asked for.
type fuzzStore struct {
	t      *testing.T
	blocks [][]byte
	size   int
	gets   int
}

func (s *fuzzStore) Get(l ondisk.LBlock, write bool) ([]byte, error) {
	if int(l) >= len(s.blocks) {
		s.t.Fatalf("block %d of %d", l, len(s.blocks))
	}
	if s.gets++; s.gets > 4*len(s.blocks)+100 {
		s.t.Fatal(errTooMuch)
	}
	return s.blocks[l], nil
}

func (s *fuzzStore) Dirty(ondisk.LBlock) error { s.gets = min(s.gets, 100); return nil }

func (s *fuzzStore) New() (ondisk.LBlock, []byte, error) {
	s.blocks = append(s.blocks, make([]byte, s.size))
	return ondisk.LBlock(len(s.blocks) - 1), s.blocks[len(s.blocks)-1], nil
}

// FuzzDir reads and changes a directory of arbitrary blocks: it must not
// panic, must end, and cookies must go up.
func FuzzDir(f *testing.F) {
	for _, n := range []int{0, 10, 100, 400} {
		for flags := range byte(32) {
			p := fuzzParams(flags)
			p.DirIndex, p.BlockSize = true, 1024
			s := &plainStore{size: 1024}
			d := &Dir{Params: p, Store: s, Ino: 12}
			if err := d.InitEmpty(12, 2); err != nil {
				f.Fatal(err)
			}
			for i := range n {
				if err := d.Insert(plainNames(i), 20, 1); err != nil {
					f.Fatal(err)
				}
			}
			var raw []byte
			for _, b := range s.blocks {
				raw = append(raw, b...)
			}
			f.Add(flags, "name-7-xxxxxxx", raw)
		}
	}
	f.Fuzz(fuzzDir)
}

// fuzzParams spreads the kinds of file system over the bits of flags.
func fuzzParams(flags byte) *Params {
	p := &Params{
		BlockSize: 1024, MaxInode: 1000, HashVersion: flags >> 5 % 3,
		HasCsum: flags&1 != 0, FileType: flags&2 != 0, DirIndex: flags&4 == 0, LargeDir: flags&8 != 0,
	}
	if flags&0x80 != 0 {
		p.BlockSize = 1 << 16
	}
	return p
}

func fuzzDir(t *testing.T, flags byte, name string, raw []byte) {
	p := fuzzParams(flags)
	s := &fuzzStore{t: t, size: p.BlockSize}
	for n := p.BlockSize; len(raw) > 0 && len(s.blocks) < 64; {
		b := make([]byte, n)
		raw = raw[copy(b, raw):]
		s.blocks = append(s.blocks, b)
	}
	d := &Dir{Params: p, Store: s, Ino: 12, NBlocks: ondisk.LBlock(len(s.blocks)), Indexed: flags&16 == 0}
	ops := []func() error{
		func() error { return fuzzList(t, d, s) },
		func() error { _, err := d.Empty(); return err },
		func() error { _, _, err := d.Lookup(name); return err },
		func() error { _, _, err := d.Lookup(".."); return err },
		func() error { return d.Insert(name, 20, 1) },
		func() error { return d.Set(name, 21, 2) },
		func() error { return d.Insert(name+"second", 20, 1) },
		func() error { return d.Delete(name) },
		func() error { return d.Set("..", 2, 2) },
		func() error { return fuzzList(t, d, s) },
	}
	for i, op := range ops {
		s.gets = 0
		err := op()
		var corrupt *ondisk.CorruptError
		switch {
		case err == nil, errors.As(err, &corrupt), err == ErrNotFound, err == ErrExist, err == ErrDirFull,
			err == ErrInvalidName, err == ErrNameTooLong:
		default:
			t.Fatalf("operation %d: %v", i, err)
		}
	}
}

// fuzzList reads the directory three names at a time, up to 300: an index that
// points to one leaf often may list its names as often.
func fuzzList(t *testing.T, d *Dir, s *fuzzStore) error {
	var cookie uint64
	for more, calls := true, 0; more && calls < 100; calls++ {
		more = false
		n := 0
		s.gets = 0
		err := d.ReadDir(cookie, func(e Entry) bool {
			if n++; n > 3 {
				more = true
				return false
			}
			if e.Next <= cookie || e.Next >= EOFCookie || e.Ino > d.MaxInode || len(e.Name) == 0 {
				t.Fatalf("entry %+v at cookie %#x", e, cookie)
			}
			cookie = e.Next
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}
