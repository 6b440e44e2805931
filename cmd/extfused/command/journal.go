package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/fs/ext4"
	"extfused/fs/ondisk"
	"extfused/journal"
)

type journalOptions struct {
	json        bool
	old         bool
	offset      string
	journalPath string
}

// AddFlags registers the flags of `extfused journal`.
func (o *journalOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.old, "old", false, "of an empty log, show what is still to be read from its beginning on")
	cmd.Flags().StringVar(&o.offset, "offset", "0", "where in the image the file system starts, in bytes (or with K, M, G)")
	cmd.Flags().StringVar(&o.journalPath, "journal-path", "", "device or file with the journal, if it is an external one")
}

func newJournalCommand() *cobra.Command {
	o := &journalOptions{}
	cmd := &cobra.Command{
		Use:   "journal IMAGE",
		Short: "show what the journal of an image holds, transaction by transaction",
		Long: "Shows what debugfs's logdump -a shows, in its words, and where the log is damaged.\n" +
			"Nothing is replayed; the image is opened for reading only, and may be in use.",
		Args: exactArgs("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *journalOptions) run(w io.Writer, image string) error {
	offset, err := parseSize(o.offset)
	if err != nil {
		return Exitf(ExitUsage, "--offset: %w", err)
	}
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: true, NoLock: true})
	if err != nil {
		return imageExit(err)
	}
	defer dev.Close()
	part := dev
	if offset != 0 {
		if part, err = blockdev.NewSection(dev, offset, dev.Size()-offset); err != nil {
			return Exitf(ExitUsage, "--offset %s: the image has %d bytes", o.offset, dev.Size())
		}
	}
	var opts ext4.Options
	if o.journalPath != "" {
		if opts.JournalDev, err = blockdev.OpenFile(o.journalPath, blockdev.OpenOptions{ReadOnly: true, NoLock: true}); err != nil {
			return imageExit(err)
		}
		defer opts.JournalDev.Close()
	}
	p, err := ext4.JournalParams(part, opts)
	if err != nil {
		return journalExit(image, err)
	}
	out := bufio.NewWriter(w)
	if err := o.print(out, p); err != nil {
		return journalExit(image, err)
	}
	return out.Flush()
}

func (o *journalOptions) print(w io.Writer, p journal.Params) error {
	if o.json {
		return writeLogJSON(w, p, o.old)
	}
	return writeLogText(w, p, o.old)
}

func journalExit(image string, err error) error {
	var bad *journal.CorruptError
	switch {
	case errors.As(err, &bad), errors.Is(err, ext4.ErrNotExt4), errors.Is(err, ext4.ErrTooShort):
		return Exitf(ExitNotExt4, "%s: %w", image, err)
	case errors.Is(err, ext4.ErrBadOption):
		return Exitf(ExitUsage, "%s: the journal is on another device: name it with --journal-path", image)
	case errors.Is(err, ext4.ErrUnsupported), errors.Is(err, ext4.ErrReadOnly):
		return Exitf(ExitFeature, "%s: %w", image, err)
	}
	return infoExit(image, err)
}

// writeLogText writes each transaction as it is met, and the log's own
// description, which is known only then, behind them.
func writeLogText(w io.Writer, p journal.Params, old bool) error {
	count := 0
	i, err := journal.Inspect(p, journal.InspectOptions{Old: old}, func(t journal.TransactionInfo) error {
		count++
		writeTransaction(w, &t)
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range i.FastCommits.Tags {
		fmt.Fprintf(w, "fast commit of transaction %d, at block %d: %s\n", i.FastCommits.TID, r.Block, describeFastCommit(r))
	}
	s := &i.SuperBlock
	row := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%-25s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	row("Journal features", "%s", orText(s.Incompat.String(), "(none)"))
	row("Log", "blocks %d to %d of %d bytes", i.First, i.Last, s.BlockSize)
	if i.FcBlocks > 0 {
		row("Fast commits", "blocks %d to %d", i.FcFirst, i.FcFirst+i.FcBlocks-1)
	}
	row("Journal sequence", "0x%08x", uint32(s.Sequence))
	row("Journal start", "%d", s.Start)
	if s.Errno != 0 {
		row("Journal errno", "%d", s.Errno)
	}
	row("Transactions", "%d", count)
	if i.EndBlock != 0 {
		row("End of journal", "%s at block %d, transaction %d expected", i.End, i.EndBlock, i.EndTID)
	} else {
		row("End of journal", "%s", i.End)
	}
	return nil
}

func orText(s, none string) string {
	if s == "" {
		return none
	}
	return s
}

func writeTransaction(w io.Writer, t *journal.TransactionInfo) {
	fmt.Fprintf(w, "transaction %d, from block %d, %d blocks: ", t.TID, t.Start, t.Blocks)
	if t.Committed {
		fmt.Fprintf(w, "commit block at block %d", t.Commit)
		if t.Time.Unix() != 0 {
			fmt.Fprintf(w, ", %s", t.Time.Format(time.DateTime))
		}
	} else {
		fmt.Fprint(w, "NOT COMMITTED")
	}
	fmt.Fprintln(w)
	for _, b := range t.Logged {
		fmt.Fprintf(w, "  FS block %d logged at journal block %d (flags 0x%x)\n", b.Home, b.Block, uint32(b.Flags))
	}
	for _, blk := range t.Revokes {
		fmt.Fprintf(w, "  Revoke FS block %d\n", blk)
	}
	for _, d := range t.Damage {
		fmt.Fprintf(w, "  DAMAGED: %v\n", d)
	}
}

// describeFastCommit says in one line what a record means.
func describeFastCommit(r journal.FastCommitRecord) string {
	var name ondisk.FcName
	var rng ondisk.FcRange
	var err error
	text := ""
	switch r.Tag {
	case journal.FcCreat, journal.FcLink, journal.FcUnlink:
		err = name.Decode(r.Value)
		text = fmt.Sprintf("inode %d, directory %d, name %q", name.Inode, name.Parent, name.Name)
	case journal.FcAddRange:
		err = rng.DecodeAdd(r.Value)
		text = fmt.Sprintf("inode %d, logical %d, FS block %d, %d blocks", rng.Inode, rng.Logical, rng.Start, rng.Len)
		if rng.Unwritten {
			text += ", unwritten"
		}
	case journal.FcDelRange:
		err = rng.DecodeDel(r.Value)
		text = fmt.Sprintf("inode %d, logical %d, %d blocks", rng.Inode, rng.Logical, rng.Len)
	case journal.FcInode:
		var ino ondisk.InodeNumber
		ino, _, err = ondisk.FcInodeRaw(r.Value)
		text = fmt.Sprintf("inode %d", ino)
	}
	if err != nil {
		text = "DAMAGED: " + err.Error()
	}
	return strings.TrimSpace(r.Tag.String() + " " + text)
}
