package dialect

// Position is where a log stands: the one row of the table counter.
type Position struct {
	// Revision is the newest revision.
	Revision int64
	// Compacted is the newest revision at or before which replaced versions may
	// have been removed.
	Compacted int64
}

// A log that may have lost its last commits, because it was restored or because
// a standby took over, must not use their revisions again: clients have seen
// them with other contents. So its counter jumps by RevisionJump, further than
// commits can have been lost, and by RevisionJumpPerSecond for each second since
// the last write it has, more than any cluster commits: a backup that is
// restored twice starts from the same counter twice, and clients have seen what
// was written in between.
const (
	RevisionJump          = 1_000_000_000
	RevisionJumpPerSecond = 10_000
)
