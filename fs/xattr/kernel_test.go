package xattr

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"extfused/fs/ondisk"
)

const kernelBlock = 4096

// kernelImage formats an image and lets the kernel's ext4 run do on it.
type kernelImage struct {
	t    *testing.T
	path string
}

func newKernelImage(t *testing.T, features string) *kernelImage {
	t.Helper()
	k := &kernelImage{t, filepath.Join(t.TempDir(), "image")}
	out, err := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-b", fmt.Sprint(kernelBlock), "-I", "256",
		"-O", features, k.path, "8M").CombinedOutput()
	if err != nil {
		t.Skipf("mke2fs: %v: %s", err, out)
	}
	return k
}

func (k *kernelImage) mounted(do func(dir string)) {
	k.t.Helper()
	dir := k.t.TempDir()
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop", k.path, dir).CombinedOutput(); err != nil {
		k.t.Skipf("no kernel mounts here: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			k.t.Errorf("umount: %v: %s", err, out)
		}
	}()
	do(dir)
}

func (k *kernelImage) debugfs(request string) string {
	k.t.Helper()
	out, err := exec.Command("debugfs", "-R", request, k.path).Output()
	if err != nil {
		k.t.Fatalf("debugfs %s: %v", request, err)
	}
	return string(out)
}

var (
	reInode = regexp.MustCompile(`located at block (\d+), offset 0x([0-9a-f]+)`)
	reACL   = regexp.MustCompile(`File ACL: (\d+)`)
)

// places finds the byte offsets of a file's in-inode area and xattr block
// (0: none).
func (k *kernelImage) places(name string) (tail, block int64) {
	k.t.Helper()
	m := reInode.FindStringSubmatch(k.debugfs("imap /" + name))
	if m == nil {
		k.t.Fatalf("debugfs does not find %s", name)
	}
	blk, _ := strconv.ParseInt(m[1], 10, 64)
	off, _ := strconv.ParseInt(m[2], 16, 64)
	acl := reACL.FindStringSubmatch(k.debugfs("stat /" + name))
	block, _ = strconv.ParseInt(acl[1], 10, 64)
	return blk*kernelBlock + off + 128 + 32, block * kernelBlock
}

const tailSize = 256 - 128 - 32

func (k *kernelImage) read(off int64, n int) []byte {
	k.t.Helper()
	f, err := os.Open(k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		k.t.Fatal(err)
	}
	return b
}

