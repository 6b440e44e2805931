package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// script is a check written as a series of calls, each result in the log.
type script struct {
	dir string
	log []string
}

func (s *script) p(name string) string { return filepath.Join(s.dir, name) }

func (s *script) say(what string, err error) {
	s.log = append(s.log, what+" "+errno(err))
}

func (s *script) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// withFile opens a file around fn.
func (s *script) withFile(name string, flags int, fn func(fd int)) {
	fd, err := unix.Open(s.p(name), flags|unix.O_CLOEXEC, 0o644)
	s.say("open", err)
	if err == nil {
		fn(fd)
		s.say("fsync", unix.Fsync(fd))
		s.say("close", unix.Close(fd))
	}
}

func (s *script) stat(name string) (st unix.Stat_t) {
	s.say("lstat "+name, unix.Lstat(s.p(name), &st))
	return st
}

var singles = []struct {
	name string
	user bool
	do   func(s *script)
}{
	{"write O_APPEND", false, func(s *script) {
		s.withFile("file", unix.O_WRONLY|unix.O_APPEND, func(fd int) {
			unix.Seek(fd, 0, 0)
			n, err := unix.Write(fd, []byte("appended"))
			s.note("%d", n)
			s.say("write", err)
		})
	}},
	{"write past the end leaves a hole", false, func(s *script) {
		s.withFile("file", unix.O_RDWR, func(fd int) {
			_, err := unix.Pwrite(fd, []byte("far"), 1<<20)
			s.say("pwrite", err)
			b := make([]byte, 16)
			n, err := unix.Pread(fd, b, 5000)
			s.note("%d %q %v", n, b, err)
		})
	}},
	{"truncate zeroes the tail", false, func(s *script) {
		s.say("shrink", unix.Truncate(s.p("file"), 7))
		s.say("grow", unix.Truncate(s.p("file"), 30))
		b, err := os.ReadFile(s.p("file"))
		s.note("%q %v", b, err)
	}},
	{"truncate to 16 TiB and past it", false, func(s *script) {
		for _, size := range []int64{1<<44 - 4096, 1 << 44, 1<<44 + 1, 1 << 62} {
			s.say(fmt.Sprint(size), unix.Truncate(s.p("other"), size))
		}
		unix.Truncate(s.p("other"), 3)
	}},
	{"pwrite at negative offset", false, func(s *script) {
		s.withFile("file", unix.O_RDWR, func(fd int) { _, err := unix.Pwrite(fd, []byte("x"), -5); s.say("pwrite", err) })
	}},
	{"read of a file opened O_WRONLY", false, func(s *script) {
		s.withFile("file", unix.O_WRONLY, func(fd int) { _, err := unix.Read(fd, make([]byte, 5)); s.say("read", err) })
	}},
	{"write of a file opened O_RDONLY", false, func(s *script) {
		s.withFile("file", unix.O_RDONLY, func(fd int) { _, err := unix.Write(fd, []byte("x")); s.say("write", err) })
	}},
	{"unlinked while open", false, func(s *script) {
		s.withFile("other", unix.O_RDWR, func(fd int) {
			s.say("unlink", unix.Unlink(s.p("other")))
			_, err := unix.Pwrite(fd, []byte("still here"), 0)
			s.say("pwrite", err)
			var st unix.Stat_t
			s.say("fstat", unix.Fstat(fd, &st))
			b := make([]byte, 20)
			n, err := unix.Pread(fd, b, 0)
			s.note("nlink %d size %d read %q %v", st.Nlink, st.Size, b[:n], err)
		})
	}},
	{"fallocate grows", false, func(s *script) { s.fallocate(0, 0, 100000) }},
	{"fallocate KEEP_SIZE", false, func(s *script) { s.fallocate(unix.FALLOC_FL_KEEP_SIZE, 0, 100000) }},
	{"fallocate PUNCH_HOLE unaligned", false, func(s *script) {
		s.fill("other", 40000)
		s.fallocateOn("other", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1000, 20000)
	}},
	{"fallocate PUNCH_HOLE without KEEP_SIZE", false, func(s *script) { s.fallocate(unix.FALLOC_FL_PUNCH_HOLE, 0, 10) }},
	{"fallocate PUNCH_HOLE past the end", false, func(s *script) {
		s.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 100000, 4096)
	}},
	{"fallocate ZERO_RANGE unaligned", false, func(s *script) {
		s.fill("other", 40000)
		s.fallocateOn("other", unix.FALLOC_FL_ZERO_RANGE, 1000, 50000)
	}},
	{"fallocate ZERO_RANGE KEEP_SIZE", false, func(s *script) {
		s.fill("other", 40000)
		s.fallocateOn("other", unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 1000, 50000)
	}},
	{"fallocate length 0", false, func(s *script) { s.fallocate(0, 0, 0) }},
	{"fallocate negative", false, func(s *script) { s.fallocate(0, -1, 10) }},
	{"fallocate unknown mode", false, func(s *script) { s.fallocate(0x80, 0, 10) }},
	{"fallocate a directory", false, func(s *script) {
		fd, err := unix.Open(s.p("dir"), unix.O_RDONLY, 0)
		s.say("open", err)
		s.say("fallocate", unix.Fallocate(fd, 0, 0, 10))
		unix.Close(fd)
	}},
	{"seek data and hole", false, func(s *script) {
		s.withFile("sparse", unix.O_RDWR|unix.O_CREAT, func(fd int) {
			unix.Ftruncate(fd, 1<<20)
			unix.Pwrite(fd, []byte("x"), 100000)
			unix.Fsync(fd)
			for _, off := range []int64{0, 100000, 1<<20 - 1, 1 << 20, 1 << 21, -1} {
				d, e1 := unix.Seek(fd, off, unix.SEEK_DATA)
				_, e2 := unix.Seek(fd, off, unix.SEEK_HOLE)
				// Where data begin may be said less exactly, but never past them.
				s.note("%d: %v %s %s", off, e1 != nil || d <= 100000, errnoIf(e1, off >= 1<<20 || off < 0), errno(e2))
			}
		})
	}},
	{"setgid directory passes its group on", false, func(s *script) {
		s.say("chown", unix.Chown(s.p("dir"), 0, 4242))
		s.say("chmod", unix.Chmod(s.p("dir"), 0o2775))
		s.say("mkdir", unix.Mkdir(s.p("dir/sub"), 0o755))
		s.withFile("dir/file", unix.O_WRONLY|unix.O_CREAT, func(int) {})
		s.say("symlink", unix.Symlink("x", s.p("dir/link")))
		for _, n := range []string{"dir/sub", "dir/file", "dir/link"} {
			st := s.stat(n)
			s.note("%o %d", st.Mode, st.Gid)
		}
	}},
	{"write clears setuid and setgid", true, func(s *script) {
		s.withFile("mine", unix.O_WRONLY|unix.O_CREAT, func(fd int) {
			s.say("fchmod", unix.Fchmod(fd, 0o6777))
			_, err := unix.Write(fd, []byte("x"))
			s.say("write", err)
		})
		s.note("%o", s.stat("mine").Mode)
	}},
	{"truncate clears setuid and setgid", true, func(s *script) {
		s.withFile("mine", unix.O_WRONLY|unix.O_CREAT, func(fd int) {
			s.say("fchmod", unix.Fchmod(fd, 0o6777))
			s.say("ftruncate", unix.Ftruncate(fd, 10))
		})
		s.note("%o", s.stat("mine").Mode)
	}},
	{"chown clears setuid and setgid", false, func(s *script) {
		s.say("chmod", unix.Chmod(s.p("file"), 0o6755))
		s.say("chown", unix.Chown(s.p("file"), 5, 5))
		s.note("%o", s.stat("file").Mode)
	}},
	{"sticky directory", true, func(s *script) {
		s.say("unlink", unix.Unlink(s.p("file")))
		s.say("rename", unix.Rename(s.p("other"), s.p("new")))
	}},
	{"chmod of somebody else's file", true, func(s *script) { s.say("chmod", unix.Chmod(s.p("file"), 0o777)) }},
	{"chown of one's own file to another", true, func(s *script) {
		s.withFile("mine", unix.O_WRONLY|unix.O_CREAT, func(int) {})
		s.say("chown", unix.Chown(s.p("mine"), 1, 1))
	}},
	{"utimes of somebody else's file", true, func(s *script) {
		s.say("set", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0))
		s.say("now", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), nil, 0))
	}},
	{"create with mode 0444 and write", true, func(s *script) {
		fd, err := unix.Open(s.p("ro"), unix.O_CREAT|unix.O_WRONLY, 0o444)
		s.say("open", err)
		_, err = unix.Write(fd, []byte("x"))
		s.say("write", err)
		unix.Close(fd)
		_, err = unix.Open(s.p("ro"), unix.O_WRONLY, 0)
		s.say("again", err)
	}},
	{"trusted xattr as a user", true, func(s *script) {
		s.say("set", unix.Setxattr(s.p("file"), "trusted.x", []byte("v"), 0))
		s.note("%s", getx(s.p("file"), "trusted.x"))
	}},
	{"xattrs of all sizes", false, func(s *script) {
		for _, n := range []int{0, 1, 40, 100, 500, 2000, 3900, 4100, 66000} {
			s.say(fmt.Sprintf("set %d", n), unix.Setxattr(s.p("file"), "user.size", []byte(strings.Repeat("v", n)), 0))
			b := make([]byte, 70000)
			k, err := unix.Getxattr(s.p("file"), "user.size", b)
			s.note("get %d %v", k, err)
		}
	}},
	{"many xattrs", false, func(s *script) {
		for i := range 60 {
			s.say(fmt.Sprintf("set %d", i), unix.Setxattr(s.p("file"), fmt.Sprintf("user.a%03d", i), []byte(strings.Repeat("v", 50)), 0))
		}
		for i := 0; i < 60; i += 2 {
			s.say(fmt.Sprintf("remove %d", i), unix.Removexattr(s.p("file"), fmt.Sprintf("user.a%03d", i)))
		}
		b := make([]byte, 10000)
		n, err := unix.Listxattr(s.p("file"), b)
		names := strings.Split(string(b[:max(n, 0)]), "\x00")
		sortStrings(names)
		s.note("%d %v %v", n, err, names)
	}},
	{"xattr flags", false, func(s *script) {
		s.say("create", unix.Setxattr(s.p("file"), "user.f", []byte("1"), unix.XATTR_CREATE))
		s.say("create again", unix.Setxattr(s.p("file"), "user.f", []byte("2"), unix.XATTR_CREATE))
		s.say("replace", unix.Setxattr(s.p("file"), "user.f", []byte("3"), unix.XATTR_REPLACE))
		_, err := unix.Getxattr(s.p("file"), "user.f", make([]byte, 0))
		s.say("size", err)
		s.say("name of 255", unix.Setxattr(s.p("file"), "user."+strings.Repeat("n", 250), []byte("v"), 0))
		s.say("name of 256", unix.Setxattr(s.p("file"), "user."+strings.Repeat("n", 251), []byte("v"), 0))
		s.say("empty name", unix.Setxattr(s.p("file"), "user.", []byte("v"), 0))
		s.say("on a symlink", unix.Lsetxattr(s.p("tofile"), "user.x", []byte("v"), 0))
		s.say("trusted on a symlink", unix.Lsetxattr(s.p("tofile"), "trusted.x", []byte("v"), 0))
		_, err = unix.Getxattr(s.p("file"), "user.f", make([]byte, 1))
		s.say("just enough", err)
		s.say("long", unix.Setxattr(s.p("file"), "user.f", []byte("12345"), 0))
		_, err = unix.Getxattr(s.p("file"), "user.f", make([]byte, 2))
		s.say("too small", err)
	}},
	{"symlinks of all lengths", false, func(s *script) {
		for _, n := range []int{1, 59, 60, 61, 1000, 4094, 4095, 4096} {
			name := fmt.Sprintf("l%d", n)
			s.say(name, unix.Symlink(strings.Repeat("t", n), s.p(name)))
			b := make([]byte, 5000)
			k, err := unix.Readlink(s.p(name), b)
			s.note("%d %v", k, err)
		}
		s.say("empty", unix.Symlink("", s.p("empty")))
	}},
	{"names that are not UTF-8", false, func(s *script) {
		for _, n := range []string{"\xff\xfe", "caf\xe9", "a\nb", "\x01", "..."} {
			s.say(fmt.Sprintf("%q", n), os.WriteFile(s.p(n), nil, 0o644))
		}
	}},
	{"directory link counts", false, func(s *script) {
		for i := range 5 {
			s.say("mkdir", unix.Mkdir(s.p(fmt.Sprintf("dir/s%d", i)), 0o755))
		}
		s.note("%d", s.stat("dir").Nlink)
		s.say("rename out", unix.Rename(s.p("dir/s1"), s.p("emptydir/s1")))
		s.say("rmdir", unix.Rmdir(s.p("dir/s2")))
		s.note("%d %d", s.stat("dir").Nlink, s.stat("emptydir").Nlink)
	}},
	{"a removed directory", false, func(s *script) {
		fd, err := unix.Open(s.p("emptydir"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.say("open", err)
		s.say("rmdir", unix.Rmdir(s.p("emptydir")))
		_, err = unix.Openat(fd, "x", unix.O_CREAT|unix.O_WRONLY, 0o644)
		s.say("create in it", err)
		s.say("mkdir in it", unix.Mkdirat(fd, "d", 0o755))
		var st unix.Stat_t
		s.say("fstat", unix.Fstat(fd, &st))
		s.note("%d", st.Nlink)
		unix.Close(fd)
	}},
	{"a directory of 1000 names", false, func(s *script) {
		for i := range 1000 {
			if err := os.WriteFile(s.p(fmt.Sprintf("dir/name-%04d", i)), nil, 0o644); err != nil {
				s.say("create", err)
			}
		}
		for i := 0; i < 1000; i += 3 {
			os.Remove(s.p(fmt.Sprintf("dir/name-%04d", i)))
		}
		s.note("%s", readNames("", s.p("dir")))
		os.RemoveAll(s.p("dir"))
	}},
	{"device numbers", false, func(s *script) {
		for i, d := range []uint64{unix.Mkdev(1, 3), unix.Mkdev(255, 255), unix.Mkdev(256, 0), unix.Mkdev(0, 256), unix.Mkdev(4095, 1048575)} {
			s.say("mknod", unix.Mknod(s.p(fmt.Sprintf("dev%d", i)), unix.S_IFBLK|0o600, int(d)))
		}
		s.say("socket", unix.Mknod(s.p("sock"), unix.S_IFSOCK|0o600, 0))
		s.say("directory", unix.Mknod(s.p("nodir"), unix.S_IFDIR|0o600, 0))
	}},
	{"times to their ends", false, func(s *script) {
		for _, sec := range []int64{-1 << 31, -1, 0, 1<<31 - 1, 1 << 31, 1 << 32, 1<<34 - 1<<31 - 1, 1 << 34, -1 << 40, 1 << 40} {
			s.say("utimes", unix.UtimesNanoAt(unix.AT_FDCWD, s.p("file"), []unix.Timespec{{Sec: sec, Nsec: 1}, {Sec: sec, Nsec: 999999999}}, 0))
			st := s.stat("file")
			s.note("%d: %d.%09d", sec, st.Mtim.Sec, st.Mtim.Nsec)
		}
	}},
	{"O_TMPFILE", false, func(s *script) {
		fd, err := unix.Open(s.p("dir"), unix.O_TMPFILE|unix.O_RDWR, 0o640)
		s.say("open", err)
		if err == nil {
			_, err = unix.Write(fd, []byte("temporary"))
			s.say("write", err)
			s.say("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.p("linked"), unix.AT_SYMLINK_FOLLOW))
			unix.Close(fd)
		}
	}},
	{"O_TMPFILE without a name", false, func(s *script) {
		fd, err := unix.Open(s.p("dir"), unix.O_TMPFILE|unix.O_WRONLY|unix.O_EXCL, 0o666)
		s.say("open", err)
		if err != nil {
			return
		}
		var st unix.Stat_t
		s.say("fstat", unix.Fstat(fd, &st))
		s.note("nlink %d mode %o", st.Nlink, st.Mode)
		s.say("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.p("linked"), unix.AT_SYMLINK_FOLLOW))
		unix.Close(fd)
		_, err = unix.Open(s.p("dir"), unix.O_TMPFILE|unix.O_RDONLY, 0o666)
		s.say("read-only", err)
		_, err = unix.Open(s.p("file"), unix.O_TMPFILE|unix.O_RDWR, 0o666)
		s.say("in a file", err)
	}},
	{"O_TMPFILE in a removed directory", false, func(s *script) {
		dir, err := unix.Open(s.p("emptydir"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.say("open", err)
		s.say("rmdir", unix.Rmdir(s.p("emptydir")))
		fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
		s.say("O_TMPFILE", err)
		unix.Close(fd)
		unix.Close(dir)
	}},
	{"O_TMPFILE as a user", true, func(s *script) {
		fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR, 0o644)
		s.say("open", err)
		if err == nil {
			s.say("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.p("linked"), unix.AT_SYMLINK_FOLLOW))
			s.say("linkat again", unix.Linkat(unix.AT_FDCWD, s.p("linked"), unix.AT_FDCWD, s.p("linked2"), 0))
			unix.Close(fd)
		}
	}},
	{"O_DIRECT", false, func(s *script) {
		fd, err := unix.Open(s.p("direct"), unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT, 0o644)
		s.say("open", err)
		if err == nil {
			b, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			s.say("mmap", err)
			for i := range b {
				b[i] = byte(i)
			}
			_, err = unix.Pwrite(fd, b, 4096)
			s.say("pwrite", err)
			n, err := unix.Pread(fd, b, 0)
			s.note("%d %v %d", n, err, b[4097])
			unix.Close(fd)
		}
	}},
	{"mmap shared", false, func(s *script) {
		s.withFile("file", unix.O_RDWR, func(fd int) {
			b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			s.say("mmap", err)
			if err == nil {
				copy(b, "MAPPED")
				s.say("munmap", unix.Munmap(b))
			}
		})
	}},
	{"flock between descriptions", false, func(s *script) {
		a, _ := unix.Open(s.p("file"), unix.O_RDWR, 0)
		b, _ := unix.Open(s.p("file"), unix.O_RDWR, 0)
		s.say("exclusive", unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB))
		s.say("second", unix.Flock(b, unix.LOCK_SH|unix.LOCK_NB))
		s.say("unlock", unix.Flock(a, unix.LOCK_UN))
		s.say("third", unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB))
		unix.Close(a)
		unix.Close(b)
	}},
	{"OFD locks", false, func(s *script) {
		a, _ := unix.Open(s.p("file"), unix.O_RDWR, 0)
		b, _ := unix.Open(s.p("file"), unix.O_RDWR, 0)
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 10}
		s.say("first", unix.FcntlFlock(uintptr(a), unix.F_OFD_SETLK, &l))
		l2 := unix.Flock_t{Type: unix.F_RDLCK, Start: 5, Len: 10}
		s.say("overlapping", unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &l2))
		l3 := unix.Flock_t{Type: unix.F_RDLCK, Start: 10, Len: 10}
		s.say("beside", unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &l3))
		unix.Close(a)
		unix.Close(b)
	}},
	{"copy_file_range", false, func(s *script) {
		s.fill("src", 100000)
		s.withFile("src", unix.O_RDONLY, func(in int) {
			s.withFile("dst", unix.O_WRONLY|unix.O_CREAT, func(out int) {
				for total := 0; total < 100000; {
					n, err := unix.CopyFileRange(in, nil, out, nil, 100000-total, 0)
					if err != nil || n == 0 {
						s.say("copy_file_range", err)
						break
					}
					total += n
				}
			})
		})
	}},
	{"copy_file_range of holes, the end, and itself", false, func(s *script) {
		s.withFile("sparse", unix.O_RDWR|unix.O_CREAT, func(fd int) {
			s.say("truncate", unix.Ftruncate(fd, 200000))
			_, err := unix.Pwrite(fd, []byte("in the middle"), 100000)
			s.say("pwrite", err)
			s.withFile("dst", unix.O_RDWR|unix.O_CREAT, func(out int) {
				s.copyRange(fd, 1000, out, 5000, 150000)
				s.copyRange(fd, 199000, out, 0, 100000)
				s.copyRange(fd, 200000, out, 0, 10)
				s.copyRange(fd, 300000, out, 0, 10)
				s.copyRange(fd, 0, out, 0, 0)
				s.copyRange(out, 0, fd, 0, 10)
			})
			s.copyRange(fd, 0, fd, 100, 200)
			s.copyRange(fd, 0, fd, 150000, 1000)
			var st unix.Stat_t
			s.say("fstat", unix.Fstat(fd, &st))
			s.note("%d", st.Size)
		})
		s.withFile("file", unix.O_RDONLY, func(in int) {
			s.withFile("other", unix.O_WRONLY|unix.O_APPEND, func(out int) { s.copyRange(in, 0, out, 0, 5) })
			s.withFile("other", unix.O_RDONLY, func(out int) { s.copyRange(in, 0, out, 0, 5) })
			s.copyRange(in, 0, 0, 0, 5)
		})
	}},
	{"fallocate and copy_file_range clear setuid", true, func(s *script) {
		for _, mode := range []uint32{0o6777, 0o6767} {
			s.withFile("mine", unix.O_RDWR|unix.O_CREAT, func(fd int) {
				s.say("fchmod", unix.Fchmod(fd, mode))
				s.say("fallocate", unix.Fallocate(fd, 0, 0, 10000))
				s.note("%o", s.stat("mine").Mode)
				s.say("fchmod", unix.Fchmod(fd, mode))
				s.withFile("file", unix.O_RDONLY, func(in int) { s.copyRange(in, 0, fd, 0, 10) })
				s.note("%o", s.stat("mine").Mode)
			})
		}
	}},
	{"setgid of another group", false, func(s *script) {
		s.say("chown", unix.Chown(s.p("file"), posixUser, 99))
		for _, mode := range []uint32{0o6777, 0o6767, 0o2767} {
			s.say("chmod", unix.Chmod(s.p("file"), mode))
			for _, call := range []string{"echo x >> %s", "truncate -s 3 %s", ": > %s", "chgrp 12345 %s; chgrp 99 %s", "chmod 2767 %s"} {
				cmd := exec.Command("sh", "-c", strings.ReplaceAll(call, "%s", s.p("file")))
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: posixUser, Gid: posixUser}}
				err := cmd.Run()
				s.note("%s: %v %o", call, err, s.stat("file").Mode)
				s.say("chmod", unix.Chmod(s.p("file"), mode))
			}
		}
	}},
	{"listxattr hides trusted", true, func(s *script) {
		b := make([]byte, 1000)
		n, err := unix.Listxattr(s.p("attrs"), b)
		s.note("%d %v %q", n, err, b[:max(n, 0)])
		n, err = unix.Listxattr(s.p("attrs"), nil)
		s.note("size %d %v", n, err)
		s.note("%s", getx(s.p("attrs"), "trusted.t"))
	}},
	{"inode flags", false, func(s *script) {
		for _, f := range []int{0x40, 0x80, 0x08, 0x10, 0x20} /* nodump noatime sync immutable append */ {
			old, err := fsIoc(s.p("other"), fsIocGetFlags, 0)
			s.say("get", err)
			_, err = fsIoc(s.p("other"), fsIocSetFlags, old&^0xff|f)
			s.say(fmt.Sprintf("set %x", f), err)
			got, err := fsIoc(s.p("other"), fsIocGetFlags, 0)
			s.note("%x %v", got&(f|0xff), err)
			_, err = unix.Open(s.p("other"), unix.O_WRONLY, 0)
			s.say("open for writing", err)
			s.say("unlink", unix.Unlink(s.p("other")+"x"))
			s.say("chmod", unix.Chmod(s.p("other"), 0o600))
		}
		old, err := fsIoc(s.p("other"), fsIocGetFlags, 0)
		s.say("get", err)
		_, err = fsIoc(s.p("other"), fsIocSetFlags, old&^0xff)
		s.say("clear", err)
	}},
	{"fchdir and getcwd", false, func(s *script) {
		fd, err := unix.Open(s.p("fulldir/sub"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.say("open", err)
		s.say("fchdir", unix.Fchdir(fd))
		b := make([]byte, 4096)
		n, err := unix.Getcwd(b)
		s.say("getcwd", err)
		s.note("%q", filepath.Base(string(b[:max(n-1, 0)])))
		unix.Chdir("/")
		unix.Close(fd)
	}},
	{"ETXTBSY", false, func(s *script) {
		b, err := os.ReadFile("/bin/sleep")
		s.say("read", err)
		s.say("write", os.WriteFile(s.p("sleep"), b, 0o755))
		p, err := os.StartProcess(s.p("sleep"), []string{"sleep", "5"}, &os.ProcAttr{})
		s.say("start", err)
		_, err = unix.Open(s.p("sleep"), unix.O_WRONLY, 0)
		s.say("open for writing", err)
		if p != nil {
			p.Kill()
			p.Wait()
		}
		os.Remove(s.p("sleep"))
	}},
	{"birth time", false, func(s *script) {
		s.say("create", os.WriteFile(s.p("born"), nil, 0o644))
		var x unix.Statx_t
		s.say("statx", unix.Statx(unix.AT_FDCWD, s.p("born"), 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &x))
		s.note("has %v after 2020 %v", x.Mask&unix.STATX_BTIME != 0, x.Btime.Sec > 1577836800)
	}},
}

func errnoIf(err error, exact bool) string {
	if exact {
		return errno(err)
	}
	return ""
}

// fill writes n bytes with no zero among them.
func (s *script) fill(name string, n int) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + i%250)
	}
	s.say("write", os.WriteFile(s.p(name), b, 0o644))
}

