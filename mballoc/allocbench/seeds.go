package allocbench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Row compares one result of the founding documents before and after.
type Row struct {
	Seed   string  `json:"seed"`
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Higher bool    `json:"higher_is_better"`
	Note   string  `json:"note,omitempty"`
}

// SeedsConfig says how long to measure.
type SeedsConfig struct {
	Duration time.Duration // of each timed measurement
	Workers  []int         // worker counts of the rows that scale
	Seeds    []string      // "S1" ... "S5", nil for all
}

// seeds are the measurements in the order of the documents.
var seeds = []struct {
	name string
	run  func(SeedsConfig) ([]Row, error)
}{{"S1", seed1}, {"S2", seed2}, {"S3", seed3}, {"S4", seed4}, {"S5", seed5}}

// Seeds measures the founding results, each before and after in this run.
func Seeds(cfg SeedsConfig) ([]Row, error) {
	for _, n := range cfg.Workers {
		if n < 1 || n > maxWorkers {
			return nil, configErrorf("%d workers: must be 1 to %d", n, maxWorkers)
		}
	}
	want := map[string]bool{}
	for _, s := range cfg.Seeds {
		want[s] = true
	}
	for _, s := range seeds {
		delete(want, s.name)
	}
	for s := range want {
		return nil, configErrorf("no seed %q: they are S1 to S%d", s, len(seeds))
	}
	var rows []Row
	for _, s := range seeds {
		if len(cfg.Seeds) > 0 && !slices.Contains(cfg.Seeds, s.name) {
			continue
		}
		r, err := s.run(cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// WriteTable prints rows as a table.
func WriteTable(w io.Writer, rows []Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "seed\twhat\tbefore\tafter\tunit\tchange\t")
	for _, r := range rows {
		what := r.What
		if r.Note != "" {
			what += " (" + r.Note + ")"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Seed, what, number3(r.Before), number3(r.After), r.Unit, r.change())
	}
	return tw.Flush()
}

// WriteJSON prints rows as a JSON array.
func WriteJSON(w io.Writer, rows []Row) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rows)
}

// number3 prints a figure with what precision it deserves.
func number3(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

// change says how after compares with before.
func (r *Row) change() string {
	switch {
	case r.Before == r.After:
		return "same"
	case r.Before == 0:
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", 100*(r.After-r.Before)/r.Before)
}
