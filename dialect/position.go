package dialect

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

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

// Skips are the ranges that a log jumped over, in order.
type Skips []Skipped

// Has reports whether a revision was skipped.
func (s Skips) Has(revision int64) bool {
	return slices.ContainsFunc(s, func(r Skipped) bool { return revision > r.After && revision < r.Until })
}

// Before returns the part of the revisions after from and up to to that can be read at once, without those that were skipped.
func (s Skips) Before(from, to int64) (int64, int64) {
	for _, r := range s {
		switch {
		case from >= r.Until:
		case from >= r.After:
			from = min(to, r.Until)
		default:
			return from, min(to, r.After)
		}
	}
	return from, to
}

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
//
// If a log replaces another, it jumps over the later of the two ends, not over their sum. Otherwise, each restore of an old backup would
// add its whole age again.
const (
	RevisionJump          = 1_000_000_000
	RevisionJumpPerSecond = 1_000_000
)

// End is the end of a log, as it was found.
type End struct {
	Revision  int64
	WrittenAt int64 // when the last commit was, in Unix milliseconds; 0 if unknown
}

// Beyond returns a revision after all that the log may have issued by now.
func (e End) Beyond(now time.Time) int64 {
	beyond := e.Revision + RevisionJump
	if e.WrittenAt != 0 { // nothing was written before FirstTime, whatever the clock showed then
		beyond += max(0, now.UnixMilli()-max(e.WrittenAt, FirstTime.UnixMilli())) / 1000 * RevisionJumpPerSecond
	}
	return beyond
}

// MaxRevision is the last revision at which a log is served or restored. There is room for jumps and writes above it, but no more for a
// whole life. MaxExact is the last one that clients which take numbers for floating-point numbers, such as JavaScript, tell from the next.
const (
	MaxRevision = 1 << 62
	MaxExact    = 1 << 53
)

// CheckRevision returns an error if a log can't go on at a revision.
func CheckRevision(revision int64) error {
	if revision >= 0 && revision <= MaxRevision {
		return nil
	}
	return fmt.Errorf("resourceVersions have come to %d, and there is no room for them to jump above %d, near the end of 64 bits. Read the database with sqube serve --in-memory --from, and create its objects in an empty one, where resourceVersions begin at 1", revision, MaxRevision)
}

// MaxHeld is how many revisions after that of the counter a process may have issued without a commit. If it is killed, their rows are
// lost, and the next process must not use them for others.
const MaxHeld = 256
