package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// damagedLog is a log of three transactions; 1: blocks 10, 11; 2: block 12 and
// a revoke; 3: blocks 13, 14.
func damagedLog(t testing.TB, p rigParams) (rigParams, ram) {
	t.Helper()
	p.setDefaults()
	r := newRig(t, p)
	r.op(1, 10, 11)
	r.commit()
	h := r.begin(1)
	r.set(h, 12, 1)
	r.forget(h, 11)
	r.stop(h)
	r.commit()
	r.op(1, 13, 14)
	r.commit()
	return r.p, ram(readAll(t, r.dev))
}

// Log blocks of damagedLog.
const (
	desc1, data10, data11, commit1    = 1, 2, 3, 4
	revoke2, desc2, data12, commit2   = 5, 6, 7, 8
	desc3, data13, data14, commit3    = 9, 10, 11, 12
	firstTID, lastTID                 = 2, 4
	superMaxLen, superFirst, superSeq = 0x10, 0x14, 0x18
	superStart                        = 0x1C
)

// Where a flipped bit is damage, nothing is written, and the error names the
// place; where it can be the end of the log, what comes before counts.
func TestDamage(t *testing.T) {
	type want struct {
		last int // transactions replayed; -1: an error
		at   uint32
	}
	for _, c := range []struct {
		name  string
		p     rigParams
		block int
		off   int
		want  want
	}{
		{"descriptor", rigParams{incompat: IncompatCsumV3}, desc1, 20, want{-1, desc1}},
		{"last descriptor", rigParams{incompat: IncompatCsumV3}, desc3, 20, want{-1, desc3}},
		{"data", rigParams{incompat: IncompatCsumV3}, data11, 500, want{-1, data11}},
		{"data v2", rigParams{incompat: IncompatCsumV2}, data11, 500, want{-1, data11}},
		{"data no csum", rigParams{}, data11, 500, want{3, 0}},
		{"revoke", rigParams{incompat: IncompatCsumV3}, revoke2, 18, want{-1, revoke2}},
		{"revoke count", rigParams{}, revoke2, 0x0C, want{-1, revoke2}},
		{"commit", rigParams{incompat: IncompatCsumV3}, commit1, 600, want{-1, commit1}},
		{"commit v1", rigParams{compat: CompatChecksum}, commit1, offCommitCsum, want{-1, commit1}},
		{"data v1", rigParams{compat: CompatChecksum}, data12, 3, want{-1, commit2}},
		{"last commit", rigParams{incompat: IncompatCsumV3}, commit3, 600, want{2, 0}},
		{"last commit v1", rigParams{compat: CompatChecksum}, commit3, offCommitCsum, want{2, 0}},
		{"last data v1", rigParams{compat: CompatChecksum}, data14, 5, want{2, 0}},
		{"async last data", rigParams{incompat: IncompatCsumV3 | IncompatAsyncCommit}, data14, 5, want{2, 0}},
		{"async last descriptor", rigParams{incompat: IncompatCsumV3 | IncompatAsyncCommit}, desc3, 30, want{2, 0}},
		{"async data", rigParams{incompat: IncompatCsumV3 | IncompatAsyncCommit}, data12, 5, want{-1, data12}},
		{"magic", rigParams{incompat: IncompatCsumV3}, desc3, 0, want{2, 0}},
		{"sequence", rigParams{incompat: IncompatCsumV3}, desc3, 9, want{2, 0}},
		{"tag", rigParams{}, desc1, headerSize, want{-1, data10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, dev := damagedLog(t, c.p)
			dev[(int(p.runs[0].Block)+c.block)*p.blockSize+c.off] ^= 0x40
			before := bytes.Clone(dev)
			j, err := Open(p.params(dev))
			if err != nil {
				t.Fatal(err)
			}
			st, err := j.Recover()
			inspectDamage(t, p, before, c.want.last < 0)
			if c.want.last >= 0 {
				if err != nil || st.Transactions != c.want.last {
					t.Errorf("%d transactions, want %d (%v)", st.Transactions, c.want.last, err)
				}
				return
			}
			var bad *CorruptError
			if !errors.As(err, &bad) || bad.Block != c.want.at || !bad.HasSeq {
				t.Errorf("error %v, want one at journal block %d", err, c.want.at)
			}
			if !bytes.Equal(dev, before) {
				t.Error("something was written")
			}
			if err := j.Wipe(); err != nil || j.NeedsRecovery() || !j.nextTID.After(lastTID) {
				t.Errorf("Wipe: %v, next %d", err, j.nextTID)
			}
		})
	}
}

// Blocks of a former life of the log, whose checksums were made with another
// UUID, end it if their commit block is older than the last one that counts.
func TestStaleBlocks(t *testing.T) {
	for _, older := range []bool{false, true} {
		p, dev := damagedLog(t, rigParams{incompat: IncompatCsumV3})
		j, err := Open(p.params(dev))
		if err != nil {
			t.Fatal(err)
		}
		block := func(n int) []byte { return dev[(int(p.runs[0].Block)+n)*p.blockSize:][:p.blockSize] }
		block(desc3)[20]++ // as another UUID would
		sec := binary.BigEndian.Uint64(block(commit2)[offCommitSec:])
		if older {
			sec -= 1000
		}
		binary.BigEndian.PutUint64(block(commit3)[offCommitSec:], sec)
		j.lay.setCommit(block(commit3), 0)
		st, err := j.Recover()
		if (err == nil) != older || older && st.Transactions != 2 {
			t.Errorf("older %v: %d transactions, %v", older, st.Transactions, err)
		}
	}
}

