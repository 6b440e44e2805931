package command

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is the released version; the linker may overwrite it (-ldflags -X).
var Version = "0.1.0-dev"

type versionOptions struct {
	json bool
}

// AddFlags registers the flags of `extfused version`.
func (o *versionOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
}

func newVersionCommand() *cobra.Command {
	o := &versionOptions{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  exactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *versionOptions) run(w io.Writer) error {
	if o.json {
		return json.NewEncoder(w).Encode(map[string]string{
			"version": Version, "revision": revision(), "go": runtime.Version(),
		})
	}
	_, err := fmt.Fprintf(w, "extfused %s%s (%s)\n", Version, revisionSuffix(), runtime.Version())
	return err
}

// revision is the version control revision that the binary was built from, or "".
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func revisionSuffix() string {
	if r := revision(); len(r) >= 12 {
		return " " + r[:12]
	}
	return ""
}