func (k *kernelImage) write(off int64, b []byte) {
	k.t.Helper()
	f, err := os.OpenFile(k.path, os.O_WRONLY, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernelImage) fsck() {
	k.t.Helper()
	if out, err := exec.Command("e2fsck", "-fn", k.path).CombinedOutput(); err != nil {
		k.t.Fatalf("e2fsck: %v: %s", err, out)
	}
}

// areas reads both areas of a file.
func (k *kernelImage) areas(name string) (inode, block Area) {
	k.t.Helper()
	tail, blk := k.places(name)
	inode = Inode(k.read(tail, tailSize))
	if blk != 0 {
		var err error
		if block, err = Block(k.read(blk, kernelBlock)); err != nil {
			k.t.Fatal(err)
		}
	}
	for _, a := range []Area{inode, block} {
		if err := a.Check(); err != nil {
			k.t.Fatalf("%s: %v", name, err)
		}
	}
	return inode, block
}

// TestReadWhatTheKernelWrote sets attributes through the kernel, reads them
// from the bytes, and builds the same block again: the same hashes.
func TestReadWhatTheKernelWrote(t *testing.T) {
	k := newKernelImage(t, "^ea_inode")
	sets := map[string]map[string]string{
		"small": {"user.foo": "bar", "user.empty": "", "trusted.t": "tv"},
		"large": {"user.foo": "bar", "user.big": strings.Repeat("x", 1501), "security.x": "secret", "user.zz": "1", "user.a": "22", "trusted.a": "333"},
		"high":  {"user.\xc3\xa4\xff": strings.Repeat("\xf0", 120), "user.x": strings.Repeat("y", 99)},
	}
	k.mounted(func(dir string) {
		for file, set := range sets {
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for n, v := range set {
				if err := unix.Setxattr(path, n, []byte(v), 0); err != nil {
					t.Fatalf("%s %s: %v", file, n, err)
				}
			}
		}
	})
	blocks := 0
	for file, set := range sets {
		inode, block := k.areas(file)
		found := 0
		for n, v := range set {
			name, err := ParseName(n)
			if err != nil {
				t.Fatal(err)
			}
			a, e, ok := Get(inode, block, name)
			if !ok || string(a.Value(e)) != v {
				t.Errorf("%s: %s is %q (%v)", file, n, a.Value(e), ok)
			}
			found++
		}
		stored := 0
		for _, a := range []Area{inode, block} {
			a.Each(func(Entry) bool { stored++; return true })
		}
		if stored != found {
			t.Errorf("%s: %d attributes stored, %d set", file, stored, found)
		}
		if block.b == nil {
			continue
		}
		blocks++
		again := InitBlock(make([]byte, kernelBlock))
		block.Each(func(e Entry) bool {
			if err := again.Set(e.Name, block.Value(e)); err != nil {
				t.Fatal(err)
			}
			return true
		})
		if !SameAttributes(block, again) {
			t.Errorf("%s: the block built again has hash %#x, the kernel's %#x", file, BlockHash(again.b), BlockHash(block.b))
		}
	}
	if blocks < 2 {
		t.Fatalf("%d blocks", blocks)
	}
}

// TestKernelReadsWhatWeWrote replaces attributes of files by our own bytes;
// e2fsck and the kernel must agree with them.
func TestKernelReadsWhatWeWrote(t *testing.T) {
	k := newKernelImage(t, "^ea_inode,^metadata_csum")
	const files = 8
	file := func(i int) string { return fmt.Sprint("f", i) }
	k.mounted(func(dir string) {
		for i := range files {
			path := filepath.Join(dir, file(i))
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			// too large for the inode, and different: a block each
			place := bytes.Repeat([]byte{byte(i)}, 1000)
			if err := unix.Setxattr(path, "user.placeholder", place, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
	rnd := rand.New(rand.NewPCG(12, 23))
	want := make([]map[string]string, files)
	var room [files]bool // for one more attribute, by our reckoning
	for i := range files {
		want[i] = map[string]string{"user.placeholder": string(bytes.Repeat([]byte{byte(i)}, 1000))}
		tail, blk := k.places(file(i))
		ib, bb := k.read(tail, tailSize), k.read(blk, kernelBlock)
		block, err := Block(bb)
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			changeRandomly(t, rnd, Inode(ib), block, want[i])
		}
		if block.Empty() { // the inode still points to it
			t.Fatal("choose another seed")
		}
		after := Name{ondisk.XattrIndexUser, "after"}
		room[i] = Inode(ib).Fits(after, 5) || block.Fits(after, 5)
		k.write(tail, ib)
		k.write(blk, bb)
	}
	k.fsck()
	k.mounted(func(dir string) {
		for i := range files {
			path := filepath.Join(dir, file(i))
			list := make([]byte, 65536)
			n, err := unix.Listxattr(path, list)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(list[:n]), "\x00"); got != len(want[i]) {
				t.Errorf("%s: the kernel lists %d attributes, want %d", file(i), got, len(want[i]))
			}
			for name, v := range want[i] {
				b := make([]byte, 4096)
				n, err := unix.Getxattr(path, name, b)
				if err != nil || string(b[:n]) != v {
					t.Errorf("%s %s: the kernel says %d bytes, %v; want %d", file(i), name, n, err, len(v))
				}
			}
			// the kernel can change it, and finds as much room as we do
			if err := unix.Setxattr(path, "user.after", []byte("later"), 0); (err == nil) != room[i] {
				t.Errorf("%s: one more attribute: %v; by us there is room: %v", file(i), err, room[i])
			}
		}
	})
	k.fsck()
}

// changeRandomly does one thing to the areas and to want.
func changeRandomly(t *testing.T, rnd *rand.Rand, inode, block Area, want map[string]string) {
	t.Helper()
	prefix := []string{"user.", "trusted.", "security."}[rnd.IntN(3)]
	full := prefix + strings.Repeat(string(rune('a'+rnd.IntN(10))), 1+rnd.IntN(9))
	n, err := ParseName(full)
	if err != nil {
		t.Fatal(err)
	}
	if rnd.IntN(3) == 0 {
		_, there := want[full]
		if _, err := Remove(inode, block, n); (err == nil) != there {
			t.Fatalf("remove %s: %v", full, err)
		}
		delete(want, full)
		return
	}
	value := strings.Repeat(string(rune('A'+rnd.IntN(26))), rnd.IntN(150))
	switch _, err := Set(inode, block, n, []byte(value), 0); err {
	case nil:
		want[full] = value
	case ErrNoSpace:
	default:
		t.Fatal(err)
	}
}

// TestKernelACLs compares the kernel's two forms of one ACL.
func TestKernelACLs(t *testing.T) {
	k := newKernelImage(t, "^ea_inode")
	acl := ACL{{TagUserObj, 7, 0}, {TagUser, 6, 1000}, {TagUser, 1, 2000}, {TagGroupObj, 5, 0},
		{TagGroup, 4, 50}, {TagMask, 7, 0}, {TagOther, 4, 0}}
	k.mounted(func(dir string) {
		d := filepath.Join(dir, "d")
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, n := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
			if err := unix.Setxattr(d, n, acl.Wire(), 0); err != nil {
				t.Skipf("no ACLs in this kernel: %v", err)
			}
		}
		f, err := os.OpenFile(filepath.Join(d, "child"), os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	})
	inode, block := k.areas("d")
	for _, n := range []Name{ACLAccess, ACLDefault} {
		a, e, ok := Get(inode, block, n)
		if !ok || !bytes.Equal(a.Value(e), acl.Disk()) {
			t.Errorf("%v: the kernel stored %x, we would %x", n, a.Value(e), acl.Disk())
		}
	}
	inherited, perm := acl.Inherit(0o640)
	a, e, ok := Get(first(k.areas("d/child")), Area{}, ACLAccess)
	if !ok || !bytes.Equal(a.Value(e), inherited.Disk()) {
		t.Errorf("the child got %x, we would give it %x", a.Value(e), inherited.Disk())
	}
	if st := k.debugfs("stat /d/child"); !strings.Contains(st, fmt.Sprintf("Mode:  %04o", perm)) {
		t.Errorf("we would give the child mode %o; debugfs says %s", perm, st)
	}
}

func first(a, _ Area) Area { return a }

// TestKernelEAInode parses a value that the kernel put into an inode.
func TestKernelEAInode(t *testing.T) {
	k := newKernelImage(t, "ea_inode")
	value := bytes.Repeat([]byte("long "), 2000)
	k.mounted(func(dir string) {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(path, "user.huge", value, 0); err != nil {
			t.Skipf("no ea_inode in this kernel: %v", err)
		}
	})
	inode, block := k.areas("f")
	a, e, ok := Get(inode, block, Name{ondisk.XattrIndexUser, "huge"})
	if !ok || e.Inum == 0 || int(e.Size) != len(value) || a.Value(e) != nil {
		t.Fatalf("%+v %v", e, ok)
	}
	if got := k.debugfs(fmt.Sprintf("cat <%d>", e.Inum)); got != string(value) {
		t.Fatalf("inode %d holds %d bytes", e.Inum, len(got))
	}
	var sb ondisk.SuperBlock
	if err := sb.Decode(k.read(1024, 1024)); err != nil {
		t.Fatal(err)
	}
	seed := ondisk.CRC32C(^uint32(0), sb.UUID[:])
	if h := EntryHashInode("huge", ondisk.CRC32C(seed, value)); h != e.Hash {
		t.Fatalf("e_hash is %#x, we compute %#x", e.Hash, h)
	}
}
