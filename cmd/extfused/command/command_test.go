package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"extfused/cmd/extfused/daemon"
	"extfused/fs/ext4"
)

func run(args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = Main(append([]string{"extfused"}, args...), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestVersion(t *testing.T) {
	if code, out, errOut := run("version"); code != 0 || !strings.HasPrefix(out, "extfused "+Version) || errOut != "" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	if code, out, _ := run("version", "--json"); code != 0 || !strings.Contains(out, `"version":"`+Version) {
		t.Errorf("exit %d, %q", code, out)
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	_, out, _ := run("--help")
	for _, c := range NewRoot().Commands() {
		if c.Hidden {
			continue
		}
		if !strings.Contains(out, c.Name()) {
			t.Errorf("help does not mention %s", c.Name())
		}
		if code, _, errOut := run(c.Name(), "--no-such-flag"); code != ExitUsage || !strings.Contains(errOut, "no-such-flag") {
			t.Errorf("%s --no-such-flag: exit %d, %q; want %d", c.Name(), code, errOut, ExitUsage)
		}
	}
}

// TestExitCodesAreDocumented compares README.md with the constants.
func TestExitCodesAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("exit.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^\tExit\w+\s+= (\d+)`).FindAllSubmatch(source, -1)
	if len(codes) < 10 {
		t.Fatalf("only %d codes found in exit.go", len(codes))
	}
	for _, c := range codes {
		if row := fmt.Sprintf("\n| %s |", c[1]); !bytes.Contains(readme, []byte(row)) {
			t.Errorf("README.md has no row for exit code %s", c[1])
		}
	}
}

// TestMountOptionsAreDocumented does the same for mount options.
func TestMountOptionsAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range mountOptions {
		if !bytes.Contains(readme, []byte("`"+name)) {
			t.Errorf("README.md does not mention the mount option %s", name)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errors.New("x"), ExitFailure},
		{fmt.Errorf("more: %w", Exitf(ExitInUse, "x")), ExitInUse},
		{imageExit(fmt.Errorf("x: %w", ext4.ErrUnsupported)), ExitFeature},
		{imageExit(fmt.Errorf("x: %w", os.ErrPermission)), ExitPermission},
		{mountExit(&daemon.FUSEError{Text: "x"}), ExitNoFUSE},
		{mountExit(&daemon.MountpointError{Path: "/x", Err: daemon.ErrBusy}), ExitBusy},
		{mountExit(&daemon.MountpointError{Path: "/x", Err: daemon.ErrNoMountpoint}), ExitMountpoint},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.want)
		}
	}
}

func parseOptions(t *testing.T, lists ...string) daemon.Config {
	t.Helper()
	var c daemon.Config
	if err := parseMountOptions(&c, lists); err != nil {
		t.Fatalf("%v: %v", lists, err)
	}
	return c
}

func TestMountOptions(t *testing.T) {
	c := parseOptions(t, "ro,noload,commit=30,errors=remount-ro,discard,noatime", "offset=1M,mb_optimize_scan=0,stripe=16,resuid=65534,nosuid,allow_other")
	switch {
	case !c.FS.ReadOnly, !c.FS.NoLoad, c.FS.Commit != 30*time.Second, c.FS.Errors != ext4.ErrorsRemountRO, !c.FS.Discard:
		t.Errorf("ext4 options: %+v", c.FS)
	case c.Offset != 1<<20, c.FS.Mballoc["mb_optimize_scan"] != "0", c.FS.Mballoc["stripe"] != "16", *c.FS.ResUID != 65534, !c.AllowOther:
		t.Errorf("options: %+v", c)
	case c.MountFlags != unix.MS_RDONLY|unix.MS_NOATIME|unix.MS_NOSUID:
		t.Errorf("flags: %#x", c.MountFlags)
	case !slices.Equal(c.MountOptions, []string{"ro", "nosuid", "noatime"}):
		t.Errorf("words: %v", c.MountOptions)
	}
}

func TestLaterMountOptionsWin(t *testing.T) {
	c := parseOptions(t, "ro,nosuid,discard,barrier=0", "rw,suid,nodiscard,barrier=1")
	if c.FS.ReadOnly || c.MountFlags != 0 || c.FS.Discard || c.FS.NoBarrier {
		t.Errorf("%+v", c)
	}
	if c := parseOptions(t, "barrier"); c.FS.NoBarrier {
		t.Error("barrier without a value turned it off")
	}
}

func TestHarmlessMountOptions(t *testing.T) {
	for o := range harmless {
		parseOptions(t, o)
	}
	parseOptions(t, "defaults,_netdev,nofail,noauto,x-systemd.automount,x-systemd.device-timeout=5,comment=hi,acl,user_xattr,delalloc,relatime,user=me")
}

func TestBadMountOptions(t *testing.T) {
	for _, o := range []string{"frob", "commit=x", "commit=-1", "commit", "errors=", "data=fast", "mb_frob=1", "mb_stats=x", "resuid=4294967296",
		"offset=-1", "offset=9999999T", "ro=1", "noload", "sb=32768", "barrier=2"} {
		var c daemon.Config
		err := parseMountOptions(&c, []string{o})
		name, _, _ := strings.Cut(o, "=")
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v (exit %d); want exit %d, and the option named", o, err, ExitCode(err), ExitUsage)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "512": 512, "1k": 1 << 10, "3M": 3 << 20, "2G": 2 << 30, "1T": 1 << 40} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "M", "1X", "-1", "1.5M", "16777216T"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%s: %d, want an error", in, got)
		}
	}
}

func TestHelperArgs(t *testing.T) {
	for _, args := range [][]string{
		{"img", "dir", "-o", "ro,nofail", "-n"},
		{"-sn", "img", "-t", "fuse.extfused", "dir", "-oro,nofail"},
		{"-N", "/proc/1/ns/mnt", "-o", "ro,nofail", "img", "dir"},
	} {
		h, err := parseHelperArgs(args)
		if err != nil || h.spec != "img" || h.dir != "dir" || !slices.Equal(h.options, []string{"ro,nofail"}) {
			t.Errorf("%v: %+v, %v", args, h, err)
		}
	}
	if h, err := parseHelperArgs([]string{"-fv", "img", "dir"}); err != nil || !h.fake || !h.verbose {
		t.Errorf("%+v, %v", h, err)
	}
	for _, args := range [][]string{{}, {"img"}, {"img", "dir", "more"}, {"img", "dir", "-o"}, {"img", "dir", "-x"}} {
		if _, err := parseHelperArgs(args); ExitCode(err) != ExitUsage {
			t.Errorf("%v: %v, want a usage error", args, err)
		}
	}
}

// mount(8) keeps x- options to itself: the flags need names without.
func TestHelperTakesFlagsOutOfOptions(t *testing.T) {
	for _, x := range []string{"", "x-"} {
		o := &mountCmdOptions{options: []string{"ro," + x + "extfused.metrics=[::1]:1,noatime", x + "extfused.log-level=warn," + x + "extfused.log-file=/l"}}
		o.takeHelperOptions()
		if o.metrics != "[::1]:1" || o.logLevel != "warn" || o.logFile != "/l" || !slices.Equal(o.options, []string{"ro,noatime", ""}) {
			t.Errorf("%q: %+v", x, o)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	var b bytes.Buffer
	printError(&b, "extfused x", errors.New("first\nsecond\n"))
	if b.String() != "extfused x: first; second\n" {
		t.Errorf("%q", b.String())
	}
}
