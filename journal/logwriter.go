package journal

import (
	"encoding/binary"
	"time"
)

// chunkBytes is how much of a transaction is gathered for one device write.
const chunkBytes = 1 << 20

// logWriter lays a transaction out in the log. It copies blocks into a chunk,
// and writes chunk after chunk; a small transaction is one write. It belongs
// to the holder of Journal.commitMu.
type logWriter struct {
	j             *Journal
	lay           *layout
	perDescriptor int // tags in a full descriptor; it and its blocks fit a chunk

	chunk  []byte
	filled int    // blocks in chunk
	base   uint32 // log block of the first of them
	pos    uint32 // log block of the next one
	used   int    // blocks of this transaction so far

	tid     TID
	seqSeed uint32 // layout.seqSeed(tid)
	v1      uint32 // crc32be of what v1 commits cover
}

func (w *logWriter) init(j *Journal) {
	blocks := max(chunkBytes/j.lay.blockSize, 2)
	w.j, w.lay = j, &j.lay
	w.chunk = make([]byte, blocks*j.lay.blockSize)
	w.perDescriptor = min(j.lay.tagsPerBlock(), blocks-1)
}

// begin starts transaction tid at log block start.
func (w *logWriter) begin(tid TID, start uint32) {
	w.tid, w.base, w.pos, w.filled, w.used = tid, start, start, 0, 0
	w.seqSeed, w.v1 = w.lay.seqSeed(tid), ^uint32(0)
}

// room is how many blocks still fit the chunk.
func (w *logWriter) room() int { return len(w.chunk)/w.lay.blockSize - w.filled }

// block returns the memory of the next block of the log, which room must have
// place for. Its content is undefined.
func (w *logWriter) block() []byte {
	b := w.chunk[w.filled*w.lay.blockSize:][:w.lay.blockSize]
	w.filled++
	w.used++
	w.pos = w.j.geo.next(w.pos)
	return b
}

// metaBlock is block for a cleared one with a header, writing the chunk first
// if it cannot take it and n more.
func (w *logWriter) metaBlock(t BlockType, n int) ([]byte, error) {
	if w.room() < 1+n {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	b := w.block()
	clear(b)
	putHeader(b, t, w.tid)
	return b, nil
}

// flush writes the chunk, in two pieces where it wraps.
func (w *logWriter) flush() error {
	bs := w.lay.blockSize
	first := min(w.filled, int(w.j.geo.last-w.base))
	if err := w.j.log.write(w.chunk[:first*bs], w.base); err != nil {
		return err
	}
	if err := w.j.log.write(w.chunk[first*bs:w.filled*bs], w.j.geo.first); err != nil {
		return err
	}
	w.base, w.filled = w.pos, 0
	return nil
}

// revokes writes the records of blocks that the transaction freed.
func (w *logWriter) revokes(blocks []uint64) error {
	per := w.lay.revokesPerBlock()
	for len(blocks) > 0 {
		b, err := w.metaBlock(RevokeBlock, 0)
		if err != nil {
			return err
		}
		n := min(per, len(blocks))
		off := revokeHeaderSize
		for _, blk := range blocks[:n] {
			w.lay.putRevoke(b[off:], blk)
			off += w.lay.recordSize()
		}
		binary.BigEndian.PutUint32(b[0x0C:], uint32(off)) // r_count
		w.lay.setTail(b)
		blocks = blocks[n:]
	}
	return nil
}

// metadata writes descriptors, each followed by the blocks it announces.
func (w *logWriter) metadata(heads []*journalHead) error {
	for len(heads) > 0 {
		n := min(w.perDescriptor, len(heads))
		d, err := w.metaBlock(DescriptorBlock, n)
		if err != nil {
			return err
		}
		w.group(d, heads[:n])
		heads = heads[n:]
	}
	return nil
}

// group fills a descriptor d and the blocks behind it, which fit the chunk.
func (w *logWriter) group(d []byte, heads []*journalHead) {
	off := headerSize
	data := w.chunk[w.filled*w.lay.blockSize:][:len(heads)*w.lay.blockSize]
	for i, jh := range heads {
		tag := w.logBlock(jh)
		if i > 0 {
			tag.Flags |= TagSameUUID
		}
		if i == len(heads)-1 {
			tag.Flags |= TagLast
		}
		w.lay.putTag(d[off:], tag)
		off += w.lay.tagSize
		if i == 0 {
			off += copy(d[off:], w.lay.uuid[:])
		}
	}
	w.lay.setTail(d)
	if w.lay.csum == csumV1 {
		w.v1 = crc32be(crc32be(w.v1, d), data)
	}
}

// logBlock copies the buffer of jh into the log and returns its tag. A block
// that happens to begin with the magic number is escaped.
func (w *logWriter) logBlock(jh *journalHead) Tag {
	dst := w.block()
	jh.copyOut(dst)
	tag := Tag{Home: jh.blk}
	if binary.BigEndian.Uint32(dst) == Magic {
		clear(dst[:4])
		tag.Flags |= TagEscape
	}
	tag.Checksum = w.lay.dataChecksum(w.seqSeed, dst)
	return tag
}

// copyOut copies the content that the committing transaction left.
func (jh *journalHead) copyOut(dst []byte) {
	jh.buf.Lock()
	frozen := jh.frozen
	if frozen == nil {
		copy(dst, jh.buf.Data())
	}
	jh.copied = true
	jh.buf.Unlock()
	if frozen != nil {
		copy(dst, *frozen)
	}
}

// commit puts the commit block behind the rest; the caller flushes.
func (w *logWriter) commit(now time.Time) error {
	b, err := w.metaBlock(CommitBlock, 0)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(b[offCommitSec:], uint64(now.Unix()))
	binary.BigEndian.PutUint32(b[offCommitNsec:], uint32(now.Nanosecond()))
	w.lay.setCommit(b, w.v1)
	return nil
}
