//go:build race

package mballoc_test

// slow divides the work of long tests under the race detector.
const slow = 20
