package command

import (
	"encoding/json"
	"io"
	"time"

	"extfused/journal"
)

type logJSON struct {
	Features     string            `json:"features"`
	BlockSize    uint32            `json:"block_size"`
	First        uint32            `json:"first_block"`
	Last         uint32            `json:"last_block"`
	FcFirst      uint32            `json:"fast_commit_first_block,omitempty"`
	FcBlocks     uint32            `json:"fast_commit_blocks,omitempty"`
	Sequence     journal.TID       `json:"sequence"`
	Start        uint32            `json:"start"`
	Errno        int32             `json:"errno"`
	Empty        bool              `json:"empty"`
	End          string            `json:"end"`
	EndBlock     uint32            `json:"end_block"`
	EndTID       journal.TID       `json:"end_transaction"`
	Damaged      bool              `json:"damaged"`
	Transactions []transactionJSON `json:"transactions"`
	FastCommits  []string          `json:"fast_commits"`
}

type transactionJSON struct {
	TID       journal.TID  `json:"transaction"`
	Start     uint32       `json:"first_block"`
	Blocks    int          `json:"blocks"`
	Committed bool         `json:"committed"`
	Commit    uint32       `json:"commit_block,omitempty"`
	Time      string       `json:"time,omitempty"`
	Logged    []loggedJSON `json:"logged"`
	Revokes   []uint64     `json:"revokes"`
	Damage    []string     `json:"damage"`
}

type loggedJSON struct {
	Home  uint64 `json:"fs_block"`
	Block uint32 `json:"journal_block"`
	Flags uint32 `json:"flags"`
}

func writeLogJSON(w io.Writer, p journal.Params, old bool) error {
	out := logJSON{Transactions: []transactionJSON{}, FastCommits: []string{}}
	i, err := journal.Inspect(p, journal.InspectOptions{Old: old}, func(t journal.TransactionInfo) error {
		out.Transactions = append(out.Transactions, transactionToJSON(&t))
		out.Damaged = out.Damaged || len(t.Damage) > 0
		return nil
	})
	if err != nil {
		return err
	}
	s := &i.SuperBlock
	out.Features, out.BlockSize, out.Sequence, out.Start, out.Errno = s.Incompat.String(), s.BlockSize, s.Sequence, s.Start, s.Errno
	out.First, out.Last, out.FcFirst, out.FcBlocks = i.First, i.Last, i.FcFirst, i.FcBlocks
	out.Empty, out.End, out.EndBlock, out.EndTID = i.Empty, i.End, i.EndBlock, i.EndTID
	for _, r := range i.FastCommits.Tags {
		out.FastCommits = append(out.FastCommits, describeFastCommit(r))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(out)
}

func transactionToJSON(t *journal.TransactionInfo) transactionJSON {
	j := transactionJSON{
		TID: t.TID, Start: t.Start, Blocks: t.Blocks, Committed: t.Committed, Commit: t.Commit,
		Logged: []loggedJSON{}, Revokes: append([]uint64{}, t.Revokes...), Damage: []string{},
	}
	if t.Committed && t.Time.Unix() != 0 {
		j.Time = t.Time.UTC().Format(time.RFC3339Nano)
	}
	for _, b := range t.Logged {
		j.Logged = append(j.Logged, loggedJSON{b.Home, b.Block, uint32(b.Flags)})
	}
	for _, d := range t.Damage {
		j.Damage = append(j.Damage, d.Error())
	}
	return j
}
