package command

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"extfused/mballoc/allocbench"
)

type benchAllocOptions struct {
	allocbench.Config
	tar  string
	json bool
}

// AddFlags registers the flags of `extfused bench alloc`.
func (o *benchAllocOptions) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Workload, "workload", "fallocate2", strings.Join(allocbench.Workloads(), ", "))
	f.IntVar(&o.Groups, "groups", 128, "block groups of 8 * block size blocks")
	f.IntVar(&o.BlockSize, "block-size", 4096, "bytes, 1024 to 65536")
	f.IntVar(&o.Procs, "procs", runtime.NumCPU(), "workers")
	f.DurationVar(&o.Duration, "duration", 2*time.Second, "how long to run; untar finishes its first round")
	f.DurationVar(&o.CommitInterval, "commit", allocbench.DefaultCommitInterval, "time between commits, after which freed space can be used again")
	f.StringArrayVar(&o.Set, "set", nil, "tunable, NAME=VALUE (mb_optimize_scan=0, ...); can be repeated")
	f.StringVar(&o.tar, "tar", "", "take untar's file sizes from this archive (.tar, .tar.gz, - for stdin)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random choices")
	f.BoolVar(&o.json, "json", false, "print JSON")
}

func newBenchAllocCommand() *cobra.Command {
	o := &benchAllocOptions{}
	cmd := &cobra.Command{
		Use:   "alloc",
		Short: "run an allocation workload on a simulated geometry",
		Args:  exactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.InOrStdin(), cmd.OutOrStdout()) },
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *benchAllocOptions) run(stdin io.Reader, w io.Writer) error {
	if o.tar != "" {
		r, close, err := openTar(o.tar, stdin)
		if err != nil {
			return err
		}
		defer close()
		o.Tar = r
	}
	report, err := allocbench.Run(o.Config)
	if err != nil {
		return benchError(err)
	}
	if o.json {
		return json.NewEncoder(w).Encode(report)
	}
	return report.WriteText(w)
}

// benchError says how bad arguments end.
func benchError(err error) error {
	if errors.Is(err, allocbench.ErrConfig) {
		return Exitf(ExitUsage, "%w", err)
	}
	return err
}

// openTar opens an archive that may be compressed with gzip.
func openTar(name string, stdin io.Reader) (r io.Reader, close func(), err error) {
	if name == "-" {
		return stdin, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasSuffix(name, "gz") {
		return f, func() { f.Close() }, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return z, func() { f.Close() }, nil
}
