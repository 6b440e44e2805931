package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// isMountHelper tells whether the program was called by mount(8), which looks
// for mount.TYPE; for fuse.SUBTYPE it looks for mount.fuse.SUBTYPE.
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

// helperArgs is what mount(8) passes: SPEC DIR [-sfnv] [-N namespace]
// [-o options] [-t type.subtype].
type helperArgs struct {
	spec, dir string
	options   []string
	fake      bool // -f: do everything but mount
	verbose   bool
}

// parseHelperArgs reads them; they come in any order.
func parseHelperArgs(args []string) (h helperArgs, err error) {
	var names []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			names = append(names, a)
			continue
		}
		for j := 1; j < len(a); j++ {
			switch a[j] {
			case 's', 'n': // sloppy options; no mtab: nothing to do
			case 'f':
				h.fake = true
			case 'v':
				h.verbose = true
			case 'o', 't', 'N':
				value := a[j+1:]
				if value == "" {
					if i++; i == len(args) {
						return h, Exitf(ExitUsage, "-%c needs a value", a[j])
					}
					value = args[i]
				}
				if a[j] == 'o' {
					h.options = append(h.options, value)
				}
				j = len(a)
			default:
				return h, Exitf(ExitUsage, "unknown flag -%c (arguments are those of mount(8) helpers)", a[j])
			}
		}
	}
	if len(names) != 2 {
		return h, Exitf(ExitUsage, "expected SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]")
	}
	h.spec, h.dir = names[0], names[1]
	return h, nil
}

// runMountHelper mounts as mount(8) asks. Options extfused.metrics=,
// extfused.log-level= and extfused.log-file= stand for the flags of
// `extfused mount`.
func runMountHelper(args []string, stdout, stderr io.Writer) error {
	h, err := parseHelperArgs(args)
	if err != nil {
		return err
	}
	o := &mountCmdOptions{options: h.options, logLevel: "info"}
	o.takeHelperOptions()
	if h.fake {
		_, err := o.config(h.spec, h.dir)
		return err
	}
	if h.verbose {
		fmt.Fprintf(stdout, "extfused: mounting %s at %s\n", h.spec, h.dir)
	}
	cmd := &cobra.Command{}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return o.run(cmd, h.spec, h.dir)
}

// takeHelperOptions takes out flags that are spelled as mount options. With x-
// before them they are accepted, too, but mount(8) of util-linux passes nothing
// on that starts so.
func (o *mountCmdOptions) takeHelperOptions() {
	for i, list := range o.options {
		var rest []string
		for opt := range strings.SplitSeq(list, ",") {
			name, value, _ := strings.Cut(opt, "=")
			switch strings.TrimPrefix(name, "x-") {
			case "extfused.metrics":
				o.metrics = value
			case "extfused.log-level":
				o.logLevel = value
			case "extfused.log-file":
				o.logFile = value
			default:
				rest = append(rest, opt)
			}
		}
		o.options[i] = strings.Join(rest, ",")
	}
}
