package command

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// sameButWritten compares two images, but for what s_kbytes_written and the
// checksum of a superblock say.
func sameButWritten(t *testing.T, a, b []byte) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d and %d bytes", len(a), len(b))
	}
	for off := 0; off < len(a); off += 1024 {
		p, q := a[off:off+1024], b[off:off+1024]
		if binary.LittleEndian.Uint16(p[0x38:]) == 0xef53 {
			for _, s := range [][]byte{p, q} {
				clear(s[0x178:0x180])
				clear(s[0x3fc:])
			}
		}
		if !bytes.Equal(p, q) {
			t.Fatalf("differ in the KiB at %#x", off)
		}
	}
}

// A file that is not to be discarded keeps its blocks and what is in them, as
// with mke2fs; one that is gives back what is not needed.
func TestMkfsDiscard(t *testing.T) {
	mke2fs, err := exec.LookPath("mke2fs")
	if err != nil {
		t.Skip("mke2fs is not installed (package e2fsprogs)")
	}
	const size = 32 << 20
	for _, row := range []string{"-t ext2 -b 1024", "-t ext3 -b 4096", "-t ext4 -b 1024", "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "-t ext4 -b 4096 | ,lazy_itable_init=0"} {
		for _, discard := range []string{"discard", "nodiscard"} {
			t.Run(row+" "+discard, func(t *testing.T) {
				ours, theirs := filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
				for _, image := range []string{ours, theirs} {
					if err := os.WriteFile(image, bytes.Repeat([]byte{'x'}, size), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				flags, more, _ := strings.Cut(row, "| ")
				args := append(strings.Fields(flags), "-q", "-F", "-U", identity[1], "-E", identity[3]+","+discard+more)
				cmd := exec.Command(mke2fs, append(args, theirs)...)
				cmd.Env = append(os.Environ(), "E2FSPROGS_FAKE_TIME=1700000000")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("mke2fs: %v %s", err, out)
				}
				mustRun(t, append(append([]string{"mkfs", "--timestamp", "1700000000"}, args...), ours)...)
				var st syscall.Stat_t
				if err := syscall.Stat(ours, &st); err != nil {
					t.Fatal(err)
				}
				if kept := st.Blocks >= size/512; kept != (discard == "nodiscard") {
					t.Errorf("%d KiB are left of %d", st.Blocks/2, size>>10)
				}
				fsck(t, ours)
				a, err := os.ReadFile(ours)
				b, err2 := os.ReadFile(theirs)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				sameButWritten(t, a, b)
			})
		}
	}
}
