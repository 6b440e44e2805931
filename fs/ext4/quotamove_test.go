package ext4

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

// setLimit changes the limits of an id.
func (m *testFS) setLimit(kind int, id uint32, change func(q *ondisk.Quota)) {
	s := &m.quota
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.files[kind].dquotLocked(id)
	change(&d.Quota)
	if !d.dirty {
		d.dirty, s.dirty = true, append(s.dirty, d)
	}
}

// usage is what an id has.
func (m *testFS) usage(kind int, id uint32) (inodes, bytes uint64) {
	m.quota.mu.Lock()
	defer m.quota.mu.Unlock()
	if d := m.quota.files[kind].dquots[id]; d != nil {
		return d.Inodes, d.Space
	}
	return 0, 0
}

// A file of 400 KiB gets another group, or project, that has a directory: what
// the new owner's limits say of it is what they say in the kernel (root has
// none, a soft one counts when its time is over), and usage moves along.
func TestQuotaMoves(t *testing.T) {
	const id = 2000
	rows := []struct {
		name  string
		kind  int
		limit func(q *ondisk.Quota)
		root  bool
		want  error
	}{
		{"no limit", 1, func(q *ondisk.Quota) {}, false, nil},
		{"hard limit of space", 1, func(q *ondisk.Quota) { q.BlocksHard = 350 }, false, syscall.EDQUOT},
		{"hard limit of space, root", 1, func(q *ondisk.Quota) { q.BlocksHard = 350 }, true, nil},
		{"room", 1, func(q *ondisk.Quota) { q.BlocksHard, q.InodesHard = 450, 2 }, false, nil},
		{"hard limit of inodes", 1, func(q *ondisk.Quota) { q.InodesHard = 1 }, false, syscall.EDQUOT},
		{"soft limits", 1, func(q *ondisk.Quota) { q.BlocksSoft, q.InodesSoft = 100, 1 }, false, nil},
		{"soft limit of space, too late", 1, func(q *ondisk.Quota) { q.BlocksSoft, q.BlocksTime = 1, 1 }, false, syscall.EDQUOT},
		{"soft limit of inodes, too late", 1, func(q *ondisk.Quota) { q.InodesSoft, q.InodesTime = 1, 1 }, false, syscall.EDQUOT},
		{"soft limit of inodes, too late, root", 1, func(q *ondisk.Quota) { q.InodesSoft, q.InodesTime = 1, 1 }, true, nil},
		{"another's limit", 0, func(q *ondisk.Quota) { q.BlocksHard, q.InodesHard = 1, 1 }, false, nil},
		{"project", 2, func(q *ondisk.Quota) { q.BlocksHard = 350 }, false, syscall.EDQUOT},
		{"project with room", 2, func(q *ondisk.Quota) { q.BlocksHard = 450 }, false, nil},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			image := ext4test.Mke2fs(t, 16<<20, "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota")
			m := mountImage(t, image, Options{QuotaLimits: QuotaUser | QuotaGroup | QuotaProject})
			d := m.must(m.Mkdir(nil, RootIno, "d", 0o755))
			m.must(m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetUID | SetGID | SetProjectID, UID: id, GID: id, ProjectID: id}))
			c := &Caller{UID: 1000, GID: 1000, Groups: func() []uint32 { return []uint32{id} }}
			a, f, err := m.Create(c, RootIno, "f", 0o644, syscall.O_RDWR)
			mustOK(t, err)
			mustOK(t, ignore(f.WriteAt(block(400<<10, 1), 0)))
			f.Release()
			m.setLimit(r.kind, id, r.limit)
			mustOK(t, ignore(m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetMode, Mode: 0o777})))

			s := &SetAttr{Valid: SetGID, GID: id}
			if r.kind == 2 {
				s = &SetAttr{Valid: SetProjectID, ProjectID: id}
			}
			if r.root {
				c = nil
			}
			kind := max(r.kind, 1) // whose owner changes
			_, dir := m.usage(kind, id)
			_, err = m.SetAttr(c, a.Ino, s)
			mustErr(t, "ours", err, r.want)
			inodes, bytes := uint64(1), dir
			if r.want == nil {
				inodes, bytes = 2, dir+400<<10
			}
			if n, b := m.usage(kind, id); n != inodes || b != bytes {
				t.Errorf("the new owner has %d inodes and %d bytes, want %d and %d", n, b, inodes, bytes)
			}
			m.unmount()
			out, err := exec.Command(ext4test.Tool(t, "e2fsck"), "-fn", image).CombinedOutput()
			if err != nil || strings.Contains(string(out), "QUOTA") || strings.Contains(string(out), "quota info") {
				t.Errorf("e2fsck: %v\n%s", err, out) // words only, and a status of 0, say that usage differs
			}
		})
	}
}

// A file without a name is its new owner's, too, until it is closed.
func TestQuotaMovesUnlinked(t *testing.T) {
	m := mountNew(t, 16<<20, "-O", "quota")
	a, f, err := m.Create(&Caller{UID: 1000, GID: 1000}, RootIno, "f", 0o644, syscall.O_RDWR)
	mustOK(t, err)
	mustOK(t, ignore(f.WriteAt(block(400<<10, 1), 0)))
	mustOK(t, m.Unlink(RootIno, "f"))
	m.must(m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetUID | SetGID, UID: 2000, GID: 3000}))
	check := func(kind int, id uint32, inodes, bytes uint64) {
		t.Helper()
		if n, b := m.usage(kind, id); n != inodes || b != bytes {
			t.Errorf("id %d has %d inodes and %d bytes, want %d and %d", id, n, b, inodes, bytes)
		}
	}
	check(0, 1000, 0, 0)
	check(1, 1000, 0, 0)
	check(0, 2000, 1, 400<<10)
	check(1, 3000, 1, 400<<10)
	f.Release()
	m.Forget(a.Ino, 1)
	mustOK(t, m.Sync())
	check(0, 2000, 0, 0)
	check(1, 3000, 0, 0)
}

// A directory for a project takes no names of other projects' files.
func TestProjectDirectories(t *testing.T) {
	m := mountNew(t, 16<<20, "-O", "quota,project")
	d := m.must(m.Mkdir(nil, RootIno, "d", 0o755))
	m.must(m.SetAttr(nil, d.Ino, &SetAttr{Valid: SetProjectID | SetFlags, ProjectID: 7, Flags: d.Flags | ondisk.InodeProjInherit}))
	f := m.mkfile("f")
	mustErr(t, "link", ignore(m.Link(f.Ino(), d.Ino, "f")), syscall.EXDEV)
	mustErr(t, "rename", m.Rename(nil, RootIno, "f", d.Ino, "f", 0), syscall.EXDEV)
	in := m.must(m.Mkdir(nil, d.Ino, "in", 0o755))
	if in.ProjectID != 7 {
		t.Errorf("project %d", in.ProjectID)
	}
	mustErr(t, "exchange", m.Rename(nil, d.Ino, "in", RootIno, "f", RenameExchange), syscall.EXDEV)
	m.must(m.SetAttr(nil, f.Ino(), &SetAttr{Valid: SetProjectID, ProjectID: 7}))
	mustOK(t, m.Rename(nil, RootIno, "f", d.Ino, "f", 0))
}
