package dialect

// Position is the position of a log: the one row of the table counter.
type Position struct {
	// Revision is the newest revision.
	Revision int64
	// Compacted is the newest revision at or before which replaced versions may
	// have been removed.
	Compacted int64
}

// A log that may have lost its last commits, because it was restored or because
// a standby took over, must not use their revisions again: clients have seen
// them with other contents. So its counter jumps by RevisionJump, which is more
// than the commits that can have been lost, plus RevisionJumpPerSecond for each
// second since its last write, which is more than any cluster commits. The
// latter matters if a backup is restored twice: the counter starts at the same
// value, but clients have seen what was written in between.
const (
	RevisionJump          = 1_000_000_000
	RevisionJumpPerSecond = 10_000
)
