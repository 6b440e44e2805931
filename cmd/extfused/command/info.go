package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"extfused/blockdev"
	"extfused/fs/info"
	"extfused/fs/ondisk"
)

type infoOptions struct {
	json     bool
	noGroups bool
	features bool
	offset   string
}

// AddFlags registers the flags of `extfused info`.
func (o *infoOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.noGroups, "no-groups", false, "leave the table of block groups out")
	cmd.Flags().BoolVar(&o.features, "features", false, "no image: which features of ext4 are read, written, and made by mkfs")
	cmd.Flags().StringVar(&o.offset, "offset", "0", "where in the image the file system starts, in bytes (or with K, M, G)")
}

func newInfoCommand() *cobra.Command {
	o := &infoOptions{}
	cmd := &cobra.Command{
		Use:   "info IMAGE",
		Short: "describe an ext4 image: superblock, features, journal, block groups",
		Long: "Shows what dumpe2fs shows, in its words. The image is opened for reading only,\n" +
			"and may be in use: then what it shows may be a moment old.",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !o.features:
				return exactArgs("IMAGE")(cmd, args)
			case len(args) > 0:
				return Exitf(ExitUsage, "--features takes no image")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.features {
				return o.printFeatures(cmd.OutOrStdout())
			}
			return o.run(cmd.OutOrStdout(), args[0])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// printFeatures prints the table of docs/ONDISK.md.
func (o *infoOptions) printFeatures(w io.Writer) error {
	if !o.json {
		return info.WriteFeatures(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(info.FeatureTable())
}

func (o *infoOptions) run(w io.Writer, image string) error {
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
	i, err := info.Read(part, info.Options{Groups: !o.noGroups})
	if err != nil {
		return infoExit(image, err)
	}
	out := bufio.NewWriter(w)
	if o.json {
		err = writeInfoJSON(out, i)
	} else {
		writeInfoText(out, i)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func infoExit(image string, err error) error {
	if errors.Is(err, ondisk.ErrNotExt4) || errors.Is(err, ondisk.ErrTruncated) || isCorrupt(err) {
		return Exitf(ExitNotExt4, "%s: %w", image, err)
	}
	return Exitf(ExitFailure, "%s: %w", image, err)
}

func writeInfoText(w io.Writer, i *info.Info) {
	for _, l := range i.Summary() {
		fmt.Fprintf(w, "%-25s %s\n", l.Key+":", l.Text)
	}
	for _, u := range i.Unreadable {
		fmt.Fprintf(w, "%-25s %s\n", "Damaged:", u)
	}
	if len(i.Groups) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%6s %12s %12s %7s %7s %6s %7s %12s %12s %12s %6s  %s\n", "group", "first", "last", "free", "inodes", "dirs", "unused",
		"bitmap", "inode bitmap", "inode table", "csum", "flags")
	for k := range i.Groups {
		g := &i.Groups[k]
		fmt.Fprintf(w, "%6d %12d %12d %7d %7d %6d %7d %12d %12d %12d 0x%04x  %s\n", g.Number, g.First, g.Last, g.FreeClusters, g.FreeInodes,
			g.UsedDirs, g.ItableUnused, g.BlockBitmap, g.InodeBitmap, g.InodeTable, g.Checksum, strings.Join(groupFlags(g), ","))
	}
}

// groupFlags are a group's flags, and what is to be known beside them.
func groupFlags(g *info.Group) []string {
	out := g.FlagNames()
	if g.Super {
		out = append(out, "super")
	}
	if !g.CsumOK {
		out = append(out, "BAD CHECKSUM")
	}
	return out
}

type groupJSON struct {
	Group        ondisk.GroupNumber `json:"group"`
	First        ondisk.FsBlock     `json:"first_block"`
	Last         ondisk.FsBlock     `json:"last_block"`
	Super        bool               `json:"superblock"`
	BlockBitmap  ondisk.FsBlock     `json:"block_bitmap"`
	InodeBitmap  ondisk.FsBlock     `json:"inode_bitmap"`
	InodeTable   ondisk.FsBlock     `json:"inode_table"`
	TableBlocks  uint32             `json:"inode_table_blocks"`
	FreeClusters uint32             `json:"free_clusters"`
	FreeInodes   uint32             `json:"free_inodes"`
	UsedDirs     uint32             `json:"directories"`
	ItableUnused uint32             `json:"unused_inodes"`
	Checksum     uint16             `json:"checksum"`
	CsumOK       bool               `json:"checksum_ok"`
	Flags        []string           `json:"flags"`
}

// writeInfoJSON writes the summary as one object, whose names are dumpe2fs's
// in lower case with underscores, and the groups as a list.
func writeInfoJSON(w io.Writer, i *info.Info) error {
	summary := map[string]any{}
	for _, l := range i.Summary() {
		summary[jsonKey(l.Key)] = l.JSON
	}
	groups := make([]groupJSON, 0, len(i.Groups))
	for _, g := range i.Groups {
		groups = append(groups, groupJSON{g.Number, g.First, g.Last, g.Super, g.BlockBitmap, g.InodeBitmap, g.InodeTable, g.TableBlocks,
			g.FreeClusters, g.FreeInodes, g.UsedDirs, g.ItableUnused, g.Checksum, g.CsumOK, append([]string{}, g.FlagNames()...)})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(map[string]any{
		"superblock": summary, "superblock_checksum_ok": i.SuperCsum, "groups": groups, "damaged": append([]string{}, i.Unreadable...),
	})
}

func jsonKey(s string) string {
	s = strings.ToLower(strings.NewReplacer(" #", "", " ", "_").Replace(s))
	return s
}
