package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"text/tabwriter"
	"time"
)

// results keeps every figure: row, target, runs.
type results struct {
	targets []*target
	rows    []string
	units   map[string]unit
	values  map[string]map[string][]float64
}

func newResults(t []*target) *results {
	return &results{targets: t, units: map[string]unit{}, values: map[string]map[string][]float64{}}
}

func (r *results) add(row, target string, v float64, u unit) {
	if r.values[row] == nil {
		r.rows = append(r.rows, row)
		r.values[row] = map[string][]float64{}
		r.units[row] = u
	}
	r.values[row][target] = append(r.values[row][target], v)
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// cell is a median, with the ratio of extfused to it for the others: above 1
// extfused is the better one.
func (r *results) cell(row, target string) string {
	v := r.values[row][target]
	if len(v) == 0 {
		return "-"
	}
	m := median(v)
	s := fmt.Sprintf("%.4g", m)
	ours := r.values[row]["extfused"]
	if target == "extfused" || len(ours) == 0 || m == 0 || median(ours) == 0 {
		return s
	}
	ratio := m / median(ours)
	if r.units[row].higher {
		ratio = 1 / ratio
	}
	return fmt.Sprintf("%s (%.2fx)", s, ratio)
}

func (r *results) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "\nworkload\tunit")
	for _, t := range r.targets {
		fmt.Fprintf(tw, "\t%s", t.name)
	}
	fmt.Fprintln(tw)
	for _, row := range r.rows {
		fmt.Fprintf(tw, "%s\t%s", row, r.units[row].name)
		for _, t := range r.targets {
			fmt.Fprintf(tw, "\t%s", r.cell(row, t.name))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	fmt.Fprintln(w, "\nMedians; in brackets how many times better extfused is than that target (below 1: worse).")
}

func (r *results) writeJSON(path string) error {
	b, err := json.MarshalIndent(r.values, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// appendRow appends the table to the document as a section of its own.
func (r *results) appendRow(doc, version, command string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s (%s)\n\nMeasured by `%s`.\n\n| workload | unit |", version, time.Now().Format("2006-01-02"), command)
	for _, t := range r.targets {
		fmt.Fprintf(&b, " %s |", t.name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(r.targets)))
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s |", row, r.units[row].name)
		for _, t := range r.targets {
			fmt.Fprintf(&b, " %s |", r.cell(row, t.name))
		}
		b.WriteByte('\n')
	}
	f, err := os.OpenFile(doc, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(b.String()); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
