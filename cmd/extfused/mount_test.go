package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/command"
)

func TestMountWriteRemount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("hello", "world")
	if err := os.MkdirAll(b.path("a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("a/b/c/big", strings.Repeat("0123456789abcdef", 1<<16))
	if r := extfused(t, "sync", b.mnt); r.code != 0 {
		t.Errorf("sync: exit %d: %s", r.code, r.stderr)
	}
	if m := b.mounted(); m.Source != b.img || m.Type != "fuse.extfused" {
		t.Errorf("mounted as %q of type %q; want %q of fuse.extfused", m.Source, m.Type, b.img)
	}
	b.remount()
	b.expect("hello", "world")
	b.expect("a/b/c/big", strings.Repeat("0123456789abcdef", 1<<16))
}

func TestPosixtest(t *testing.T) {
	b := newBox(t, "256M")
	b.mount()
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if reason := posixSkipped[name]; reason != "" {
				t.Skip(reason)
			}
			dir := b.path(name)
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			test(t, dir)
		})
	}
}

// posixSkipped are go-fuse's tests that do not apply, with the reason.
var posixSkipped = map[string]string{
	"FcntlFlockLocksFile": "expects POSIX locks of one process to conflict with each other, which they do on no local file system",
}

func TestReadOnlyMountLeavesTheImageAlone(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("f", "data")
	b.umount()
	before := sum(t, b.img)
	b.mount("-o", "ro")
	b.expect("f", "data")
	if err := os.WriteFile(b.path("g"), nil, 0o644); err == nil {
		t.Error("a read-only mount takes files")
	}
	must(t, "find", b.mnt)
	b.umount()
	if after := sum(t, b.img); after != before {
		t.Errorf("a read-only mount changed the image:\n%s\n%s", before, after)
	}
}

func TestReadOnlyMountOfADirtyImage(t *testing.T) {
	b := newBox(t, "64M")
	b.mount("-o", "commit=300")
	b.write("f", "data")
	if r := extfused(t, "sync", b.mnt); r.code != 0 {
		t.Fatalf("sync: %s", r.stderr)
	}
	b.kill()
	unix.Unmount(b.mnt, unix.MNT_DETACH)
	before := sum(t, b.img)
	b.mount("-o", "ro")
	b.expect("f", "data")
	if r := extfused(t, "umount", b.mnt); r.code != 0 {
		t.Fatalf("umount: %s", r.stderr)
	}
	if after := sum(t, b.img); after != before {
		t.Errorf("a read-only mount changed the image:\n%s\n%s", before, after)
	}
	b.mount() // replays, for the check at the end
}

// kill ends the daemon as a crash does.
func (b *box) kill() {
	b.t.Helper()
	pid := b.pid()
	if pid == 0 {
		b.t.Fatal("no daemon to kill")
	}
	unix.Kill(pid, unix.SIGKILL)
	b.await(pid)
}

func TestKillAndRemountOverTheDeadMount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.write("f", "synced")
	fsync(t, b.path("f"))
	b.kill()
	var st unix.Statfs_t
	if err := unix.Statfs(b.mnt, &st); err != unix.ENOTCONN && err != unix.ECONNABORTED {
		t.Errorf("statfs of the dead mount: %v, want ENOTCONN, or ECONNABORTED just after the end", err)
	}
	b.mount()
	b.expect("f", "synced")
}

func TestUmountOfADeadMountDetachesIt(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	b.kill()
	r := extfused(t, "umount", b.mnt)
	if r.code != 0 || !strings.Contains(r.stderr, "had died") {
		t.Errorf("umount: exit %d, %q", r.code, r.stderr)
	}
	if b.mounted() != nil {
		t.Error("still mounted")
	}
	b.mount() // replays, for the check at the end
}

func fsync(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	other := filepath.Join(t.TempDir(), "other")
	os.Mkdir(other, 0o755)
	r := extfused(t, "mount", b.img, other)
	if r.code != command.ExitInUse || !strings.Contains(r.stderr, fmt.Sprint(b.pid())) {
		t.Errorf("second daemon: exit %d, %q; want %d, and process %d named", r.code, r.stderr, command.ExitInUse, b.pid())
	}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", b.pid())); err != nil || string(comm) != "extfused\n" {
		t.Errorf("the daemon's name is %q, %v", comm, err)
	}
	r = extfused(t, "mount", "-o", "ro", b.img, other)
	if r.code != command.ExitInUse {
		t.Errorf("second daemon, ro: exit %d, %q; want %d", r.code, r.stderr, command.ExitInUse)
	}
}

