// Command testsum reads `go test -json` on its standard input and prints what
// a person wants to know: the output of failed tests, each skipped test with
// its reason, and the closing line of each package as go test prints it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is a line of test2json, see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type key struct{ pkg, test string }

type summary struct {
	w       io.Writer
	output  map[key]*strings.Builder
	passed  int
	skipped int
	failed  int
	bad     bool // a package failed
}

func main() {
	s := &summary{w: os.Stdout, output: map[key]*strings.Builder{}}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if s.bad {
		os.Exit(1)
	}
}

// read takes a whole stream and ends with the counts.
func (s *summary) read(r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		s.line(in.Bytes())
	}
	fmt.Fprintf(s.w, "%d tests passed, %d skipped, %d failed\n", s.passed, s.skipped, s.failed)
	return in.Err()
}

// line takes one line; what is not an event (build errors of old go commands)
// is printed as it is.
func (s *summary) line(b []byte) {
	var e event
	if json.Unmarshal(b, &e) != nil || e.Action == "" {
		fmt.Fprintf(s.w, "%s\n", b)
		return
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		if s.output[k] == nil {
			s.output[k] = new(strings.Builder)
		}
		s.output[k].WriteString(e.Output)
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "pass", "skip", "fail":
		s.end(k, e.Action)
	}
}

func (s *summary) end(k key, action string) {
	var out string
	if b := s.output[k]; b != nil {
		out = b.String()
	}
	delete(s.output, k)
	switch {
	case k.test == "":
		s.endPackage(out, action)
	case action == "skip":
		s.skipped++
		fmt.Fprintf(s.w, "SKIP %s %s: %s\n", k.pkg, k.test, reason(out))
	case action == "fail":
		s.failed++
		fmt.Fprintf(s.w, "FAIL %s %s\n%s", k.pkg, k.test, out)
	default:
		s.passed++
	}
}

// endPackage prints a package's closing lines; of a failed one all it said.
func (s *summary) endPackage(out, action string) {
	if action == "fail" {
		s.bad = true
		fmt.Fprint(s.w, out)
		return
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "?  ") || strings.HasPrefix(line, "coverage") {
			fmt.Fprint(s.w, line)
		}
	}
}

// reason is what a test said before it skipped.
func reason(out string) string {
	var said []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, after, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(after, ": "); ok {
				line = text
			}
		}
		said = append(said, line)
	}
	return strings.Join(said, "; ")
}
