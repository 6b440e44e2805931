package allocbench

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Every workload does something, ends in time, and leaves the allocator in order (run checks the
// equation at its end).
func TestWorkloads(t *testing.T) {
	for _, name := range Workloads() {
		for _, blockSize := range []int{1024, 4096, 65536} {
			r, err := Run(Config{Workload: name, Groups: max(64, 400*1024/blockSize), BlockSize: blockSize, Procs: 3, Duration: 20 * time.Millisecond, Set: []string{"mb_stats=1"}})
			if err != nil {
				t.Fatalf("%s, %d: %v", name, blockSize, err)
			}
			if r.Ops == 0 || r.Stats.Success == 0 || len(r.WorkerOps) != 3 {
				t.Errorf("%s, %d: %+v", name, blockSize, r)
			}
			if name == "untar" && (r.Files != builtinFiles || r.GroupsTouched < r.LeastGroups) {
				t.Errorf("%d files, %d groups touched, least %d", r.Files, r.GroupsTouched, r.LeastGroups)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "a second") {
				t.Errorf("%v\n%s", err, &text)
			}
		}
	}
}

func TestUntarOfARealArchive(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		size int64
	}{{"src/a/x.c", 5000}, {"src/a/y.c", 0}, {"src/b/c/z.c", 3 << 20}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: f.size, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, f.size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Run(Config{Workload: "untar", Groups: 32, BlockSize: 4096, Procs: 1, Duration: time.Millisecond, Tar: &archive})
	if err != nil {
		t.Fatal(err)
	}
	if r.Files != 3 || r.Extents != 2 || r.Fragmented != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := Run(Config{Workload: "untar", Groups: 32, BlockSize: 4096, Procs: 1, Tar: strings.NewReader("no tar")}); err == nil {
		t.Error("garbage accepted")
	}
}

func TestBadConfig(t *testing.T) {
	good := Config{Workload: "stream", Groups: 4, BlockSize: 4096, Procs: 1, Duration: time.Millisecond}
	for name, change := range map[string]func(*Config){
		"workload":   func(c *Config) { c.Workload = "lastgroup" },
		"groups":     func(c *Config) { c.Groups = 0 },
		"block size": func(c *Config) { c.BlockSize = 3000 },
		"workers":    func(c *Config) { c.Procs = 0 },
		"tunable":    func(c *Config) { c.Set = []string{"mb_nothing=1"} },
		"value":      func(c *Config) { c.Set = []string{"mb_stats"} },
	} {
		c := good
		change(&c)
		if _, err := Run(c); err == nil {
			t.Errorf("bad %s accepted", name)
		}
	}
}

// The table has what it is about, and the counted rows show what the documents say.
func TestSeeds(t *testing.T) {
	rows, err := Seeds(SeedsConfig{Duration: 10 * time.Millisecond, Workers: []int{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Seed] = true
		if r.Before == 0 && r.After == 0 && r.Unit != "1/million ops" {
			t.Errorf("%+v", r)
		}
		switch {
		case strings.HasPrefix(r.What, "list-lock"):
			if r.Before < 1.5 || r.After > 0.1 {
				t.Errorf("%+v", r)
			}
		case strings.HasPrefix(r.What, "groups touched"), strings.HasPrefix(r.What, "atomic"):
			if r.After >= r.Before {
				t.Errorf("%+v", r)
			}
		case strings.Contains(r.What, "131072 groups"):
			if r.After > 20 || r.Before < 10000 {
				t.Errorf("%+v", r)
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("rows for %v", seen)
	}
	var text, js bytes.Buffer
	if err := WriteTable(&text, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	var back []Row
	if err := WriteJSON(&js, rows); err != nil || json.Unmarshal(js.Bytes(), &back) != nil || len(back) != len(rows) {
		t.Errorf("%v\n%s", err, &js)
	}
	if _, err := Seeds(SeedsConfig{Seeds: []string{"S9"}}); err == nil {
		t.Error("S9 accepted")
	}
}
