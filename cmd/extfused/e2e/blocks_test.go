package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBlocks changes one file in all ways, on extfused and on the kernel's
// ext4, and compares st_blocks, which must be right to the block, after each.
func TestBlocks(t *testing.T) {
	ops, seed := number(t, "EXTFUSED_OPS", 800), number(t, "EXTFUSED_SEED", uint64(time.Now().UnixNano()))
	if longRun() {
		ops *= 20
	}
	t.Logf("EXTFUSED_SEED=%d EXTFUSED_OPS=%d", seed, ops)
	// Large folios, which the kernel does not use with data=journal, make it
	// allocate, for a page written through a mapping, the whole folio around it.
	b := mountBothWith(t, "1G", "noatime", "noatime,data=journal")
	k, x := newPlayer(b.kernel, seed), newPlayer(b.ours.dir, seed)
	defer k.close()
	defer x.close()
	for n := range ops {
		want, wantBlocks := k.blockStep(int(n))
		got, blocks := x.blockStep(int(n))
		if got != want || !sameBlocks(blocks, wantBlocks) {
			t.Fatalf("operation %d: extfused %s, %d blocks\nkernel %s, %d blocks\nbefore: %q\nkernel: %q", n, got, blocks, want, wantBlocks, last(x.log), last(k.log))
		}
	}
	k.close()
	x.close()
	b.compare()
}

func last(log []string) []string { return log[max(0, len(log)-12):] }

// blockStep changes the file, a new one now and then, and tells its blocks.
func (p *player) blockStep(n int) (string, int64) {
	const life = 50 // operations
	if n%life == 0 {
		p.close()
		fd, err := unix.Open(filepath.Join(p.root, fmt.Sprint("file", n/life)), unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			return errno(err), 0
		}
		for k := range p.fds {
			p.fds[k], _ = unix.Dup(fd)
		}
		unix.Close(fd)
		p.log = nil
	}
	s := blockMoves[p.rng.IntN(len(blockMoves))](p)
	fd := p.fds[0]
	err := unix.Fsync(fd)
	var st unix.Stat_t
	unix.Fstat(fd, &st)
	s = fmt.Sprintf("%s: %s size %d", s, errno(err), st.Size)
	p.log = append(p.log, fmt.Sprintf("%s blocks %d", s, st.Blocks))
	return s, st.Blocks
}

// blockMoves are those of dataMoves that change blocks.
var blockMoves = []func(*player) string{
	dataMoves[0].do, dataMoves[1].do, dataMoves[3].do, dataMoves[5].do, dataMoves[5].do, dataMoves[5].do, dataMoves[6].do, dataMoves[7].do,
}
