package ext4

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
	"extfused/fs/xattr"
)

func (m *testFS) xattr(ino ondisk.InodeNumber, name string) ([]byte, error) {
	buf := make([]byte, xattr.MaxValue)
	n, err := m.GetXattr(ino, name, buf)
	return buf[:n], err
}

func (m *testFS) xattrNames(ino ondisk.InodeNumber) map[string]bool {
	m.t.Helper()
	buf := make([]byte, 1<<16)
	n, err := m.ListXattr(nil, ino, buf)
	mustOK(m.t, err)
	names := map[string]bool{}
	for _, s := range strings.Split(string(buf[:n]), "\x00") {
		if s != "" {
			names[s] = true
		}
	}
	return names
}

// TestXattrTwin sets and removes attributes at random beside a map, by several
// goroutines that use the same few values, so that blocks get shared and split.
func TestXattrTwin(t *testing.T) {
	for _, args := range [][]string{nil, {"-b", "1024", "-I", "128"}, {"-O", "^has_journal", "-I", "512"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			t.Parallel()
			m := mountNew(t, 64<<20, args...)
			const workers = 4
			twins := make([][]map[string][]byte, workers)
			inos := make([][]ondisk.InodeNumber, workers)
			var wg sync.WaitGroup
			for g := 0; g < workers; g++ {
				for k := 0; k < 6; k++ {
					inos[g] = append(inos[g], m.mkfile(fmt.Sprintf("f%d-%d", g, k)).i.ino)
					twins[g] = append(twins[g], map[string][]byte{})
				}
				wg.Add(1)
				go func() { defer wg.Done(); xattrWorker(t, m, int64(g), inos[g], twins[g]) }()
			}
			wg.Wait()
			compare := func() {
				t.Helper()
				for g := range inos {
					for k, ino := range inos[g] {
						compareXattrs(t, m, ino, twins[g][k])
					}
				}
			}
			compare()
			m.remount()
			compare()
			m.unmount()
			ext4test.KernelMount(t, m.path, "ro", func(dir string) {
				for g := range inos {
					for k := range inos[g] {
						for name, want := range twins[g][k] {
							buf := make([]byte, 5000)
							n, err := syscall.Getxattr(filepath.Join(dir, fmt.Sprintf("f%d-%d", g, k)), name, buf)
							if err != nil || !bytes.Equal(buf[:n], want) {
								t.Errorf("the kernel reads %s as %d bytes, %v; want %d", name, n, err, len(want))
							}
						}
					}
				}
			})
		})
	}
}

func xattrWorker(t *testing.T, m *testFS, seed int64, inos []ondisk.InodeNumber, twins []map[string][]byte) {
	rng := rand.New(rand.NewSource(seed))
	prefixes := []string{"user.", "trusted.", "security."}
	for step := 0; step < 1500; step++ {
		k := rng.Intn(len(inos))
		name := prefixes[rng.Intn(3)] + fmt.Sprint("name", rng.Intn(6))
		value := bytes.Repeat([]byte{byte('a' + rng.Intn(2))}, []int{0, 3, 40, 90, 300, 800}[rng.Intn(6)])
		flags := uint32([]int{0, 0, xattr.Create, xattr.Replace}[rng.Intn(4)])
		_, exists := twins[k][name]
		var want error
		switch {
		case rng.Intn(3) == 0:
			if !exists {
				want = syscall.ENODATA
			}
			if err := m.RemoveXattr(nil, inos[k], name); err != want {
				t.Errorf("seed %d step %d: remove: %v, want %v", seed, step, err, want)
			}
			delete(twins[k], name)
			continue
		case flags == xattr.Create && exists:
			want = syscall.EEXIST
		case flags == xattr.Replace && !exists:
			want = syscall.ENODATA
		}
		err := m.SetXattr(nil, inos[k], name, value, flags)
		if err == syscall.ENOSPC && want == nil {
			continue // the area is full: nothing may have changed, which is compared
		}
		if err != want {
			t.Errorf("seed %d step %d: set %s: %v, want %v", seed, step, name, err, want)
		}
		if err == nil {
			twins[k][name] = value
		}
		if rng.Intn(50) == 0 {
			compareXattrs(t, m, inos[k], twins[k])
		}
	}
}

