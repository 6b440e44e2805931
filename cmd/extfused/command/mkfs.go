package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/fs/mkfs"
	"extfused/fs/ondisk"
)

type mkfsOptions struct {
	size      string
	blockSize string
	label     string
	uuid      string
	reserved  float64
	ratio     string
	inodes    uint64
	journal   string
	force     bool
	dryRun    bool
	json      bool
}

// AddFlags registers the flags of `extfused mkfs`, which are mke2fs's.
func (o *mkfsOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.size, "size", "s", "", "size of the file system, as 512M or 10G; a file that does not exist is made so long")
	f.StringVarP(&o.blockSize, "block-size", "b", "", "block size: 1024 to 65536 (default: by size, 1K below 512M, else 4K)")
	f.StringVarP(&o.label, "label", "L", "", "volume label, at most 16 bytes")
	f.StringVarP(&o.uuid, "uuid", "U", "", "UUID (default: random)")
	f.Float64VarP(&o.reserved, "reserved", "m", 5, "percent of the blocks kept for the superuser")
	f.StringVarP(&o.ratio, "bytes-per-inode", "i", "", "make one inode for so many bytes")
	f.Uint64VarP(&o.inodes, "inodes", "N", 0, "number of inodes (instead of -i)")
	f.StringVarP(&o.journal, "journal", "J", "", "journal: size=MEGABYTES")
	f.BoolVarP(&o.force, "force", "F", false, "format even if the image holds something")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "tell what would be made, write nothing")
	f.BoolVar(&o.json, "json", false, "print JSON")
}

func newMkfsCommand() *cobra.Command {
	o := &mkfsOptions{}
	cmd := &cobra.Command{
		Use:   "mkfs IMAGE",
		Short: "make an ext4 file system in a file or on a block device",
		Long: "Makes the ext4 file system that mkfs.ext4 makes by default. A file that does not\n" +
			"exist is created (sparse) when -s tells its size. What holds data already is\n" +
			"refused unless -F is given; what is in use is always refused.",
		Example: "  extfused mkfs disk.img -s 10G\n  extfused mkfs -L data -m 0 /dev/vdb1",
		Args:    exactArgs("IMAGE"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *mkfsOptions) run(w io.Writer, image string) error {
	p, err := o.params()
	if err != nil {
		return err
	}
	st, err := os.Stat(image)
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Exitf(ExitImage, "%s: %w", image, cause(err))
	case !exists && p.Size == 0:
		return Exitf(ExitUsage, "%s does not exist; give its size with -s to make it", image)
	}
	format := o.formatDevice
	if !exists || st.Mode().IsRegular() {
		format = func(image string, p mkfs.Params) (mkfs.Report, error) { return o.formatFile(image, p, exists) }
	}
	r, err := format(image, p)
	if err != nil {
		return mkfsExit(image, err)
	}
	return o.print(w, image, r)
}

// params turns flags into parameters.
func (o *mkfsOptions) params() (mkfs.Params, error) {
	p := mkfs.DefaultParams()
	p.Label, p.ReservedPercent, p.Inodes = o.label, o.reserved, o.inodes
	var blockSize int64
	for _, f := range []struct {
		flag, text string
		to         *int64
	}{{"-s", o.size, &p.Size}, {"-b", o.blockSize, &blockSize}, {"-i", o.ratio, &p.BytesPerInode}} {
		if f.text == "" {
			continue
		}
		n, err := parseSize(f.text)
		if err == nil && n == 0 {
			err = errors.New("must not be 0")
		}
		if err != nil {
			return p, Exitf(ExitUsage, "%s: %w", f.flag, err)
		}
		*f.to = n
	}
	p.BlockSize = int(min(blockSize, 1<<30))
	if o.uuid != "" {
		u, err := ondisk.ParseUUID(o.uuid)
		if err != nil {
			return p, Exitf(ExitUsage, "-U: %w", err)
		}
		p.UUID = u
	}
	return p, o.journalSize(&p)
}

func (o *mkfsOptions) journalSize(p *mkfs.Params) error {
	if o.journal == "" {
		return nil
	}
	value, ok := strings.CutPrefix(o.journal, "size=")
	if !ok {
		return Exitf(ExitUsage, "-J %s: only size=MEGABYTES is known", o.journal)
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.ToUpper(value), "M"), 10, 32)
	if err != nil || n == 0 {
		return Exitf(ExitUsage, "-J %s: want a number of megabytes", o.journal)
	}
	p.JournalBytes = int64(n) << 20
	return nil
}

