package command

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress draws a bar on a terminal, and nothing anywhere else.
type progress struct {
	w     io.Writer // nil: nowhere
	what  string
	next  time.Time // when to draw again
	drawn bool
}

// barWidth is the width of a full bar in characters, and barPause the time
// between two drawings.
const (
	barWidth = 40
	barPause = 100 * time.Millisecond
)

func newProgress(w io.Writer, what string, off bool) *progress {
	p := &progress{what: what}
	if !off && isTerminal(w) {
		p.w = w
	}
	return p
}

// set says how much is done, of total bytes (0: unknown).
func (p *progress) set(done, total int64) {
	if p.w == nil {
		return
	}
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(barPause)
	p.drawn = true
	fmt.Fprint(p.w, "\r"+barText(p.what, done, total)+"\x1b[K")
}

// end takes the bar away.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// barText is the bar: filling [#####-----] 50% 1 GiB of 2 GiB.
func barText(what string, done, total int64) string {
	if total <= 0 {
		return fmt.Sprintf("%s: %s", what, formatSize(done))
	}
	done = min(max(done, 0), total)
	full := int(float64(done) / float64(total) * barWidth)
	return fmt.Sprintf("%s [%s%s] %d%% %s of %s", what, strings.Repeat("#", full), strings.Repeat("-", barWidth-full),
		int(float64(done)/float64(total)*100), formatSize(done), formatSize(total))
}
