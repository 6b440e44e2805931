package fusefs

import (
	"sync"

	"extfused/fs/ext4"
	"extfused/fs/ondisk"
)

// forgets frees inodes in the background. FORGET has no answer, so the
// kernel never waits for one; the last FORGET of a deleted file frees its
// blocks, which can take a while, and holds up its reader meanwhile. Counts add up, so their order
// does not matter.
//
// Before start everything happens in the caller.
type forgets struct {
	fs    *ext4.FS
	guard func(what string) // deferred around the work: catches panics
	queue chan forgotten
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

// start spawns the worker.
func (q *forgets) start() {
	q.queue = make(chan forgotten, forgetQueue)
	q.end.Go(func() {
		for f := range q.queue {
			if f.barrier != nil {
				close(f.barrier)
				continue
			}
			q.forget(f)
		}
	})
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
	<-done
}

// stop ends the worker, once; no add may run at the same time, or come later.
func (q *forgets) stop() {
	q.ending.Lock()
	defer q.ending.Unlock()
	if q.queue != nil && !q.ended {
		q.ended = true
		close(q.queue)
		q.end.Wait()
	}
}
