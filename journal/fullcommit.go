package journal

import "extfused/blockdev/bcache"

// BlockImage is the whole new content of a block of the file system.
type BlockImage struct {
	Block uint64
	Data  []byte
}

// fullCommit makes blocks, which are what the fast commits of transaction tid
// amount to, that transaction, and brings it home. All of the log before tid is
// home and durable already. Up to the commit block a recovery that is repeated
// finds an empty log and the same fast commits; from then on it finds the
// transaction, and fast commits that are older.
//
// More blocks than a transaction can hold are written home directly: cut short
// the recovery then starts from half-changed blocks.
func (j *Journal) fullCommit(tid TID, blocks []BlockImage) error {
	if err := j.moveTail(j.geo.first, tid); err != nil {
		return err
	}
	if err := j.setUp(); err != nil {
		return err
	}
	if len(blocks) > j.MaxCredits() {
		return j.writeImages(blocks)
	}
	j.nextTID = tid
	j.resetLog()
	old := j.cache
	defer func() { j.cache = old }()
	j.cache = bcache.New(j.fsDev, j.log.blockSize, bcache.Options{})
	if err := j.logImages(blocks); err != nil {
		return err
	}
	if err := j.CommitOnce(); err != nil {
		return err
	}
	_, err := j.CheckpointOnce()
	return err
}

// logImages puts blocks into the running transaction.
func (j *Journal) logImages(blocks []BlockImage) error {
	h, err := j.Begin(len(blocks))
	if err != nil {
		return err
	}
	for _, i := range blocks {
		if err := j.logImage(h, i); err != nil {
			h.Stop()
			return err
		}
	}
	return h.Stop()
}

func (j *Journal) logImage(h *Handle, i BlockImage) error {
	b, err := j.cache.Get(i.Block)
	if err != nil {
		return err
	}
	defer b.Put()
	if err := h.GetCreateAccess(b); err != nil {
		return err
	}
	copy(b.Data(), i.Data)
	b.SetUptodate()
	return h.DirtyMetadata(b)
}

func (j *Journal) writeImages(blocks []BlockImage) error {
	for _, i := range blocks {
		if _, err := j.fsDev.WriteAt(i.Data, int64(i.Block)*int64(j.log.blockSize)); err != nil {
			return err
		}
	}
	return j.flush(j.fsDev)
}
