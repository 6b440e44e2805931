package command

import (
	"github.com/spf13/cobra"
)

// newBenchCommand groups the measurements that need no mount.
func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure the allocator in this process, without a mount",
		Args:  exactArgs("alloc|seeds"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Exitf(ExitUsage, "unknown benchmark %q; try: extfused bench alloc, extfused bench seeds", args[0])
		},
	}
	cmd.AddCommand(newBenchAllocCommand(), newBenchSeedsCommand())
	return cmd
}
