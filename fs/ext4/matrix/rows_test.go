package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// row is an image: options of mke2fs, in 128 MiB.
type row struct{ args string }

// single are rows that differ from a type's default in one thing or two.
var single = []string{
	"-t ext4",
	"-t ext4 -b 1024", "-t ext4 -b 2048", "-t ext4 -b 8192", "-t ext4 -b 16384", "-t ext4 -b 32768", "-t ext4 -b 65536",
	"-t ext2", "-t ext2 -b 1024", "-t ext2 -b 4096 -I 128", "-t ext2 -b 65536", "-t ext2 -r 0 -b 1024", "-t ext2 -r 0 -b 4096",
	"-t ext3", "-t ext3 -b 1024", "-t ext3 -b 2048 -I 128", "-t ext3 -b 16384",
	"-t ext4 -O ^64bit", "-t ext4 -O ^has_journal", "-t ext4 -O ^metadata_csum", "-t ext4 -O ^metadata_csum,uninit_bg",
	"-t ext4 -O metadata_csum_seed", "-t ext4 -O ^flex_bg", "-t ext4 -O meta_bg,^resize_inode", "-t ext4 -O ^resize_inode",
	"-t ext4 -O ^sparse_super,^resize_inode", "-t ext4 -O sparse_super2", "-t ext4 -O ^dir_index", "-t ext4 -O large_dir -b 1024",
	"-t ext4 -O ^dir_nlink", "-t ext4 -O ^huge_file", "-t ext4 -O ^extra_isize", "-t ext4 -O ^large_file", "-t ext4 -O ^filetype",
	"-t ext4 -O ^ext_attr", "-t ext4 -O ^extent,^64bit", "-t ext4 -O orphan_file", "-t ext4 -O fast_commit",
	"-t ext4 -O ea_inode", "-t ext4 -O inline_data", "-t ext4 -O inline_data -I 1024", "-t ext4 -O bigalloc",
	"-t ext4 -O bigalloc -C 8192 -b 4096", "-t ext4 -O bigalloc -C 1M -b 4096", "-t ext4 -O mmp", "-t ext4 -O quota", "-t ext4 -O quota,project",
	"-t ext4 -O verity", "-t ext4 -O encrypt", "-t ext4 -O casefold", "-t ext4 -O stable_inodes",
	"-t ext4 -I 128", "-t ext4 -I 512", "-t ext4 -b 4096 -I 4096 -N 2048", "-t ext4 -g 1024 -b 1024", "-t ext4 -g 256 -b 4096 -G 2",
	"-t ext4 -E packed_meta_blocks=1", "-t ext4 -E stride=16,stripe_width=64", "-t ext4 -E lazy_itable_init=0",
	"-t ext4 -b 1024 -g 512 -O meta_bg,^resize_inode",
}

// factor is a choice of options; the first one is the default.
type factor []string

// factors are what the pairwise rows choose from. A name with ^ clears it.
var factors = []factor{
	{"-b 4096", "-b 1024", "-b 2048", "-b 65536"},
	{"extent,64bit", "extent,^64bit", "^extent,^64bit"},
	{"has_journal", "^has_journal", "has_journal,fast_commit", "has_journal,orphan_file"},
	{"metadata_csum", "^metadata_csum,uninit_bg", "^metadata_csum", "metadata_csum,metadata_csum_seed"},
	{"resize_inode", "^resize_inode", "^resize_inode,meta_bg", "^resize_inode,sparse_super2"},
	{"flex_bg", "^flex_bg"},
	{"-I 256", "-I 128", "-I 1024"},
	{"dir_index", "^dir_index", "dir_index,large_dir"},
	{"", "bigalloc"},
	{"", "inline_data"},
	{"", "quota"},
	{"", "ea_inode"},
	{"", "mmp"},
	{"", "casefold"},
}

// pick is a row of choices by factor.
type pick []int

func (p pick) args() string {
	features, rest := []string{}, []string{"-t ext4"}
	for f, c := range p {
		if text := factors[f][c]; strings.HasPrefix(text, "-") {
			rest = append(rest, text)
		} else if text != "" {
			features = append(features, text)
		}
	}
	return strings.Join(append(rest, "-O", strings.Join(features, ",")), " ")
}

// sensible leaves out what mke2fs refuses: no row would come of it.
func (p pick) sensible() bool {
	a := " " + strings.NewReplacer(",", " ", "-O", "").Replace(p.args()) + " "
	has := func(s string) bool { return strings.Contains(a, " "+s+" ") }
	return !(has("bigalloc") && has("^extent")) && !(has("inline_data") && has("-I 128"))
}

// pairwise makes rows in which any two choices of two factors meet, as far as
// they go together: the row that adds most pairs comes first, and what a row
// leaves open is the default.
func pairwise() []string {
	missing := map[[4]int]bool{}
	for f := range factors {
		for g := range f {
			for c := range factors[f] {
				for d := range factors[g] {
					p := make(pick, len(factors))
					p[f], p[g] = c, d
					if p.sensible() {
						missing[[4]int{g, d, f, c}] = true
					}
				}
			}
		}
	}
	var out []string
	for len(missing) > 0 {
		p := nextPick(missing)
		n := len(missing)
		for f := range p {
			for g := range f {
				delete(missing, [4]int{g, p[g], f, p[f]})
			}
		}
		if len(missing) == n {
			panic(fmt.Sprintf("%v stay without a row", missing))
		}
		out = append(out, p.args())
	}
	return out
}

// nextPick starts with the first missing pair, and chooses factor by factor
// what covers most of the others.
func nextPick(missing map[[4]int]bool) pick {
	pairs := make([][4]int, 0, len(missing))
	for m := range missing {
		pairs = append(pairs, m)
	}
	slices.SortFunc(pairs, func(a, b [4]int) int { return slices.Compare(a[:], b[:]) })
	first := pairs[0]
	p := make(pick, len(factors))
	p[first[0]], p[first[2]] = first[1], first[3]
	for f := range p {
		if f == first[0] || f == first[2] {
			continue
		}
		best, most := 0, -1
		for c := range factors[f] {
			if p[f] = c; p.sensible() && p.covers(missing) > most {
				best, most = c, p.covers(missing)
			}
		}
		p[f] = best
	}
	return p
}

func (p pick) covers(missing map[[4]int]bool) (n int) {
	for f := range p {
		for g := range f {
			if missing[[4]int{g, p[g], f, p[f]}] {
				n++
			}
		}
	}
	return n
}

// rows are all rows, each once.
func rows() []row {
	var out []row
	for _, args := range append(slices.Clone(single), pairwise()...) {
		if !slices.Contains(out, row{args}) {
			out = append(out, row{args})
		}
	}
	return out
}
