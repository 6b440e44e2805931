package main

import (
	"encoding/json"
	"strings"
	"testing"

	"extfused/cmd/extfused/daemon"
)

// tunables asks for the list.
func (b *box) tunables() map[string]daemon.Tunable {
	b.t.Helper()
	r := extfused(b.t, "set", "--json", b.mnt)
	var list []daemon.Tunable
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || r.code != 0 {
		b.t.Fatalf("set --json: exit %d, %v: %s", r.code, err, r.stderr)
	}
	m := map[string]daemon.Tunable{}
	for _, v := range list {
		m[v.Name] = v
	}
	return m
}

// TestSet: mount options set tunables, `extfused set` lists and changes them.
func TestSet(t *testing.T) {
	b := newBox(t, "64M")
	b.mount("-o", "mb_max_to_scan=77,mb_optimize_scan=0,stripe=16")
	list := b.tunables()
	for name, want := range map[string]string{
		"mb_max_to_scan": "77", "mb_optimize_scan": "0", "mb_min_to_scan": "10", "mb_stream_req": "16", "mb_order2_req": "2", "mb_group_prealloc": "512",
	} {
		if got := list[name]; got.Value != want {
			t.Errorf("%s is %+v, want %s", name, got, want)
		}
	}
	if d := list["mb_max_to_scan"].Default; d != "200" {
		t.Errorf("the default of mb_max_to_scan is %s", d)
	}
	if r := extfused(t, "set", b.mnt, "mb_stats=1", "mb_max_to_scan=5"); r.code != 0 || r.stdout != "" {
		t.Fatalf("set: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if list = b.tunables(); list["mb_stats"].Value != "1" || list["mb_max_to_scan"].Value != "5" {
		t.Errorf("after set: %+v", list)
	}
	if r := extfused(t, "set", b.mnt); !strings.Contains(r.stdout, "\nmb_max_to_scan ") || strings.Count(r.stdout, "\n") != len(list)+1 {
		t.Errorf("set lists\n%s", r.stdout)
	}
}

// TestSetRefuses: nothing of a wrong command is done, and the message says what
// is wrong and what would be right.
func TestSetRefuses(t *testing.T) {
	b := newBox(t, "64M")
	b.mount()
	for _, c := range []struct{ arg, want string }{
		{"mb_frob=1", "there are mb_stats, mb_max_to_scan"},
		{"mb_optimize_scan=2", "must be 0 to 1"},
		{"mb_group_prealloc=-1", "must be 0 to"},
		{"mb_max_to_scan=x", "not a number"},
		{"mb_max_to_scan", "NAME=VALUE"},
		{"=3", "NAME=VALUE"},
	} {
		r := extfused(t, "set", b.mnt, "mb_stats=1", c.arg)
		name, _, _ := strings.Cut(c.arg, "=")
		if r.code != 2 || !strings.Contains(r.stderr, c.want) || !strings.Contains(r.stderr, name) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want exit 2 and %q", c.arg, r.code, r.stderr, c.want)
		}
	}
	if v := b.tunables()["mb_stats"].Value; v != "0" {
		t.Errorf("a refused command set mb_stats=%s", v)
	}
	if r := extfused(t, "set", t.TempDir()); r.code != 12 {
		t.Errorf("no mount: exit %d: %s", r.code, r.stderr)
	}
	b.umount()
	if r := b.tryMount("-o", "mb_optimize_scan=2"); r.code != 2 || !strings.Contains(r.stderr, "mb_optimize_scan") {
		t.Errorf("mount option out of range: exit %d: %s", r.code, r.stderr)
	}
}
