package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"extfused/cmd/extfused/daemon"
	"extfused/fs/fusefs"
	"extfused/metrics"
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
		Use:   "stats MOUNTPOINT [VIEW]",
		Short: "show what a mount has done: requests by kind, views of the allocator, and more with --json",
		Long:  "Without VIEW shows the FUSE requests by kind. The views are\n\n" + viewHelp(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return Exitf(ExitUsage, "expected MOUNTPOINT [VIEW]; try: %s --help", cmd.CommandPath())
			}
			if o.json && len(args) == 2 {
				return Exitf(ExitUsage, "a view has no --json: stats MOUNTPOINT --json prints all figures")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return runView(cmd.OutOrStdout(), args[0], args[1])
			}
			return o.run(cmd.OutOrStdout(), args[0])
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func viewHelp() string {
	var b strings.Builder
	for _, v := range metrics.Views {
		fmt.Fprintf(&b, "  %-20s %s\n", v.Name, v.What)
	}
	return b.String()
}

// runView prints one view.
func runView(w io.Writer, path, name string) error {
	var text string
	if err := ask(path, "view", map[string]string{"name": name}, &text); err != nil {
		return err
	}
	_, err := io.WriteString(w, text)
	return err
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
