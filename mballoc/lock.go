package mballoc

import (
	"sync"
	"sync/atomic"
)

// lockClass names a kind of lock in the contention counters.
type lockClass int

const (
	lockInode    lockClass = iota // InodeState.mu
	lockLocality                  // LocalityGroup.mu
	lockGroup                     // GroupInfo.mu
	lockDisk                      // GroupInfo.disk
	lockFreed                     // freedShard.mu
	lockList                      // groupSet.mu
	lockCache                     // buddyCache.mu
	numLockClasses
)

var lockClassNames = [numLockClasses]string{"inode", "locality_group", "group", "disk", "freed_list", "order_list", "buddy_cache"}

// contention counts, per class, how often a lock was found taken. It is written only when a
// goroutine has to wait anyway, so it costs the uncontended path nothing.
type contention [numLockClasses]atomic.Uint64

// mutex is a sync.Mutex that counts when it has to wait.
type mutex struct{ m sync.Mutex }

func (l *mutex) lock(c *contention, class lockClass) {
	if l.m.TryLock() {
		return
	}
	c[class].Add(1)
	l.m.Lock()
}

func (l *mutex) tryLock() bool { return l.m.TryLock() }
func (l *mutex) unlock()       { l.m.Unlock() }
