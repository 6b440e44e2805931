package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The numbers of the ioctls as ioctl(2) spells them on 64 bits.
const (
	fsIocGetFlags   = 0x80086601
	fsIocSetFlags   = 0x40086602
	fsIocGetVersion = 0x80087601
	fsIocSetVersion = 0x40087602
	ext4SetVersion  = 0x40086604
	fsIocFSGetXattr = 0x801c581f
	fsIocFSSetXattr = 0x401c5820
	fsIocGetLabel   = 0x81009431
	fsIocSetLabel   = 0x41009432
	fiTrim          = 0xc0185879
	ext4Shutdown    = 0x8004587d
)

// ioctl is ioctl(2) with a buffer on an open file.
func ioctl(fd int, req uint, arg []byte) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(&arg[0]))); e != 0 {
		return e
	}
	return nil
}

// ioctlPath is ioctl on a path, opened for reading.
func ioctlPath(path string, req uint, arg []byte) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ioctl(fd, req, arg)
}

// fsIoc is an ioctl with an int argument.
func fsIoc(path string, req uint, arg int) (int, error) {
	b := make([]byte, 8)
	*(*int32)(unsafe.Pointer(&b[0])) = int32(arg)
	err := ioctlPath(path, req, b)
	return int(*(*int32)(unsafe.Pointer(&b[0]))), err
}

// inodeJournalData is chattr +j, which the kernel gives to CAP_SYS_RESOURCE only.
const inodeJournalData = 0x4000

// flagBits tries to set each inode flag by itself, looks, and clears it again.
func flagBits(s *script, name string) {
	old, err := fsIoc(s.p(name), fsIocGetFlags, 0)
	s.say("get", err)
	s.note("flags %#x", old)
	for bit := range 31 {
		if 1<<bit == inodeJournalData { // the kernel wants a right for it that root may lack
			continue
		}
		_, err := fsIoc(s.p(name), fsIocSetFlags, old|1<<bit)
		got, _ := fsIoc(s.p(name), fsIocGetFlags, 0)
		s.note("%#x: %s %#x", 1<<bit, errno(err), got)
		_, err = fsIoc(s.p(name), fsIocSetFlags, old)
		got, _ = fsIoc(s.p(name), fsIocGetFlags, 0)
		if err != nil || got != old {
			s.note("back: %s %#x", errno(err), got)
		}
	}
}

// xflagBits does the same with struct fsxattr, and with projects.
func xflagBits(s *script, name string) {
	x := make([]byte, 28)
	s.say("get", ioctlPath(s.p(name), fsIocFSGetXattr, x))
	s.note("%x", x)
	for bit := range 32 {
		y := bytes.Clone(x)
		*(*uint32)(unsafe.Pointer(&y[0])) |= 1 << bit
		err := ioctlPath(s.p(name), fsIocFSSetXattr, y)
		z := make([]byte, 28)
		ioctlPath(s.p(name), fsIocFSGetXattr, z)
		s.note("%#x: %s %x", 1<<bit, errno(err), z)
		if err := ioctlPath(s.p(name), fsIocFSSetXattr, x); err != nil {
			s.say("back", err)
		}
	}
	y := bytes.Clone(x)
	y[12] = 7
	s.say("project", ioctlPath(s.p(name), fsIocFSSetXattr, y))
	y = bytes.Clone(x)
	y[4] = 7
	s.say("extsize", ioctlPath(s.p(name), fsIocFSSetXattr, y))
}

func trimRange(start, length, minlen uint64) []byte {
	b := make([]byte, 24)
	for k, v := range []uint64{start, length, minlen} {
		*(*uint64)(unsafe.Pointer(&b[8*k])) = v
	}
	return b
}

func labels(s *script) {
	for _, l := range []string{"", "a label", strings.Repeat("l", 16), strings.Repeat("l", 17), strings.Repeat("l", 255)} {
		b := make([]byte, 256)
		copy(b, l)
		s.say(fmt.Sprintf("set %q", l), ioctlPath(s.dir, fsIocSetLabel, b))
		clear(b)
		s.say("get", ioctlPath(s.p("file"), fsIocGetLabel, b))
		s.note("%q", b[:17])
	}
}

// refusals are ioctls that fail, each with its errno.
func refusals(s *script) {
	_, err := fsIoc(s.p("file"), fsIocSetVersion, 5)
	s.say("FS_IOC_SETVERSION", err)
	_, err = fsIoc(s.p("file"), ext4SetVersion, 5)
	s.say("EXT4_IOC_SETVERSION", err)
	_, err = fsIoc(s.p("file"), fsIocGetVersion, 5)
	s.say("FS_IOC_GETVERSION", err)
	_, err = fsIoc(s.p("file"), ext4Shutdown, 3)
	s.say("EXT4_IOC_SHUTDOWN with mode 3", err)
	s.say("FITRIM of nothing", ioctlPath(s.dir, fiTrim, trimRange(0, 1, 0)))
	s.say("FITRIM behind the end", ioctlPath(s.dir, fiTrim, trimRange(1<<50, 1<<20, 0)))
	s.say("FITRIM of too long runs", ioctlPath(s.dir, fiTrim, trimRange(0, 1<<40, 1<<40)))
	_, err = fsIoc(s.p("file"), 0x8004667f, 0)
	s.say("an unknown one", err)
	old, err := fsIoc(s.p("file"), fsIocGetFlags, 0)
	s.say("get", err)
	_, err = fsIoc(s.p("file"), fsIocSetFlags, old|0x40)
	s.say("nodump", err)
	_, err = fsIoc(s.p("file"), fsIocSetFlags, old|0x10)
	s.say("immutable", err)
	x := make([]byte, 28)
	s.say("FSGETXATTR", ioctlPath(s.p("file"), fsIocFSGetXattr, x))
	s.say("FSSETXATTR", ioctlPath(s.p("file"), fsIocFSSetXattr, x))
	b := make([]byte, 256)
	s.say("label", ioctlPath(s.p("file"), fsIocGetLabel, b))
}

