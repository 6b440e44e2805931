package xattr

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ondisk"
)

func TestNames(t *testing.T) {
	for full, want := range map[string]Name{
		"user.foo":                 {1, "foo"},
		"user.a.b":                 {1, "a.b"},
		"trusted.x":                {4, "x"},
		"security.capability":      Capability,
		"system.posix_acl_access":  ACLAccess,
		"system.posix_acl_default": ACLDefault,
		"system.richacl":           {8, ""},
		"system.data":              Data,
		"system.posix_acl_accessX": {7, "posix_acl_accessX"},
		"lustre.lov":               {5, "lov"},
		"gnu.translator":           {10, "translator"},
	} {
		n, err := ParseName(full)
		if err != nil || n != want || n.String() != full {
			t.Errorf("%s is %v (%q), %v", full, n, n.String(), err)
		}
	}
	for full, want := range map[string]error{
		"": ErrName, "user.": ErrEmpty, "foo": ErrNamespace, "foo.bar": ErrNamespace, "userx": ErrNamespace,
		"user." + strings.Repeat("n", 251): ErrName,
	} {
		if _, err := ParseName(full); err != want {
			t.Errorf("%q: %v, want %v", full, err, want)
		}
	}
	if !errors.Is(ErrNoSpace, syscall.ENOSPC) || !errors.Is(ErrNotFound, syscall.ENODATA) {
		t.Error("errors are no errnos")
	}
	if Data.Listed() || !ACLAccess.Listed() || !(Name{1, "x"}).Listed() || (Name{9, "c"}).Listed() {
		t.Error("listed the wrong ones")
	}
}

// check compares an area with a model, and verifies its structure.
func check(t *testing.T, a Area, model map[Name]string) {
	t.Helper()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	n, before := 0, Name{}
	bytesUsed := 0
	a.Each(func(e Entry) bool {
		want, ok := model[e.Name]
		if !ok || string(a.Value(e)) != want {
			t.Fatalf("%v is %q, model %q (%v)", e.Name, a.Value(e), want, ok)
		}
		if a.magic == nil {
			x := ondisk.XattrEntry{NameIndex: e.Name.Index}
			if n > 0 && compare(before, &x, []byte(e.Name.Suffix)) >= 0 {
				t.Fatalf("%v comes after %v", e.Name, before)
			}
			if e.Hash != EntryHash(e.Name.Suffix, []byte(want)) {
				t.Fatalf("hash of %v is %#x", e.Name, e.Hash)
			}
		}
		before = e.Name
		bytesUsed += needs(e.Name, len(want))
		n++
		return true
	})
	if n != len(model) || a.Empty() != (n == 0) {
		t.Fatalf("%d attributes, model %d", n, len(model))
	}
	if room := len(a.b) - a.first - 4 - bytesUsed; a.Room() != room {
		t.Fatalf("room is %d, should be %d: free space is not in one piece", a.Room(), room)
	}
	end, low := a.extent()
	for _, z := range a.b[min(end, low):low] {
		if z != 0 {
			t.Fatal("free space is not zeroed")
		}
	}
}

func randomName(rnd *rand.Rand) Name {
	n := Name{Index: []uint8{1, 1, 1, 4, 6}[rnd.IntN(5)]}
	n.Suffix = strings.Repeat(string(rune('a'+rnd.IntN(8))), 1+rnd.IntN(6))
	return n
}

