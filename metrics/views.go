package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"

	"extfused/fs/fusefs"
)

// View is a page of plain text. Those with a name from /proc/fs/ext4/DEV say
// the same in the same words.
type View struct {
	Name, What string
	Write      func(*Sources, io.Writer) error
}

// Views are all there are. Each may be written at any moment between Mount and
// Unmount of its file system.
var Views = []View{
	{"mb_groups", "free space of each group, as /proc/fs/ext4/DEV/mb_groups (reads all bitmaps)", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBGroups(w) }},
	{"mb_stats", "allocator statistics, as /proc/fs/ext4/DEV/mb_stats (off until the tunable mb_stats is 1)", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBStats(w) }},
	{"mb_structs_summary", "lists of groups, as /proc/fs/ext4/DEV/mb_structs_summary", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBStructsSummary(w) }},
	{"es_shrinker_info", "the extent-status cache, as /proc/fs/ext4/DEV/es_shrinker_info", func(s *Sources, w io.Writer) error { return s.FS.WriteESShrinkerInfo(w) }},
	{"requests", "FUSE requests by kind", writeRequests},
	{"stats.json", "all figures as JSON", writeJSON},
}

// UnknownViewError is the name of a view that does not exist.
type UnknownViewError struct{ Name string }

func (e *UnknownViewError) Error() string {
	names := make([]string, len(Views))
	for i := range Views {
		names[i] = Views[i].Name
	}
	return fmt.Sprintf("no view %q: there are %s", e.Name, strings.Join(names, ", "))
}

// WriteView writes the view of that name.
func WriteView(s *Sources, name string, w io.Writer) error {
	for _, v := range Views {
		if v.Name == name {
			return v.Write(s, w)
		}
	}
	return &UnknownViewError{name}
}

// view makes a handler of a page; it is written to memory first, so that a
// slow reader holds nothing.
func (s *Server) view(kind string, write func(*Sources, io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		src, leave := s.gate.enter()
		if src == nil {
			http.Error(w, "the mount is ending", http.StatusServiceUnavailable)
			return
		}
		var b bytes.Buffer
		err := write(src, &b)
		leave()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Write(b.Bytes())
	}
}

func writeRequests(s *Sources, w io.Writer) error {
	if s.FUSE == nil {
		return nil
	}
	st := s.FUSE.Stats()
	fmt.Fprintf(w, "%-16s %12s %10s %10s %12s\n", "op", "requests", "errors", "negative", "mean")
	for i := range st.Ops {
		o := &st.Ops[i]
		if o.Requests > 0 {
			fmt.Fprintf(w, "%-16s %12d %10d %10d %12v\n", fusefs.Op(i), o.Requests, o.Errors, o.Negative, o.Mean())
		}
	}
	_, err := fmt.Fprintf(w, "%-16s %12d\n", "all", st.Requests())
	return err
}

func writeJSON(s *Sources, w io.Writer) error {
	snap := s.take()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{
		"statfs": snap.stat, "ext4": snap.fs, "mballoc": snap.alloc, "fusefs": snap.fuse,
	})
}

var statusTemplate = template.Must(template.New("status").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>extfused {{.Src.Image}}</title>
<style>body{font:14px/1.5 sans-serif;margin:2em}td{padding:0 1em 0 0}</style></head><body>
<h1>{{.Src.Image}}</h1>
<table>
<tr><td>mounted at</td><td>{{.Src.Mountpoint}}{{if .FS.ReadOnly}} (read-only){{end}}</td></tr>
<tr><td>extfused</td><td>{{.Src.Version}}</td></tr>
<tr><td>blocks free</td><td>{{.Stat.BlocksFree}} of {{.Stat.Blocks}} ({{.Stat.BlockSize}} bytes each)</td></tr>
<tr><td>inodes free</td><td>{{.Stat.FilesFree}} of {{.Stat.Files}}</td></tr>
<tr><td>FUSE requests</td><td>{{.Requests}}</td></tr>
{{with .FS.Journal}}<tr><td>journal commits</td><td>{{.Commits}}</td></tr>
<tr><td>log blocks free</td><td>{{.FreeLogBlocks}} of {{.LogBlocks}}</td></tr>{{end}}
<tr><td>errors found</td><td>{{.FS.Corruptions}} damaged structures, {{.FS.IOErrors}} device errors</td></tr>
</table>
<ul><li><a href="/metrics">metrics</a>: for Prometheus</li>
{{range .Views}}<li><a href="/views/{{.Name}}">{{.Name}}</a>: {{.What}}</li>
{{end}}<li><a href="/debug/pprof/">debug/pprof</a>: profiles of the daemon</li></ul>
</body></html>
`))

func statusPage(s *Sources, w io.Writer) error {
	snap := s.take()
	return statusTemplate.Execute(w, map[string]any{
		"Src": s, "FS": snap.fs, "Stat": snap.stat, "Requests": snap.fuse.Requests(), "Views": Views,
	})
}