// copyRange is copy_file_range(2) once.
func (s *script) copyRange(in int, off int64, out int, to int64, n int) {
	k, err := unix.CopyFileRange(in, &off, out, &to, n, 0)
	s.note("copied %d to %d %d", k, off, to)
	s.say("copy_file_range", err)
}

func (s *script) fallocate(mode uint32, off, n int64) { s.fallocateOn("file", mode, off, n) }

func (s *script) fallocateOn(name string, mode uint32, off, n int64) {
	s.withFile(name, unix.O_RDWR, func(fd int) {
		unix.Fsync(fd)
		s.say("fallocate", unix.Fallocate(fd, mode, off, n))
	})
}

func singleChecks() []check {
	var out []check
	for _, c := range singles {
		prep := standardObjects
		if c.name == "sticky directory" {
			prep = func(dir string) error {
				if err := standardObjects(dir); err != nil {
					return err
				}
				return os.Chmod(dir, 0o1777|os.ModeSticky)
			}
		}
		if c.name == "listxattr hides trusted" {
			prep = func(dir string) error {
				f := filepath.Join(dir, "attrs")
				if err := os.WriteFile(f, nil, 0o644); err != nil {
					return err
				}
				return errors.Join(unix.Setxattr(f, "trusted.t", []byte("1"), 0), unix.Setxattr(f, "user.u", []byte("2"), 0))
			}
		}
		out = append(out, check{name: c.name, user: c.user, prep: prep, do: func(dir string) string {
			s := &script{dir: dir}
			c.do(s)
			return strings.Join(s.log, "\n")
		}})
	}
	return out
}
