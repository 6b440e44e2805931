package command

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newSyncCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sync MOUNTPOINT",
		Short: "make everything written so far durable",
		Long: "Makes the kernel write back what it holds for the mount, then commits.\n" +
			"sync(1) alone does the first half: the kernel does not tell a FUSE server about it.",
		Args: exactArgs("MOUNTPOINT"),
		RunE: func(_ *cobra.Command, args []string) error { return runSync(args[0]) },
	}
}

func runSync(path string) error {
	m, err := findMount(path)
	if err != nil {
		return err
	}
	if err := writeBack(m.Point); err != nil {
		return Exitf(ExitFailure, "%s: %w", path, err)
	}
	return ask(path, "sync", nil, nil)
}

// writeBack makes the kernel send dirty pages of the mount to the daemon.
func writeBack(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(dir.Fd())))
}
