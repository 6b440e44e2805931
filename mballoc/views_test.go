package mballoc_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// kernelGroups is what a Linux 6.18 kernel shows for a fresh 1 GiB image of mke2fs 1.47 (only the
// lines of groups whose use is easily told).
const kernelGroups = `#group: free  frags first [ 2^0   2^1   2^2   2^3   2^4   2^5   2^6   2^7   2^8   2^9   2^10  2^11  2^12  2^13  ]
#0    : 28521 1     4247  [ 1     0     0     1     0     1     1     0     1     1     1     1     0     3     ]
#1    : 32639 1     129   [ 1     1     1     1     1     1     1     0     1     1     1     1     1     3     ]
#2    : 32768 1     0     [ 0     0     0     0     0     0     0     0     0     0     0     0     0     4     ]
#3    : 32639 1     129   [ 1     1     1     1     1     1     1     0     1     1     1     1     1     3     ]
#4    : 24576 1     8192  [ 0     0     0     0     0     0     0     0     0     0     0     0     0     3     ]
`

func TestMBGroupsInTheKernelsWords(t *testing.T) {
	r := newRig(t, geo4k(5), mballoc.Options{}, func(d *simdisk.Disk) {
		for g, n := range []uint32{4247, 129, 0, 129, 8192} {
			if n > 0 {
				d.SetUsed(mballoc.GroupNumber(g), 0, n)
			}
		}
	})
	var out bytes.Buffer
	if err := r.a.WriteMBGroups(&out); err != nil {
		t.Fatal(err)
	}
	if out.String() != kernelGroups {
		t.Errorf("got\n%s\nthe kernel says\n%s", &out, kernelGroups)
	}
}

// statLines are the lines of the kernel's mb_stats, figures as N.
const statLines = `mballoc:
	reqs: N
	success: N
	groups_scanned: N
	cr_p2_aligned_stats:
		hits: N
		groups_considered: N
		extents_scanned: N
		useless_loops: N
	cr_goal_fast_stats:
		hits: N
		groups_considered: N
		extents_scanned: N
		useless_loops: N
	cr_best_avail_stats:
		hits: N
		groups_considered: N
		extents_scanned: N
		useless_loops: N
	cr_goal_slow_stats:
		hits: N
		groups_considered: N
		extents_scanned: N
		useless_loops: N
	cr_any_free_stats:
		hits: N
		groups_considered: N
		extents_scanned: N
		useless_loops: N
	extents_scanned: N
		goal_hits: N
		stream_goal_hits: N
		len_goal_hits: N
		N^n_hits: N
		breaks: N
		lost: N
	buddies_generated: N/N
	buddies_time_used: N
	preallocated: N
	discarded: N
`

func TestMBStatsInTheKernelsWords(t *testing.T) {
	r := newRig(t, geo4k(5), mballoc.Options{}, nil)
	var out bytes.Buffer
	if err := r.a.WriteMBStats(&out); err != nil {
		t.Fatal(err)
	}
	if want := "mballoc:\n\tmb stats collection turned off.\n\tTo enable, please write \"1\" to sysfs file mb_stats.\n"; out.String() != want {
		t.Errorf("off: %q", &out)
	}
	if err := r.a.Set("mb_stats", "1"); err != nil {
		t.Fatal(err)
	}
	f := file{ino: 12}
	if err := f.append(r, 100, 4096); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := r.a.WriteMBStats(&out); err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`\b\d+`).ReplaceAllString(strings.ReplaceAll(out.String(), "cr_p2_", "cr_pTWO_"), "N")
	if shape = strings.ReplaceAll(shape, "cr_pTWO_", "cr_p2_"); shape != statLines {
		t.Errorf("got\n%s", shape)
	}
	if !strings.Contains(out.String(), "\treqs: 1\n\tsuccess: 1\n") || !strings.Contains(out.String(), "buddies_generated: 1/5\n") {
		t.Errorf("got\n%s", &out)
	}
}

