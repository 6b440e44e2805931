package journal

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// plan lists what replay will write: the last version of each block that is
// not revoked, ascending by home.
func (j *Journal) plan(f *foundLog, revoked map[uint64]TID, st *RecoveryStats) ([]loggedBlock, error) {
	newest := make(map[uint64]loggedBlock)
	for _, t := range f.transactions {
		for _, tag := range t.tags {
			if by, ok := revoked[tag.home]; ok && !t.tid.After(by) {
				st.RevokeHits++
				continue
			}
			newest[tag.home] = tag
		}
	}
	plan := make([]loggedBlock, 0, len(newest))
	for _, tag := range newest {
		plan = append(plan, tag)
	}
	slices.SortFunc(plan, func(a, b loggedBlock) int { return cmp.Compare(a.home, b.home) })
	st.Replayed = len(plan)
	if n := len(plan); n > 0 {
		if end := (plan[n-1].home + 1) * uint64(j.log.blockSize); end > uint64(j.fsDev.Size()) {
			return nil, &CorruptError{What: "logged block lies beyond the end of the device",
				Block: plan[n-1].block, Home: plan[n-1].home, HasHome: true}
		}
	}
	return plan, nil
}

// replay writes the plan, adjacent homes in one device write.
func (j *Journal) replay(plan []loggedBlock) error {
	bs := j.log.blockSize
	buf := make([]byte, min(max(windowBytes/bs, 1), max(len(plan), 1))*bs)
	for len(plan) > 0 {
		n := 1
		for n < len(plan) && (n+1)*bs <= len(buf) && plan[n].home == plan[0].home+uint64(n) {
			n++
		}
		if err := j.replayRun(plan[:n], buf[:n*bs]); err != nil {
			return err
		}
		plan = plan[n:]
	}
	return nil
}

// replayRun writes blocks with adjacent homes, by way of buf.
func (j *Journal) replayRun(run []loggedBlock, buf []byte) error {
	bs := j.log.blockSize
	for i := 0; i < len(run); {
		n := 1
		for i+n < len(run) && run[i+n].block == run[i].block+uint32(n) {
			n++
		}
		if err := j.log.read(buf[i*bs:(i+n)*bs], run[i].block); err != nil {
			return fmt.Errorf("journal block %d: %w", run[i].block, err)
		}
		i += n
	}
	for i, tag := range run {
		if tag.flags&TagEscape != 0 {
			binary.BigEndian.PutUint32(buf[i*bs:], Magic)
		}
	}
	if _, err := j.fsDev.WriteAt(buf, int64(run[0].home)*int64(bs)); err != nil {
		return fmt.Errorf("replay to block %d: %w", run[0].home, err)
	}
	return nil
}

// Logged returns the content that Recover would write to block home, nil if the
// log has none that counts. It reads and verifies all of the log.
func (j *Journal) Logged(home uint64) ([]byte, error) {
	if !j.NeedsRecovery() {
		return nil, nil
	}
	found, err := j.scan()
	if err != nil {
		return nil, err
	}
	plan, err := j.plan(found, found.revoked(), &RecoveryStats{})
	if err != nil {
		return nil, err
	}
	for _, tag := range plan {
		if tag.home == home {
			return j.loggedContent(tag)
		}
	}
	return nil, nil
}

func (j *Journal) loggedContent(tag loggedBlock) ([]byte, error) {
	b := make([]byte, j.log.blockSize)
	if err := j.log.read(b, tag.block); err != nil {
		return nil, fmt.Errorf("journal block %d: %w", tag.block, err)
	}
	if tag.flags&TagEscape != 0 {
		binary.BigEndian.PutUint32(b, Magic)
	}
	return b, nil
}
