package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/fs/mkfs"
)

type mkfsOptions struct {
	size        string
	kind        string
	features    []string
	extended    []string
	revision    uint8
	blockSize   string
	clusterSize string
	inodeSize   string
	groupSize   uint32
	flexGroups  uint32
	label       string
	uuid        string
	reserved    float64
	ratio       string
	inodes      uint64
	journal     string
	timestamp   string
	source      string
	direct      bool
	force       bool
	dryRun      bool
	json        bool
	quiet       bool

	stdin  io.Reader
	stderr io.Writer
	from   fillSource
}

// AddFlags registers the flags of `extfused mkfs`, which are mke2fs's.
func (o *mkfsOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.size, "size", "s", "", "size of the file system, as 512M or 10G; a file that does not exist is made so long")
	f.StringVarP(&o.kind, "type", "t", "ext4", "ext2, ext3 or ext4: which features to start with")
	f.StringArrayVarP(&o.features, "features", "O", nil, "change the features: name,^name,... (none clears all)")
	f.StringArrayVarP(&o.extended, "extended", "E", nil, "extended options: name=value,... among\n"+strings.Join(mkfs.ExtendedOptions(), ", "))
	f.Uint8VarP(&o.revision, "revision", "r", 1, "0: the format of 1993, without features")
	f.StringVarP(&o.blockSize, "block-size", "b", "", "block size: 1024 to 65536 (default: by size, 1K below 512M, else 4K)")
	f.StringVarP(&o.clusterSize, "cluster-size", "C", "", "with -O bigalloc: cluster size (default: 16 blocks)")
	f.StringVarP(&o.inodeSize, "inode-size", "I", "", "inode size: 128 to the block size (default: 256)")
	f.Uint64VarP(&o.inodes, "inodes", "N", 0, "number of inodes (instead of -i)")
	f.StringVarP(&o.ratio, "bytes-per-inode", "i", "", "make one inode for so many bytes")
	f.Uint32VarP(&o.groupSize, "group-size", "g", 0, "blocks (with bigalloc: clusters) of a group")
	f.Uint32VarP(&o.flexGroups, "flex-groups", "G", 0, "groups whose bitmaps and tables are kept together (default: 16)")
	f.StringVarP(&o.journal, "journal", "J", "", "journal: size=MEGABYTES,fast_commit_size=KILOBYTES")
	f.Float64VarP(&o.reserved, "reserved", "m", 5, "percent of the blocks kept for the superuser")
	f.StringVarP(&o.label, "label", "L", "", "volume label, at most 16 bytes")
	f.StringVarP(&o.uuid, "uuid", "U", "", "UUID (default: random)")
	f.StringVarP(&o.source, "directory", "d", "", "fill it with the content of this directory or tar archive (- reads one from stdin)")
	f.StringVar(&o.timestamp, "timestamp", "", "seconds since 1970 to take for now; with -U and -E hash_seed= two runs give the same bytes")
	f.BoolVarP(&o.direct, "direct", "D", false, "leave nothing of the image in the page cache")
	f.BoolVarP(&o.force, "force", "F", false, "format even if the image holds something")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "tell what would be made, write nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing, no progress bar either")
	f.BoolVar(&o.json, "json", false, "print JSON")
}

