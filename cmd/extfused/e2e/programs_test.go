package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrograms runs what people run on file systems, each on a mount of its
// own: briefly, and at length with EXTFUSED_FULL. What is not installed is
// skipped.
func TestPrograms(t *testing.T) {
	needMount(t)
	for _, p := range []struct {
		name  string
		needs []string
		run   func(t *testing.T, m *mount)
	}{
		{"git", []string{"git"}, runGit},
		{"sqlite", []string{"sqlite3"}, runSQLite},
		{"postgresql", []string{"initdb", "pg_ctl", "pgbench", "runuser"}, runPostgres},
		{"rsync", []string{"rsync", "setfacl", "setfattr"}, runRsync},
		{"tar", []string{"tar", "setfacl", "setfattr"}, runTar},
		{"cp --sparse", []string{"cp", "cmp"}, runCpSparse},
		{"overlayfs", []string{"mount"}, runOverlay},
		{"dpkg", []string{"dpkg", "dpkg-deb"}, runDpkg},
		{"stress-ng", []string{"stress-ng"}, runStressNG},
		{"bonnie++", []string{"bonnie++"}, runBonnie},
		{"dbench", []string{"dbench"}, runDbench},
	} {
		t.Run(p.name, func(t *testing.T) {
			for _, program := range p.needs {
				needProgram(t, program)
			}
			p.run(t, mountImage(t, mkfsImage(t, "4G")))
		})
	}
}

// pick is the short or the long form's number.
func pick(short, long int) int {
	if longRun() {
		return long
	}
	return short
}

func runGit(t *testing.T, m *mount) {
	src := filepath.Join(t.TempDir(), "src")
	files := pick(200, 5000)
	rng := rand.New(rand.NewPCG(1, 2))
	for k := range files {
		dir := filepath.Join(src, fmt.Sprint("dir", k%50))
		os.MkdirAll(dir, 0o755)
		line := fmt.Sprintf("line %d\n", rng.Uint64())
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file", k)), []byte(strings.Repeat(line, 1+rng.IntN(200))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(dir string, args ...string) string {
		return run(t, "git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "safe.directory=*", "-c", "gc.auto=0"}, args...)...)
	}
	git(src, "init", "-q")
	git(src, "add", ".")
	git(src, "commit", "-qm", "all")
	clone := filepath.Join(m.dir, "clone")
	git(m.dir, "clone", "-q", "--no-local", src, clone)
	git(clone, "fsck", "--full", "--strict")
	if out := git(clone, "status", "--porcelain"); out != "" {
		t.Errorf("git status: %.500s", out)
	}
	git(clone, "checkout", "-qb", "other")
	run(t, "sh", "-c", "cd "+clone+" && for f in dir1/*; do echo changed >> $f; done")
	git(clone, "commit", "-qam", "changed")
	git(clone, "repack", "-adq")
	git(clone, "checkout", "-q", "-")
	git(clone, "fsck", "--full")
	if n := strings.Count(git(clone, "ls-files"), "\n"); n != files {
		t.Errorf("%d files, want %d", n, files)
	}
}

func runSQLite(t *testing.T, m *mount) {
	db, n := filepath.Join(m.dir, "db"), pick(1000, 10000)
	var sql strings.Builder
	sql.WriteString("PRAGMA journal_mode=WAL; PRAGMA mmap_size=268435456; PRAGMA synchronous=NORMAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\n")
	for k := range n {
		fmt.Fprintf(&sql, "BEGIN; INSERT INTO t VALUES(%d, hex(randomblob(100))); UPDATE t SET v=hex(randomblob(50)) WHERE id=%d; COMMIT;\n", k, k/2)
	}
	cmd := exec.Command("sqlite3", "-bail", db)
	cmd.Stdin = strings.NewReader(sql.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sqlite3: %v\n%.1000s", err, out)
	}
	out := run(t, "sqlite3", db, "PRAGMA mmap_size=268435456; PRAGMA integrity_check; SELECT count(*) FROM t;")
	if !strings.Contains(out, "ok\n") || !strings.HasSuffix(out, fmt.Sprintf("%d\n", n)) {
		t.Errorf("after %d transactions: %s", n, out)
	}
}

func runPostgres(t *testing.T, m *mount) {
	const user = "postgres"
	if !longRun() {
		t.Skip("takes half a minute: EXTFUSED_FULL=1 runs it")
	}
	if exec.Command("id", user).Run() != nil {
		t.Skipf("there is no user %s", user)
	}
	data := filepath.Join(m.dir, "pg")
	openPath(m.dir)
	run(t, "install", "-d", "-o", user, "-m", "700", data)
	as := func(args ...string) string { return run(t, "runuser", append([]string{"-u", user, "--"}, args...)...) }
	as("initdb", "-D", data, "-A", "trust", "-N")
	as("pg_ctl", "-D", data, "-w", "-l", data+"/log", "-o", "-c listen_addresses= -c unix_socket_directories="+data, "start")
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			as("pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
		}
	}
	defer stop()
	as("pgbench", "-h", data, "-i", "-q", "-s", fmt.Sprint(pick(1, 10)), "postgres")
	out := as("pgbench", "-h", data, "-c", "4", "-T", fmt.Sprint(pick(3, 30)), "postgres")
	if !strings.Contains(out, "number of failed transactions: 0") {
		t.Errorf("pgbench: %s", out)
	}
	stop()
	if _, err := exec.LookPath("pg_checksums"); err == nil {
		exec.Command("runuser", "-u", user, "--", "pg_checksums", "-D", data).Run() // only told where checksums are on
	}
}

