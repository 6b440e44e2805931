package ext4

import (
	"cmp"
	"slices"
)

// fcRun is the blocks [from, to).
type fcRun struct{ from, to uint64 }

// runSet is a set of blocks, kept as runs.
type runSet struct{ runs []fcRun }

func (s *runSet) add(blk uint64, n uint32) { s.runs = append(s.runs, fcRun{blk, blk + uint64(n)}) }

// sorted returns the set as ascending runs that do not touch.
func (s *runSet) sorted() []fcRun {
	slices.SortFunc(s.runs, func(a, b fcRun) int { return cmp.Compare(a.from, b.from) })
	out := s.runs[:0]
	for _, r := range s.runs {
		if k := len(out) - 1; k >= 0 && r.from <= out[k].to {
			out[k].to = max(out[k].to, r.to)
			continue
		}
		out = append(out, r)
	}
	s.runs = out
	return slices.Clone(out)
}

// without returns what of the set is not in other, which is sorted.
func (s *runSet) without(other []fcRun) []fcRun {
	var out []fcRun
	for _, r := range s.sorted() {
		for _, o := range other {
			if o.to <= r.from {
				continue
			}
			if o.from >= r.to || r.from >= r.to {
				break
			}
			if o.from > r.from {
				out = append(out, fcRun{r.from, o.from})
			}
			r.from = o.to
		}
		if r.from < r.to {
			out = append(out, r)
		}
	}
	return out
}
