// Package journal is jbd2 in Go: a log of block images that makes groups of
// metadata changes atomic and durable, on disk the same as the kernel's. It
// knows blocks, buffers (blockdev/bcache) and devices (blockdev), and nothing
// of ext4.
//
// # Contract
//
// All that one handle changes between Begin and Stop (or Restart) becomes
// durable together or not at all, and so do all handles of one transaction.
// After WaitCommit(tid) has returned nil, everything up to tid survives any
// crash. Transactions become durable in the order of their numbers.
//
// The caller, for each metadata block it changes: GetWriteAccess before the
// first change, DirtyMetadata after the last, both within the handle and with
// whatever lock makes it the only writer of that content held from the one to
// the other. When it frees a metadata block: Forget or Revoke in the handle
// that frees it, and no new use of the block, for metadata or data, before
// OnCommit has reported that transaction (a new use as metadata within the
// same transaction is allowed, with GetCreateAccess). File data for
// data=ordered is written to the device before Stop.
//
// Begin, Restart, WaitCommit, Commit, Flush and Close wait for other handles
// to stop. So they are called without a handle open, and without a lock that
// the owner of an open handle might wait for.
//
// # Life of a transaction
//
//	Running   handles join and stop; at most one transaction is here
//	Locked    a commit has begun: Begin waits, open handles finish
//	Flush     the last handle has stopped, content is settled; Begin goes on
//	          with the next transaction
//	Commit    blocks are copied to the log and written, flushed, the commit
//	          block is written, flushed. At most one transaction is in
//	          Locked, Flush or Commit
//	Finished  durable. Its log blocks are kept until each of its buffers is
//	          home, or a later transaction has logged it again, or a later
//	          transaction has freed it; then the tail moves on
//
// A commit therefore holds up Begin for as long as the open handles take, and
// not for its I/O. A buffer that the committing transaction has not yet copied
// into the log is copied out when the running one asks for write access
// (freeze); GetWriteAccess never waits for a device.
//
// # Why a freed block is safe
//
// Let A have logged block X, and B, later, free it. X may be reused, even
// for file data that bypasses the journal, when B is durable.
//
//   - Replay must not write A's X over the new content: B carries a revoke of X,
//     and a revoke in B suppresses the versions of transactions up to B. A's
//     version is in the log only while the tail is at A or before it, and then B
//     is in the log, too.
//   - If B does not become durable, X is still in use, and A's version counts: so
//     X stays on A's checkpoint list until B is durable, and A in the log. It is
//     not written home meanwhile either, as the buffer has joined B.
//   - A checkpoint must not write A's X home late. It writes only buffers that
//     no transaction holds, decided under the buffer's lock while the content is
//     copied; when B is durable, X leaves A's list before OnCommit is called; and
//     a home write that had begun before X joined B is waited for (homeMu) before
//     OnCommit is called.
//   - If the committing transaction logs X and the running one frees it, X is
//     logged (the first may be all that survives), and leaves with the second.
//   - If B itself uses X again as metadata, the revoke is taken back, since it
//     would suppress B's own version.
//
// The other half is that the content written home is never older or newer than
// what is durable: a buffer is written home only if it is in no transaction, so
// its content is that of the last transaction that logged it, and that one has
// finished. That a later version overtakes an earlier one on the way home is
// excluded by there being one checkpoint at a time.
//
// # Log space
//
// A new transaction is created only when the log has room for the largest it
// can become (reserve: credits, borrowed credits, descriptors, revokes, commit
// block), so a commit never waits for space, and checkpointing, which may have
// to wait for a commit, cannot deadlock with it. What it does not use is given
// back. Space freed by a checkpoint counts only after the superblock with the
// new tail is durable.
//
// # Locks
//
//	commitMu                one commit at a time; held over its I/O
//	  super                 writing of the journal superblock, over I/O
//	  homeMu                home writes in flight, over I/O
//	cpRun                   one checkpoint at a time; held over its I/O
//	  homeMu
//	  super
//	mu                      running, committing, avail; moments
//	cp                      checkpoint lists; for a batch of buffers
//	  Buffer.Lock           JH and everything in a journalHead; a block copy at most
//	    revokeTable.mu      moments
//
// mu and cp are never held together, except by tests. commitMu and cpRun are
// independent: a commit does not wait for checkpoints but for one batch of home
// writes, a checkpoint asks for commits but does not wait with cpRun held.
// Flush and Close take cpRun with commitMu held. Begin, Stop, Extend and the
// access calls take none of these but Buffer.Lock, while the transaction is
// open: joining and leaving are one atomic operation on Transaction.word.
//
// OnCommit functions are called with commitMu held, BeforeCommit as well.
//
// # The log
//
// All numbers are big-endian. Block numbers of the log are logical: Params.Runs
// says where they are. With an external log see external.go, for fast commits
// fastcommit.go.
//
//	0           s_first                                         s_maxlen
//	+-----------+-----------------------------------+--------------------+
//	| superblock| circular log                      | fast commits (opt.)|
//	+-----------+-----------------------------------+--------------------+
//	                 ^ s_start: tail, holds transaction s_sequence
//
//	transaction n:
//	+--------+ +------------+-------+-------+   +------------+--   +--------+
//	| revoke |.| descriptor | block | block |...| descriptor | ... | commit |
//	+--------+ +------------+-------+-------+   +------------+--   +--------+
//	 0 or more   0 or more, each followed by the blocks it announces
//
//	every one but the copied blocks:   magic C03B3998 | type | sequence n
//	descriptor: header | tag [uuid] | tag | tag ...          | tail checksum
//	revoke:     header | bytes used | number | number ...    | tail checksum
//	commit:     header | v1: type, size | checksum | ... | seconds, nanoseconds
//
//	tag  v3:    number(32) | flags(32) | number high(32) | checksum(32)
//	     else:  number(32) | checksum(16) | flags(16) [| number high(32), 64bit]
//	            (v2: two more bytes at the end, unused)
//
// A copied block that begins with the magic number has those four bytes zeroed
// and its tag flagged, so that no content is ever mistaken for a log block.
package journal
