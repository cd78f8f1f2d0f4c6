package dialect

import "errors"

// LogRow is one row of the log as it stands there.
type LogRow struct {
	ID int64
	// ReplacedBy is the id of the row that replaced this one, 0 while it is live.
	ReplacedBy int64
	Write
}

// Counter is the one row of the table counter: the newest revision handed out, and the newest forgotten.
type Counter struct{ Revision, Compacted int64 }

// ErrNotEmpty says that a log to be loaded holds something.
var ErrNotEmpty = errors.New("the database is not empty")
