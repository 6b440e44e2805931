package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// player does random operations below a directory. What it does follows from
// its seed alone, never from what it sees, so two players with one seed on two
// file systems do the same; step tells what came out.
type player struct {
	root string
	rng  *rand.Rand
	fds  [8]int
	log  []string
	buf  []byte
}

func newPlayer(root string, seed uint64) *player {
	p := &player{root: root, rng: rand.New(rand.NewPCG(seed, 6)), buf: make([]byte, 1<<17)}
	for k := range p.fds {
		p.fds[k] = -1
	}
	return p
}

func (p *player) close() {
	for k, fd := range p.fds {
		if fd >= 0 {
			unix.Close(fd)
			p.fds[k] = -1
		}
	}
}

// names are few, so that operations meet.
var names = []string{"a", "b", "c", "d", "e", "f", "g", "a name of middling length", "\xff\xfe not UTF-8", strings.Repeat("long", 63) + "xyz"}

func (p *player) path() string {
	parts := []string{p.root}
	for range 1 + p.rng.IntN(3) {
		parts = append(parts, names[p.rng.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

// rel is a path as it is told.
func (p *player) rel(path string) string {
	r, _ := filepath.Rel(p.root, path)
	if len(r) > 40 {
		r = r[:40] + "..."
	}
	return r
}

func (p *player) fd() int { return p.fds[p.rng.IntN(len(p.fds))] }

func (p *player) offset() int64 {
	off := int64(p.rng.IntN(256 << 10))
	switch p.rng.IntN(4) {
	case 0:
		return off &^ 4095
	case 1:
		return off % 5000
	}
	return off
}

// move is one kind of operation; it tells what it does and what came out.
type move struct {
	weight int
	do     func(p *player) string
}

var moves = slices.Concat(nameMoves, dataMoves, attrMoves)

var totalWeight = func() (n int) {
	for _, m := range moves {
		n += m.weight
	}
	return n
}()

// step does one operation.
func (p *player) step() string {
	n := p.rng.IntN(totalWeight)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			s := m.do(p)
			p.log = append(p.log, s)
			return s
		}
	}
	panic("unreachable")
}

var nameMoves = []move{
	{60, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("mkdir %q %s", p.rel(path), errno(unix.Mkdir(path, uint32(p.rng.IntN(0o2000)|0o700))))
	}},
	{60, func(p *player) string {
		path, flags := p.path(), unix.O_RDWR|unix.O_CREAT
		for _, f := range []int{unix.O_EXCL, unix.O_TRUNC, unix.O_APPEND, unix.O_NOFOLLOW} {
			if p.rng.IntN(4) == 0 {
				flags |= f
			}
		}
		return fmt.Sprintf("create %q %#x %s", p.rel(path), flags, p.open(path, flags, uint32(p.rng.IntN(0o1000)|0o600)))
	}},
	{30, func(p *player) string {
		path, flags := p.path(), []int{unix.O_RDWR, unix.O_RDONLY, unix.O_WRONLY | unix.O_TRUNC, unix.O_RDWR | unix.O_APPEND, unix.O_DIRECTORY}[p.rng.IntN(5)]
		return fmt.Sprintf("open %q %#x %s", p.rel(path), flags, p.open(path, flags|unix.O_NONBLOCK, 0))
	}},
	{5, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("O_TMPFILE %q %s", p.rel(path), p.open(path, unix.O_TMPFILE|unix.O_RDWR, 0o640))
	}},
	{10, func(p *player) string {
		fd, path := p.fd(), p.path()
		return fmt.Sprintf("linkat fd %q %s", p.rel(path), errno(unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)))
	}},
	{30, func(p *player) string {
		k := p.rng.IntN(len(p.fds))
		fd := p.fds[k]
		p.fds[k] = -1
		if fd < 0 {
			return "close none"
		}
		return "close " + errno(unix.Close(fd))
	}},
	{30, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("unlink %q %s", p.rel(path), errno(unix.Unlink(path)))
	}},
	{15, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("rmdir %q %s", p.rel(path), errno(unix.Rmdir(path)))
	}},
	{40, func(p *player) string {
		a, b := p.path(), p.path()
		flags := []uint{0, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE, unix.RENAME_WHITEOUT, unix.RENAME_EXCHANGE | unix.RENAME_NOREPLACE}[p.rng.IntN(7)]
		if fi, err := os.Lstat(b); flags == unix.RENAME_WHITEOUT && err == nil && fi.IsDir() {
			return "rename: the kernel changes mtime even if this fails"
		}
		return fmt.Sprintf("rename %q %q %d %s", p.rel(a), p.rel(b), flags, rename2(a, b, flags))
	}},
	{25, func(p *player) string {
		a, b := p.path(), p.path()
		return fmt.Sprintf("link %q %q %s", p.rel(a), p.rel(b), errno(unix.Link(a, b)))
	}},
	{15, func(p *player) string {
		path, target := p.path(), names[p.rng.IntN(len(names))]
		if p.rng.IntN(4) == 0 {
			target = strings.Repeat("t", 1+p.rng.IntN(4095))
		}
		return fmt.Sprintf("symlink %q %.20q %s", p.rel(path), target, errno(unix.Symlink(target, path)))
	}},
	{10, func(p *player) string {
		path, kind := p.path(), []uint32{unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK, unix.S_IFREG}[p.rng.IntN(5)]
		return fmt.Sprintf("mknod %q %o %s", p.rel(path), kind, errno(unix.Mknod(path, kind|0o600, p.rng.IntN(1<<20))))
	}},
	{20, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("readdir %q %s", p.rel(path), sum32(readNames("", path)))
	}},
	{10, func(p *player) string {
		path := p.path()
		n, err := unix.Readlink(path, p.buf[:5000])
		return fmt.Sprintf("readlink %q %s %s", p.rel(path), errno(err), sum32(string(p.buf[:max(n, 0)])))
	}},
}