func TestModel(t *testing.T) {
	for name, mk := range map[string]func() Area{
		"block 1K":    func() Area { return InitBlock(make([]byte, 1024)) },
		"block 4K":    func() Area { return InitBlock(make([]byte, 4096)) },
		"block 64K":   func() Area { return InitBlock(make([]byte, 65536)) },
		"inode 256":   func() Area { return Inode(make([]byte, 96)) },
		"inode 1024":  func() Area { return Inode(make([]byte, 1024-160)) },
		"inode waste": func() Area { return Inode(bytes.Repeat([]byte{0xEE}, 99)) },
	} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 3))
			a, model := mk(), map[Name]string{}
			full := 0
			for range 5000 {
				n := randomName(rnd)
				if rnd.IntN(3) == 0 {
					_, there := model[n]
					if a.Remove(n) != there {
						t.Fatalf("Remove(%v), in the model %v", n, there)
					}
					delete(model, n)
				} else {
					value := strings.Repeat(string(rune('A'+rnd.IntN(26))), rnd.IntN(len(a.b)/6))
					fits, before := a.Fits(n, len(value)), bytes.Clone(a.b)
					switch err := a.Set(n, []byte(value)); {
					case err == nil && fits:
						model[n] = value
					case err == ErrNoSpace && !fits && bytes.Equal(before, a.b):
						full++
					default:
						t.Fatalf("Set(%v, %d bytes): %v, Fits says %v", n, len(value), err, fits)
					}
				}
				if a.started() {
					check(t, a, model)
				}
			}
			if full == 0 && len(a.b) < 60000 {
				t.Fatal("never full")
			}
			for n := range maps.Clone(model) {
				a.Remove(n)
				delete(model, n)
			}
			check(t, a, model)
		})
	}
}

func TestExactFit(t *testing.T) {
	a := InitBlock(make([]byte, 1024))
	n := Name{1, "abc"}
	most := 1024 - 32 - 4 - 20
	if err := a.Set(n, make([]byte, most+1)); err != ErrNoSpace {
		t.Fatal(err)
	}
	if err := a.Set(n, make([]byte, most)); err != nil || a.Room() != 0 {
		t.Fatal(err, a.Room())
	}
	if err := a.Set(n, make([]byte, most-4)); err != nil || a.Room() != 4 {
		t.Fatal(err, a.Room())
	}
	var none Area
	if err := none.Set(n, nil); err != ErrNoSpace || none.Remove(n) || !none.Empty() || none.Room() != 0 {
		t.Fatal("the zero Area took something", err)
	}
	if err := a.Set(Name{1, strings.Repeat("x", 256)}, nil); err != ErrName {
		t.Fatal(err)
	}
	if err := a.Set(n, make([]byte, MaxValue+1)); err != ErrValue {
		t.Fatal(err)
	}
}

// The two areas of an inode, against one model: an attribute is in one place.
func TestSetAcrossInodeAndBlock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	inode, block := Inode(make([]byte, 96)), InitBlock(make([]byte, 1024))
	model := map[Name]string{}
	moved := 0
	for range 5000 {
		n := randomName(rnd)
		_, there := model[n]
		flags := rnd.IntN(3)
		value := strings.Repeat("v", rnd.IntN(120))
		before, _ := inode.Find(n)
		c, err := Set(inode, block, n, []byte(value), flags)
		switch {
		case flags&Create != 0 && there:
			if err != ErrExists {
				t.Fatal(err)
			}
		case flags&Replace != 0 && !there:
			if err != ErrNotFound || !IsNotFound(err) {
				t.Fatal(err)
			}
		case err == nil:
			model[n] = value
			if c == (Change{}) {
				t.Fatal("nothing changed")
			}
			if _, now := inode.Find(n); !now && before.Name == n {
				moved++
			}
		case err == ErrNoSpace:
			if there && rnd.IntN(2) == 0 {
				if _, err := Remove(inode, block, n); err != nil {
					t.Fatal(err)
				}
				delete(model, n)
			}
		default:
			t.Fatal(err)
		}
		got := map[Name]string{}
		for _, a := range []Area{inode, block} {
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			a.Each(func(e Entry) bool {
				if _, twice := got[e.Name]; twice {
					t.Fatalf("%v is in both places", e.Name)
				}
				got[e.Name] = string(a.Value(e))
				return true
			})
		}
		if !maps.Equal(got, model) {
			t.Fatalf("have %v, want %v", got, model)
		}
		for n, v := range model {
			if a, e, ok := Get(inode, block, n); !ok || string(a.Value(e)) != v {
				t.Fatalf("Get(%v)", n)
			}
		}
	}
	if moved == 0 {
		t.Fatal("no attribute ever moved from the inode to the block")
	}
	if _, err := Remove(inode, block, Name{1, "never"}); err != ErrNotFound {
		t.Fatal(err)
	}
}

