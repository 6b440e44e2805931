package ext4

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"extfused/fs/ext4/ext4test"
)

// A label is in the primary superblock and in all of its copies; one that is
// damaged does not keep the others from getting it.
func TestSetLabel(t *testing.T) {
	for _, args := range [][]string{{"-b", "1024", "-L", "before"}, {"-b", "4096", "-g", "4096", "-O", "^metadata_csum"}} {
		m := mountNew(t, 100<<20, args...)
		mustOK(t, m.SetLabel("after"))
		sb := m.Super()
		m.unmount()
		copies := 0
		for g := range sb.GroupCount() {
			if !sb.HasSuper(g) {
				continue
			}
			copies++
			at := []string{"-h", "-o", fmt.Sprint("superblock=", sb.GroupFirstBlock(g)), "-o", fmt.Sprint("blocksize=", sb.BlockSize())}
			out, err := exec.Command(ext4test.Tool(t, "dumpe2fs"), append(at, m.path)...).Output()
			if err != nil || !strings.Contains(string(out), "Filesystem volume name:   after\n") {
				t.Errorf("%q group %d: %v %s", args, g, err, out)
			}
		}
		if copies < 3 {
			t.Errorf("%q: %d superblocks", args, copies)
		}
	}
}
