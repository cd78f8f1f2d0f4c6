package dialect

import "sync/atomic"

// Position is the position of a log: the one row of the table counter.
type Position struct {
	// Revision is the newest revision.
	Revision int64
	// Compacted is the newest revision at or before which replaced versions may have been removed.
	Compacted int64
}

// Skipped is a range of revisions that a log jumped over, since a state of it that was lost may have issued them: those after After and
// before Until.
type Skipped struct{ After, Until int64 }

// Has reports whether a revision was skipped.
func (s Skipped) Has(revision int64) bool { return revision > s.After && revision < s.Until }

// Newest is the newest revision that several goroutines have come across.
type Newest struct{ atomic.Int64 }

// Raise sets it to a revision, unless it has a newer one.
func (n *Newest) Raise(revision int64) {
	for known := n.Load(); revision > known && !n.CompareAndSwap(known, revision); {
		known = n.Load()
	}
}

// A log that may have lost its last commits, because it was restored or because a standby took over, must not use their revisions
// again: clients have seen them with other contents. So its counter jumps by RevisionJump, which is more than the commits that
// can have been lost, plus RevisionJumpPerSecond for each second since its last write, which is more than any cluster commits.
// The latter matters if a backup is restored twice: the counter starts at the same value, but clients have seen what was written
// in between. They may also have seen further jumps, such as those of failovers: 17 minutes of writing make up for each.
const (
	RevisionJump          = 1_000_000_000
	RevisionJumpPerSecond = 1_000_000
)

// MaxHeld is how many revisions after that of the counter a process may have issued without a commit. If it is killed, their rows are
// lost, and the next process must not use them for others.
const MaxHeld = 256
