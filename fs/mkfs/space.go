package mkfs

import (
	"sort"

	"extfused/fs/ondisk"
)

// run is a range of blocks.
type run struct {
	start ondisk.FsBlock
	n     uint64
}

func (r run) end() ondisk.FsBlock { return r.start + ondisk.FsBlock(r.n) }

// space is the set of used blocks, kept as runs in ascending order that
// neither touch nor overlap: a fresh file system of a million groups has few
// of them.
type space struct {
	runs []run
}

// after is the index of the first run that ends behind blk.
func (s *space) after(blk ondisk.FsBlock) int {
	return sort.Search(len(s.runs), func(i int) bool { return s.runs[i].end() > blk })
}

// add marks n blocks from start used. They must be free.
func (s *space) add(start ondisk.FsBlock, n uint64) {
	if n == 0 {
		return
	}
	i := s.after(start)
	r := run{start, n}
	if i < len(s.runs) && s.runs[i].start < r.end() {
		panic("mkfs: a block is allocated twice")
	}
	if i > 0 && s.runs[i-1].end() == start {
		i--
		r = run{s.runs[i].start, s.runs[i].n + n}
		s.runs[i] = r
	} else {
		s.runs = append(s.runs, run{})
		copy(s.runs[i+1:], s.runs[i:])
		s.runs[i] = r
	}
	if i+1 < len(s.runs) && s.runs[i+1].start == r.end() {
		s.runs[i].n += s.runs[i+1].n
		s.runs = append(s.runs[:i+1], s.runs[i+2:]...)
	}
}

// isFree tells whether n blocks from start are free.
func (s *space) isFree(start ondisk.FsBlock, n uint64) bool {
	i := s.after(start)
	return i == len(s.runs) || s.runs[i].start >= start+ondisk.FsBlock(n)
}

// next is the first free run at or behind from and before end, its length
// cut at end; n is 0 when there is none.
func (s *space) next(from, end ondisk.FsBlock) run {
	for i := s.after(from); i < len(s.runs); i++ {
		if s.runs[i].start > from {
			return cut(run{from, uint64(s.runs[i].start - from)}, end)
		}
		from = s.runs[i].end()
	}
	return cut(run{from, uint64(end - min(from, end))}, end)
}

func cut(r run, end ondisk.FsBlock) run {
	if r.start >= end {
		return run{end, 0}
	}
	r.n = min(r.n, uint64(end-r.start))
	return r
}

// find is the first place at or behind from and before end with n free blocks.
func (s *space) find(from, end ondisk.FsBlock, n uint64) (ondisk.FsBlock, bool) {
	for {
		r := s.next(from, end)
		if r.n == 0 {
			return 0, false
		}
		if r.n >= n {
			return r.start, true
		}
		from = r.end()
	}
}

// used counts the used blocks from start up to end.
func (s *space) used(start, end ondisk.FsBlock) (n uint64) {
	for i := s.after(start); i < len(s.runs) && s.runs[i].start < end; i++ {
		n += uint64(min(s.runs[i].end(), end) - max(s.runs[i].start, start))
	}
	return n
}

// total counts all used blocks.
func (s *space) total() (n uint64) {
	for _, r := range s.runs {
		n += r.n
	}
	return n
}
