package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"extfused/fs/fusefs"
)

// countFiles is how many files a test makes to count requests per file.
const countFiles = 50

// perFile runs fn for each of countFiles names and returns how many requests
// of each kind one call cost on average, rounded.
func (b *box) perFile(fn func(name string)) map[string]uint64 {
	b.t.Helper()
	before := b.stats()
	for k := range countFiles {
		fn(b.path("dir", fmt.Sprintf("f%d", k)))
	}
	after := b.stats()
	n := map[string]uint64{}
	for i := range after.FUSE.Ops {
		d := after.FUSE.Ops[i].Requests - before.FUSE.Ops[i].Requests
		if d = (d + countFiles/2) / countFiles; d > 0 {
			n[fusefs.Op(i).String()] = d
		}
	}
	return n
}

// TestRequestsPerFile pins down what the kernel asks for each created file.
// The figures are exact, and a change of settings that costs a request shows
// here first.
func TestRequestsPerFile(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	if err := os.Mkdir(b.path("dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("warm", "up") // FLUSH is asked once
	untar := func(name string) { untarOne(t, name) }
	b.expectRequests("untar", b.perFile(untar), map[string]uint64{
		"lookup": 1, "create": 1, "write": 1, "release": 1,
		"getattr":  1, // of the directory, which the last create has changed: its permissions are checked
		"getxattr": 2, // security.capability: at the first write, and at chown
		"setattr":  4, // mtime of the write, utimes, chown, chmod
	})
	b.expectRequests("unlink", b.perFile(func(name string) { unix.Unlink(name) }), map[string]uint64{
		"unlink": 1, "forget": 1,
		"getattr": 1, // of the directory
		"setattr": 1, // the kernel's ctime, when it drops the inode
	})
	b.remount("-o", "nouser_xattr")
	b.write("warm", "up")
	b.expectRequests("untar, nouser_xattr", b.perFile(untar), map[string]uint64{
		"lookup": 1, "create": 1, "write": 1, "release": 1, "getattr": 1, "setattr": 4,
	})
}

func (b *box) expectRequests(what string, got, want map[string]uint64) {
	b.t.Helper()
	total := uint64(0)
	for _, n := range got {
		total += n
	}
	b.t.Logf("%s: %d requests: %v", what, total, got)
	for op := range got {
		if got[op] > want[op] {
			b.t.Errorf("%s: %d × %s, want %d", what, got[op], op, want[op])
		}
	}
}

// untarOne does to a file what GNU tar does as root.
func untarOne(t *testing.T, name string) {
	t.Helper()
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	steps := []error{
		second(unix.Write(fd, []byte("content"))),
		futimens(fd, [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 1e9}}),
		unix.Fchown(fd, 0, 0),
		unix.Fchmod(fd, 0o644),
		unix.Close(fd),
	}
	for i, err := range steps {
		if err != nil {
			t.Fatalf("%s: step %d: %v", name, i, err)
		}
	}
}

// futimens is utimensat(2) on the file itself.
func futimens(fd int, times [2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func second[A any](_ A, err error) error { return err }

// TestSeekDataSeesDirtyPages: the kernel asks for holes without writing back
// what it has in its cache.
func TestSeekDataSeesDirtyPages(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	f, err := os.Create(b.path("sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	f.Sync()
	const at = 300 << 10
	if _, err := f.WriteAt([]byte("dirty"), at); err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	expectSeek(t, fd, 0, unix.SEEK_DATA, at&^4095)
	expectSeek(t, fd, 0, unix.SEEK_HOLE, 0)
	expectSeek(t, fd, at, unix.SEEK_HOLE, (at|4095)+1)
	if _, err := unix.Seek(fd, 512<<10, unix.SEEK_DATA); err != unix.ENXIO {
		t.Errorf("SEEK_DATA behind the data: %v, want ENXIO", err)
	}
	if _, err := f.WriteAt([]byte("beyond"), 2<<20); err != nil { // grows the file in the cache only
		t.Fatal(err)
	}
	expectSeek(t, fd, 512<<10, unix.SEEK_DATA, 2<<20)
	expectSeek(t, fd, 2<<20, unix.SEEK_HOLE, 2<<20+6)
	dst := b.path("copy")
	must(t, "cp", "--sparse=auto", b.path("sparse"), dst)
	must(t, "cmp", b.path("sparse"), dst)
}

func expectSeek(t *testing.T, fd int, off int64, whence int, want int64) {
	t.Helper()
	if got, err := unix.Seek(fd, off, whence); err != nil || got != want {
		t.Errorf("seek(%d, %d) = %d, %v; want %d", off, whence, got, err, want)
	}
}

// TestMappedWritesSurvive: pages dirtied through a memory map arrive too.
func TestMappedWritesSurvive(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	f, err := os.Create(b.path("mapped"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	f.Truncate(size)
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m {
		m[i] = byte(i * 7)
	}
	want := bytes.Clone(m)
	unix.Munmap(m)
	f.Close()
	b.remount()
	b.expect("mapped", string(want))
}

// TestSetUserIDGoes: writing, truncating and chowning drop set-user-id, though
// the kernel leaves it to us (HANDLE_KILLPRIV_V2).
func TestSetUserIDGoes(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	for name, script := range map[string]string{
		"write":    "echo x >> %s",
		"truncate": "truncate -s 1 %s",
		"open":     ": > %s",
	} {
		b.write(name, "program")
		if err := os.Chmod(b.path(name), 0o4777); err != nil {
			t.Fatal(err)
		}
		sh := exec.Command("sh", "-c", fmt.Sprintf(script, b.path(name)))
		sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		for p := filepath.Dir(b.mnt); p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
			os.Chmod(p, 0o755)
		}
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		b.expectMode(name, 0o777)
	}
	b.write("chown", "program")
	os.Chmod(b.path("chown"), 0o6777)
	os.Chown(b.path("chown"), 1, 1)
	b.expectMode("chown", 0o777)
	b.remount()
	for _, name := range []string{"write", "truncate", "open", "chown"} {
		b.expectMode(name, 0o777)
	}
}

// expectMode checks the permission bits, set-user-id and its like included.
func (b *box) expectMode(name string, want uint32) {
	b.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(b.path(name), &st); err != nil {
		b.t.Fatal(err)
	}
	if got := st.Mode & 0o7777; got != want {
		b.t.Errorf("mode of %s is %o, want %o", name, got, want)
	}
}

// TestTimesStay: what utimes(2) set is not changed by write-back behind it.
func TestTimesStay(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	untarOne(t, b.path("f"))
	want := []unix.Timespec{{Sec: 1e9 - 1, Nsec: 123456789}, {Sec: 1e9, Nsec: 987654321}}
	f, err := os.OpenFile(b.path("g"), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 3<<20))
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, b.path("g"), want, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for range 2 {
		var st unix.Stat_t
		if err := unix.Stat(b.path("g"), &st); err != nil {
			t.Fatal(err)
		}
		if st.Atim != want[0] || st.Mtim != want[1] {
			t.Errorf("times %v %v, want %v", st.Atim, st.Mtim, want)
		}
		b.remount()
	}
}

// TestLongNames: FUSE passes on names that ext4 cannot hold.
func TestLongNames(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	long := strings.Repeat("n", 256)
	if err := os.WriteFile(b.path(long), nil, 0o644); !os.IsNotExist(err) && !strings.Contains(fmt.Sprint(err), "too long") {
		t.Errorf("create: %v", err)
	}
	if _, err := os.Stat(b.path(long)); !strings.Contains(fmt.Sprint(err), "too long") {
		t.Errorf("stat: %v, want ENAMETOOLONG", err)
	}
	if err := os.WriteFile(b.path(long[:255]), nil, 0o644); err != nil {
		t.Error(err)
	}
}

// TestBirthTime: statx(2) knows when a file was made.
func TestBirthTime(t *testing.T) {
	b := newBox(t, "64M", "-I", "256")
	b.mount()
	b.write("f", "x")
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, b.path("f"), 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mask&unix.STATX_BTIME == 0 || st.Btime.Sec != st.Ctime.Sec && st.Btime.Sec+1 != st.Ctime.Sec {
		t.Errorf("birth %v (mask %x), ctime %v", st.Btime, st.Mask, st.Ctime)
	}
}

// TestFreeSpaceReturns: df right after rm shows the space.
func TestFreeSpaceReturns(t *testing.T) {
	b := newBox(t, "128M")
	b.mount()
	var before, after unix.Statfs_t
	unix.Statfs(b.mnt, &before)
	for i := range 50 {
		b.write(fmt.Sprintf("f%d", i), strings.Repeat("x", 1<<19))
	}
	for i := range 50 {
		os.Remove(b.path(fmt.Sprintf("f%d", i)))
	}
	eventually(t, "all space is free again", func() bool {
		unix.Statfs(b.mnt, &after)
		return after.Bfree == before.Bfree && after.Ffree == before.Ffree
	})
}

// TestXattr: attributes of all sizes come back, also after a remount.
func TestXattr(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("f", "x")
	values := map[string]string{"user.small": "v", "user.empty": "", "user.large": strings.Repeat("v", 900), "trusted.t": "root's"}
	for name, v := range values {
		if err := unix.Setxattr(b.path("f"), name, []byte(v), 0); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := unix.Setxattr(b.path("f"), "user.small", []byte("w"), unix.XATTR_CREATE); err != unix.EEXIST {
		t.Errorf("XATTR_CREATE: %v, want EEXIST", err)
	}
	if err := unix.Setxattr(b.path("f"), "user.none", []byte("w"), unix.XATTR_REPLACE); err != unix.ENODATA {
		t.Errorf("XATTR_REPLACE: %v, want ENODATA", err)
	}
	for range 2 {
		for name, v := range values {
			buf := make([]byte, 1024)
			if n, err := unix.Getxattr(b.path("f"), name, buf); err != nil || string(buf[:n]) != v {
				t.Errorf("%s: %.20q, %v; want %.20q", name, buf[:max(n, 0)], err, v)
			}
		}
		buf := make([]byte, 1024)
		n, err := unix.Listxattr(b.path("f"), buf)
		if names := strings.Split(strings.TrimSuffix(string(buf[:max(n, 0)]), "\x00"), "\x00"); err != nil || len(names) != len(values) {
			t.Errorf("list: %q, %v", names, err)
		}
		if _, err := unix.Getxattr(b.path("f"), "user.large", buf[:10]); err != unix.ERANGE {
			t.Errorf("a short buffer: %v, want ERANGE", err)
		}
		b.remount()
	}
	if err := unix.Removexattr(b.path("f"), "user.large"); err != nil {
		t.Error(err)
	}
	if _, err := unix.Getxattr(b.path("f"), "user.large", nil); err != unix.ENODATA {
		t.Errorf("removed: %v, want ENODATA", err)
	}
}

// TestACL: ACLs decide, default ones are inherited and replace the umask.
func TestACL(t *testing.T) {
	need(t, "setfacl", "getfacl")
	b := newBox(t, "64M")
	b.mount()
	for p := b.mnt; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	b.write("f", "secret")
	os.Chmod(b.path("f"), 0o600)
	cat := func() error {
		cmd := exec.Command("cat", b.path("f"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd.Run()
	}
	if cat() == nil {
		t.Error("mode 0600 lets others read")
	}
	must(t, "setfacl", "-m", "u:65534:r", b.path("f"))
	if err := cat(); err != nil {
		t.Errorf("the ACL does not let the user read: %v", err)
	}
	os.Mkdir(b.path("d"), 0o755)
	must(t, "setfacl", "-d", "-m", "u:65534:rwx,g::rwx,o::r", b.path("d"))
	must(t, "sh", "-c", "umask 077; echo x > "+b.path("d/f")+"; mkdir "+b.path("d/sub"))
	acl := must(t, "getfacl", "-cpn", b.path("d/f"))
	for _, line := range []string{"user:65534:rwx\t", "mask::rw-", "other::r--"} {
		if !strings.Contains(acl, line) {
			t.Errorf("the new file has no %q:\n%s", line, acl)
		}
	}
	if sub := must(t, "getfacl", "-cpn", b.path("d/sub")); !strings.Contains(sub, "default:user:65534:rwx") {
		t.Errorf("the new directory has no default ACL:\n%s", sub)
	}
	must(t, "sh", "-c", "umask 077; echo x > "+b.path("plain"))
	b.expectMode("plain", 0o600) // without a default ACL the umask counts
	b.remount()
	if err := cat(); err != nil {
		t.Errorf("after a remount the ACL does not let the user read: %v", err)
	}
}

// TestChattr: lsattr(1) and chattr(1) work through ioctl(2).
func TestChattr(t *testing.T) {
	need(t, "chattr", "lsattr")
	b := newBox(t, "64M")
	b.mount()
	b.write("f", "x")
	must(t, "chattr", "+d", b.path("f"))
	if out := must(t, "lsattr", b.path("f")); !strings.Contains(strings.Fields(out)[0], "d") {
		t.Errorf("lsattr: %s", out)
	}
	must(t, "chattr", "+i", b.path("f"))
	if f, err := os.OpenFile(b.path("f"), os.O_WRONLY, 0); err == nil {
		f.Close()
		t.Error("an immutable file was opened for writing")
	}
	must(t, "chattr", "-i", b.path("f"))
	b.write("f", "y")
	os.Mkdir(b.path("dir"), 0o755)
	must(t, "lsattr", "-d", b.path("dir"))
}
