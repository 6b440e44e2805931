package fusefs

import (
	"sync"
	"time"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// forgets frees inodes in the background. FORGET has no answer, so the
// kernel never waits for one; the last FORGET of a deleted file frees its
// blocks, which can take a while, and would hold up its reader meanwhile. Counts
// add up, so their order does not matter.
//
// Before start everything happens in the caller.
type forgets struct {
	fs    *ext4.FS
	guard func(what string) // deferred around the work: catches panics
	queue chan forgotten
	hurry chan struct{} // ends the worker's pause
	end   sync.WaitGroup

	ending sync.RWMutex // stop excludes drain
	ended  bool         // +checklocks:ending
}

// forgotten is a FORGET, or, with barrier set, a caller who waits until all
// before it are done.
type forgotten struct {
	ino     ondisk.InodeNumber
	n       uint64
	barrier chan<- struct{}
}

// forgetQueue bounds the queue; when it is full the FUSE reader works itself.
const forgetQueue = 4096

// forgetPause is how long the worker lets FORGETs gather: waking it for each
// takes longer than what it does.
const forgetPause = time.Millisecond

// start spawns the worker.
func (q *forgets) start() {
	q.queue, q.hurry = make(chan forgotten, forgetQueue), make(chan struct{}, 1)
	q.end.Go(q.run)
}

func (q *forgets) run() {
	pause := time.NewTimer(forgetPause)
	defer pause.Stop()
	for f := range q.queue {
		q.do(f)
		for n := len(q.queue); n > 0; n-- {
			q.do(<-q.queue)
		}
		pause.Reset(forgetPause)
		select {
		case <-pause.C:
		case <-q.hurry:
		}
	}
}

func (q *forgets) do(f forgotten) {
	if f.barrier != nil {
		close(f.barrier)
		return
	}
	q.forget(f)
}

func (q *forgets) wake() {
	select {
	case q.hurry <- struct{}{}:
	default:
	}
}

func (q *forgets) forget(f forgotten) {
	defer q.guard("forget")
	q.fs.Forget(f.ino, f.n)
}

func (q *forgets) add(ino ondisk.InodeNumber, n uint64) {
	f := forgotten{ino: ino, n: n}
	select {
	case q.queue <- f:
	default:
		q.forget(f)
	}
}

// drain waits until what has been forgotten so far is freed.
func (q *forgets) drain() {
	q.ending.RLock()
	defer q.ending.RUnlock()
	if q.queue == nil || q.ended {
		return
	}
	done := make(chan struct{})
	q.queue <- forgotten{barrier: done}
	q.wake()
	<-done
}

// stop ends the worker, once; no add may run at the same time, or come later.
func (q *forgets) stop() {
	q.ending.Lock()
	defer q.ending.Unlock()
	if q.queue != nil && !q.ended {
		q.ended = true
		close(q.queue)
		q.wake()
		q.end.Wait()
	}
}
