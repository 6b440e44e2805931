package journal

import (
	"testing"
)

// formats are all on-disk variants of a log.
var formats = map[string]rigParams{
	"plain":        {},
	"64bit":        {incompat: Incompat64Bit | IncompatRevoke},
	"v1":           {compat: CompatChecksum},
	"v2":           {incompat: IncompatCsumV2},
	"v2-64bit":     {incompat: IncompatCsumV2 | Incompat64Bit},
	"v3":           {incompat: IncompatCsumV3},
	"v3-64bit":     {incompat: IncompatCsumV3 | Incompat64Bit},
	"v3-4k":        {incompat: IncompatCsumV3 | Incompat64Bit, blockSize: 4096},
	"async":        {incompat: IncompatCsumV3 | Incompat64Bit | IncompatAsyncCommit},
	"seq-wrap":     {incompat: IncompatCsumV3, sequence: 0xFFFFFFFA},
	"fragmented":   {incompat: IncompatCsumV3, blocks: 200, logBlocks: 64, runs: []Run{{100, 1}, {130, 20}, {110, 3}, {155, 40}}},
	"fast-commits": {incompat: IncompatCsumV3 | IncompatFastCommit, logBlocks: 320},
}

func eachFormat(t *testing.T, fn func(t *testing.T, p rigParams)) {
	for name, p := range formats {
		t.Run(name, func(t *testing.T) { fn(t, p) })
	}
}

// Committed transactions survive a crash, the running one does not, through
// many laps of the log.
func TestCommitCrashReplay(t *testing.T) {
	eachFormat(t, func(t *testing.T, p rigParams) {
		r := newRig(t, p)
		for v := uint64(1); v <= 60; v++ {
			r.op(v, 10, 11, 20+v%32)
			r.commit()
			r.check()
			if v%7 == 0 {
				r.op(v+1000, 10)
				dev := r.crash()
				r.expect(dev, 10, v)
				r.expect(dev, 11, v)
				r.expect(dev, 20+v%32, v)
				r.op(v, 10)
			}
		}
		r.must(r.j.Close())
		for v := uint64(29); v <= 60; v++ {
			r.expect(r.dev, 20+v%32, v)
		}
		j, err := Open(r.p.params(r.dev))
		r.must(err)
		if j.NeedsRecovery() {
			t.Error("needs recovery after Close")
		}
	})
}
