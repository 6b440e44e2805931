package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noted tells whether reading path just now left a trace in its atime.
func (b *box) noted(name string) bool {
	b.t.Helper()
	path := b.path(name)
	old := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9 - 5}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, old, 0); err != nil {
		b.t.Fatal(err)
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		os.ReadDir(path)
	} else {
		os.ReadFile(path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		b.t.Fatal(err)
	}
	return st.Atim != old[0]
}

// TestAtimeOptions: the options of atime reach the file system.
func TestAtimeOptions(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("f", "content")
	if err := os.Mkdir(b.path("d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options   string
		file, dir bool
		shown     string // by /proc/self/mounts
	}{
		{"relatime", true, true, "relatime"}, // the ctime of utimes is newer
		{"noatime", false, false, "noatime"},
		{"strictatime", true, true, ""},
		{"nodiratime", true, false, "nodiratime"},
		{"lazytime", true, true, "lazytime"},
		{"noatime,relatime", true, true, "relatime"},
		{"nodiratime,diratime", true, true, "relatime"},
		{"strictatime,noatime,lazytime,nolazytime", false, false, "noatime"},
	} {
		b.remount("-o", c.options)
		if file, dir := b.noted("f"), b.noted("d"); file != c.file || dir != c.dir {
			t.Errorf("%s: a read file is noted: %v, a listed directory: %v; want %v, %v", c.options, file, dir, c.file, c.dir)
		}
		if m := must(t, "grep", " "+b.mnt+" ", "/proc/self/mounts"); !strings.Contains(m, c.shown) {
			t.Errorf("%s: /proc/self/mounts says %s", c.options, m)
		}
	}
	// strictatime sees every opening, even of what is cached.
	b.remount("-o", "strictatime")
	for range 3 {
		if !b.noted("f") {
			t.Error("strictatime: a file that is read again is not noted")
		}
	}
}

// TestOneOwner: uid= and gid= show all files as one user's.
func TestOneOwner(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("roots", "x")
	b.remount("-o", "uid=1234,gid=4321")
	for p := filepath.Dir(b.mnt); p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	owner := func(name string, uid, gid uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(b.path(name), &st); err != nil || st.Uid != uid || st.Gid != gid {
			t.Errorf("%s belongs to %d:%d, %v; want %d:%d", name, st.Uid, st.Gid, err, uid, gid)
		}
	}
	owner(".", 1234, 4321)
	owner("roots", 1234, 4321)
	sh := exec.Command("sh", "-c", fmt.Sprintf("cd %s && echo y >> roots && mkdir d && echo z > d/f && ln -s f d/l && chown 1234:4321 d/f", b.mnt))
	sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 4321}}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Errorf("the owner may not write: %v: %s", err, out)
	}
	for _, name := range []string{"d", "d/f", "d/l"} {
		owner(name, 1234, 4321)
	}
	if err := os.Chown(b.path("roots"), 5, 5); !os.IsPermission(err) {
		t.Errorf("chown to another: %v, want EPERM", err)
	}
	if err := os.Chown(b.path("roots"), 1234, 4321); err != nil {
		t.Errorf("chown to the owner: %v", err)
	}
	b.remount()
	owner("roots", 0, 0)
	owner("d/f", 1234, 4321)
}

// TestIDMappedMount: with idmap the mount can be mounted again with other ids.
func TestIDMappedMount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount("-o", "idmap")
	b.write("roots", "x")
	os.Mkdir(b.path("d"), 0o777)
	os.Chmod(b.path("d"), 0o777)
	again := t.TempDir()
	fd, err := idMapped(b.mnt, again, 0, 100000)
	if err != nil {
		t.Skipf("no id-mapped mounts here: %v", err)
	}
	unix.Close(fd)
	defer unix.Unmount(again, unix.MNT_DETACH)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(again, "roots"), &st); err != nil || st.Uid != 100000 {
		t.Errorf("the file of user 0 belongs to %d, %v; want 100000", st.Uid, err)
	}
	os.Chmod(filepath.Dir(again), 0o755)
	os.Chmod(again, 0o755)
	sh := exec.Command("sh", "-c", "echo y > "+filepath.Join(again, "d/made"))
	sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 100007, Gid: 100007}}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("creating a file as 100007: %v: %s", err, out)
	}
	if err := unix.Stat(b.path("d/made"), &st); err != nil || st.Uid != 7 || st.Gid != 7 {
		t.Errorf("what 100007 made belongs to %d:%d, %v; want 7:7", st.Uid, st.Gid, err)
	}
	// What does not say who asks is still root's.
	b.write("roots", strings.Repeat("y", 10000))
	if err := unix.Setxattr(b.path("roots"), "trusted.t", []byte("v"), 0); err != nil {
		t.Error(err)
	}
	if n, err := unix.Listxattr(b.path("roots"), nil); n == 0 || err != nil {
		t.Errorf("listxattr as root: %d bytes, %v", n, err)
	}
}