// open opens into a random slot, whose file it closes.
func (p *player) open(path string, flags int, mode uint32) string {
	k := p.rng.IntN(len(p.fds))
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, mode) // a full pipe must not stop us
	if err != nil {
		return errno(err)
	}
	if p.fds[k] >= 0 {
		unix.Close(p.fds[k])
	}
	p.fds[k] = fd
	return "OK"
}

func sum32(s string) string {
	h := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%x", h[:4])
}

// data fills n bytes that depend on the seed.
func (p *player) data(n int) []byte {
	b := p.buf[:n]
	clear(b) // of what was read last: how much that was may differ, see holes
	x := p.rng.Uint64()
	for k := 0; k+8 <= n; k += 8 {
		binary.LittleEndian.PutUint64(b[k:], x+uint64(k))
	}
	return b
}

func (p *player) length() int {
	n := 1 + p.rng.IntN(100<<10)
	if p.rng.IntN(2) == 0 {
		n = 1 + n%5000
	}
	return n
}

var dataMoves = []move{
	{50, func(p *player) string {
		fd, off, n := p.fd(), p.offset(), p.length()
		k, err := unix.Pwrite(fd, p.data(n), off)
		return fmt.Sprintf("pwrite %d+%d %d %s", off, n, k, errno(err))
	}},
	{15, func(p *player) string {
		fd, n := p.fd(), p.length()
		k, err := unix.Write(fd, p.data(n))
		return fmt.Sprintf("write %d %d %s", n, k, errno(err))
	}},
	{40, func(p *player) string {
		fd, off, n := p.fd(), p.offset(), p.length()
		k, err := unix.Pread(fd, p.buf[:n], off)
		return fmt.Sprintf("pread %d+%d %d %s %s", off, n, k, errno(err), sum32(string(p.buf[:max(k, 0)])))
	}},
	{20, func(p *player) string {
		fd, off := p.fd(), p.offset()
		return fmt.Sprintf("ftruncate %d %s", off, errno(unix.Ftruncate(fd, off)))
	}},
	{10, func(p *player) string {
		path, off := p.path(), p.offset()
		return fmt.Sprintf("truncate %q %d %s", p.rel(path), off, errno(unix.Truncate(path, off)))
	}},
	{30, func(p *player) string {
		fd, off, n := p.fd(), p.offset(), p.length()
		mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE,
			unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE, 0x100}[p.rng.IntN(7)]
		return fmt.Sprintf("fallocate %#x %d+%d %s", mode, off, n, errno(unix.Fallocate(fd, mode, off, int64(n))))
	}},
	{15, func(p *player) string {
		in, out, from, to, n := p.fd(), p.fd(), p.offset(), p.offset(), p.length()
		k, err := copyRange(in, &from, out, &to, n)
		return fmt.Sprintf("copy_file_range %d %d %s", n, k, errno(err))
	}},
	{10, func(p *player) string {
		fd, off, n := p.fd(), p.offset()&^4095, p.length()
		return fmt.Sprintf("mmap %d+%d %s", off, n, p.mapped(fd, off, n))
	}},
	{3, func(p *player) string { return "fsync " + errno(unix.Fsync(p.fd())) }},
	{3, func(p *player) string { return "fdatasync " + errno(unix.Fdatasync(p.fd())) }},
	{10, func(p *player) string {
		fd, off, whence := p.fd(), p.offset(), []int{unix.SEEK_SET, unix.SEEK_CUR, unix.SEEK_END}[p.rng.IntN(3)]
		if !regular(fd) { // where directories end is said by each in its own way
			return "lseek no file"
		}
		at, err := unix.Seek(fd, off, whence)
		return fmt.Sprintf("lseek %d %d %d %s", off, whence, at, errno(err))
	}},
	{10, func(p *player) string { return "holes " + p.holes(p.fd()) }},
	{8, func(p *player) string {
		how := []int{unix.LOCK_SH, unix.LOCK_EX, unix.LOCK_UN}[p.rng.IntN(3)]
		return fmt.Sprintf("flock %d %s", how, errno(unix.Flock(p.fd(), how|unix.LOCK_NB)))
	}},
}

