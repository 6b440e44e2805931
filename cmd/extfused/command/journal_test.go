package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"extfused/fs/ext4/ext4test"
)

// dirtyJournal is an image whose log holds some transactions of the kernel's,
// revokes among them.
func dirtyJournal(t *testing.T, args ...string) string {
	t.Helper()
	return ext4test.KernelCrash(t, ext4test.Mke2fs(t, 32<<20, args...), "commit=1000", func(dir string) {
		for k := range 4 {
			d := filepath.Join(dir, fmt.Sprint("d", k))
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
			for n := range 20 {
				if err := os.WriteFile(filepath.Join(d, fmt.Sprint(n)), []byte("x"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			fsyncDir(t, d)
		}
		if err := os.RemoveAll(filepath.Join(dir, "d1")); err != nil { // directory blocks are revoked
			t.Fatal(err)
		}
		fsyncDir(t, dir)
	})
}

func fsyncDir(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

var (
	loggedLine = regexp.MustCompile(`FS block \d+ logged at journal block \d+ \(flags 0x[0-9a-f]+\)`)
	revokeLine = regexp.MustCompile(`Revoke FS block \d+`)
	commitLine = regexp.MustCompile(`commit block\)? at block \d+`)
)

// facts are the lines that debugfs and we write alike, in order.
func facts(text string) (logged, revokes, commits []string) {
	commits = commitLine.FindAllString(strings.ReplaceAll(text, ")", ""), -1)
	return loggedLine.FindAllString(text, -1), revokeLine.FindAllString(text, -1), commits
}

func TestJournalAgreesWithDebugfs(t *testing.T) {
	for _, args := range [][]string{nil, {"-b", "1024", "-O", "^64bit,^metadata_csum"}} {
		img := dirtyJournal(t, args...)
		before := ext4test.Sum(t, img)
		code, out, errOut := run("journal", img)
		if code != 0 || errOut != "" {
			t.Fatalf("exit %d, %q", code, errOut)
		}
		ours, ourRevokes, ourCommits := facts(out)
		theirs, theirRevokes, theirCommits := facts(ext4test.Debugfs(t, img, "logdump -a"))
		if len(ours) < 10 || !slices.Equal(ours, theirs) {
			t.Errorf("logged blocks: we have %d, debugfs %d\n%s", len(ours), len(theirs), out)
		}
		if len(ourRevokes) == 0 || !slices.Equal(ourRevokes, theirRevokes) {
			t.Errorf("revokes: %q, debugfs %q", ourRevokes, theirRevokes)
		}
		if len(ourCommits) < 5 || !slices.Equal(ourCommits, theirCommits) {
			t.Errorf("commits: %q, debugfs %q", ourCommits, theirCommits)
		}
		if strings.Contains(out, "DAMAGED") {
			t.Errorf("damage in a log that has none:\n%s", out)
		}
		journalJSON(t, img, len(ours), len(ourCommits), false)
		if ext4test.Sum(t, img) != before {
			t.Error("the image has changed")
		}
	}
}

func journalJSON(t *testing.T, img string, logged, commits int, damaged bool) {
	t.Helper()
	code, out, errOut := run("journal", "--json", img)
	var l logJSON
	if err := json.Unmarshal([]byte(out), &l); code != 0 || errOut != "" || err != nil {
		t.Fatalf("exit %d, %q: %v", code, errOut, err)
	}
	n, done := 0, 0
	for _, x := range l.Transactions {
		n += len(x.Logged)
		if x.Committed {
			done++
		}
	}
	if n != logged || done != commits || l.Damaged != damaged || l.Empty {
		t.Errorf("JSON has %d logged blocks, %d commits, damaged %v; want %d, %d, %v", n, done, l.Damaged, logged, commits, damaged)
	}
}

// A byte changed in a logged block is told, with its place.
func TestJournalTellsDamage(t *testing.T) {
	img := dirtyJournal(t)
	_, out, _ := run("journal", img)
	m := regexp.MustCompile(`logged at journal block (\d+)`).FindAllStringSubmatch(out, -1)
	if len(m) < 5 {
		t.Fatalf("a log of %d blocks", len(m))
	}
	logged, _, commits := facts(out)
	blk := m[4][1]
	place := strings.Fields(ext4test.Debugfs(t, img, "bmap <8> "+blk))
	var fsBlock int64
	if _, err := fmt.Sscan(place[len(place)-1], &fsBlock); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(img, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	at := fsBlock*int64(blockSizeOf(t, img)) + 77
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	f.Close()
	code, out, _ := run("journal", img)
	if code != 0 || !strings.Contains(out, "DAMAGED: journal: bad checksum of a logged block, journal block "+blk) {
		t.Errorf("exit %d:\n%s", code, out)
	}
	journalJSON(t, img, len(logged), len(commits), true)
}

func blockSizeOf(t *testing.T, img string) int64 { return ext4test.Dumpe2fsInt(t, img, "Block size") }

// What cannot be shown is refused with a line that says why.
func TestJournalRefuses(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	none := ext4test.Mke2fs(t, 8<<20, "-O", "^has_journal")
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{garbage}, ExitNotExt4, "ext4"},
		{[]string{none}, ExitFeature, "no journal"},
		{[]string{garbage + "x"}, ExitImage, "no such file"},
		{nil, ExitUsage, "IMAGE"},
	} {
		code, _, errOut := run(append([]string{"journal"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.text) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", c.args, code, errOut)
		}
	}
}
