package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func errnoName(e syscall.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return fmt.Sprintf("errno %d", int(e))
}

func lutimes(path string, ts []syscall.Timespec) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: ts[0].Sec, Nsec: ts[0].Nsec}, {Sec: ts[1].Sec, Nsec: ts[1].Nsec}}, unix.AT_SYMLINK_NOFOLLOW)
}

// objects are what each call of the matrix is tried on.
var objects = []struct{ name, path string }{
	{"file", "file"}, {"empty directory", "emptydir"}, {"full directory", "fulldir"}, {"symlink to file", "tofile"},
	{"symlink to directory", "todir"}, {"dangling symlink", "dangling"}, {"symlink loop", "loop"}, {"fifo", "fifo"},
	{"missing name", "missing"}, {"missing directory", "missing/x"}, {"name below a file", "file/x"},
	{"name of 255 bytes", strings.Repeat("n", 255)}, {"name of 256 bytes", strings.Repeat("n", 256)}, {"hard link", "hardlink"},
	{"trailing slash on a file", "file/"}, {"trailing slash on a directory", "emptydir/"}, {"dot", "fulldir/."}, {"dot dot", "fulldir/.."},
}

// calls are tried on each object; they return what the caller sees.
var calls = []struct {
	name string
	do   func(dir, path string) string
}{
	{"open O_RDONLY", opener(unix.O_RDONLY | unix.O_NONBLOCK)},
	{"open O_WRONLY", opener(unix.O_WRONLY | unix.O_NONBLOCK)},
	{"open O_RDWR O_TRUNC", opener(unix.O_RDWR | unix.O_TRUNC | unix.O_NONBLOCK)},
	{"open O_CREAT", opener(unix.O_RDWR | unix.O_CREAT | unix.O_NONBLOCK)},
	{"open O_CREAT O_EXCL", opener(unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NONBLOCK)},
	{"open O_DIRECTORY", opener(unix.O_DIRECTORY)},
	{"open O_NOFOLLOW", opener(unix.O_NOFOLLOW | unix.O_NONBLOCK)},
	{"mkdir", func(_, p string) string { return errno(unix.Mkdir(p, 0o2755)) }},
	{"rmdir", func(_, p string) string { return errno(unix.Rmdir(p)) }},
	{"unlink", func(_, p string) string { return errno(unix.Unlink(p)) }},
	{"rename to a new name", func(d, p string) string { return errno(unix.Rename(p, filepath.Join(d, "new"))) }},
	{"rename onto a file", func(d, p string) string { return errno(unix.Rename(p, filepath.Join(d, "other"))) }},
	{"rename onto an empty directory", func(d, p string) string { return errno(unix.Rename(p, filepath.Join(d, "dir"))) }},
	{"rename onto a full directory", func(d, p string) string { return errno(unix.Rename(p, filepath.Join(d, "fulldir"))) }},
	{"rename into itself", func(_, p string) string { return errno(unix.Rename(p, p+"/below")) }},
	{"rename onto itself", func(_, p string) string { return errno(unix.Rename(p, p)) }},
	{"rename a file onto it", func(d, p string) string { return errno(unix.Rename(filepath.Join(d, "other"), p)) }},
	{"rename a directory onto it", func(d, p string) string { return errno(unix.Rename(filepath.Join(d, "dir"), p)) }},
	{"rename RENAME_NOREPLACE", func(d, p string) string { return rename2(filepath.Join(d, "other"), p, unix.RENAME_NOREPLACE) }},
	{"rename RENAME_EXCHANGE", func(d, p string) string { return rename2(filepath.Join(d, "other"), p, unix.RENAME_EXCHANGE) }},
	{"rename RENAME_EXCHANGE a directory", func(d, p string) string { return rename2(filepath.Join(d, "dir"), p, unix.RENAME_EXCHANGE) }},
	{"rename into a directory", func(d, p string) string { return errno(unix.Rename(p, filepath.Join(d, "dir", "moved"))) }},
	{"link to a new name", func(d, p string) string { return errno(unix.Link(p, filepath.Join(d, "new"))) }},
	{"link onto it", func(d, p string) string { return errno(unix.Link(filepath.Join(d, "other"), p)) }},
	{"symlink onto it", func(_, p string) string { return errno(unix.Symlink("target", p)) }},
	{"truncate", func(_, p string) string { return errno(unix.Truncate(p, 5)) }},
	{"truncate longer", func(_, p string) string { return errno(unix.Truncate(p, 10000)) }},
	{"truncate negative", func(_, p string) string { return errno(unix.Truncate(p, -1)) }},
	{"chmod", func(_, p string) string { return errno(unix.Chmod(p, 0o6710)) }},
	{"chown", func(_, p string) string { return errno(unix.Chown(p, 77, 88)) }},
	{"lchown", func(_, p string) string { return errno(unix.Lchown(p, 70000, 80000)) }},
	{"utimes now", func(_, p string) string { return errno(unix.UtimesNanoAt(unix.AT_FDCWD, p, nil, 0)) }},
	{"utimes set", func(_, p string) string {
		return errno(unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1, Nsec: 2}, {Sec: 1 << 32, Nsec: 999999999}}, 0))
	}},
	{"utimes omit", func(_, p string) string {
		return errno(unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 5}}, 0))
	}},
	{"stat", func(_, p string) string {
		var st unix.Stat_t
		e := unix.Stat(p, &st)
		return fmt.Sprintf("%s %o %d", errno(e), st.Mode, st.Size)
	}},
	{"lstat", func(_, p string) string {
		var st unix.Stat_t
		e := unix.Lstat(p, &st)
		return fmt.Sprintf("%s %o %d", errno(e), st.Mode, st.Size)
	}},
	{"readlink", func(_, p string) string {
		b := make([]byte, 300)
		n, e := unix.Readlink(p, b)
		return fmt.Sprintf("%s %q", errno(e), b[:max(n, 0)])
	}},
	{"mknod fifo", func(_, p string) string { return errno(unix.Mknod(p, unix.S_IFIFO|0o644, 0)) }},
	{"mknod device", func(_, p string) string { return errno(unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(300, 70000)))) }},
	{"statfs", func(_, p string) string {
		var st unix.Statfs_t
		e := unix.Statfs(p, &st)
		return fmt.Sprintf("%s %d %d", errno(e), st.Bsize, st.Namelen)
	}},
	{"access R_OK W_OK", func(_, p string) string { return errno(unix.Access(p, unix.R_OK|unix.W_OK)) }},
	{"access X_OK", func(_, p string) string { return errno(unix.Access(p, unix.X_OK)) }},
	{"chdir", func(d, p string) string {
		e := unix.Chdir(p)
		unix.Chdir("/")
		return errno(e)
	}},
	{"setxattr user", func(_, p string) string {
		return errno(unix.Setxattr(p, "user.test", []byte("value"), 0)) + getx(p, "user.test")
	}},
	{"setxattr XATTR_REPLACE", func(_, p string) string { return errno(unix.Setxattr(p, "user.test", []byte("v"), unix.XATTR_REPLACE)) }},
	{"getxattr missing", func(_, p string) string { return getx(p, "user.none") }},
	{"listxattr", func(_, p string) string {
		b := make([]byte, 1000)
		n, e := unix.Listxattr(p, b)
		return fmt.Sprintf("%s %q", errno(e), b[:max(n, 0)])
	}},
	{"removexattr missing", func(_, p string) string { return errno(unix.Removexattr(p, "user.none")) }},
	{"setxattr unknown namespace", func(_, p string) string { return errno(unix.Setxattr(p, "nonsense.x", []byte("v"), 0)) }},
	{"readdir", readNames},
}

