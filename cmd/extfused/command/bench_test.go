package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// bench runs the real root command.
func bench(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = Main(append([]string{"extfused", "bench"}, args...), &out, &errs)
	return out.String(), errs.String(), code
}

func TestBenchAlloc(t *testing.T) {
	out, errs, code := bench("alloc", "--workload", "stream", "--groups", "16", "--procs", "2", "--duration", "10ms", "--set", "mb_optimize_scan=0", "--json")
	var report struct {
		Workload string `json:"workload"`
		Ops      uint64 `json:"ops"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != ExitOK || errs != "" || report.Workload != "stream" || report.Ops == 0 {
		t.Errorf("%v, exit %d, %s%s", err, code, out, errs)
	}
	out, _, code = bench("alloc", "--duration", "5ms")
	if code != ExitOK || !strings.HasPrefix(out, "fallocate2: 128 groups, 4096 byte blocks") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestBenchSeeds(t *testing.T) {
	out, errs, code := bench("seeds", "--seed", "S2", "--duration", "5ms", "--procs", "1")
	if code != ExitOK || errs != "" || strings.Count(out, "\nS2") != 4 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestBenchBadArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"nothing"}, {"alloc", "x"}, {"alloc", "--workload", "x"}, {"alloc", "--groups", "0"}, {"alloc", "--block-size", "5000"},
		{"alloc", "--procs", "0"}, {"alloc", "--set", "mb_stats"}, {"alloc", "--set", "mb_stats=9"}, {"seeds", "--seed", "S7"}, {"seeds", "--procs", "0"}} {
		out, errs, code := bench(args...)
		if code != ExitUsage || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("bench %v: exit %d, %q, %q", args, code, out, errs)
		}
	}
	if _, errs, code := bench("alloc", "--workload", "untar", "--tar", "/nonexistent.tar"); code == ExitOK || !strings.Contains(errs, "/nonexistent.tar") {
		t.Errorf("exit %d, %q", code, errs)
	}
}