func TestPlainUmount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	pid := b.pid()
	b.write("f", "data")
	must(t, "umount", b.mnt)
	b.await(pid)
	b.check()
	b.mount()
	b.expect("f", "data")
}

func TestUmountRefusesABusyMount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	f, err := os.Create(b.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	r := extfused(t, "umount", b.mnt)
	if r.code != command.ExitBusy || !strings.Contains(r.stderr, "in use") {
		t.Errorf("umount: exit %d, %q; want %d", r.code, r.stderr, command.ExitBusy)
	}
	f.Close()
}

func TestLazyUmountWaitsForTheLastUser(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	pid := b.pid()
	f, err := os.Create(b.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan result, 1)
	go func() { done <- runAs(t, os.Args[0], nil, "umount", "-l", b.mnt) }()
	eventually(t, "the mount is detached", func() bool { return b.mounted() == nil })
	if !alive(pid) {
		t.Error("the daemon ended while a file was open")
	}
	if _, err := f.WriteString("late"); err != nil {
		t.Error(err)
	}
	f.Close()
	if r := <-done; r.code != 0 {
		t.Errorf("umount -l: exit %d: %s", r.code, r.stderr)
	}
	b.await(pid)
	b.check()
	b.mount()
	b.expect("f", "late")
}

func TestSIGTERM(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	pid := b.pid()
	b.write("f", "data")
	unix.Kill(pid, unix.SIGTERM)
	b.await(pid)
	if b.mounted() != nil {
		t.Error("still mounted")
	}
	b.check()
	b.mount()
	b.expect("f", "data")
}