// formatFile formats a regular file. One that does not exist is made, and
// removed again when formatting fails. One that exists gets the length that -s
// asks for if it is shorter, and gives its bytes back to the host, once it is
// certain that it may be formatted.
func (o *mkfsOptions) formatFile(image string, p mkfs.Params, exists bool) (r mkfs.Report, err error) {
	if p.Size != 0 {
		if r, err = mkfs.Plan(p.Size, p); err != nil || o.dryRun {
			return r, err
		}
	}
	if !exists {
		return o.createFile(image, p)
	}
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: o.dryRun})
	if err != nil {
		return r, err
	}
	defer func() { dev.Close() }()
	if err := o.mayFormat(dev); err != nil {
		return r, err
	}
	if r, err = mkfs.Plan(max(dev.Size(), p.Size), p); err != nil || o.dryRun {
		return r, err
	}
	if dev.Size() < p.Size {
		dev.Close()
		if dev, err = blockdev.OpenFile(image, blockdev.OpenOptions{Size: p.Size}); err != nil {
			return r, err
		}
	}
	if err := dev.Zero(0, dev.Size()); err != nil {
		return r, err
	}
	p.Zeroed = true
	return mkfs.Format(dev, p)
}

func (o *mkfsOptions) createFile(image string, p mkfs.Params) (r mkfs.Report, err error) {
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{Create: true, Size: p.Size})
	if err != nil {
		return r, err
	}
	defer func() {
		dev.Close()
		if err != nil {
			os.Remove(image)
		}
	}()
	p.Zeroed = true
	return mkfs.Format(dev, p)
}

// formatDevice formats a block device. Discarding it first is only a hint:
// what must read as zero is written.
func (o *mkfsOptions) formatDevice(image string, p mkfs.Params) (r mkfs.Report, err error) {
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: o.dryRun})
	if err != nil {
		return r, err
	}
	defer dev.Close()
	if err := o.mayFormat(dev); err != nil {
		return r, err
	}
	if r, err = mkfs.Plan(dev.Size(), p); err != nil || o.dryRun {
		return r, err
	}
	if err := dev.Discard(0, dev.Size()); err != nil && !errors.Is(err, blockdev.ErrNotSupported) {
		return r, err
	}
	return mkfs.Format(dev, p)
}

// mayFormat refuses what holds something that Probe knows.
func (o *mkfsOptions) mayFormat(dev blockdev.Device) error {
	if o.force || o.dryRun {
		return nil
	}
	found, err := mkfs.Probe(dev)
	if err != nil {
		return err
	}
	if found != nil {
		return Exitf(ExitHasContents, "holds %s; give -F to format it all the same", found)
	}
	return nil
}

func mkfsExit(image string, err error) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		return Exitf(exit.Code, "%s %w", image, exit.Err)
	}
	var path *fs.PathError
	var writable *blockdev.NotWritableError
	switch {
	case blockdev.InUse(err), errors.As(err, &path), errors.As(err, &writable):
		return imageExit(err)
	case errors.As(err, new(*blockdev.OpError)):
		return Exitf(ExitFailure, "%s: %w", image, err)
	}
	return Exitf(ExitUsage, "%s: %w", image, err)
}

func (o *mkfsOptions) print(w io.Writer, image string, r mkfs.Report) error {
	if o.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Image  string `json:"image"`
			DryRun bool   `json:"dry_run,omitempty"`
			mkfs.Report
		}{image, o.dryRun, r})
	}
	made := "made"
	if o.dryRun {
		made = "would make"
	}
	fmt.Fprintf(w, "%s: %s an ext4 file system of %s\n", image, made, formatSize(int64(r.Blocks)*int64(r.BlockSize)))
	fmt.Fprintf(w, "  %d blocks of %d bytes, %d reserved for the superuser\n", r.Blocks, r.BlockSize, r.ReservedBlocks)
	fmt.Fprintf(w, "  %d inodes of %d bytes, %d groups\n", r.Inodes, r.InodeSize, r.Groups)
	if r.JournalBlocks != 0 {
		fmt.Fprintf(w, "  journal of %d blocks\n", r.JournalBlocks)
	}
	fmt.Fprintf(w, "  UUID %s\n", r.UUID)
	if r.Note != "" {
		fmt.Fprintf(w, "  note: %s\n", r.Note)
	}
	return nil
}
