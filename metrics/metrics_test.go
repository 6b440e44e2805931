package metrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/fusefs"
)

// mounted makes sources of a mounted, empty image.
func mounted(t *testing.T) Sources {
	t.Helper()
	if _, err := exec.LookPath("mke2fs"); err != nil {
		t.Skip("mke2fs is not installed")
	}
	img := filepath.Join(t.TempDir(), "img")
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", img, "32M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
	dev, err := blockdev.OpenFile(img, blockdev.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fs, err := ext4.Mount(dev, ext4.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(fs.Unmount(context.Background()), dev.Close()); err != nil {
			t.Error(err)
		}
		if out, err := exec.Command("e2fsck", "-fn", img).CombinedOutput(); err != nil {
			t.Errorf("e2fsck: %v\n%s", err, out)
		}
	})
	if _, err := fs.Mkdir(&ext4.Caller{}, ext4.RootIno, "d", 0o755); err != nil {
		t.Fatal(err)
	}
	return Sources{FS: fs, FUSE: fusefs.New(fs, fusefs.Options{}), Image: img, Mountpoint: "/mnt", Version: "test"}
}

func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestPromtoolIsSilent(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	code, body := get(t, Handler(mounted(t)), "/metrics")
	if code != 200 {
		t.Fatalf("%d: %s", code, body)
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestWhatOperatorsNeedIsThere checks that each family of the documented list
// has a sample.
func TestWhatOperatorsNeedIsThere(t *testing.T) {
	_, body := get(t, Handler(mounted(t)), "/metrics")
	for _, name := range []string{
		`extfused_fusefs_requests_total{op="create"}`, `extfused_fusefs_errors_total{op="create"}`,
		"extfused_mballoc_allocations_total", `extfused_mballoc_groups_considered_total{criterion="p2_aligned"}`,
		"extfused_mballoc_inode_prealloc_hits_total", "extfused_mballoc_pending_clusters", `extfused_mballoc_freed_extents_total{how="folded"}`, "extfused_mballoc_released_clusters_total",
		"extfused_journal_commits_total", "extfused_journal_commit_latency_seconds_count", "extfused_journal_logged_blocks_total", "extfused_journal_free_log_blocks",
		"extfused_bcache_hits_total", "extfused_blockdev_read_bytes_total", "extfused_blockdev_flushes_total",
		"extfused_ext4_free_blocks", "extfused_ext4_free_inodes",
	} {
		if !strings.Contains(body, "\n"+name+" ") {
			t.Errorf("no sample of %s", name)
		}
	}
	if !regexp.MustCompile(`\nextfused_ext4_directories 3\n`).MatchString(body) {
		t.Error("three directories (root, lost+found, d) are not counted as such")
	}
}

func TestNames(t *testing.T) {
	form := regexp.MustCompile(`^extfused_(fusefs|ext4|mballoc|journal|bcache|blockdev)_[a-z0-9_]+$`)
	seen := map[string]bool{}
	for _, m := range allMetrics {
		if !form.MatchString(m.name) || seen[m.name] || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: bad or double name, or help without a full stop", m.name)
		}
		seen[m.name] = true
	}
}

func TestPages(t *testing.T) {
	h := Handler(mounted(t))
	for path, want := range map[string]string{
		"/": "/mnt", "/views/mb_groups": "#group: free", "/views/mb_stats": "mballoc:", "/views/mb_structs_summary": "max_free_order_lists:",
		"/views/es_shrinker_info": "cache hits/misses", "/views/requests": "requests", "/views/stats.json": `"mballoc"`, "/debug/pprof/": "goroutine",
	} {
		if code, body := get(t, h, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q: %.200s", path, code, want, body)
		}
	}
	_, status := get(t, h, "/")
	for _, v := range Views {
		if !strings.Contains(status, `href="/views/`+v.Name+`"`) {
			t.Errorf("the status page does not link to %s", v.Name)
		}
	}
	if code, _ := get(t, h, "/frob"); code != 404 {
		t.Errorf("/frob: %d, want 404", code)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/metrics", bytes.NewReader(nil)))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want %d", w.Code, http.StatusMethodNotAllowed)
	}
}

func TestServeAndClose(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(s.Addr()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the address twice: %v", err)
	}
	s.Serve(mounted(t))
	resp, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !bytes.Contains(body, []byte("extfused_ext4_mount_info")) {
		t.Errorf("%.200s", body)
	}
	s.Close()
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Error("somebody still listens")
	}
	if src, _ := s.gate.enter(); src != nil {
		t.Error("the gate is open after Close")
	}
}
