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

// tooLate tells whether a command says that there is no mount any more.
func tooLate(r result) bool {
	for _, text := range []string{"the mount is ending", "without an answer", "no mount of extfused", "does not answer", "not connected", "connection reset", "connection abort", "broken pipe"} {
		if strings.Contains(r.stderr, text) {
			return true
		}
	}
	return false
}

// TestCommandsUntilTheEnd gives all commands while files come and go, and on
// through the unmount: each is answered, or told that it comes too late.
func TestCommandsUntilTheEnd(t *testing.T) {
	b := newBox(t, "300M", "-b", "1024")
	b.mount()
	commands := [][]string{{"set", b.mnt, "mb_max_to_scan=100"}, {"frag", b.mnt}, {"frag", b.mnt, "/"}, {"trim", b.mnt}}
	for _, v := range metrics.Views {
		commands = append(commands, []string{"stats", b.mnt, v.Name})
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, args := range commands {
		wg.Go(func() {
			for {
				r := extfused(t, args...)
				ending := false
				select {
				case <-stop:
					ending = true
				default:
				}
				if r.code != 0 {
					if !ending || !tooLate(r) {
						t.Errorf("%v: exit %d: %s (the mount is ending: %v)", args, r.code, r.stderr, ending)
					}
					return
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
	var r result
	eventually(t, "the mount is not in use for a moment", func() bool {
		r = extfused(t, "umount", b.mnt)
		return r.code != 8
	})
	wg.Wait()
	if r.code != 0 {
		t.Fatalf("umount: exit %d: %s", r.code, r.stderr)
	}
}
