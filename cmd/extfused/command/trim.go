package command

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"extfused/cmd/extfused/daemon"
)

type trimOptions struct {
	minLen string
}

// AddFlags registers the flags of `extfused trim`.
func (o *trimOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.minLen, "minlen", "m", "0", "leave shorter runs of free space alone, in bytes (or with K, M, G)")
}

func newTrimCommand() *cobra.Command {
	o := &trimOptions{}
	cmd := &cobra.Command{
		Use:   "trim MOUNTPOINT",
		Short: "tell the device of the image what is free; shrinks an image file to what it holds",
		Long: "Punches holes into an image file, or discards on a block device, wherever the file system is free.\n" +
			"Groups that were trimmed since the mount, and into which nothing was freed since, are passed over.",
		Args: exactArgs("MOUNTPOINT"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *trimOptions) run(w io.Writer, path string) error {
	minLen, err := parseSize(o.minLen)
	if err != nil {
		return Exitf(ExitUsage, "--minlen: %w", err)
	}
	m, err := findMount(path)
	if err != nil {
		return err
	}
	if err := writeBack(m.Point); err != nil {
		return Exitf(ExitFailure, "%s: %w", path, err)
	}
	var t daemon.Trimmed
	if err := ask(path, "trim", map[string]string{"minlen": strconv.FormatInt(minLen, 10)}, &t); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %s (%d bytes) trimmed\n", path, formatSize(int64(t.Bytes)), t.Bytes)
	return err
}
