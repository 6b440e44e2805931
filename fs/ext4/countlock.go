package ext4

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// countLock is a lock for many readers or one writer whose readers say, in the
// very atomic operation that ends their reading, whether they found what they
// looked for: so counting hits and misses costs a lookup nothing (S5). It is a
// leaf that nobody holds for long or over I/O. The zero value is unlocked.
//
//	bit 0-17   readers
//	bit 18     a writer has it, or waits for the readers to leave
//	bit 19-40  misses not yet taken
//	bit 41-63  hits not yet taken
type countLock struct {
	state  atomic.Uint64
	writer sync.Mutex // held by the writer, and for a moment by readers that met one
}

// What a reader adds to the state besides leaving.
const (
	lockPlain uint64 = 0
	lockMiss  uint64 = 1 << 19
	lockHit   uint64 = 1 << 41
)

const (
	lockReaders  = lockWriting - 1
	lockWriting  = 1 << 18
	lockCounts   = ^uint64(lockReaders | lockWriting)
	lockOverflow = 1<<40 | 1<<63 // a count is half full
)

// rlock locks for reading.
func (l *countLock) rlock() {
	if l.state.Add(1)&lockWriting != 0 {
		l.rlockSlow()
	}
}

// rlockSlow makes room for the writer and waits for it.
func (l *countLock) rlockSlow() {
	l.state.Add(^uint64(0))
	l.writer.Lock()
	l.state.Add(1)
	l.writer.Unlock()
}

// runlock ends reading, counts, and reports whether take should be called soon.
func (l *countLock) runlock(count uint64) bool { return l.state.Add(count-1)&lockOverflow != 0 }

// take gives the counts since the last call.
func (l *countLock) take() (hits, misses uint64) {
	if l.state.Load()&lockCounts == 0 {
		return 0, 0
	}
	n := l.state.And(^lockCounts) & lockCounts
	return n / lockHit, n % lockHit / lockMiss
}

// lock locks for writing.
func (l *countLock) lock() {
	l.writer.Lock()
	l.state.Or(lockWriting)
	for spins := 0; l.state.Load()&lockReaders != 0; spins++ {
		if spins < 100 {
			runtime.Gosched()
		} else { // a reader was put to sleep by the system
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// tryLock is lock, if that needs no waiting.
func (l *countLock) tryLock() bool {
	if !l.writer.TryLock() {
		return false
	}
	if l.state.Or(lockWriting)&lockReaders == 0 {
		return true
	}
	l.unlock()
	return false
}

func (l *countLock) unlock() {
	l.state.And(^uint64(lockWriting))
	l.writer.Unlock()
}
