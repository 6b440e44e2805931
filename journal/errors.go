package journal

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of the journal; compare with errors.Is.
var (
	// ErrAborted is wrapped by every error that follows an abort.
	ErrAborted = errors.New("journal has aborted")
	// ErrTooManyCredits: Begin or Restart asked for more than MaxCredits.
	ErrTooManyCredits = errors.New("journal: request exceeds the largest transaction")
	// ErrNoCredits: a handle changed more blocks than it has credits for, and
	// the transaction has no room left to lend it some.
	ErrNoCredits = errors.New("journal: handle is out of credits")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("journal is closed")
	// ErrNotStarted: Begin before Start.
	ErrNotStarted = errors.New("journal is not started")
	// ErrNeedsRecovery: Start was called on a log that must be replayed first.
	ErrNeedsRecovery = errors.New("journal: needs recovery")
	// ErrReadOnly: the log's device cannot be written.
	ErrReadOnly = errors.New("journal: device is read-only")
	// ErrFastCommit: the log holds fast commits and no handler was given.
	ErrFastCommit = errors.New("journal: holds fast commits, which nobody replays")
	// ErrNotAccessed: DirtyMetadata without GetWriteAccess in this transaction.
	ErrNotAccessed = errors.New("journal: buffer is dirtied without write access")
	// ErrBlockRange: a block number that the log's format cannot hold.
	ErrBlockRange = errors.New("journal: block number needs the 64bit feature")
)

// CorruptError tells what is wrong in the log and where.
type CorruptError struct {
	What     string
	Block    uint32 // log block, 0 is the superblock
	Sequence TID    // transaction, if HasSeq
	HasSeq   bool
	Home     uint64 // block of the file system, if HasHome
	HasHome  bool
}

// Error says it in one line.
func (e *CorruptError) Error() string {
	var b strings.Builder
	b.WriteString("journal: ")
	b.WriteString(e.What)
	if e.Block != 0 {
		fmt.Fprintf(&b, ", journal block %d", e.Block)
	}
	if e.HasSeq {
		fmt.Fprintf(&b, ", sequence %d", e.Sequence)
	}
	if e.HasHome {
		fmt.Fprintf(&b, ", home block %d", e.Home)
	}
	return b.String()
}

// superError is a CorruptError of the journal superblock.
func superError(format string, args ...any) error {
	return &CorruptError{What: "superblock: " + fmt.Sprintf(format, args...)}
}