func TestSharing(t *testing.T) {
	names := []Name{{1, "a"}, {1, "bb"}, {4, "c"}, {6, "selinux"}}
	build := func(order []int) Area {
		a := InitBlock(make([]byte, 4096))
		for _, i := range order {
			if err := a.Set(names[i], []byte(names[i].Suffix+" value")); err != nil {
				t.Fatal(err)
			}
		}
		return a
	}
	a, b := build([]int{0, 1, 2, 3}), build([]int{3, 1, 0, 2})
	if !SameAttributes(a, b) || BlockHash(a.b) == 0 || Refcount(a.b) != 1 {
		t.Fatal("the same attributes in another order differ")
	}
	for _, change := range []func(Area){
		func(a Area) { a.Remove(names[2]) },
		func(a Area) { _ = a.Set(names[2], []byte("C value")) },
		func(a Area) { _ = a.Set(names[2], []byte("c value ")) },
		func(a Area) { _ = a.Set(Name{4, "d"}, nil) },
	} {
		b := build([]int{0, 1, 2, 3})
		change(b)
		if SameAttributes(a, b) || SameAttributes(b, a) || BlockHash(a.b) == BlockHash(b.b) {
			t.Fatal("different attributes are the same")
		}
	}
	SetRefcount(b.b, 7)
	if Refcount(b.b) != 7 || !SameAttributes(a, b) {
		t.Fatal("the reference count counts")
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	a := InitBlock(make([]byte, 4096))
	for i := range 20 {
		if err := a.Set(Name{1, fmt.Sprint("n", i)}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := a.Find(Capability); ok {
			t.Fatal("found")
		}
		if _, ok := a.Find(Name{1, "n19"}); !ok {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestDamageIsRefused(t *testing.T) {
	build := func() []byte {
		b := make([]byte, 1024)
		a := InitBlock(b)
		for _, n := range []string{"a", "b", "c"} {
			if err := a.Set(Name{1, n}, []byte("12345678")); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	for name, harm := range map[string]func(b []byte){
		"magic":            func(b []byte) { b[0]++ },
		"refcount":         func(b []byte) { clear(b[4:8]) },
		"blocks":           func(b []byte) { b[8] = 2 },
		"value too long":   func(b []byte) { b[32+8+1] = 1 },
		"value outside":    func(b []byte) { b[32+3] = 4 },
		"value in entries": func(b []byte) { b[32+2], b[32+3] = 40, 0 },
		"value unaligned":  func(b []byte) { b[32+2]-- },
		"values overlap":   func(b []byte) { copy(b[32+2:32+4], b[52+2:52+4]) },
		"name too long": func(b []byte) {
			copy(b[1000:], build()[32:56])
			b[32] = 255
			copy(b[32+272:], bytes.Repeat([]byte{9}, 720))
		},
		"no end": func(b []byte) {
			copy(b[32:], bytes.Repeat([]byte{4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, 50))
		},
	} {
		b := build()
		harm(b)
		a, err := Block(b)
		if err == nil {
			err = a.Check()
		}
		var bad *ondisk.CorruptError
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzArea(f *testing.F) {
	b := make([]byte, 512)
	a := InitBlock(b)
	for i, n := range []string{"a", "bcd", "zz"} {
		if err := a.Set(Name{1, n}, make([]byte, i*10)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b, true, "user.bcd", uint16(20))
	f.Add(b[28:], false, "user.x", uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, isBlock bool, name string, size uint16) {
		if len(data) > 65536 {
			return
		}
		b := bytes.Clone(data)
		a := Inode(b)
		if isBlock {
			var err error
			b = b[:len(b)&^3] // blocks are powers of two
			if a, err = Block(b); err != nil {
				return
			}
		}
		valid := a.Check() == nil
		n, err := ParseName(name)
		if err != nil {
			n = Name{1, "x"}
		}
		count := 0
		a.Each(func(e Entry) bool { a.Value(e); count++; return true })
		if count > len(b)/16 {
			t.Fatalf("%d entries in %d bytes", count, len(b))
		}
		value := bytes.Repeat([]byte{7}, int(size))
		if err := a.Set(n, value); err == nil {
			e, ok := a.Find(n)
			if !ok || !bytes.Equal(a.Value(e), value) || !valid {
				t.Fatalf("Set of %v stored %v (%v), area valid %v", n, a.Value(e), ok, valid)
			}
		}
		if valid && a.Check() != nil {
			t.Fatal("a valid area is not any more")
		}
		a.Remove(n)
		if valid && a.Check() != nil {
			t.Fatal("a valid area is not any more after Remove")
		}
	})
}

func TestACL(t *testing.T) {
	// u::rw-,u:1000:rw-,g::r--,g:50:r--,m::rw-,o::r--, both as a 6.18 kernel has them
	wire := []byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff" +
		"\x08\x00\x04\x00\x32\x00\x00\x00\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff")
	disk := []byte("\x01\x00\x00\x00\x01\x00\x06\x00\x02\x00\x06\x00\xe8\x03\x00\x00\x04\x00\x04\x00" +
		"\x08\x00\x04\x00\x32\x00\x00\x00\x10\x00\x06\x00\x20\x00\x04\x00")
	a, err := ParseWire(wire)
	if err != nil || !bytes.Equal(a.Disk(), disk) || !bytes.Equal(a.Wire(), wire) {
		t.Fatal(a, err)
	}
	if d, err := ParseDisk(disk); err != nil || !slices.Equal(a, d) {
		t.Fatal(d, err)
	}
	if perm, all := a.Mode(); perm != 0o664 || all {
		t.Fatalf("%o %v", perm, all)
	}
	a.Chmod(0o750)
	if perm, _ := a.Mode(); perm != 0o750 || a.find(TagGroupObj).Perm != 4 || a.find(TagMask).Perm != 5 {
		t.Fatalf("%v", a)
	}
	if c, bits := a.Inherit(0o640); bits != 0o640 || c.find(TagMask).Perm != 4 || a.find(TagMask).Perm != 5 {
		t.Fatalf("%v %o", c, bits)
	}
	plain := ACL{{TagUserObj, 7, 0}, {TagGroupObj, 5, 0}, {TagOther, 5, 0}}
	if c, bits := plain.Inherit(0o666); c != nil || bits != 0o644 {
		t.Fatalf("%v %o", c, bits)
	}
	if perm, all := plain.Mode(); perm != 0o755 || !all {
		t.Fatalf("%o", perm)
	}
	if a, err := ParseWire(wire[:4]); a != nil || err != nil {
		t.Fatal("an empty ACL is not nil", err)
	}
	for name, bad := range map[string]ACL{
		"no other":     plain[:2],
		"order":        {plain[1], plain[0], plain[2]},
		"twice":        {plain[0], plain[0], plain[1], plain[2]},
		"no mask":      {plain[0], {TagUser, 7, 5}, plain[1], plain[2]},
		"perm":         {{TagUserObj, 8, 0}, plain[1], plain[2]},
		"tag":          {plain[0], plain[1], plain[2], {0x40, 0, 0}},
		"two tags":     {plain[0], plain[1], {0x30, 0, 0}},
		"nobody named": {plain[0], {TagUser, 7, aclNoID}, plain[1], {TagMask, 7, 0}, plain[2]},
	} {
		for _, err := range []error{bad.Valid(), second(ParseWire(bad.Wire())), second(ParseDisk(bad.Disk()))} {
			if !IsACLError(err) || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, b := range [][]byte{nil, wire[:3], wire[:9], disk[:7], disk[:13], disk} {
		if _, err := ParseWire(b); err == nil {
			t.Errorf("%x was taken for an ACL", b)
		}
	}
}

func second(_ ACL, err error) error { return err }

func FuzzACL(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x01\x00\x06\x00\x04\x00\x04\x00\x20\x00\x04\x00"))
	f.Add([]byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x04\x00\x04\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ParseDisk(b); err == nil && a != nil {
			if !bytes.Equal(a.Disk(), b) {
				t.Fatalf("%x became %x", b, a.Disk())
			}
			a.Inherit(0o777)
			a.Chmod(0)
		}
		if a, err := ParseWire(b); err == nil && a != nil {
			if again, err := ParseWire(a.Wire()); err != nil || !slices.Equal(a, again) {
				t.Fatalf("%v became %v, %v", a, again, err)
			}
		}
	})
}
