// Package devfuse is the transport between the kernel's FUSE client and a file
// system that go-fuse's ProtocolServer drives: it mounts, reads requests from
// /dev/fuse, and writes the answers. The protocol's contents are go-fuse's.
//
// # Readers
//
// go-fuse's own Server keeps several goroutines in read(2) at any time. The
// kernel wakes them in turn, so that each request wakes another thread, which
// has gone cold, often on another processor. Here exactly one reader waits in
// read(2) (the leader), and it serves what it has read itself, on the thread
// that the kernel has just woken, without waking anybody. While it does, no
// reader waits:
//
//	leader      read(2) ... serves ... is another reader waiting?
//	                                   no: reads again   yes: parks
//	monitor     looks every tick; nobody waits, twice running: wakes or
//	            starts another reader
//
// The leader does not sleep at once when there is nothing to read: the caller
// that has just got its answer is likely to be back within microseconds, and
// falling asleep and being woken would cost more. See spinner.
//
// A single caller is served by one thread. Several callers keep the leader
// busy, which the monitor sees, and so there come to be as many readers as
// there is work for; they park again when a request finds another reader
// waiting. Requests that are known to be long, or whose service needs further
// requests (LSEEK makes the kernel write back), wake a successor before they
// are served, see hold.
//
// # Locks
//
//	conn.mu     leaf: who waits, who is parked
package devfuse
