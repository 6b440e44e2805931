// Package mounts reads /proc/self/mountinfo. Nothing in it touches a mounted
// file system, so it works on mounts whose daemon is dead or busy.
package mounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Type is the type of our mounts.
const Type = "fuse.extfused"

// BlockType is the type of our mounts of block devices through fuseblk.
const BlockType = "fuseblk.extfused"

// Mount is a line of mountinfo.
type Mount struct {
	ID     int
	Dev    string // major:minor of st_dev
	Point  string // where it is mounted
	Type   string
	Source string
	Super  []string // options of the file system
}

// Ours tells whether an extfused daemon serves, or served, the mount.
func (m *Mount) Ours() bool { return m.Type == Type || m.Type == BlockType }

// UserID is the user_id= of a FUSE mount: who started the daemon; -1 if there
// is none.
func (m *Mount) UserID() int {
	for _, o := range m.Super {
		if v, ok := strings.CutPrefix(o, "user_id="); ok {
			if n, err := strconv.Atoi(v); err == nil {
				return n
			}
		}
	}
	return -1
}

// List reads the mounts of this process's namespace, in the order they were
// made.
func List() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

func parse(r io.Reader) (list []Mount, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		m, err := parseLine(sc.Text())
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, sc.Err()
}

// parseLine parses one line, see proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseLine(line string) (m Mount, err error) {
	left, right, ok := strings.Cut(line, " - ")
	l, r := strings.Fields(left), strings.Fields(right)
	if !ok || len(l) < 6 || len(r) < 2 {
		return m, fmt.Errorf("mountinfo: cannot read %q", line)
	}
	m = Mount{Dev: l[2], Point: unescape(l[4]), Type: r[0], Source: unescape(r[1])}
	if m.ID, err = strconv.Atoi(l[0]); err != nil {
		return m, fmt.Errorf("mountinfo: cannot read %q", line)
	}
	if len(r) > 2 {
		m.Super = strings.Split(r[2], ",")
	}
	return m, nil
}

// unescape undoes the octal escapes of blanks, tabs, newlines and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// At returns the topmost mount at the directory point, an absolute clean path,
// or nil.
func At(point string) (*Mount, error) {
	return last(func(m *Mount) bool { return m.Point == point })
}

// ByDev returns the latest mount of the file system with device number dev,
// or nil.
func ByDev(dev string) (*Mount, error) {
	return last(func(m *Mount) bool { return m.Dev == dev })
}

func last(match func(*Mount) bool) (*Mount, error) {
	list, err := List()
	if err != nil {
		return nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if match(&list[i]) {
			return &list[i], nil
		}
	}
	return nil, nil
}

// Resolve makes path absolute and free of symbolic links, without looking at
// its last component, which may be a mount that does not answer.
func Resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil || abs == "/" {
		return abs, err
	}
	if m, err := At(abs); err == nil && m != nil {
		return abs, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return abs, err
	}
	abs = filepath.Join(dir, filepath.Base(abs))
	if target, err := os.Readlink(abs); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		return filepath.Clean(target), nil
	}
	return abs, nil
}
