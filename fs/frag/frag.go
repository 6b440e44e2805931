// Package frag surveys a mounted file system: how its free space and its files
// are broken up. It only reads, and looks at one inode and one bitmap at a
// time, so that it may run beside everything else; then the parts of its report
// are of different moments.
package frag

import (
	"math/bits"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// Bucket counts things by size: those of [1<<Order, 1<<(Order+1)).
type Bucket struct {
	Order  int    `json:"order"`
	Count  uint64 `json:"count"`
	Blocks uint64 `json:"blocks,omitempty"` // in all of them; of free runs only
}

// Report is what Survey found. Blocks are the file system's.
type Report struct {
	BlockSize  uint32 `json:"block_size"` // bytes
	Blocks     uint64 `json:"blocks"`
	FreeBlocks uint64 `json:"free_blocks"`
	// Free are the runs of free blocks in the bitmaps, by length.
	Free    []Bucket `json:"free_runs"`
	LongRun uint64   `json:"longest_free_run"`

	Groups uint32 `json:"groups"`
	// GroupsInUse have blocks of files or directories in them, other than the
	// file system's own (journal, resize inode).
	GroupsInUse uint32 `json:"groups_in_use"`

	Files       uint64 `json:"files"` // regular ones
	Directories uint64 `json:"directories"`
	// Extents counts regular files with blocks by the number of their extents;
	// extents that follow each other in file and device count as one.
	Extents     []Bucket `json:"extents_per_file"`
	MostExtents uint64   `json:"most_extents"`

	// InodesUsed, and which of these are not contiguous, are as e2fsck counts:
	// with the file system's own inodes; a file is contiguous if each block
	// follows the one before it on the device, or if no group could hold it.
	InodesUsed         uint64  `json:"inodes_used"`
	NonContiguousFiles uint64  `json:"non_contiguous_files"`
	NonContiguousDirs  uint64  `json:"non_contiguous_directories"`
	NonContiguousShare float64 `json:"non_contiguous_percent"` // of InodesUsed
}

// Survey looks at everything. stop is asked now and then; what it returns,
// unless nil, ends the survey.
func Survey(fs *ext4.FS, stop func() error) (*Report, error) {
	st, sb := fs.Statfs(), fs.Super()
	r := &Report{BlockSize: st.BlockSize, Blocks: sb.Blocks(), Groups: uint32(fs.Groups())}
	if err := r.freeSpace(fs, stop); err != nil {
		return nil, err
	}
	s := survey{Report: r, sb: &sb, inUse: make([]bool, r.Groups), stop: stop}
	if err := fs.EachFile(s.file); err != nil {
		return nil, err
	}
	for _, used := range s.inUse {
		if used {
			r.GroupsInUse++
		}
	}
	r.InodesUsed = st.Files - st.FilesFree
	if r.InodesUsed > 0 {
		r.NonContiguousShare = 100 * float64(r.NonContiguousFiles+r.NonContiguousDirs) / float64(r.InodesUsed)
	}
	return r, nil
}

func (r *Report) freeSpace(fs *ext4.FS, stop func() error) error {
	return fs.FreeRuns(func(_ ondisk.FsBlock, n uint64) error {
		r.Free = count(r.Free, n, n)
		r.FreeBlocks += n
		r.LongRun = max(r.LongRun, n)
		return stop()
	})
}

// count adds one thing of size n (not 0) to the buckets, which are as many as
// are needed.
func count(b []Bucket, n, blocks uint64) []Bucket {
	order := bits.Len64(n) - 1
	for len(b) <= order {
		b = append(b, Bucket{Order: len(b)})
	}
	b[order].Count++
	b[order].Blocks += blocks
	return b
}

// survey is a Report in the making.
type survey struct {
	*Report
	sb    *ondisk.SuperBlock
	inUse []bool // by group
	stop  func() error
}

func (s *survey) file(l *ext4.FileLayout) error {
	dir := l.Mode&ondisk.ModeFmt == ondisk.ModeDir
	if l.NonContiguous && dir {
		s.NonContiguousDirs++
	} else if l.NonContiguous {
		s.NonContiguousFiles++
	}
	if l.Ino < s.sb.FirstInode() && l.Ino != ext4.RootIno {
		return s.stop()
	}
	if dir {
		s.Directories++
	}
	for _, e := range l.Extents {
		s.mark(e.Physical, e.Len)
	}
	if l.Mode&ondisk.ModeFmt == ondisk.ModeReg {
		s.Files++
		if n := Pieces(l.Extents); n > 0 {
			s.Extents = count(s.Extents, n, 0)
			s.MostExtents = max(s.MostExtents, n)
		}
	}
	return s.stop()
}

// mark notes the groups of n blocks from blk on as in use.
func (s *survey) mark(blk ondisk.FsBlock, n uint32) {
	per, first := uint64(s.sb.BlocksPerGroup), uint64(s.sb.FirstDataBlock)
	for g := (uint64(blk) - first) / per; g <= (uint64(blk)+uint64(n)-1-first)/per && g < uint64(len(s.inUse)); g++ {
		s.inUse[g] = true
	}
}

// Pieces is the number of extents, those counted as one that follow each other
// both in the file and on the device (an extent holds 32768 blocks at most).
func Pieces(list []ext4.FileExtent) uint64 {
	n := uint64(len(list))
	for k := 1; k < len(list); k++ {
		a, b := &list[k-1], &list[k]
		if uint64(a.Logical)+uint64(a.Len) == uint64(b.Logical) && uint64(a.Physical)+uint64(a.Len) == uint64(b.Physical) && a.Unwritten == b.Unwritten {
			n--
		}
	}
	return n
}
