package ondisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFeatureNamesAreDumpe2fs asks dumpe2fs for the name of each of the 96
// bits, the unknown ones included.
func TestFeatureNamesAreDumpe2fs(t *testing.T) {
	if _, err := exec.LookPath("dumpe2fs"); err != nil {
		t.Skip("dumpe2fs is not installed (package e2fsprogs)")
	}
	img := readGolden(t, "ext3")
	path := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(path, img, 0o600); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for bit := range 96 {
		var f Features
		switch n := bit % 32; bit / 32 {
		case 0:
			f.Compat = 1 << n
		case 1:
			f.Incompat = 1 << n
		case 2:
			f.ROCompat = 1 << n
		}
		var s SuperBlock
		if err := s.Decode(img[SuperBlockOffset:]); err != nil {
			t.Fatal(err)
		}
		s.SetFeatures(f)
		patchSuper(t, path, &s)
		// It exits with an error where the rest of the image does not go with
		// the bit; the features have been printed before.
		out, _ := exec.Command("dumpe2fs", "-h", "-f", path).Output()
		_, rest, ok := strings.Cut(string(out), "Filesystem features:")
		if !ok {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		compared++
		if got := strings.TrimSpace(line); got != f.String() {
			t.Errorf("bit %d: dumpe2fs calls it %q, we %q", bit, got, f)
		}
	}
	if compared < 60 {
		t.Errorf("dumpe2fs told only %d names", compared)
	}
}

func patchSuper(t *testing.T, path string, s *SuperBlock) {
	t.Helper()
	b := make([]byte, SuperBlockSize)
	s.Encode(b)
	SetSuperBlockCsum(b)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, SuperBlockOffset); err != nil {
		t.Fatal(err)
	}
}
