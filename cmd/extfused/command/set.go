package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"extfused/cmd/extfused/daemon"
)

type setOptions struct {
	json bool
}

// AddFlags registers the flags of `extfused set`.
func (o *setOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "list the tunables as JSON")
}

func newSetCommand() *cobra.Command {
	o := &setOptions{}
	cmd := &cobra.Command{
		Use:   "set MOUNTPOINT [NAME=VALUE...]",
		Short: "list or change the allocator's tunables of a mount",
		Long: "Without NAME=VALUE lists the tunables: ext4's names, their values now, ext4's defaults for such a\n" +
			"file system, and the range. With some, changes all of them, or none if one is wrong; new values hold\n" +
			"from the next allocation on, until the mount ends (the mount options of the same names set them from the start).",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Exitf(ExitUsage, "expected MOUNTPOINT [NAME=VALUE...]; try: %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.OutOrStdout(), args[0], args[1:]) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *setOptions) run(w io.Writer, path string, assignments []string) error {
	args := map[string]string{}
	for _, a := range assignments {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" || value == "" {
			return Exitf(ExitUsage, "expected NAME=VALUE, not %q", a)
		}
		args[name] = value
	}
	var list []daemon.Tunable
	if err := ask(path, "set", args, &list); err != nil {
		return err
	}
	switch {
	case o.json:
		return json.NewEncoder(w).Encode(list)
	case len(args) > 0:
		return nil
	}
	return printTunables(w, list)
}

func printTunables(w io.Writer, list []daemon.Tunable) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "name\tvalue\tdefault\trange\n")
	for _, v := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t0 to %d\n", v.Name, v.Value, v.Default, v.Max)
	}
	return t.Flush()
}