func regular(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// mapped writes through a shared mapping what lies before the end of the file.
func (p *player) mapped(fd int, off int64, n int) string {
	data := p.data(n)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errno(err)
	}
	n = int(min(int64(n), st.Size-off))
	if n <= 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "nothing to map"
	}
	m, err := unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return errno(err)
	}
	copy(m, data)
	return errno(unix.Munmap(m))
}

// holes checks that SEEK_DATA and SEEK_HOLE agree with the content: what they
// call a hole is zeroes. Where exactly holes begin is the allocator's affair.
func (p *player) holes(fd int) string {
	if !regular(fd) {
		return "no file"
	}
	size, err := unix.Seek(fd, 0, unix.SEEK_END)
	if err != nil || size > 1<<20 {
		return "skipped"
	}
	defer unix.Seek(fd, 0, unix.SEEK_SET)
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			data, err = size, nil
		}
		if err != nil || data < at {
			return fmt.Sprintf("SEEK_DATA %d: %d %s", at, data, errno(err))
		}
		for b := p.buf[:4096]; at < data; {
			n, err := unix.Pread(fd, b[:min(4096, data-at)], at)
			if err == unix.EBADF {
				return "fine" // opened for writing only: nothing to compare
			}
			if err != nil || n == 0 || strings.Trim(string(b[:n]), "\x00") != "" {
				return fmt.Sprintf("data in a hole at %d: %d %s", at, n, errno(err))
			}
			at += int64(n)
		}
		if at >= size {
			break
		}
		hole, err := unix.Seek(fd, at, unix.SEEK_HOLE)
		if err != nil || hole <= at || hole > size {
			return fmt.Sprintf("SEEK_HOLE %d: %d %s", at, hole, errno(err))
		}
		at = hole
	}
	return "fine"
}