// inspectDamage: Inspect finds what recovery stumbled over.
func inspectDamage(t *testing.T, p rigParams, dev ram, bad bool) {
	t.Helper()
	found := 0
	_, err := Inspect(p.params(dev), InspectOptions{}, func(i TransactionInfo) error {
		found += len(i.Damage)
		return nil
	})
	if err != nil || bad && found == 0 {
		t.Errorf("Inspect finds %d damages (%v)", found, err)
	}
}

// A superblock that makes no sense is refused by Open.
func TestBadSuperBlock(t *testing.T) {
	put := func(off int, v uint32) func(b []byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[off:], v) }
	}
	for name, change := range map[string]func(b []byte){
		"magic":              put(0, 0xC03B3999),
		"type":               put(4, 2),
		"block size":         put(0x0C, 4096),
		"longer than device": put(superMaxLen, 65),
		"huge":               put(superMaxLen, 0xFFFFFFFF),
		"short":              put(superMaxLen, 20),
		"no length":          put(superMaxLen, 0),
		"first 0":            put(superFirst, 0),
		"first beyond":       put(superFirst, 64),
		"first near the end": put(superFirst, 60),
		"start beyond":       put(superStart, 64),
		"start huge":         put(superStart, 0xFFFFFFF0),
		"incompat":           put(0x28, 0x40),
		"ro_compat":          put(0x2C, 1),
		"v2 and v3":          put(0x28, 0x18),
		"v1 and v3":          func(b []byte) { put(0x24, 1)(b); put(0x28, 0x10)(b) },
		"checksum type":      put(0x28, 0x10),
		"checksum":           func(b []byte) { put(0x28, 0x10)(b); b[0x50] = 4 },
		"users":              put(0x40, 49),
		"fast commits":       func(b []byte) { put(0x28, 0x20)(b); put(0x54, 0xFFFFFFFF)(b) },
		"only fast commits":  func(b []byte) { put(0x28, 0x20)(b); put(0x54, 50)(b) },
	} {
		t.Run(name, func(t *testing.T) {
			p, dev := damagedLog(t, rigParams{})
			change(dev[int(p.runs[0].Block)*p.blockSize:])
			before := bytes.Clone(dev)
			_, err := Open(p.params(dev))
			var bad *CorruptError
			if !errors.As(err, &bad) {
				t.Errorf("Open: %v", err)
			}
			if !bytes.Equal(dev, before) {
				t.Error("something was written")
			}
		})
	}
}

// Where the log is said to be must be on the device.
func TestBadRuns(t *testing.T) {
	p, dev := damagedLog(t, rigParams{})
	for _, runs := range [][]Run{
		nil, {{0, 0}}, {{1 << 60, 64}}, {{uint64(p.blocks) - 63, 64}}, {{0, 0xFFFFFFFF}}, {{1<<64 - 1, 2}},
	} {
		bad := p.params(dev)
		bad.Runs = runs
		if _, err := Open(bad); err == nil {
			t.Errorf("Open with runs %v", runs)
		}
	}
}

// A log of nothing but descriptors whose tags lead on and on, all of the
// expected sequence, is left after one round.
func TestEndlessLog(t *testing.T) {
	p, dev := damagedLog(t, rigParams{})
	log := dev[int(p.runs[0].Block)*p.blockSize:]
	for blk := 1; blk < int(p.logBlocks); blk++ {
		b := log[blk*p.blockSize:][:p.blockSize]
		clear(b)
		putHeader(b, RevokeBlock, firstTID)
		binary.BigEndian.PutUint32(b[0x0C:], revokeHeaderSize)
		if blk%2 == 0 {
			putHeader(b, DescriptorBlock, firstTID)
		}
	}
	st := recoverOn(t, p, dev)
	if st.Transactions != 0 {
		t.Errorf("%+v", st)
	}
}

// FuzzRecover gives recovery and inspection an arbitrary log.
func FuzzRecover(f *testing.F) {
	for _, p := range formats {
		p.setDefaults()
		if p.blockSize > 1024 || p.logBlocks > 64 {
			continue
		}
		_, dev := damagedLog(f, p)
		log := []byte(dev[int(p.runs[0].Block)*p.blockSize:])
		f.Add(log[:20*p.blockSize], false)
		f.Add(log[:20*p.blockSize], true)
	}
	f.Fuzz(func(t *testing.T, log []byte, fix bool) {
		p := rigParams{}
		p.setDefaults()
		dev := make(ram, p.blocks*p.blockSize)
		copy(dev[int(p.runs[0].Block)*p.blockSize:], log)
		super := dev[int(p.runs[0].Block)*p.blockSize:][:SuperBlockSize]
		if fix { // otherwise the checksum keeps nearly all of it out
			setSuperChecksum(super)
		}
		before := bytes.Clone(dev)
		_, _ = Inspect(p.params(dev), InspectOptions{Old: true}, func(TransactionInfo) error { return nil })
		if !bytes.Equal(dev, before) {
			t.Fatal("Inspect wrote")
		}
		j, err := Open(p.params(dev))
		if err != nil {
			return
		}
		j.OnFastCommit(func(FastCommits) ([]BlockImage, error) { return nil, nil })
		if _, err := j.Recover(); err != nil {
			if !bytes.Equal(dev, before) {
				t.Fatalf("failed (%v), but wrote", err)
			}
			return
		}
		if j2, err := Open(p.params(dev)); err != nil || j2.NeedsRecovery() {
			t.Fatalf("after recovery: %v", err)
		}
	})
}
