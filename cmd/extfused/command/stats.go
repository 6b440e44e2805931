package command

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"extfused/cmd/extfused/daemon"
	"extfused/fs/fusefs"
)

type statsOptions struct {
	json bool
}

// AddFlags registers the flags of `extfused stats`.
func (o *statsOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print all figures as JSON")
}

func newStatsCommand() *cobra.Command {
	o := &statsOptions{}
	cmd := &cobra.Command{
		Use:   "stats MOUNTPOINT",
		Short: "show what a mount has done: requests by kind, and more with --json",
		Args:  exactArgs("MOUNTPOINT"),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *statsOptions) run(w io.Writer, path string) error {
	var raw json.RawMessage
	if err := ask(path, "stats", nil, &raw); err != nil {
		return err
	}
	if o.json {
		_, err := fmt.Fprintf(w, "%s\n", raw)
		return err
	}
	var s daemon.Stats
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return printRequests(w, &s.FUSE)
}

func printRequests(w io.Writer, s *fusefs.Stats) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "op\trequests\terrors\tnegative\tmean\t\n")
	for i := range s.Ops {
		if op := &s.Ops[i]; op.Requests > 0 {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%v\t\n", fusefs.Op(i), op.Requests, op.Errors, op.Negative, op.Mean())
		}
	}
	fmt.Fprintf(t, "all\t%d\t\t\t\t\n", s.Requests())
	return t.Flush()
}
