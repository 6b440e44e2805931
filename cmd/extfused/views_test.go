package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"extfused/metrics"
)

// TestViews: each view can be asked of a mount that nobody has used yet.
func TestViews(t *testing.T) {
	b := newBox(t, "300M", "-b", "1024")
	b.mount()
	for view, want := range map[string]string{
		"mb_groups": "#group: free  frags first [", "mb_stats": "mballoc:\n\tmb stats collection turned off.",
		"mb_structs_summary": "optimize_scan: 1\nmax_free_order_lists:\n", "es_shrinker_info": "stats:\n  ",
		"requests": "op ", "stats.json": "{",
	} {
		if r := extfused(t, "stats", b.mnt, view); r.code != 0 || !strings.HasPrefix(r.stdout, want) || r.stderr != "" {
			t.Errorf("%s: exit %d, %.100q, %q", view, r.code, r.stdout, r.stderr)
		}
	}
	if r := extfused(t, "stats", b.mnt, "mb_frob"); r.code != 2 || !strings.Contains(r.stderr, `no view "mb_frob": there are mb_groups, `) {
		t.Errorf("an unknown view: exit %d, %q", r.code, r.stderr)
	}
	if r := extfused(t, "set", b.mnt, "mb_stats=1"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if r := extfused(t, "stats", b.mnt, "mb_stats"); !strings.Contains(r.stdout, "\n\treqs: ") {
		t.Errorf("mb_stats, turned on: %q", r.stdout)
	}
}

// TestViewsUntilTheEnd asks for all views while files come and go, and on
// through the unmount: each is answered, or told that the mount is ending.
func TestViewsUntilTheEnd(t *testing.T) {
	b := newBox(t, "300M", "-b", "1024")
	b.mount()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, v := range metrics.Views {
		wg.Go(func() {
			for n := 0; ; n++ {
				r := extfused(t, "stats", b.mnt, v.Name)
				select {
				case <-stop:
					if r.code != 0 {
						gone := r.code == 12 || r.code == 7 && strings.Contains(r.stderr, "not connected") || strings.Contains(r.stderr, "the mount is ending") || strings.Contains(r.stderr, "without an answer")
						if !gone {
							t.Errorf("%s during the unmount: exit %d: %s", v.Name, r.code, r.stderr)
						}
						return
					}
				default:
					if r.code != 0 {
						t.Errorf("%s under load: exit %d: %s", v.Name, r.code, r.stderr)
						return
					}
				}
			}
		})
	}
	data := make([]byte, 300<<10)
	for n := range 200 {
		if err := os.WriteFile(b.path(fmt.Sprint(n)), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			os.Remove(b.path(fmt.Sprint(n / 2)))
		}
	}
	close(stop)
	r := extfused(t, "umount", b.mnt)
	wg.Wait()
	if r.code != 0 {
		t.Fatalf("umount: exit %d: %s", r.code, r.stderr)
	}
}
