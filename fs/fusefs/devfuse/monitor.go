package devfuse

import "time"

// tick is how often the monitor looks while requests flow. A request that
// blocks its reader holds up others for two ticks at most.
const tick = time.Millisecond

// quietTicks is after how many ticks without a request the monitor sleeps
// until the next one.
const quietTicks = 8

// monitor adds a reader when nobody has waited for requests at two ticks
// running: the readers are busy, or blocked.
func (c *conn) monitor() {
	defer c.all.Done()
	timer := time.NewTicker(tick)
	defer timer.Stop()
	for {
		timer.Stop()
		select {
		case <-c.kick:
		case <-c.done:
			return
		}
		timer.Reset(tick)
		if !c.watch(timer.C) {
			return
		}
	}
}

// watch looks at each tick until requests cease; false means that the
// connection is gone.
func (c *conn) watch(ticks <-chan time.Time) bool {
	busy, quiet := 0, 0
	var last uint64
	for {
		select {
		case <-ticks:
		case <-c.done:
			return false
		}
		c.mu.Lock()
		if c.waiting > 0 {
			busy = 0
		} else if busy++; busy >= 2 {
			c.successor()
			busy = 0
		}
		if c.seq != last || c.waiting == 0 {
			quiet, last = 0, c.seq
		} else if quiet++; quiet >= quietTicks {
			c.asleep = true
			c.mu.Unlock()
			return true
		}
		c.mu.Unlock()
	}
}