// immutableDir is a directory that must not change, or only grow.
func immutableDir(flag int) func(s *script) {
	return func(s *script) {
		old, err := fsIoc(s.p("fulldir"), fsIocGetFlags, 0)
		s.say("get", err)
		_, err = fsIoc(s.p("fulldir"), fsIocSetFlags, old|flag)
		s.say("set", err)
		fd, err := unix.Open(s.p("fulldir/new"), unix.O_CREAT|unix.O_WRONLY, 0o644)
		s.say("create", err)
		unix.Close(fd)
		s.say("mkdir", unix.Mkdir(s.p("fulldir/newdir"), 0o755))
		s.say("unlink", unix.Unlink(s.p("fulldir/f")))
		s.say("rename in", unix.Rename(s.p("other"), s.p("fulldir/other")))
		s.say("rename out", unix.Rename(s.p("fulldir/f"), s.p("f")))
		s.say("rename within", unix.Rename(s.p("fulldir/f"), s.p("fulldir/g")))
		s.say("link", unix.Link(s.p("file"), s.p("fulldir/hard")))
		s.say("rmdir", unix.Rmdir(s.p("fulldir/sub")))
		s.say("chmod", unix.Chmod(s.p("fulldir"), 0o700))
		s.say("utimes now", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("fulldir"), nil, 0))
		s.say("utimes", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("fulldir"), []unix.Timespec{{Sec: 5}, {Sec: 5}}, 0))
		s.say("setxattr", unix.Setxattr(s.p("fulldir"), "user.x", []byte("v"), 0))
		s.say("write a file in it", unix.Truncate(s.p("fulldir/f"), 5))
		_, err = fsIoc(s.p("fulldir"), fsIocSetFlags, old)
		s.say("clear", err)
	}
}

// immutableFile is the same for a file.
func immutableFile(flag int) func(s *script) {
	return func(s *script) {
		old, err := fsIoc(s.p("file"), fsIocGetFlags, 0)
		s.say("get", err)
		before, err := unix.Open(s.p("file"), unix.O_RDWR, 0)
		s.say("open before", err)
		_, err = fsIoc(s.p("file"), fsIocSetFlags, old|flag)
		s.say("set", err)
		for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_WRONLY | unix.O_APPEND, unix.O_RDWR | unix.O_TRUNC | unix.O_APPEND} {
			fd, err := unix.Open(s.p("file"), flags, 0)
			s.say(fmt.Sprintf("open %#x", flags), err)
			unix.Close(fd)
		}
		s.say("truncate", unix.Truncate(s.p("file"), 3))
		s.say("ftruncate", unix.Ftruncate(before, 3))
		s.say("chmod", unix.Chmod(s.p("file"), 0o600))
		s.say("chown", unix.Chown(s.p("file"), 1, 1))
		s.say("utimes now", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), nil, 0))
		s.say("utimes", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), []unix.Timespec{{Sec: 5}, {Sec: 5}}, 0))
		s.say("setxattr", unix.Setxattr(s.p("file"), "user.x", []byte("v"), 0))
		s.say("removexattr", unix.Removexattr(s.p("file"), "user.x"))
		s.say("link", unix.Link(s.p("file"), s.p("hard")))
		s.say("rename", unix.Rename(s.p("file"), s.p("renamed")))
		s.say("unlink", unix.Unlink(s.p("file")))
		s.say("rename onto", unix.Rename(s.p("other"), s.p("file")))
		unix.Close(before)
		_, err = fsIoc(s.p("file"), fsIocSetFlags, old)
		s.say("clear", err)
	}
}

// fallocateFrozen is fallocate(2) on a file that was open before its flag was set.
func fallocateFrozen(flag int) func(s *script) {
	return func(s *script) {
		s.withFile("file", unix.O_RDWR, func(fd int) {
			old, err := fsIoc(s.p("file"), fsIocGetFlags, 0)
			s.say("get", err)
			_, err = fsIoc(s.p("file"), fsIocSetFlags, old|flag)
			s.say("set", err)
			s.say("fallocate", unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 100000))
			s.say("punch", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 100))
			_, err = fsIoc(s.p("file"), fsIocSetFlags, old)
			s.say("clear", err)
			s.say("utimes", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), []unix.Timespec{{Sec: 5}, {Sec: 5}}, 0))
		})
	}
}

func init() {
	type single = struct {
		name string
		user bool
		do   func(s *script)
	}
	singles = append(singles,
		single{"each inode flag on a file", false, func(s *script) { flagBits(s, "file") }},
		single{"each inode flag on a directory", false, func(s *script) { flagBits(s, "emptydir") }},
		single{"each fsxattr flag on a file", false, func(s *script) { xflagBits(s, "file") }},
		single{"each fsxattr flag on a directory", false, func(s *script) { xflagBits(s, "emptydir") }},
		single{"ioctls that are refused", false, refusals},
		single{"ioctls that are refused to a user", true, refusals},
		single{"labels", false, labels},
		single{"labels as a user", true, labels},
		single{"an immutable directory", false, immutableDir(0x10)},
		single{"an append-only directory", false, immutableDir(0x20)},
		single{"fallocate on an immutable file", false, fallocateFrozen(0x10)},
		single{"fallocate on an append-only file", false, fallocateFrozen(0x20)},
		single{"an immutable file", false, immutableFile(0x10)},
		single{"an append-only file", false, immutableFile(0x20)},
	)
}