var attrMoves = []move{
	{15, func(p *player) string {
		path, mode := p.path(), uint32(p.rng.IntN(0o10000))
		return fmt.Sprintf("chmod %q %o %s", p.rel(path), mode, errno(unix.Chmod(path, mode)))
	}},
	{10, func(p *player) string {
		path, uid, gid := p.path(), p.rng.IntN(1<<20), p.rng.IntN(1<<20)
		return fmt.Sprintf("lchown %q %d %d %s", p.rel(path), uid, gid, errno(unix.Lchown(path, uid, gid)))
	}},
	{15, func(p *player) string {
		path, ts := p.path(), []unix.Timespec{{Sec: int64(p.rng.IntN(1e9)), Nsec: int64(p.rng.IntN(1e9))}, {Sec: int64(p.rng.IntN(1e9)), Nsec: int64(p.rng.IntN(1e9))}}
		if p.rng.IntN(4) == 0 {
			ts[p.rng.IntN(2)].Nsec = []int64{unix.UTIME_NOW, unix.UTIME_OMIT}[p.rng.IntN(2)]
		}
		return fmt.Sprintf("utimes %q %s", p.rel(path), errno(unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, unix.AT_SYMLINK_NOFOLLOW)))
	}},
	{40, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("lstat %q %s", p.rel(path), attributes(path))
	}},
	{20, func(p *player) string {
		path, name, n, flags := p.path(), p.xattrName(), p.rng.IntN(200), []int{0, 0, unix.XATTR_CREATE, unix.XATTR_REPLACE}[p.rng.IntN(4)]
		if p.rng.IntN(6) == 0 {
			n = p.rng.IntN(3000)
		}
		return fmt.Sprintf("setxattr %q %s %d %d %s", p.rel(path), name, n, flags, errno(unix.Lsetxattr(path, name, p.data(n), flags)))
	}},
	{15, func(p *player) string {
		path, name := p.path(), p.xattrName()
		n, err := unix.Lgetxattr(path, name, p.buf[:p.rng.IntN(4000)])
		return fmt.Sprintf("getxattr %q %s %d %s", p.rel(path), name, n, errno(err))
	}},
	{10, func(p *player) string {
		path, name := p.path(), p.xattrName()
		return fmt.Sprintf("removexattr %q %s %s", p.rel(path), name, errno(unix.Lremovexattr(path, name)))
	}},
	{10, func(p *player) string {
		path := p.path()
		return fmt.Sprintf("listxattr %q %s", p.rel(path), xattrs(path))
	}},
	{10, func(p *player) string {
		path, name := p.path(), "system.posix_acl_"+[]string{"access", "default"}[p.rng.IntN(2)]
		return fmt.Sprintf("setxattr %q %s %s", p.rel(path), name, errno(unix.Setxattr(path, name, p.acl(), 0)))
	}},
	{5, func(p *player) string {
		path, flag := p.path(), []int{0x40, 0x80, 0x20000}[p.rng.IntN(3)] // nodump, noatime, topdir
		old, err := fsIoc(path, fsIocGetFlags, 0)
		_, serr := fsIoc(path, fsIocSetFlags, old^flag)
		return fmt.Sprintf("chattr %q %#x %#x %s %s", p.rel(path), old&^0x1000, flag, errno(err), errno(serr))
	}},
	{3, func(p *player) string {
		var st unix.Statfs_t
		err := unix.Statfs(p.root, &st)
		return fmt.Sprintf("statfs %d %d %s", st.Bsize, st.Blocks, errno(err))
	}},
}

func (p *player) xattrName() string {
	return []string{"user.a", "user.b", "user." + strings.Repeat("n", 100), "trusted.t", "security.s"}[p.rng.IntN(5)]
}