func compareXattrs(t *testing.T, m *testFS, ino ondisk.InodeNumber, want map[string][]byte) {
	t.Helper()
	names := m.xattrNames(ino)
	if len(names) != len(want) {
		t.Errorf("inode %d has attributes %v, want %d", ino, names, len(want))
	}
	for name, value := range want {
		got, err := m.xattr(ino, name)
		if err != nil || !bytes.Equal(got, value) || !names[name] {
			t.Errorf("inode %d: %s has %d bytes, %v; want %d", ino, name, len(got), err, len(value))
		}
	}
}

func TestXattrBlocksAreShared(t *testing.T) {
	m := mountNew(t, 64<<20, "-b", "4096")
	before := m.Statfs().BlocksFree
	value := bytes.Repeat([]byte("v"), 1000)
	var inos []ondisk.InodeNumber
	for k := 0; k < 2000; k++ {
		inos = append(inos, m.mkfile(fmt.Sprint("f", k)).i.ino)
		mustOK(t, m.SetXattr(nil, inos[k], "user.same", value, 0))
	}
	used := before - m.Statfs().BlocksFree
	if used > 40 { // 2 shared blocks, and the directory
		t.Errorf("%d blocks used", used)
	}
	mustOK(t, m.SetXattr(nil, inos[0], "user.same", []byte("short"), 0))
	mustOK(t, m.SetXattr(nil, inos[1], "user.other", value, 0))
	if got, err := m.xattr(inos[2], "user.same"); err != nil || !bytes.Equal(got, value) {
		t.Errorf("after others changed theirs: %d bytes, %v", len(got), err)
	}
	a, _ := m.GetAttr(inos[2])
	if a.Blocks != 8 {
		t.Errorf("%d sectors, want 8", a.Blocks)
	}
}

func TestXattrErrors(t *testing.T) {
	m := mountNew(t, 32<<20)
	ino := m.mkfile("f").i.ino
	mustErr(t, "get of none", ignore(m.xattr(ino, "user.x")), syscall.ENODATA)
	mustErr(t, "remove of none", m.RemoveXattr(nil, ino, "user.x"), syscall.ENODATA)
	mustErr(t, "unknown prefix", m.SetXattr(nil, ino, "what.x", nil, 0), syscall.EOPNOTSUPP)
	mustErr(t, "no prefix", m.SetXattr(nil, ino, "x", nil, 0), syscall.EOPNOTSUPP)
	mustErr(t, "too large for a block", m.SetXattr(nil, ino, "user.x", make([]byte, 5000), 0), syscall.ENOSPC)
	mustErr(t, "too large at all", m.SetXattr(nil, ino, "user.x", make([]byte, 70000), 0), syscall.E2BIG)
	mustOK(t, m.SetXattr(nil, ino, "user.x", []byte("value"), 0))
	n, err := m.GetXattr(ino, "user.x", nil)
	if n != 5 || err != nil {
		t.Errorf("asking for the size: %d, %v", n, err)
	}
	n, err = m.GetXattr(ino, "user.x", make([]byte, 4))
	if n != 5 || err != syscall.ERANGE {
		t.Errorf("too short a buffer: %d, %v", n, err)
	}
	n, err = m.ListXattr(nil, ino, make([]byte, 4))
	if n != 7 || err != syscall.ERANGE {
		t.Errorf("list to too short a buffer: %d, %v", n, err)
	}
}