// openPath lets every user come to a directory.
func openPath(dir string) {
	for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		if fi, err := os.Stat(p); err == nil {
			os.Chmod(p, fi.Mode()|0o055)
		}
	}
}

// richTree makes a tree with all that backup programs care for.
func richTree(t *testing.T, dir string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for k := range pick(150, 3000) {
		d := filepath.Join(dir, fmt.Sprint("d", k%20))
		os.MkdirAll(d, 0o755)
		f := filepath.Join(d, fmt.Sprint("f", k))
		if err := os.WriteFile(f, bytes.Repeat([]byte{byte(k)}, rng.IntN(20000)), os.FileMode(rng.IntN(0o1000))); err != nil {
			t.Fatal(err)
		}
		os.Chown(f, rng.IntN(1000), rng.IntN(1000))
		switch k % 6 {
		case 0:
			os.Link(f, f+".hard")
		case 1:
			os.Symlink("f0", f+".sym")
		case 2:
			unix.Setxattr(f, "user.tag", []byte(fmt.Sprint("value", k)), 0)
		case 3:
			unix.Mknod(f+".fifo", unix.S_IFIFO|0o600, 0)
		case 4:
			os.Truncate(f, int64(rng.IntN(1<<20)))
		}
	}
	run(t, "setfacl", "-R", "-m", "u:1234:rwX,g:4321:r", filepath.Join(dir, "d1"))
	run(t, "setfacl", "-d", "-m", "u:1234:rwx", filepath.Join(dir, "d2"))
}

// sameRich compares two trees with attributes, ACLs among them, and times.
func sameRich(t *testing.T, what, a, b string) {
	t.Helper()
	sameTree(t, what, snapshot(t, a), snapshot(t, b))
	want, got := fingerprint(a), fingerprint(b)
	sameFingerprint(t, what, want, got)
}

func runRsync(t *testing.T, m *mount) {
	src, back, there := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "back"), filepath.Join(m.dir, "there")
	richTree(t, src)
	// Without it rsync takes times within one second for equal, and leaves them.
	run(t, "rsync", "--modify-window=-1", "-aHAX", src+"/", there)
	run(t, "rsync", "--modify-window=-1", "-aHAX", there+"/", back)
	if out := run(t, "rsync", "--modify-window=-1", "-aHAXcni", "--delete", src+"/", back); strings.TrimSpace(out) != "" {
		t.Errorf("rsync finds differences:\n%.1000s", out)
	}
	sameRich(t, "rsync there", src, there)
}