// acl is an ACL as system calls have it: sometimes a minimal one, sometimes
// with a user, and now and then with its entries out of order.
func (p *player) acl() []byte {
	type entry struct {
		tag, perm uint16
		id        uint32
	}
	perm := func() uint16 { return uint16(p.rng.IntN(8)) }
	const none = ^uint32(0)
	es := []entry{{1, perm(), none}, {4, perm(), none}, {0x20, perm(), none}}
	if p.rng.IntN(2) == 0 {
		es = []entry{{1, perm(), none}, {2, perm(), uint32(p.rng.IntN(1000))}, {4, perm(), none}, {0x10, perm(), none}, {0x20, perm(), none}}
	}
	if p.rng.IntN(8) == 0 {
		slices.Reverse(es)
	}
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range es {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// attributes is what must be equal of two inodes whose history is the same, but
// for st_blocks.
func attributes(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return errno(err)
	}
	s := fmt.Sprintf("%o %d:%d links %d rdev %x", st.Mode, st.Uid, st.Gid, st.Nlink, st.Rdev)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return s + " mtime" + explicit(st.Mtim)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		return s // a FUSE client notes no times of what goes through a pipe
	}
	return s + fmt.Sprintf(" size %d mtime%s atime%s", st.Size, explicit(st.Mtim), explicit(st.Atim))
}

// explicit is a time that utimes set, exactly; all others are recent.
func explicit(ts unix.Timespec) string {
	if ts.Sec < 1e9 {
		return fmt.Sprintf(" %d.%09d", ts.Sec, ts.Nsec)
	}
	return " recent"
}

// xattrs are all attributes with their values.
func xattrs(path string) string {
	b := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, b)
	if err != nil {
		return errno(err)
	}
	list := strings.Split(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00")
	slices.Sort(list)
	var out strings.Builder
	for _, name := range list {
		if name == "" {
			continue
		}
		n, err := unix.Lgetxattr(path, name, b)
		fmt.Fprintf(&out, " %.20s=%d:%s:%s", name, n, sum32(string(b[:max(n, 0)])), errno(err))
	}
	return out.String()
}

// sameBlocks compares st_blocks. The same data may be in more extents on one
// side, so that it needs, or has kept, one block more for their tree: with files
// as small as ours there is no second one.
func sameBlocks(a, b int64) bool {
	const treeBlock = 4096 / 512
	return a == b || a == b+treeBlock || b == a+treeBlock
}

// copyRange goes on after a short copy: the kernel's copies through a pipe end
// where its pages are used up.
func copyRange(in int, from *int64, out int, to *int64, n int) (int, error) {
	total := 0
	for {
		k, err := unix.CopyFileRange(in, from, out, to, n-total, 0)
		if total += max(k, 0); k <= 0 || err != nil || total == n {
			return total, err
		}
	}
}

// fingerprint is a whole tree: attributes, extended ones, content. Without
// st_blocks: a file that shrinks before its new pages were written keeps what
// was preallocated behind them, since the FUSE client never tells how long it
// was. TestBlocks compares those.
func fingerprint(root string) map[string]string {
	tree := map[string]string{}
	inodes := map[uint64]string{}
	filepath.Walk(root, func(path string, fi os.FileInfo, err error) error {
		rel, _ := filepath.Rel(root, path)
		if rel == "lost+found" {
			return filepath.SkipDir
		}
		if err != nil {
			tree[rel] = errno(err)
			return nil
		}
		var st unix.Stat_t
		unix.Lstat(path, &st)
		if inodes[st.Ino] == "" {
			inodes[st.Ino] = rel
		}
		s := attributes(path) + " same as " + inodes[st.Ino] + xattrs(path)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			s += " content " + sum32(string(b)) + " " + errno(err)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			s += " -> " + sum32(target) + " " + errno(err)
		}
		tree[rel] = s
		return nil
	})
	return tree
}