// The summary is safe on a file system that nobody has used yet, and counts groups by order
// afterwards.
func TestStructsSummary(t *testing.T) {
	r := newRig(t, geo4k(48), mballoc.Options{}, func(d *simdisk.Disk) { d.Fill(7) })
	var out bytes.Buffer
	if err := r.a.WriteMBStructsSummary(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1+2*(1+14) || lines[0] != "optimize_scan: 1" || lines[1] != "max_free_order_lists:" || lines[16] != "avg_fragment_size_lists:" ||
		lines[2] != "\tlist_order_0_groups: 0" || lines[30] != "\tlist_order_13_groups: 47" {
		t.Errorf("got\n%s", &out)
	}
	f := file{ino: 12, goal: 5 * 32768}
	if err := f.append(r, 32768-700, 4096); err != nil {
		t.Fatal(err)
	}
	r.a.DiscardInode(&f.state)
	s := r.a.StructsSummary()
	if s.MaxFreeOrder[13] != 46 || s.AvgFragment[13] != 46 || sum(s.MaxFreeOrder) != 47 || sum(s.AvgFragment) != 47 {
		t.Errorf("%+v", s)
	}
}

func sum(n []int64) (total int64) {
	for _, v := range n {
		total += v
	}
	return total
}

func TestTunables(t *testing.T) {
	for _, tc := range []struct {
		geo  mballoc.Geometry
		want map[string]string
	}{ // as Linux 6.18 shows them for such images
		{mballoc.Geometry{Groups: 8, ClustersPerGroup: 32768, Clusters: 8 * 32768, BlockSizeBits: 12, FlexSize: 16},
			map[string]string{"mb_stats": "0", "mb_max_to_scan": "200", "mb_min_to_scan": "10", "mb_order2_req": "2", "mb_stream_req": "16",
				"mb_group_prealloc": "512", "mb_max_linear_groups": "4", "mb_best_avail_max_trim_order": "3", "mb_prefetch": "8", "mb_prefetch_limit": "8",
				"mb_optimize_scan": "0"}},
		{mballoc.Geometry{Groups: 15, ClustersPerGroup: 32768, Clusters: 15 * 32768, BlockSizeBits: 12}, map[string]string{"mb_optimize_scan": "0"}},
		{mballoc.Geometry{Groups: 16, ClustersPerGroup: 32768, Clusters: 16 * 32768, BlockSizeBits: 12}, map[string]string{"mb_optimize_scan": "1"}},
		{mballoc.Geometry{Groups: 48, ClustersPerGroup: 32768, Clusters: 48 * 32768, BlockSizeBits: 12, FlexSize: 16},
			map[string]string{"mb_prefetch": "48", "mb_prefetch_limit": "48"}},
		{mballoc.Geometry{Groups: 1, ClustersPerGroup: 8192, Clusters: 4800, BlockSizeBits: 12, ClusterBits: 4, FlexSize: 16},
			map[string]string{"mb_group_prealloc": "32", "mb_prefetch": "1", "mb_prefetch_limit": "1"}},
		{mballoc.Geometry{Groups: 4096, ClustersPerGroup: 32768, Clusters: 4096 * 32768, BlockSizeBits: 12, FlexSize: 16},
			map[string]string{"mb_prefetch": "128", "mb_prefetch_limit": "512"}},
		{mballoc.Geometry{Groups: 4096, ClustersPerGroup: 32768, Clusters: 4096 * 32768, BlockSizeBits: 12},
			map[string]string{"mb_prefetch": "32", "mb_prefetch_limit": "128"}},
	} {
		r := newRig(t, tc.geo, mballoc.Options{}, nil)
		for name, want := range tc.want {
			if got, err := r.a.Get(name); got != want || err != nil {
				t.Errorf("%d groups: %s is %s (%v), ext4 has %s", tc.geo.Groups, name, got, err, want)
			}
		}
	}
	r := newRig(t, geo4k(4), mballoc.Options{}, nil)
	for _, name := range r.a.Names() {
		if err := r.a.Set(name, "1"); err != nil {
			t.Error(err)
		}
		for _, bad := range []string{"-1", "", "x", "99999999999999999999"} {
			if err := r.a.Set(name, bad); err == nil {
				t.Errorf("%s=%q accepted", name, bad)
			}
		}
		if got, _ := r.a.Get(name); got != "1" {
			t.Errorf("%s is %s", name, got)
		}
	}
	for _, bad := range [][2]string{{"mb_nothing", "1"}, {"mb_optimize_scan", "2"}, {"mb_group_prealloc", "32769"}, {"mb_best_avail_max_trim_order", "15"}} {
		if err := r.a.Set(bad[0], bad[1]); err == nil {
			t.Errorf("%s=%s accepted", bad[0], bad[1])
		}
	}
}