// wireACL builds an ACL as setxattr(2) takes it, from tag, perm, id triples.
func wireACL(e ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for ; len(e) > 0; e = e[3:] {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

const noID = 1<<32 - 1

func TestACL(t *testing.T) {
	m := mountNew(t, 32<<20)
	const access, deflt = "system.posix_acl_access", "system.posix_acl_default"
	mode := func(ino ondisk.InodeNumber) uint32 { a, _ := m.GetAttr(ino); return a.Mode & 0o7777 }
	f := m.mkfile("f").i.ino
	plain := wireACL(1, 6, noID, 4, 4, noID, 0x20, 0, noID)
	mustOK(t, m.SetXattr(nil, f, access, plain, 0))
	if mode(f) != 0o640 || len(m.xattrNames(f)) != 0 {
		t.Errorf("an ACL that is only the mode: mode %o, attributes %v", mode(f), m.xattrNames(f))
	}
	full := wireACL(1, 7, noID, 2, 6, 1000, 4, 5, noID, 0x10, 6, noID, 0x20, 4, noID)
	mustOK(t, m.SetXattr(nil, f, access, full, 0))
	if got, err := m.xattr(f, access); err != nil || !bytes.Equal(got, full) || mode(f) != 0o764 {
		t.Errorf("ACL read back: %v, %v; mode %o", got, err, mode(f))
	}
	_, err := m.SetAttr(nil, f, &SetAttr{Valid: SetMode, Mode: 0o600})
	mustOK(t, err)
	want := wireACL(1, 6, noID, 2, 6, 1000, 4, 5, noID, 0x10, 0, noID, 0x20, 0, noID)
	if got, _ := m.xattr(f, access); !bytes.Equal(got, want) {
		t.Errorf("ACL after chmod 600: %v", got)
	}
	mustErr(t, "default ACL of a file", m.SetXattr(nil, f, deflt, full, 0), syscall.EACCES)
	mustErr(t, "nonsense", m.SetXattr(nil, f, access, []byte("what"), 0), syscall.EINVAL)
	mustErr(t, "no mask", m.SetXattr(nil, f, access, wireACL(1, 7, noID, 2, 6, 1000, 4, 5, noID, 0x20, 4, noID), 0), syscall.EINVAL)

	d, err := m.Mkdir(nil, RootIno, "d", 0o755)
	mustOK(t, err)
	mustOK(t, m.SetXattr(nil, d.Ino, deflt, full, 0))
	user := &Caller{UID: 7, GID: 7, Umask: 0o077}
	sub, err := m.Mkdir(user, d.Ino, "sub", 0o775)
	mustOK(t, err)
	if sub.Mode&0o777 != 0o764 { // the umask does not count, the default ACL does
		t.Errorf("directory under a default ACL: %o", sub.Mode)
	}
	if got, err := m.xattr(sub.Ino, deflt); err != nil || !bytes.Equal(got, full) {
		t.Errorf("inherited default ACL: %v, %v", got, err)
	}
	g, of, err := m.Create(user, d.Ino, "g", 0o640, 0)
	mustOK(t, err)
	of.Release()
	want = wireACL(1, 6, noID, 2, 6, 1000, 4, 5, noID, 0x10, 4, noID, 0x20, 0, noID)
	if got, err := m.xattr(g.Ino, access); err != nil || !bytes.Equal(got, want) || g.Mode&0o777 != 0o640 {
		t.Errorf("file under a default ACL: %v, %v, mode %o", got, err, g.Mode)
	}
	mustOK(t, m.SetXattr(nil, d.Ino, deflt, wireACL(), 0))
	mustErr(t, "removed by an empty ACL", ignore(m.xattr(d.Ino, deflt)), syscall.ENODATA)
}

func TestWriteDropsCapabilities(t *testing.T) {
	m := mountNew(t, 32<<20)
	f := m.mkfile("f")
	set := func() { mustOK(t, m.SetXattr(nil, f.i.ino, "security.capability", make([]byte, 20), 0)) }
	gone := func(what string) {
		t.Helper()
		mustErr(t, what, ignore(m.xattr(f.i.ino, "security.capability")), syscall.ENODATA)
	}
	set()
	f.WriteAtFlags(nil, []byte("x"), 0, WriteKillPriv)
	gone("write")
	set()
	m.SetAttr(nil, f.i.ino, &SetAttr{Valid: SetSize, Size: 0, KillPriv: true})
	gone("truncate")
	set()
	m.SetAttr(nil, f.i.ino, &SetAttr{Valid: SetUID, UID: 3})
	gone("chown")
}
