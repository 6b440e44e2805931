package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the prefix of our own import paths.
const module = "extfused/"

// layer says what the packages of one directory, and of those below it that
// are no layer themselves, may import: packages of ours ("/..." stands for a
// whole tree), and modules of others. The standard library is free for all.
type layer struct {
	dir    string
	ours   []string
	others []string
}

const (
	sys    = "golang.org/x/sys"
	xsync  = "golang.org/x/sync"
	goFuse = "github.com/hanwen/go-fuse/v2"
	zap    = "go.uber.org/zap"
)

// layers is the import rule of docs/DESIGN.md. Where directories are nested,
// the longest one that matches counts.
var layers = []layer{
	{dir: "fs/ondisk"},
	{dir: "mballoc"},
	{dir: "mballoc/simdisk", ours: []string{"mballoc"}},
	{dir: "mballoc/allocbench", ours: []string{"mballoc", "mballoc/simdisk"}},
	{dir: "blockdev", others: []string{sys}},
	{dir: "blockdev/bcache", ours: []string{"blockdev"}},
	{dir: "blockdev/bdtest", ours: []string{"blockdev"}},
	{dir: "journal", ours: []string{"blockdev", "blockdev/bcache"}},
	{dir: "fs/extent", ours: []string{"fs/ondisk"}},
	{dir: "fs/htree", ours: []string{"fs/ondisk"}},
	{dir: "fs/xattr", ours: []string{"fs/ondisk"}},
	{dir: "fs/mkfs", ours: []string{"fs/ondisk", "fs/extent", "fs/htree", "journal", "blockdev"}, others: []string{sys}},
	{dir: "fs/info", ours: []string{"fs/ondisk", "fs/mkfs", "journal", "blockdev"}},
	{dir: "fs/ext4", ours: []string{
		"fs/ondisk", "fs/extent", "fs/htree", "fs/xattr", "mballoc", "journal", "blockdev", "blockdev/bcache",
	}, others: []string{sys, xsync}},
	{dir: "fs/ext4/ext4test", ours: []string{"fs/ext4", "fs/ondisk", "fs/mkfs", "blockdev", "blockdev/bdtest"}, others: []string{sys}},
	{dir: "fs/ext4/crashtest", ours: []string{"fs/ext4", "fs/ext4/ext4test", "blockdev", "blockdev/bdtest"}, others: []string{sys}},
	{dir: "fs/ext4/matrix", ours: []string{"fs/ext4", "fs/ext4/ext4test", "fs/ondisk", "fs/mkfs", "blockdev"}, others: []string{sys}},
	{dir: "fs/populate", ours: []string{"fs/ext4", "fs/ondisk", "fs/mkfs", "blockdev"}, others: []string{sys}},
	{dir: "fs/fusefs", ours: []string{"fs/fusefs/devfuse", "fs/ext4", "fs/ondisk", "blockdev"}, others: []string{goFuse, sys}},
	{dir: "fs/fusefs/devfuse", others: []string{goFuse, sys}},
	{dir: "fs/frag", ours: []string{"fs/ext4", "fs/ondisk"}},
	{dir: "metrics", ours: []string{
		"fs/fusefs", "fs/ext4", "fs/ondisk", "mballoc", "journal", "blockdev", "blockdev/bcache",
	}, others: []string{"github.com/prometheus", goFuse, zap}},
	{dir: "cmd", ours: []string{
		"cmd/...", "metrics", "fs/fusefs", "fs/fusefs/devfuse", "fs/ext4", "fs/info", "fs/frag", "fs/mkfs", "fs/populate", "fs/ondisk", "fs/extent", "fs/htree", "fs/xattr",
		"mballoc", "mballoc/allocbench", "journal", "blockdev", "blockdev/bcache",
	}, others: []string{goFuse, zap, "go.uber.org/multierr", sys, xsync, "github.com/spf13"}},
	{dir: "scripts", others: []string{goFuse, sys}},
}

// ruleOf returns the layer that the import path of ours belongs to.
func ruleOf(path string) (best layer, ok bool) {
	rel := strings.TrimPrefix(path, module)
	for _, l := range layers {
		if inTree(rel, l.dir) && len(l.dir) >= len(best.dir) {
			best, ok = l, true
		}
	}
	return best, ok
}

func inTree(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// allowed tells whether a package of layer l may import path.
func (l *layer) allowed(path string) bool {
	rel, ours := strings.CutPrefix(path, module)
	if !ours {
		first, _, _ := strings.Cut(path, "/")
		return !strings.Contains(first, ".") || slices.ContainsFunc(l.others, func(m string) bool { return inTree(path, m) })
	}
	return slices.ContainsFunc(l.ours, func(o string) bool {
		if tree, ok := strings.CutSuffix(o, "/..."); ok {
			return inTree(rel, tree)
		}
		return rel == o
	})
}

// violations checks a graph of direct imports. Since every edge is checked,
// nothing can be reached that is not allowed on the way.
func violations(graph map[string][]string) (bad []string) {
	for pkg, imports := range graph {
		l, ok := ruleOf(pkg)
		if !ok {
			bad = append(bad, fmt.Sprintf("%s: no layer has this directory", pkg))
			continue
		}
		for _, imp := range imports {
			if imp == "C" || !l.allowed(imp) {
				bad = append(bad, fmt.Sprintf("%s (layer %s) may not import %s", pkg, l.dir, imp))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// TestLayering asks the go command for every import of the module. Run it with
// -count=1: the test cache does not see the other packages change.
func TestLayering(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	graph := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		graph[f[0]] = f[1:]
	}
	if len(graph) < 10 {
		t.Fatalf("go list knows only %d packages", len(graph))
	}
	for _, v := range violations(graph) {
		t.Error(v)
	}
}

// TestLayeringNotices gives the check imports that must not be.
func TestLayeringNotices(t *testing.T) {
	for _, edge := range [][2]string{
		{"extfused/mballoc", "extfused/journal"},
		{"extfused/mballoc", "extfused/fs/ondisk"},
		{"extfused/journal", "extfused/mballoc"},
		{"extfused/journal", "extfused/fs/ext4"},
		{"extfused/journal", "github.com/prometheus/client_golang/prometheus"},
		{"extfused/fs/ondisk", "extfused/fs/htree"},
		{"extfused/fs/ondisk", "golang.org/x/sys/unix"},
		{"extfused/fs/htree", "extfused/journal"},
		{"extfused/fs/fusefs", "extfused/mballoc"},
		{"extfused/fs/ext4", "github.com/hanwen/go-fuse/v2/fuse"},
		{"extfused/fs/ext4", "extfused/fs/fusefs"},
		{"extfused/fs/ext4", "extfused/metrics"},
		{"extfused/cmd/extfused/command", "github.com/prometheus/client_golang/prometheus"},
		{"extfused/blockdev", "extfused/blockdev/bcache"},
		{"extfused/blockdev", "C"},
		{"extfused/util", "fmt"},
	} {
		if len(violations(map[string][]string{edge[0]: {edge[1]}})) != 1 {
			t.Errorf("%s importing %s goes unnoticed", edge[0], edge[1])
		}
	}
	fine := map[string][]string{
		"extfused/journal":      {"extfused/blockdev/bcache", "sync/atomic"},
		"extfused/cmd/extfused": {"extfused/cmd/extfused/command"},
		"extfused/metrics":      {"github.com/prometheus/client_golang/prometheus/promhttp"},
	}
	if bad := violations(fine); len(bad) != 0 {
		t.Errorf("allowed imports are refused: %v", bad)
	}
}
