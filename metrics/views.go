package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"

	"extfused/fs/fusefs"
)

// views are pages of plain text. Those with a name from /proc/fs/ext4/DEV say
// the same in the same words.
var views = []struct {
	name  string
	what  string
	write func(*Sources, io.Writer) error
}{
	{"mb_groups", "free space of each group, as /proc/fs/ext4/DEV/mb_groups (reads all bitmaps)", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBGroups(w) }},
	{"mb_stats", "allocator statistics, as /proc/fs/ext4/DEV/mb_stats", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBStats(w) }},
	{"mb_structs_summary", "lists of groups, as /proc/fs/ext4/DEV/mb_structs_summary", func(s *Sources, w io.Writer) error { return s.FS.Allocator().WriteMBStructsSummary(w) }},
	{"requests", "FUSE requests by kind", writeRequests},
	{"stats.json", "all figures as JSON", writeJSON},
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
{{range .Views}}<li><a href="/{{.Name}}">{{.Name}}</a>: {{.What}}</li>
{{end}}<li><a href="/debug/pprof/">debug/pprof</a>: profiles of the daemon</li></ul>
</body></html>
`))

func statusPage(s *Sources, w io.Writer) error {
	type link struct{ Name, What string }
	var links []link
	for _, v := range views {
		links = append(links, link{v.name, v.what})
	}
	snap := s.take()
	return statusTemplate.Execute(w, map[string]any{
		"Src": s, "FS": snap.fs, "Stat": snap.stat, "Requests": snap.fuse.Requests(), "Views": links,
	})
}
