package journal

// TID is the number of a transaction, in the log its sequence. It wraps, so it
// is compared by difference: of two numbers less than 2^31 apart the later is
// the one with the positive difference.
type TID uint32

// After says whether t is a later transaction than u.
func (t TID) After(u TID) bool { return int32(t-u) > 0 }

// AtLeast says whether t is u or later.
func (t TID) AtLeast(u TID) bool { return int32(t-u) >= 0 }
