package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestSummary feeds a stream with one test of each end.
func TestSummary(t *testing.T) {
	var in strings.Builder
	add := func(action, test, output string) {
		fmt.Fprintf(&in, "{\"Action\":%q,\"Package\":\"p\",\"Test\":%q,\"Output\":%q}\n", action, test, output)
	}
	add("output", "TestGood", "=== RUN   TestGood\n")
	add("pass", "TestGood", "")
	add("output", "TestSkips", "    a_test.go:3: no loop device: here\n")
	add("skip", "TestSkips", "")
	add("output", "TestBad", "    a_test.go:9: wrong\n")
	add("fail", "TestBad", "")
	add("output", "", "FAIL\tp\t0.1s\n")
	add("fail", "", "")
	in.WriteString("not an event\n")
	var out strings.Builder
	s := &summary{w: &out, output: map[key]*strings.Builder{}}
	if err := s.read(strings.NewReader(in.String())); err != nil {
		t.Fatal(err)
	}
	want := "SKIP p TestSkips: no loop device: here\n" +
		"FAIL p TestBad\n    a_test.go:9: wrong\n" +
		"FAIL\tp\t0.1s\n" +
		"not an event\n" +
		"1 tests passed, 1 skipped, 1 failed\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if !s.bad {
		t.Error("a failed package is not noticed")
	}
}