func opener(flags int) func(dir, path string) string {
	return func(_, p string) string {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0o666)
		if err == nil {
			unix.Close(fd)
		}
		return errno(err)
	}
}

func rename2(from, to string, flags uint) string {
	return errno(unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags))
}

func getx(p, name string) string {
	b := make([]byte, 1000)
	n, e := unix.Getxattr(p, name, b)
	return fmt.Sprintf(" %s %q", errno(e), b[:max(n, 0)])
}

func readNames(_, p string) string {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return errno(err)
	}
	defer f.Close()
	es, err := f.ReadDir(-1) // sorted by the caller of Names only
	var names []string
	for _, e := range es {
		names = append(names, fmt.Sprintf("%s:%v", e.Name(), e.Type()))
	}
	sortStrings(names)
	return errno(err) + " " + strings.Join(names, " ")
}

func sortStrings(s []string) {
	for i := range s {
		for k := i; k > 0 && s[k] < s[k-1]; k-- {
			s[k], s[k-1] = s[k-1], s[k]
		}
	}
}

// posixChecks is the whole suite: the matrix as root, the part of it where
// permissions matter as an ordinary user, and the single checks.
func posixChecks() []check {
	var out []check
	for _, c := range calls {
		for _, o := range objects {
			out = append(out, check{
				name: "root " + c.name + " on " + o.name,
				do:   func(dir string) string { return c.do(dir, dir+"/"+o.path) },
			})
		}
		for _, o := range objects[:5] {
			out = append(out, check{
				name: "user " + c.name + " on " + o.name,
				user: true,
				do:   func(dir string) string { return c.do(dir, dir+"/"+o.path) },
			})
		}
	}
	return append(out, singleChecks()...)
}
