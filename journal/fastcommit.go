package journal

import (
	"encoding/binary"
	"strconv"
)

// Fast commits are ext4's: between two commits it appends records of what
// changed ("inode 12 now looks like this") to an area at the end of the log.
// The journal finds the records that count, and leaves their meaning to the
// handler that OnFastCommit registered.
//
//	+-----+-----+--------------+-----+-----+-------+- -+------+-----+-----+------+
//	| tag | len | value        | tag | len | value |   | TAIL | len | tid | crc  | ...
//	+-----+-----+--------------+-----+-----+-------+- -+------+-----+-----+------+
//	  16    16   len bytes                               all little-endian
//
// The first record is HEAD (features, tid). A commit's records end with TAIL,
// whose crc32c (from 0, uninverted) covers all since the last TAIL, up to
// itself. Records do not cross blocks, PAD fills up. A commit without its TAIL
// did not happen.

// FastCommitTag is the kind of a record (fs/ext4/fast_commit.h).
type FastCommitTag uint16

// The kinds.
const (
	FcAddRange FastCommitTag = 1 // EXT4_FC_TAG_ADD_RANGE
	FcDelRange FastCommitTag = 2 // EXT4_FC_TAG_DEL_RANGE
	FcCreat    FastCommitTag = 3 // EXT4_FC_TAG_CREAT
	FcLink     FastCommitTag = 4 // EXT4_FC_TAG_LINK
	FcUnlink   FastCommitTag = 5 // EXT4_FC_TAG_UNLINK
	FcInode    FastCommitTag = 6 // EXT4_FC_TAG_INODE
	FcPad      FastCommitTag = 7 // EXT4_FC_TAG_PAD
	FcTail     FastCommitTag = 8 // EXT4_FC_TAG_TAIL
	FcHead     FastCommitTag = 9 // EXT4_FC_TAG_HEAD
)

var fcTagNames = [...]string{"", "ADD_RANGE", "DEL_RANGE", "CREAT", "LINK", "UNLINK", "INODE", "PAD", "TAIL", "HEAD"}

// String is the kernel's name, without the prefix.
func (t FastCommitTag) String() string {
	if t == 0 || int(t) >= len(fcTagNames) {
		return "tag " + strconv.Itoa(int(t))
	}
	return fcTagNames[t]
}

// FastCommitRecord is one record; PAD, HEAD and TAIL are not passed on.
type FastCommitRecord struct {
	Tag   FastCommitTag
	Value []byte
	Block uint32 // log block
}

// FastCommits are the records of all complete fast commits that follow the
// last transaction, in order.
type FastCommits struct {
	TID      TID    // of the transaction they would have been part of
	Features uint32 // fc_features of HEAD: nonzero bits that the handler does not know make it fail
	Tags     []FastCommitRecord
}

const fcTagSize = 4 // struct ext4_fc_tl

// fastCommits reads the fast-commit area. tid is the first transaction that is
// not in the log: records of any other are old.
func (j *Journal) fastCommits(tid TID) (FastCommits, error) {
	s := fcScan{out: FastCommits{TID: tid}}
	r := logReader{log: j.log, end: j.geo.fcLast}
	for blk := j.geo.fcFirst; blk < j.geo.fcLast && !s.over; blk++ {
		b, err := r.block(blk)
		if err != nil {
			return FastCommits{}, err
		}
		s.block(b, blk)
	}
	s.out.Tags = s.out.Tags[:s.complete]
	return s.out, nil
}

type fcScan struct {
	out      FastCommits
	complete int // records before the last valid TAIL
	headSeen bool
	crc      uint32
	over     bool
}

// block takes the records of one block.
func (s *fcScan) block(b []byte, blk uint32) {
	for off := 0; off+fcTagSize <= len(b) && !s.over; {
		tag := FastCommitTag(binary.LittleEndian.Uint16(b[off:]))
		n := int(binary.LittleEndian.Uint16(b[off+2:]))
		if n > len(b)-off-fcTagSize {
			s.over = true
			return
		}
		s.record(tag, b[off:off+fcTagSize+n], blk)
		off += fcTagSize + n
	}
}

// record takes one record; raw is all of it.
func (s *fcScan) record(tag FastCommitTag, raw []byte, blk uint32) {
	value := raw[fcTagSize:]
	if !s.headSeen && tag != FcHead {
		s.over = true
		return
	}
	switch tag {
	case FcHead:
		s.head(value)
	case FcTail:
		s.tail(raw)
		return
	case FcPad:
	case FcAddRange, FcDelRange, FcCreat, FcLink, FcUnlink, FcInode:
		s.out.Tags = append(s.out.Tags, FastCommitRecord{Tag: tag, Value: append([]byte(nil), value...), Block: blk})
	default:
		s.over = true
		return
	}
	s.crc = crc32c(s.crc, raw)
}

func (s *fcScan) head(value []byte) {
	if len(value) < 8 || TID(binary.LittleEndian.Uint32(value[4:])) != s.out.TID {
		s.over = true
		return
	}
	s.out.Features = binary.LittleEndian.Uint32(value)
	s.headSeen = true
}

// tail ends a fast commit, if its checksum and number are right.
func (s *fcScan) tail(raw []byte) {
	if len(raw) < fcTagSize+8 {
		s.over = true
		return
	}
	s.crc = crc32c(s.crc, raw[:fcTagSize+4])
	tid, crc := binary.LittleEndian.Uint32(raw[fcTagSize:]), binary.LittleEndian.Uint32(raw[fcTagSize+4:])
	if TID(tid) != s.out.TID || crc != s.crc {
		s.over = true
		return
	}
	s.complete = len(s.out.Tags)
	s.crc = 0
}
