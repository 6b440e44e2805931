package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
)

// fileExtents are the extents of files by path, as extfused frag --json says.
func fileExtents(t *testing.T, where string, files []string) []int {
	t.Helper()
	var list []struct {
		Size    int64             `json:"size"`
		Extents []json.RawMessage `json:"extents"`
	}
	out := run(t, bin, append([]string{"frag", "--json", where}, files...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("extfused frag --json: %v\n%s", err, out)
	}
	if len(list) != len(files) {
		t.Fatalf("extfused frag tells of %d files, asked for %d", len(list), len(files))
	}
	var counts []int
	for _, f := range list {
		if f.Size != 24<<20 {
			t.Errorf("a file of %d bytes", f.Size)
		}
		counts = append(counts, len(f.Extents))
	}
	return counts
}

// TestFioExtents: eight jobs that write 24 MB each at once in blocks of 64 KiB,
// without fallocate, get at most 5 extents a file, through the page cache and
// past it.
func TestFioExtents(t *testing.T) {
	needMount(t)
	needProgram(t, "fio")
	const jobs, most = 8, 5
	for _, direct := range []string{"0", "1"} {
		t.Run("direct="+direct, func(t *testing.T) {
			img := image(t, "2G")
			m := mountImage(t, img)
			run(t, "fio", "--name=e", "--directory="+m.dir, "--rw=write", "--bs=64k", "--size=24m", fmt.Sprint("--numjobs=", jobs),
				"--ioengine=psync", "--fallocate=none", "--end_fsync=1", "--direct="+direct)
			var paths, files []string
			for k := range jobs {
				name := fmt.Sprintf("e.%d.0", k)
				paths, files = append(paths, "/"+name), append(files, filepath.Join(m.dir, name))
			}
			for k, n := range fileExtents(t, m.dir, files) {
				if n < 1 || n > most {
					t.Errorf("file %d has %d extents while mounted, at most %d may be", k, n, most)
				}
			}
			m.umount()
			counts := fileExtents(t, img, paths)
			for k, n := range counts {
				if n < 1 || n > most {
					t.Errorf("file %d has %d extents, at most %d may be", k, n, most)
				}
			}
			t.Logf("extents: %v", counts)
		})
	}
}
