package journal

import "extfused/blockdev"

// flush makes dev's writes durable, unless barriers are off.
func (j *Journal) flush(dev blockdev.Device) error {
	if j.opt.NoBarrier {
		return nil
	}
	j.stats.flushes.Add(1)
	return dev.Flush()
}

// writeSuper changes the superblock and writes it. It does not flush. The
// fields that change lie within the first 512 bytes, as does the checksum, so
// a torn write leaves the old one or the new one.
func (j *Journal) writeSuper(change func(*SuperBlock)) error {
	j.super.Lock()
	defer j.super.Unlock()
	return j.writeSuperLocked(change)
}

func (j *Journal) writeSuperLocked(change func(*SuperBlock)) error {
	s := &j.super
	change(&s.sb)
	s.sb.encodeWithChecksum(s.raw)
	off, _ := j.log.place(s.block)
	_, err := j.log.dev.WriteAt(s.raw, off)
	return err
}

// markInUse makes the superblock say where the log begins, if it says that the
// log is empty. It need not be durable before t's blocks are: without them a
// recovery from here finds nothing, and both are flushed before the commit
// block is written.
func (j *Journal) markInUse(t *Transaction) error {
	j.super.Lock()
	defer j.super.Unlock()
	if j.super.sb.Start != 0 {
		return nil
	}
	return j.writeSuperLocked(func(s *SuperBlock) {
		s.Start, s.Sequence = t.logStart, t.tid
	})
}

// moveTail makes the superblock say that the log begins with transaction tid
// at log block start. All before it is home and durable. Only when this has
// returned may the blocks before start be written again: with the old
// superblock, a new transaction in their place would end the log at its start.
func (j *Journal) moveTail(start uint32, tid TID) error {
	err := j.writeSuper(func(s *SuperBlock) { s.Start, s.Sequence = start, tid })
	if err != nil {
		return err
	}
	j.at("tail written")
	return j.flush(j.log.dev)
}

// markEmpty makes the superblock say that the log holds nothing, and that tid
// is used up. It writes nothing if it says so already.
func (j *Journal) markEmpty(tid TID) error {
	j.super.Lock()
	defer j.super.Unlock()
	if j.super.sb.Start == 0 {
		return nil
	}
	err := j.writeSuperLocked(func(s *SuperBlock) { s.Start, s.Sequence = 0, tid })
	if err != nil {
		return err
	}
	return j.flush(j.log.dev)
}
