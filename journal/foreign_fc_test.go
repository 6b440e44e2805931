package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fast commits of the kernel are found and handed over, complete ones only.
func TestKernelFastCommits(t *testing.T) {
	img := makeImage(t, 4096, "64M", "64bit,metadata_csum,fast_commit")
	dir := loopMount(t, img.path, "commit=1000")
	syncFile(t, filepath.Join(dir, "first"))
	if out, err := exec.Command("sync", "-f", dir).CombinedOutput(); err != nil { // a full commit
		t.Fatalf("%s", out)
	}
	for i := range 5 {
		syncFile(t, filepath.Join(dir, fmt.Sprintf("name-in-a-fast-commit-%d", i)))
	}
	dirty := img.load(t)
	umount(t, dir)

	names, kinds := fastCommitNames(t, img, bytes.Clone(dirty))
	if len(kinds) == 0 {
		t.Skip("this kernel has made no fast commits")
	}
	for i := range 5 {
		if want := fmt.Sprintf("name-in-a-fast-commit-%d", i); !strings.Contains(names, want) {
			t.Errorf("no record of %s (%v)", want, kinds)
		}
	}
	if kinds[FcInode] == 0 || kinds[FcCreat] == 0 {
		t.Errorf("records by kind: %v", kinds)
	}

	j, err := Open(img.params(bytes.Clone(dirty)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Recover(); !errors.Is(err, ErrFastCommit) || !j.NeedsRecovery() {
		t.Errorf("recovery without a handler: %v", err)
	}
	testTornFastCommit(t, img, dirty, kinds)
}

// fastCommitNames recovers dev and returns the names of all records.
func fastCommitNames(t *testing.T, img *foreignImage, dev ram) (string, map[FastCommitTag]int) {
	t.Helper()
	j, err := Open(img.params(dev))
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	kinds := map[FastCommitTag]int{}
	j.OnFastCommit(func(fc FastCommits) ([]BlockImage, error) {
		for _, r := range fc.Tags {
			kinds[r.Tag]++
			if r.Tag == FcCreat {
				names.Write(r.Value[8:]) // fc_parent_ino, fc_ino, name
				names.WriteByte('\n')
			}
		}
		return nil, nil
	})
	st, err := j.Recover()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", st)
	return names.String(), kinds
}

// testTornFastCommit damages the last records: only those before count.
func testTornFastCommit(t *testing.T, img *foreignImage, dirty ram, all map[FastCommitTag]int) {
	last := []byte("name-in-a-fast-commit-4")
	j, err := Open(img.params(dirty))
	if err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(dirty)
	for blk := j.geo.fcFirst; blk < j.geo.fcLast; blk++ {
		off, _ := j.log.place(blk)
		if at := bytes.Index(torn[off:][:img.blockSize], last); at >= 0 {
			torn[int(off)+at]++
		}
	}
	names, kinds := fastCommitNames(t, img, torn)
	if strings.Contains(names, "commit-4") || !strings.Contains(names, "commit-3") || kinds[FcInode] >= all[FcInode] {
		t.Errorf("after damage to the last fast commit: %v\n%s", kinds, names)
	}
}

// A log on a device of its own, made by mke2fs and written by the kernel.
func TestExternalLog(t *testing.T) {
	needTools(t, "mke2fs", "losetup", "e2fsck")
	for _, blockSize := range []int{1024, 4096} {
		t.Run(fmt.Sprint(blockSize), func(t *testing.T) { externalLog(t, blockSize) })
	}
}

func externalLog(t *testing.T, blockSize int) {
	dir := t.TempDir()
	logPath, fsPath := filepath.Join(dir, "log"), filepath.Join(dir, "fs")
	bs := fmt.Sprint(blockSize)
	run(t, 0, "mke2fs", "-q", "-F", "-O", "journal_dev", "-b", bs, logPath, "16M")
	loop := attachLoop(t, logPath)
	run(t, 0, "mke2fs", "-q", "-F", "-t", "ext4", "-b", bs, "-J", "device="+loop, fsPath, "32M")
	mnt := loopMount(t, fsPath, "commit=1000,journal_path="+loop)
	busyTree(t, mnt)
	img := &foreignImage{path: fsPath, blockSize: blockSize, blocks: uint64(32<<20) / uint64(blockSize)}
	dirty := img.load(t)
	img.path = logPath
	dirtyLog := img.load(t)
	umount(t, mnt)

	uuid := [16]byte(dirty[1024+0x68:][:16])
	ours, ourLog := ram(bytes.Clone(dirty)), ram(bytes.Clone(dirtyLog))
	p := Params{FsDev: ours, FsBlocks: img.blocks, BlockSize: blockSize, LogDev: ourLog,
		Runs: ExternalRuns(ourLog, blockSize), SuperBlock: ExternalSuperBlock(blockSize), UUID: uuid}
	j, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	st, err := j.Recover()
	if err != nil || st.Transactions == 0 || st.Replayed == 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	theirs := img.copyOf(t, dirty, "theirs")
	theirLog := img.copyOf(t, dirtyLog, "theirlog")
	run(t, 1, "e2fsck", "-E", "journal_only", "-y", "-j", theirLog.path, theirs.path)
	if err := img.diff(ours, theirs.load(t)); err != nil {
		t.Errorf("e2fsck replays something else: %v", err)
	}
	p.UUID[3]++
	if _, err := Open(p); err == nil {
		t.Error("a log of another file system was accepted")
	}
}

func attachLoop(t *testing.T, path string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	out, err := exec.Command("losetup", "-f", "--show", path).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %s", out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	return loop
}
