package journal

// SetFeatures makes the log have exactly the given features, durably, before
// Start; the log must be empty (after Recover). A log of version 1 becomes one
// of version 2 first. The fast-commit feature is left as it is: it says how the
// log is laid out. Checksum v2 is given up for what is asked.
func (j *Journal) SetFeatures(compat FeatureCompat, incompat FeatureIncompat) error {
	if j.NeedsRecovery() {
		return ErrNeedsRecovery
	}
	old := j.SuperBlock()
	incompat = incompat&^IncompatFastCommit | old.Incompat&IncompatFastCommit
	trial := old
	trial.upgrade()
	trial.Compat, trial.Incompat = compat, incompat
	trial.CsumType = 0
	if trial.hasSuperChecksum() {
		trial.CsumType = checksumCRC32C
	}
	if trial == old {
		return nil
	}
	if incompat&IncompatAsyncCommit != 0 && trial.layout().csum == csumNone {
		return superError("asynchronous commits need checksums")
	}
	if err := trial.checkCombination(); err != nil {
		return err
	}
	if err := j.writeSuper(func(s *SuperBlock) { *s = trial }); err != nil {
		return err
	}
	j.lay = trial.layout()
	return j.flush(j.log.dev)
}

// upgrade turns version 1 into version 2: all fields behind s_errno were not
// defined there, and are cleared.
func (s *SuperBlock) upgrade() {
	if s.BlockType == SuperBlockV1 {
		s.BlockType = SuperBlockV2
		s.NrUsers = 1
	}
}
