// Package command holds extfused's command line: one file per sub-command,
// each with an options struct, its AddFlags, a constructor and a run function
// which writes to cmd.OutOrStdout().
package command

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Main runs the command line args (args[0] is the program's name) and returns
// the exit code. It prints an error as one line on stderr.
func Main(args []string, stdout, stderr io.Writer) int {
	name := filepath.Base(args[0])
	if isMountHelper(name) {
		err := runMountHelper(args[1:], stdout, stderr)
		printError(stderr, name, err)
		return mountHelperExit(err)
	}
	root := NewRoot()
	root.SetArgs(args[1:])
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	printError(stderr, errorPrefix(cmd), err)
	return ExitCode(err)
}

// NewRoot builds the root command with every sub-command.
func NewRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "extfused",
		Short:         "ext4 in user space: mounts, formats and describes real ext4 images",
		SilenceUsage:  true,
		SilenceErrors: true,
		// Arguments of the root are names of commands that do not exist.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Exitf(ExitUsage, "unknown command %q; try: extfused help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Exitf(ExitUsage, "%w; try: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		newBenchCommand(),
		newFragCommand(),
		newInfoCommand(),
		newJournalCommand(),
		newMkfsCommand(),
		newMountCommand(),
		newSetCommand(),
		newStatsCommand(),
		newSyncCommand(),
		newTrimCommand(),
		newUmountCommand(),
		newVersionCommand(),
	)
	return root
}

// exactArgs is cobra.ExactArgs with our exit code and the names of what is
// expected, for example exactArgs("IMAGE", "MOUNTPOINT").
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return Exitf(ExitUsage, "expected %s; try: %s --help", strings.Join(names, " "), cmd.CommandPath())
		}
		return nil
	}
}

// errorPrefix is what an error line starts with, "extfused mount".
func errorPrefix(cmd *cobra.Command) string {
	if cmd == nil {
		return "extfused"
	}
	return cmd.CommandPath()
}

// printError writes err as exactly one line.
func printError(w io.Writer, prefix string, err error) {
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintf(w, "%s: %s\n", prefix, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	}
}
