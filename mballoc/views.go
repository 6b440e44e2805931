package mballoc

import (
	"bufio"
	"fmt"
	"io"
)

// The views say what /proc/fs/ext4/DEV/mb_groups, mb_stats and mb_structs_summary say under a Linux
// 6.18 kernel, in its words and layout.

// viewOrders is the least number of columns of mb_groups: the kernel prints those of 4 KiB blocks
// for smaller ones, too.
const viewOrders = 14

// WriteMBGroups prints mb_groups: a line a group. It builds buddies that are not loaded one after
// the other, so it reads every bitmap of a file system that is not cached.
func (a *Allocator) WriteMBGroups(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "#group: free  frags first [")
	columns := max(a.orders, viewOrders)
	for o := range columns {
		fmt.Fprintf(out, " 2^%-3d", o)
	}
	fmt.Fprintf(out, " ]\n")
	for g := range a.geo.Groups {
		s, err := a.GroupStat(g)
		if err != nil || s.Corrupt {
			fmt.Fprintf(out, "#%-5d: I/O error\n", g)
			continue
		}
		if _, err := fmt.Fprintf(out, "#%-5d: %-5d %-5d %-5d [", g, s.Free, s.Fragments, s.First); err != nil {
			return err // the reader is gone: read no more bitmaps for it
		}
		for o := range columns {
			n := uint32(0)
			if o < len(s.Counters) {
				n = s.Counters[o]
			}
			fmt.Fprintf(out, " %-5d", n)
		}
		fmt.Fprintf(out, " ]\n")
	}
	return out.Flush()
}

// WriteMBStats prints mb_stats.
func (a *Allocator) WriteMBStats(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "mballoc:\n")
	if a.knobs.get(mbStats) == 0 {
		fmt.Fprintf(out, "\tmb stats collection turned off.\n\tTo enable, please write \"1\" to sysfs file mb_stats.\n")
		return out.Flush()
	}
	s := a.Stats()
	fmt.Fprintf(out, "\treqs: %d\n\tsuccess: %d\n\tgroups_scanned: %d\n", s.Reqs, s.Success, s.GroupsScanned)
	for cr, c := range s.Criteria {
		fmt.Fprintf(out, "\t%s:\n\t\thits: %d\n\t\tgroups_considered: %d\n\t\textents_scanned: %d\n\t\tuseless_loops: %d\n",
			criterionNames[cr], c.Hits, c.GroupsConsidered, c.ExtentsScanned, c.UselessLoops)
	}
	fmt.Fprintf(out, "\textents_scanned: %d\n\t\tgoal_hits: %d\n\t\tstream_goal_hits: %d\n\t\tlen_goal_hits: %d\n\t\t2^n_hits: %d\n\t\tbreaks: %d\n\t\tlost: %d\n",
		s.ExtentsScanned, s.GoalHits, s.StreamGoalHits, s.LenGoalHits, s.Power2Hits, s.Breaks, s.Lost)
	fmt.Fprintf(out, "\tbuddies_generated: %d/%d\n\tbuddies_time_used: %d\n", s.Buddies, a.geo.Groups, s.BuddiesNs)
	fmt.Fprintf(out, "\tpreallocated: %d\n\tdiscarded: %d\n", s.Preallocated, s.Discarded)
	return out.Flush()
}

// WriteMBStructsSummary prints mb_structs_summary.
func (a *Allocator) WriteMBStructsSummary(w io.Writer) error {
	out := bufio.NewWriter(w)
	s := a.StructsSummary()
	on := 0
	if s.OptimizeScan {
		on = 1
	}
	fmt.Fprintf(out, "optimize_scan: %d\n", on)
	for _, l := range []struct {
		name   string
		counts []int64
	}{{"max_free_order_lists", s.MaxFreeOrder}, {"avg_fragment_size_lists", a.kernelAvgLists()}} {
		fmt.Fprintf(out, "%s:\n", l.name)
		for o, n := range l.counts {
			fmt.Fprintf(out, "\tlist_order_%d_groups: %d\n", o, n)
		}
	}
	return out.Flush()
}

// kernelAvgLists counts groups as the kernel's lists of average fragments do: list i holds averages
// of [2^(i+1), 2^(i+2)), one list lower than ours, the first one also 1 and the last one everything
// above.
func (a *Allocator) kernelAvgLists() []int64 {
	lists := make([]int64, a.orders)
	for g := range a.groups {
		gi := &a.groups[g]
		if free, frags := gi.free.Load(), gi.frags.Load(); free > 0 && frags > 0 {
			lists[min(max(floorLog2(max(free/frags, 1))-1, 0), a.orders-1)]++
		}
	}
	return lists
}