func TestSIGTERMOnABusyMount(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	pid := b.pid()
	f, err := os.Create(b.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	unix.Kill(pid, unix.SIGTERM)
	eventually(t, "the mount is detached", func() bool { return b.mounted() == nil })
	f.WriteString("late")
	f.Close()
	b.await(pid)
	b.check()
	b.mount()
	b.expect("f", "late")
}

func TestSecondSignalCutsUsersOff(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	pid := b.pid()
	f, err := os.Create(b.path("f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unix.Kill(pid, unix.SIGTERM)
	eventually(t, "the mount is detached", func() bool { return b.mounted() == nil })
	unix.Kill(pid, unix.SIGTERM)
	b.await(pid)
	b.check()
	if err := f.Chmod(0o600); err == nil {
		t.Error("a user of the mount was not cut off")
	}
}

func TestForeground(t *testing.T) {
	b := newBox(t, "64M")
	cmd := exec.Command(os.Args[0], "mount", "-f", "--metrics", "127.0.0.1:0", b.img, b.mnt)
	cmd.Env = append(os.Environ(), asMain+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
		}
	}()
	eventually(t, "mounted", func() bool { return b.mounted() != nil && b.pid() != 0 })
	if got := b.pid(); got != cmd.Process.Pid {
		t.Errorf("the daemon is process %d, want the one in the foreground, %d", got, cmd.Process.Pid)
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}

func TestMountHelper(t *testing.T) {
	b := newBox(t, "64M")
	for _, name := range []string{"mount.extfused", "mount.fuse.extfused"} {
		helper := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(os.Args[0], helper); err != nil {
			t.Fatal(err)
		}
		r := runAs(t, helper, nil, b.img, b.mnt, "-n", "-o", "rw,noatime,nofail,x-systemd.automount,commit=10", "-t", "fuse.extfused")
		if r.code != 0 {
			t.Fatalf("%s: exit %d: %s", name, r.code, r.stderr)
		}
		b.umount()
		if r := runAs(t, helper, nil, b.img, b.mnt, "-o", "bogus"); r.code != 1 || !strings.Contains(r.stderr, "bogus") {
			t.Errorf("%s -o bogus: exit %d, %q; want 1", name, r.code, r.stderr)
		}
		if r := runAs(t, helper, nil, b.img+"x", b.mnt); r.code != 32 {
			t.Errorf("%s of a missing image: exit %d, want 32", name, r.code)
		}
	}
}

func TestPartition(t *testing.T) {
	need(t, "sfdisk")
	b := newBox(t, "64M")
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, "truncate", "-s", "80M", disk)
	for _, label := range []string{"dos", "gpt"} {
		sfdisk := exec.Command("sfdisk", "-q", disk)
		sfdisk.Stdin = strings.NewReader("label: " + label + "\n2048,131072\n")
		if out, err := sfdisk.CombinedOutput(); err != nil {
			t.Fatalf("sfdisk: %v\n%s", err, out)
		}
		must(t, "dd", "if="+b.img, "of="+disk, "bs=1M", "seek=1", "conv=notrunc", "status=none")
		before := sum(t, disk)
		r := extfused(t, "mount", disk, b.mnt)
		if r.code != command.ExitNotExt4 || !strings.Contains(r.stderr, "offset=1048576") {
			t.Errorf("%s: exit %d, %q; want %d, and the offset named", label, r.code, r.stderr, command.ExitNotExt4)
		}
		if after := sum(t, disk); after != before {
			t.Errorf("%s: the refused mount changed the image", label)
		}
		if r := extfused(t, "mount", "-o", "offset=1M,sizelimit=64M", disk, b.mnt); r.code != 0 {
			t.Fatalf("%s: offset=1M: exit %d, %s", label, r.code, r.stderr)
		}
		b.write("f", label+strings.Repeat("x", 1<<20))
		b.expect("f", label+strings.Repeat("x", 1<<20))
		if r := extfused(t, "umount", b.mnt); r.code != 0 {
			t.Fatalf("umount: %s", r.stderr)
		}
		must(t, "e2fsck", "-fn", disk+"?offset=1048576")
	}
}

func TestBlockDevice(t *testing.T) {
	need(t, "losetup")
	b := newBox(t, "64M")
	r := finish(t, exec.Command("losetup", "-f", "--show", b.img))
	if r.code != 0 {
		t.Skipf("no loop devices here: %s", r.stderr)
	}
	loop := strings.TrimSpace(r.stdout)
	t.Cleanup(func() { exec.Command("losetup", "-d", loop).Run() })
	if r := extfused(t, "mount", b.img, b.mnt); r.code != command.ExitInUse {
		t.Errorf("the file under a loop device: exit %d, %q; want %d", r.code, r.stderr, command.ExitInUse)
	}
	file := b.img
	b.img = loop
	b.mount("-o", "discard")
	b.write("f", strings.Repeat("data", 1<<18))
	b.remount()
	b.expect("f", strings.Repeat("data", 1<<18))
	b.umount()
	b.img = file
	must(t, "losetup", "-d", loop)
}

func TestOrdinaryUser(t *testing.T) {
	need(t, "fusermount3")
	b := newBox(t, "64M", "-E", "root_owner=65534:65534")
	dir := t.TempDir()
	cred := &syscall.Credential{Uid: 65534, Gid: 65534}
	for p := filepath.Dir(b.mnt); p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		if st, err := os.Stat(p); err == nil {
			os.Chmod(p, st.Mode().Perm()|0o055)
		}
	}
	for _, p := range []string{b.img, b.mnt, dir, filepath.Dir(b.img)} {
		if err := os.Chown(p, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("TMPDIR", dir)
	exe := filepath.Join(dir, "extfused")
	must(t, "cp", os.Args[0], exe)
	os.Chmod(exe, 0o755)
	r := runAs(t, exe, cred, "mount", b.img, b.mnt)
	if r.code == command.ExitPermission && strings.Contains(r.stderr, "/dev/fuse") {
		t.Skipf("ordinary users cannot mount here: %s", r.stderr)
	}
	if r.code != 0 {
		t.Fatalf("mount: exit %d: %s", r.code, r.stderr)
	}
	touch := exec.Command("sh", "-c", "echo data > "+b.path("f"))
	touch.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := touch.CombinedOutput(); err != nil {
		t.Errorf("writing as the user: %v: %s", err, out)
	}
	if r := runAs(t, exe, cred, "umount", b.mnt); r.code != 0 {
		t.Errorf("umount: exit %d: %s", r.code, r.stderr)
	}
}
