package dialect

import "time"

// Times in a log never go back, whatever the clocks of its servers show: a commit gets the time of its server's clock, or that of
// the commit before if that is later. So a moment has one revision, and restoring it restores nothing newer. Retention does not
// depend on these times.
//
// A clock may be far ahead by mistake, and be set right again. If the log went on at its latest time until clocks get there, no
// moment could be told from the next for years. So a commit that would be more than MaxAhead ahead of its server's clock takes
// that clock's time, and times go back once. A clock before FirstTime is never right, so its time is not taken.
//
// MaxAhead is more than clocks of servers that work together differ, and less than one in the wrong time zone is off.
const MaxAhead = 30 * time.Minute

// FirstTime is the beginning of the year of the first release. A clock that shows an earlier time is wrong.
var FirstTime = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// CommitTime returns the time of a group by its server's clock, and up to when the time of the commit before may be for this one to
// take it. Both are in Unix milliseconds.
func CommitTime(group []Write) (at, ahead int64) {
	for i := range group {
		at = max(at, group[i].WrittenAt)
	}
	if at < FirstTime.UnixMilli() {
		return at, 1<<63 - 1
	}
	return at, at + MaxAhead.Milliseconds()
}
