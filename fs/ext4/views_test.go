package ext4

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"extfused/fs/ext4/ext4test"
	"extfused/mballoc"
)

// kernelViews are what the kernel shows of an image in /proc/fs/ext4.
func kernelViews(t *testing.T, image string) map[string]string {
	t.Helper()
	views := map[string]string{}
	ext4test.KernelMount(t, image, "", func(dir string) {
		info, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(` ` + regexp.QuoteMeta(dir) + ` .* - ext4 /dev/(\S+)`).FindSubmatch(info)
		if m == nil {
			t.Fatal("the mount is not in mountinfo")
		}
		dev := string(m[1])
		if err := os.WriteFile(filepath.Join("/sys/fs/ext4", dev, "mb_stats"), []byte("1"), 0); err != nil {
			t.Skip(err)
		}
		if _, err := os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
		for _, v := range []string{"mb_groups", "mb_stats", "mb_structs_summary", "es_shrinker_info"} { // mb_groups first: it loads all groups
			b, err := os.ReadFile(filepath.Join("/proc/fs/ext4", dev, v))
			if err != nil {
				t.Skip(err)
			}
			views[v] = string(b)
		}
	})
	return views
}

// TestViewsAgainstTheKernel: mb_groups and mb_structs_summary of one image are
// the kernel's to the letter, the others in its words.
func TestViewsAgainstTheKernel(t *testing.T) {
	image := ext4test.Mke2fs(t, 300<<20, "-b", "1024")
	kernel := kernelViews(t, image)
	m := mountImage(t, image, Options{Mballoc: map[string]string{"mb_stats": "1"}})
	if _, err := m.Lookup(RootIno, "lost+found"); err != nil {
		t.Fatal(err)
	}
	for g := range m.groupCount {
		if err := m.alloc.Warm(mballoc.GroupNumber(g)); err != nil {
			t.Fatal(err)
		}
	}
	number := regexp.MustCompile(`\d+`)
	for name, write := range map[string]func(io.Writer) error{
		"mb_groups": m.alloc.WriteMBGroups, "mb_structs_summary": m.alloc.WriteMBStructsSummary,
		"mb_stats": m.alloc.WriteMBStats, "es_shrinker_info": m.WriteESShrinkerInfo,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, want := b.String(), kernel[name]
		if !strings.HasPrefix(name, "mb_groups") && !strings.HasPrefix(name, "mb_structs") {
			got, want = number.ReplaceAllString(got, "N"), number.ReplaceAllString(want, "N")
		}
		if got != want {
			t.Errorf("%s: we say\n%s\nthe kernel says\n%s", name, got, want)
		}
	}
	m.Forget(11, 1)
}

// TestESShrinkerInfoCounts: what the view says is what the caches hold.
func TestESShrinkerInfoCounts(t *testing.T) {
	m := mountNew(t, 64<<20)
	f := m.mkfile("f")
	for k := int64(0); k < 10; k++ { // ten runs with holes between
		if _, err := f.WriteAt(block(4096, uint64(k)), k*8192); err != nil {
			t.Fatal(err)
		}
	}
	c := m.censusES()
	if c.top.objects < 19 || c.top.reclaimable != c.top.objects || c.objects < c.top.objects || c.reclaimable > c.objects {
		t.Errorf("%+v", c)
	}
	m.ops.es.shrink(0)
	m.ops.es.shrink(0)
	if c := m.censusES(); c.reclaimable != 0 {
		t.Errorf("after shrinking all: %+v", c)
	}
	if s := m.ops.es.stats(); s.MaxScanTime > s.ScanTime || s.ScanTime <= 0 {
		t.Errorf("%+v", s)
	}
	f.Release()
}
