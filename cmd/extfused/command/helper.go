package command

import (
	"io"
)

// isMountHelper tells whether the program was called by mount(8) under the
// name that it looks for: mount.TYPE or mount.fuse.SUBTYPE.
func isMountHelper(name string) bool {
	return name == "mount.extfused" || name == "mount.fuse.extfused"
}

// mountHelperExit maps our exit codes to those mount(8) documents: 1 for a
// wrong invocation or missing permission, 32 for a failed mount.
func mountHelperExit(err error) int {
	switch ExitCode(err) {
	case ExitOK:
		return 0
	case ExitUsage, ExitPermission:
		return 1
	}
	return 32
}

func runMountHelper(args []string, stdout, stderr io.Writer) error {
	return Exitf(ExitFailure, "mount is not in this build yet")
}
