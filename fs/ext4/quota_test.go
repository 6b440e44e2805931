package ext4

import (
	"bytes"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/fs/ondisk"
)

var quotaRows = [][]string{
	{"-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"},
	{"-b", "4096", "-O", "quota,ea_inode,inline_data"},
	{"-b", "1024", "-C", "8192", "-O", "quota,bigalloc,^has_journal"},
}

// Many owners, files that come, grow, shrink, change hands and go: e2fsck
// counts the same.
func TestQuotaUsage(t *testing.T) {
	for _, args := range quotaRows {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			m := mountNew(t, 64<<20, args...)
			value := bytes.Repeat([]byte("v"), 9000)
			for k := range 120 {
				id := uint32(k*k*977 + k)
				c := &Caller{UID: id, GID: id / 2}
				d := m.must(m.Mkdir(c, RootIno, fmt.Sprint("d", k), 0o755))
				a, f, err := m.Create(c, d.Ino, "f", 0o644, syscall.O_RDWR)
				mustOK(t, err)
				if _, err := f.WriteAt(block(100+k*900, 1), int64(k%5)<<12); err != nil {
					t.Fatal(err)
				}
				if m.eaInode && k%3 == 0 {
					mustOK(t, m.SetXattr(nil, a.Ino, "user.large", value, 0))
				}
				switch k % 6 {
				case 1:
					_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetUID | SetGID, UID: 5, GID: id})
				case 2:
					_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetSize, Size: 10})
				case 3:
					err = m.Unlink(d.Ino, "f")
				case 4:
					if m.projects {
						_, err = m.SetAttr(nil, a.Ino, &SetAttr{Valid: SetProjectID, ProjectID: 70000 + id})
					}
				}
				mustOK(t, err)
				f.Release()
				m.Forget(a.Ino, 1)
				m.Forget(d.Ino, 1)
			}
			m.remount()
			for k := range 60 {
				d := m.must(m.Lookup(RootIno, fmt.Sprint("d", k)))
				if k%6 != 3 {
					mustOK(t, m.Unlink(d.Ino, "f"))
				}
				m.Forget(d.Ino, 1)
				mustOK(t, m.Rmdir(RootIno, fmt.Sprint("d", k)))
			}
			m.unmount()
			// e2fsck -fn says with words only, and a status of 0, that usage differs.
			out, err := exec.Command(ext4test.Tool(t, "e2fsck"), "-fn", m.path).CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("QUOTA")) || bytes.Contains(out, []byte("quota info")) {
				t.Errorf("e2fsck: %v\n%s", err, out)
			}
			ext4test.KernelMount(t, m.path, "", func(string) {})
		})
	}
}

// The twin, with usage kept right beside it.
func TestQuotaTwin(t *testing.T) {
	for k, args := range quotaRows {
		r := featureRow{name: "quota", size: 64 << 20, args: args}
		t.Run(fmt.Sprint(args), func(t *testing.T) { r.run(t, int64(500+k), 800) })
	}
}

// Limits stop whoever is not the superuser, where the mount says that they count.
func TestQuotaLimits(t *testing.T) {
	image := ext4test.Mke2fs(t, 64<<20, "-b", "4096", "-O", "quota")
	m := mountImage(t, image, Options{QuotaLimits: QuotaUser})
	c := &Caller{UID: 1000, GID: 1000}
	_, f, err := m.Create(c, RootIno, "f", 0o644, syscall.O_RDWR)
	mustOK(t, err)
	limit := func(change func(q *ondisk.Quota)) {
		m.quota.mu.Lock()
		d := m.quota.files[0].dquotLocked(1000)
		change(&d.Quota)
		if !d.dirty {
			d.dirty, m.quota.dirty = true, append(m.quota.dirty, d)
		}
		m.quota.mu.Unlock()
	}
	limit(func(q *ondisk.Quota) { q.BlocksHard, q.InodesHard = 1000, 3 })
	p := make([]byte, 3<<20)
	n, err := f.WriteAt(p, 0)
	if n > 1000<<10 || n < 900<<10 || err != syscall.EDQUOT {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err = f.WriteAt(p, 2<<20); n > 0 && n > 1000<<10 || err != nil && err != syscall.EDQUOT {
		t.Errorf("wrote %d more, %v", n, err)
	}
	if _, err = f.WriteAt(p, 20<<20); err != syscall.EDQUOT {
		t.Errorf("past the limit: %v", err)
	}
	mustErr(t, "a directory's block", ignore(m.Mkdir(c, RootIno, "d0", 0o755)), syscall.EDQUOT)
	limit(func(q *ondisk.Quota) { q.BlocksHard = 1020 })
	m.must(m.Mkdir(c, RootIno, "d1", 0o755))
	m.must(m.Mkdir(c, RootIno, "d2", 0o755))
	mustErr(t, "a fourth inode", ignore(m.Mkdir(c, RootIno, "d3", 0o755)), syscall.EDQUOT)
	m.must(m.Mkdir(nil, RootIno, "d3", 0o755))
	mustErr(t, "another user", ignore(m.Mkdir(&Caller{UID: 1001}, RootIno, "d4", 0o755)), nil)
	// The soft limit counts when its time is over.
	limit(func(q *ondisk.Quota) { q.InodesHard, q.InodesSoft = 0, 2 })
	m.must(m.Mkdir(c, RootIno, "d5", 0o755))
	limit(func(q *ondisk.Quota) { q.InodesTime = 1 })
	mustErr(t, "after the grace time", ignore(m.Mkdir(c, RootIno, "d6", 0o755)), syscall.EDQUOT)
	f.Release()
	m.remount()
	m.quota.mu.Lock()
	q := m.quota.files[0].dquots[1000].Quota
	m.quota.mu.Unlock()
	if q.BlocksHard != 1020 || q.InodesSoft != 2 || q.Inodes != 4 || q.Space < 900<<10 || q.Space > 1020<<10 {
		t.Errorf("after a remount: %+v", q)
	}
}