func runTar(t *testing.T, m *mount) {
	src, there := filepath.Join(t.TempDir(), "src"), filepath.Join(m.dir, "there")
	richTree(t, src)
	os.Mkdir(there, 0o755)
	archive := filepath.Join(m.dir, "archive.tar")
	run(t, "tar", "--xattrs", "--xattrs-include=*", "--acls", "-C", src, "-cf", archive, ".")
	run(t, "tar", "--xattrs", "--xattrs-include=*", "--acls", "-C", there, "-xpf", archive)
	sameRich(t, "tar", src, there)
	run(t, "tar", "--xattrs", "--acls", "-C", there, "-df", archive)
}

func runCpSparse(t *testing.T, m *mount) {
	f := filepath.Join(m.dir, "sparse")
	out, err := os.Create(f)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	out.Truncate(64 << 20)
	for k := range 50 {
		out.WriteAt([]byte(fmt.Sprint("data ", k)), int64(k)*1234567)
	}
	for _, how := range []string{"auto", "always", "never"} {
		c := f + "." + how
		run(t, "cp", "--reflink=never", "--sparse="+how, f, c)
		run(t, "cmp", f, c)
		var st unix.Stat_t
		if err := unix.Stat(c, &st); err != nil {
			t.Fatal(err)
		}
		if full := int64(64 << 11); how == "never" && st.Blocks < full || how != "never" && st.Blocks > full/10 {
			t.Errorf("cp --sparse=%s takes %d blocks", how, st.Blocks)
		}
	}
}

func runOverlay(t *testing.T, m *mount) {
	lower, merged := t.TempDir(), t.TempDir()
	for _, d := range []string{"upper", "work"} {
		os.Mkdir(filepath.Join(m.dir, d), 0o755)
	}
	os.MkdirAll(filepath.Join(lower, "dir/sub"), 0o755)
	for _, f := range []string{"gone", "changed", "dir/inner", "dir/sub/deep"} {
		os.WriteFile(filepath.Join(lower, f), []byte("lower "+f), 0o644)
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, m.dir, m.dir)
	if err := unix.Mount("overlay", merged, "overlay", 0, opts); err != nil {
		t.Fatalf("overlayfs with upper and work directory on extfused: %v", err)
	}
	in := false
	defer func() {
		if !in {
			unix.Unmount(merged, unix.MNT_DETACH)
		}
	}()
	p := func(f string) string { return filepath.Join(merged, f) }
	run(t, "sh", "-ec", fmt.Sprintf(`cd %s; rm gone; echo more >> changed; mv dir dir2 || (cp -a dir dir2 && rm -r dir)
		mkdir dir; echo new > dir/new; ln changed hard; ln -s changed sym; chmod 600 changed; rm -r dir2/sub; mkdir dir2/sub; touch dir2/sub/fresh`, merged))
	if b, err := os.ReadFile(p("hard")); err != nil || string(b) != "lower changedmore\n" {
		t.Errorf("changed is %q, %v", b, err)
	}
	if _, err := os.Stat(p("gone")); !os.IsNotExist(err) {
		t.Errorf("the removed file: %v", err)
	}
	if got := readNames("", p("dir2/sub")); got != "OK fresh:----------" {
		t.Errorf("the directory that was made anew holds %q", got)
	}
	if got := readNames("", p("dir")); got != "OK new:----------" {
		t.Errorf("the opaque directory holds %q", got)
	}
	in = true
	if err := unix.Unmount(merged, 0); err != nil {
		t.Errorf("unmounting the overlay: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(m.dir, "upper/gone"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("the whiteout is %o, %v", st.Mode, err)
	}
}

func runDpkg(t *testing.T, m *mount) {
	root := filepath.Join(m.dir, "root")
	for _, d := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		os.MkdirAll(filepath.Join(root, d), 0o755)
	}
	for _, f := range []string{"status", "available"} {
		os.WriteFile(filepath.Join(root, "var/lib/dpkg", f), nil, 0o644)
	}
	n := pick(3, 20)
	for k := range n {
		pkg := filepath.Join(t.TempDir(), "pkg")
		for _, d := range []string{"DEBIAN", "usr/share/p", "etc"} {
			os.MkdirAll(filepath.Join(pkg, d), 0o755)
		}
		name := fmt.Sprintf("test-package-%d", k)
		os.WriteFile(filepath.Join(pkg, "DEBIAN/control"), []byte("Package: "+name+"\nVersion: 1\nArchitecture: all\nMaintainer: n <e@example.org>\nDescription: a test\n"), 0o644)
		for j := range 50 {
			os.WriteFile(filepath.Join(pkg, fmt.Sprintf("usr/share/p/%s-%d", name, j)), bytes.Repeat([]byte("x"), 100*j), 0o644)
		}
		deb := filepath.Join(m.dir, name+".deb")
		run(t, "dpkg-deb", "-b", pkg, deb)
		run(t, "dpkg", "--root="+root, "--force-not-root", "-i", deb)
	}
	if out := run(t, "dpkg", "--root="+root, "-l"); strings.Count(out, "ii  test-package-") != n {
		t.Errorf("dpkg -l: %s", out)
	}
	run(t, "dpkg", "--root="+root, "--verify")
	run(t, "dpkg", "--root="+root, "-r", "test-package-0")
	if _, err := os.Stat(filepath.Join(root, "usr/share/p/test-package-0-1")); !os.IsNotExist(err) {
		t.Errorf("a removed package's file: %v", err)
	}
}

