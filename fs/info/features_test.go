package info

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

var update = flag.Bool("update", false, "write the table of features into docs/ONDISK.md")

const (
	document = "../../docs/ONDISK.md"
	begin    = "<!-- the table of `extfused info --features` -->\n"
	end      = "<!-- end of the table -->\n"
)

// TestFeatureDocument: the table in the document is the one that the command
// prints. `go test ./fs/info -run FeatureDocument -update` writes it there.
func TestFeatureDocument(t *testing.T) {
	var want bytes.Buffer
	if err := WriteFeatures(&want); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", document)
	}
	if table == want.String() {
		return
	}
	if !*update {
		t.Fatalf("%s has another table than extfused info --features; run this test with -update", document)
	}
	if err := os.WriteFile(document, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFeatureTable: each named bit has a row and a test, and the rows say what
// mounts and mkfs do.
func TestFeatureTable(t *testing.T) {
	rows := map[string]Feature{}
	for _, f := range FeatureTable() {
		rows[f.Name] = f
	}
	if len(rows) != len(FeatureTable()) {
		t.Error("a feature has two rows")
	}
	for name := range notes {
		if _, ok := rows[name]; !ok {
			t.Errorf("there is no feature %q to note anything of", name)
		}
	}
	all := ondisk.Features{Compat: 1<<13 - 1, Incompat: 1<<18 - 1, ROCompat: 1<<17 - 1}
	for _, name := range all.Names() {
		f, named := ondisk.FeatureByName(name)
		row, ok := rows[name]
		if named && !strings.HasPrefix(name, "FEATURE_") && !ok {
			t.Errorf("%s has no row", name)
		}
		if !ok {
			continue
		}
		refuse, readOnly := f.Unsupported()
		if reads, writes := strings.HasPrefix(row.Read, "yes"), strings.HasPrefix(row.Write, "yes"); reads != (len(refuse) == 0) ||
			name != "orphan_present" && writes != (len(refuse)+len(readOnly) == 0) {
			t.Errorf("%s: read %q, write %q, and a mount refuses %v, is read-only for %v", name, row.Read, row.Write, refuse, readOnly)
		}
		if strings.HasPrefix(row.Write, "yes") && row.Tests == "-" && !strings.Contains(row.Write, "nothing") {
			t.Errorf("%s is written and not tested", name)
		}
		p := mkfs.DefaultParams()
		p.Features = f
		if _, err := mkfs.Plan(64<<20, p); row.Mkfs == "no" && err == nil && strings.HasPrefix(row.Write, "yes") {
			t.Errorf("%s: mkfs makes it, and the table does not say so", name)
		} else if row.Mkfs != "no" && err != nil && strings.Contains(err.Error(), "is not supported") {
			t.Errorf("%s: the table says %s, mkfs says %v", name, row.Mkfs, err)
		}
	}
}