// idMapped mounts from at to, with count ids from base on shifted to 0.
func idMapped(from, to string, base, shifted int) (int, error) {
	const count = 65536
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: base, HostID: shifted, Size: count}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: base, HostID: shifted, Size: count}},
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return 0, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return 0, err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// TestShutdownIoctl: after EXT4_IOC_SHUTDOWN nothing works, what was synced is
// there after the next mount, and what the mode let go is not.
func TestShutdownIoctl(t *testing.T) {
	for mode, kept := range map[uint32]bool{0: true, 1: true, 2: false} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			b := newBox(t, "64M")
			b.mount("-o", "commit=300")
			b.write("synced", "x")
			fsync(t, b.path("synced"))
			b.write("late", "y")
			f, err := os.Open(b.mnt)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&mode))); e != 0 {
				t.Fatalf("EXT4_IOC_SHUTDOWN: %v", e)
			}
			f.Close()
			if err := os.WriteFile(b.path("after"), nil, 0o644); !strings.Contains(fmt.Sprint(err), "input/output") {
				t.Errorf("creating a file afterwards: %v, want EIO", err)
			}
			b.kill()
			unix.Unmount(b.mnt, unix.MNT_DETACH)
			b.mount()
			b.expect("synced", "x")
			if _, err := os.Stat(b.path("late")); (err == nil) != kept {
				t.Errorf("the file that was not synced: %v, want it kept: %v", err, kept)
			}
			if _, err := os.Stat(b.path("after")); err == nil {
				t.Error("a file was made after the shutdown")
			}
		})
	}
}

// TestLabelIoctl: the label that a program sets is the image's.
func TestLabelIoctl(t *testing.T) {
	b := newBox(t, "64M", "-L", "before")
	b.mount()
	f, err := os.Open(b.mnt)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var label [256]byte
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x81009431, uintptr(unsafe.Pointer(&label))); e != 0 || !strings.HasPrefix(string(label[:]), "before\x00") {
		t.Errorf("FS_IOC_GETFSLABEL: %v, %q", e, label[:20])
	}
	copy(label[:], "afterwards\x00")
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x41009432, uintptr(unsafe.Pointer(&label))); e != 0 {
		t.Errorf("FS_IOC_SETFSLABEL: %v", e)
	}
	f.Close()
	b.umount()
	if out := must(t, "dumpe2fs", "-h", b.img); !strings.Contains(out, "afterwards") {
		t.Errorf("dumpe2fs does not show the label:\n%s", out)
	}
}

// TestDirectoryCookies: what telldir(3) gave stays good while the directory
// grows, shrinks and gets an index; names that stay come up exactly once.
func TestDirectoryCookies(t *testing.T) {
	b := newBox(t, "128M")
	b.mount()
	const stay = 300
	os.Mkdir(b.path("d"), 0o755)
	for k := range stay {
		b.write(fmt.Sprintf("d/stays-%03d", k), "")
	}
	fd, err := unix.Open(b.path("d"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(fd) }()
	seen := map[string]int{}
	buf := make([]byte, 2048)
	for round := 0; ; round++ {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if strings.HasPrefix(name, "stays-") {
				seen[name]++
			}
		}
		pos := cookieOfLast(t, buf[:n])
		for k := range 100 {
			b.write(fmt.Sprintf("d/round-%d-%d", round, k), "")
		}
		for k := 0; k < 100; k += 2 {
			os.Remove(b.path("d", fmt.Sprintf("round-%d-%d", round, k)))
		}
		if pos < 0 {
			t.Fatalf("cookie %#x is negative: NFS could not keep it", pos)
		}
		// A fresh descriptor goes on where this one is.
		other, err := unix.Open(b.path("d"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Seek(other, pos, 0); err != nil {
			t.Fatalf("seekdir(%#x): %v", pos, err)
		}
		unix.Close(fd)
		fd = other
	}
	for k := range stay {
		if n := seen[fmt.Sprintf("stays-%03d", k)]; n != 1 {
			t.Errorf("stays-%03d came up %d times", k, n)
		}
	}
}

// cookieOfLast is d_off of the last entry of a buffer of getdents64(2).
func cookieOfLast(t *testing.T, b []byte) (off int64) {
	t.Helper()
	for len(b) > 0 {
		off = *(*int64)(unsafe.Pointer(&b[8]))
		b = b[*(*uint16)(unsafe.Pointer(&b[16])):]
	}
	return off
}