func runStressNG(t *testing.T, m *mount) {
	// Those that need what FUSE does not offer are left out by stress-ng itself.
	stressors := []string{"access", "chdir", "chmod", "chown", "copy-file", "dentry", "dir", "dirdeep", "dirmany", "dup", "fallocate", "fcntl",
		"file-ioctl", "filename", "flock", "fpunch", "fstat", "getdent", "hdd", "iomix", "link", "locka", "lockf", "lockofd", "metamix", "mknod",
		"open", "rename", "seek", "symlink", "sync-file", "touch", "unlink", "utime", "xattr"}
	args := []string{"--temp-path", m.dir, "--timeout", fmt.Sprint(pick(5, 60), "s"), "--verify", "--metrics-brief", "--hdd-bytes", "32M", "--iomix-bytes", "32M",
		"--fallocate-bytes", "32M", "--copy-file-bytes", "128M", "--sync-file-bytes", "16M"}
	known := strings.Fields(run(t, "stress-ng", "--stressors"))
	for _, s := range stressors {
		if slices.Contains(known, s) {
			args = append(args, "--"+s, "1")
		}
	}
	out, err := exec.Command("stress-ng", args...).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("fail:")) {
		t.Errorf("stress-ng: %v\n%.6000s", err, out)
	}
}

func runBonnie(t *testing.T, m *mount) {
	size := pick(32, 2048)
	run(t, "bonnie++", "-q", "-f", "-d", m.dir, "-u", "root", "-s", fmt.Sprint(size), "-r", fmt.Sprint(size/2), "-n", fmt.Sprint(pick(1, 32)), "-x", "1")
}

func runDbench(t *testing.T, m *mount) {
	args := []string{"-D", m.dir, "-t", fmt.Sprint(pick(4, 60))}
	if loadfile := "/usr/share/dbench/client.txt"; fileExists(loadfile) {
		args = append(args, "-c", loadfile)
	}
	out, err := exec.Command("dbench", append(args, "4")...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("Throughput")) {
		t.Errorf("dbench: %v\n%.3000s", err, out)
	}
}

func fileExists(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil
}
