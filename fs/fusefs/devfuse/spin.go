package devfuse

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A program that works on files sends its next request some microseconds after
// the answer to the last one. Putting the reader to sleep for that time and
// waking it costs both sides more than the time itself, most of all on a
// virtual machine, where a processor that has nothing to do is left to the
// host. So the leader looks for the next request for a short while before it
// sleeps, as long as requests come that fast, and from one caller: several of
// them have a better use for the processor.

// spinTime is how long the leader looks at most.
const spinTime = 50 * time.Microsecond

// wakeTime is what falling asleep and waking up adds to a gap between requests
// that has been slept through.
const wakeTime = 50 * time.Microsecond

// Bounds of spinner.score: a request that came within spinTime adds 1, another
// one takes away missCost.
const (
	spinFrom = 4
	spinMost = 16
	missCost = 4
)

// spinner knows whether looking pays. It has no lock: a count that is lost
// between two readers does no harm.
type spinner struct {
	off     bool // there is one processor, which the caller needs
	several atomic.Bool
	score   atomic.Int32
}

func newSpinner() spinner { return spinner{off: runtime.NumCPU() < 2 || runtime.GOMAXPROCS(0) < 2} }

// look tells whether to look once more for a request, after nothing has been
// there since idle. Whoever else wants the processor gets it first.
func (s *spinner) look(idle time.Time) bool {
	if s.off || s.several.Load() || s.score.Load() < spinFrom || time.Since(idle) > spinTime {
		return false
	}
	unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return true
}

// found notes that a request has come, after nothing had been there since
// idle, and whether its reader slept.
func (s *spinner) found(idle time.Time, slept bool) {
	within := spinTime
	if slept {
		within += wakeTime
	}
	score := s.score.Load()
	switch {
	case time.Since(idle) <= within:
		score = min(score+1, spinMost)
	default:
		score = max(score-missCost, 0)
	}
	s.score.Store(score)
}
