package command

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"extfused/mballoc/allocbench"
)

type benchSeedsOptions struct {
	allocbench.SeedsConfig
	json bool
}

// AddFlags registers the flags of `extfused bench seeds`.
func (o *benchSeedsOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&o.Duration, "duration", time.Second, "of each timed measurement")
	f.IntSliceVar(&o.Workers, "procs", []int{1, 2, 8, 64}, "worker counts of the rows that scale")
	f.StringSliceVar(&o.Seeds, "seed", nil, "only these: S1, S2, S3, S4, S5")
	f.BoolVar(&o.json, "json", false, "print JSON")
}

func newBenchSeedsCommand() *cobra.Command {
	o := &benchSeedsOptions{}
	cmd := &cobra.Command{
		Use:   "seeds",
		Short: "measure each result the allocator is founded on, before and after, in one table",
		Args:  exactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *benchSeedsOptions) run(w io.Writer) error {
	rows, err := allocbench.Seeds(o.SeedsConfig)
	if err != nil {
		return benchError(err)
	}
	if o.json {
		return allocbench.WriteJSON(w, rows)
	}
	return allocbench.WriteTable(w, rows)
}