func newMkfsCommand() *cobra.Command {
	o := &mkfsOptions{}
	cmd := &cobra.Command{
		Use:   "mkfs IMAGE",
		Short: "make an ext2, ext3 or ext4 file system in a file or on a block device",
		Long: "Makes the file system that mkfs.ext4 makes, with the same options and the same\n" +
			"bytes. A file that does not exist is created (sparse) when -s tells its size. What\n" +
			"holds data already is refused unless -F is given; what is in use is always refused.\n" +
			"Features that extfused could not mount for writing are refused by name.",
		Example: "  extfused mkfs disk.img -s 10G\n  extfused mkfs -L data -m 0 /dev/vdb1\n" +
			"  extfused mkfs root.img -s 1G -d rootfs.tar\n  extfused mkfs old.img -s 100M -t ext3 -O ^dir_index -I 128",
		Args: exactArgs("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stdin, o.stderr = cmd.InOrStdin(), cmd.ErrOrStderr()
			return o.run(cmd.OutOrStdout(), args[0])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *mkfsOptions) run(w io.Writer, image string) error {
	if err := o.openSource(); err != nil {
		return err
	}
	defer o.closeSource()
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
	if err == nil && o.direct && !o.dryRun {
		err = dropCache(image)
	}
	if err != nil {
		return mkfsExit(image, err)
	}
	return o.print(w, image, r)
}

// formatFile formats a regular file. One that does not exist is made, and
// removed again when formatting fails. One that exists gets the length that -s
// asks for if it is shorter, and gives its bytes back to the host (unless it is
// not to be discarded), once it is certain that it may be formatted.
func (o *mkfsOptions) formatFile(image string, p mkfs.Params, exists bool) (r mkfs.Report, err error) {
	if p.Size != 0 {
		if r, err = mkfs.Plan(p.Size, p); err != nil || o.dryRun {
			return r, err
		}
	}
	if !exists {
		return o.createFile(image, p)
	}
	dev, err := blockdev.OpenFile(image, blockdev.OpenOptions{ReadOnly: o.dryRun, KeepBlocks: p.NoDiscard})
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
		if dev, err = blockdev.OpenFile(image, blockdev.OpenOptions{Size: p.Size, KeepBlocks: p.NoDiscard}); err != nil {
			return r, err
		}
	}
	if p.NoDiscard { // it keeps its blocks, and what is in them
		return o.finish(dev, p)
	}
	if err := dev.Zero(0, dev.Size()); err != nil {
		return r, err
	}
	p.Zeroed = true
	return o.finish(dev, p)
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
	return o.finish(dev, p)
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
	if p.NoDiscard {
		return o.finish(dev, p)
	}
	if err := dev.Discard(0, dev.Size()); err != nil && !errors.Is(err, blockdev.ErrNotSupported) {
		return r, err
	}
	return o.finish(dev, p)
}

// finish formats the device and fills the file system.
func (o *mkfsOptions) finish(dev blockdev.Device, p mkfs.Params) (mkfs.Report, error) {
	if p.Time.IsZero() {
		p.Time = time.Now()
	}
	r, err := mkfs.Format(dev, p)
	if err == nil && o.from.fill != nil {
		err = o.fillImage(dev, p, &r)
	}
	return r, err
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
	var source *sourceError
	if errors.As(err, &source) {
		return Exitf(ExitFailure, "%w", err)
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
	if o.quiet {
		return nil
	}
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
	fmt.Fprintf(w, "%s: %s an %s file system of %s\n", image, made, o.kind, formatSize(int64(r.Blocks)*int64(r.BlockSize)))
	fmt.Fprintf(w, "  %d blocks of %d bytes, %d reserved for the superuser\n", r.Blocks, r.BlockSize, r.ReservedBlocks)
	if r.ClusterSize != r.BlockSize {
		fmt.Fprintf(w, "  clusters of %s\n", formatSize(int64(r.ClusterSize)))
	}
	fmt.Fprintf(w, "  %d inodes of %d bytes, %d groups\n", r.Inodes, r.InodeSize, r.Groups)
	if r.JournalBlocks != 0 {
		fmt.Fprintf(w, "  journal of %d blocks\n", r.JournalBlocks)
	}
	if o.from.fill != nil && !o.dryRun {
		st := o.from.stats
		fmt.Fprintf(w, "  filled with %d files, %d directories, %d hard links, %d others: %s\n", st.Files, st.Dirs, st.Links, st.Others, formatSize(st.Bytes))
	}
	fmt.Fprintf(w, "  UUID %s\n", r.UUID)
	if r.Note != "" {
		fmt.Fprintf(w, "  note: %s\n", r.Note)
	}
	return nil
}
