// Package dialect says what the store needs of a database engine.
//
// The schema is the same on every engine (see the migrations folder); so is
// the SQL of every read, which the store writes itself. An Engine runs those
// reads, and does in its own way what engines do differently: committing a
// group of writes, hearing of other processes' writes, giving space back.
package dialect

import (
	"context"
	"errors"
	"fmt"
)

// Reader is one database that holds a log, opened to look into it. Another
// process may serve it meanwhile.
//
// Every method may return an *Error whose Unwrap chain holds ErrUnavailable
// (nothing was done, or it is unknown whether it was; try again) or
// ErrCorrupt (trying again does not help), or the error of its context. An
// *Error with neither says that what was given can't be stored or asked;
// nothing was done.
// All methods may be called from several goroutines.
type Reader interface {
	// Name is "sqlite" or "postgres".
	Name() string

	// Placeholder returns the n-th parameter (counted from 1) of a statement.
	Placeholder(n int) string

	// Contains returns the condition that the text in column contains the
	// text in the parameter.
	Contains(column, parameter string) string

	// Query runs one statement that only reads, in one snapshot, and calls
	// row once for each row of its result. An error of row ends the walk and
	// is returned as it is.
	Query(ctx context.Context, statement string, args []any, row func(Row) error) error

	// Streams says whether a Query that row ends costs no more than what row
	// has seen. Otherwise all of the result is sent, and thrown away.
	Streams() bool

	// Close ends all work and releases the database.
	Close() error
}

// Engine is one open database that holds a log, to be served. Its methods keep
// to what Reader says of errors. Commit, Load, Compact and Shrink are called from
// one goroutine at a time.
type Engine interface {
	Reader

	// Commit appends a group of writes in one transaction. All of them become
	// visible and durable together, or none. A conflict fails one write alone.
	// In the group those that replace a row come before those that create an
	// object: an engine may see to all of the former first.
	Commit(ctx context.Context, group []Write) (Committed, error)

	// Load fills an empty log, in one transaction, with the rows that rows
	// hands to its argument, and sets the counter. It returns ErrNotEmpty where
	// there are rows already, and the error of rows as it is. Nobody else may
	// use the database meanwhile.
	Load(ctx context.Context, position Position, rows func(add func(*LogRow) error) error) error

	// Compact forgets, in one short transaction, up to limit rows that were
	// replaced at or before upTo, after recording upTo as the compacted
	// revision. It may stop earlier where rows are large, so that writers wait
	// a few milliseconds at the most. It returns how many rows it removed; 0
	// means that it is done.
	Compact(ctx context.Context, upTo int64, limit int) (int, error)

	// Shrink gives free space back to the file system, a little at a time;
	// it returns true when there may be more to give back. It may take its time
	// where nobody waits for it.
	Shrink(ctx context.Context) (more bool, err error)

	// Space tells what room the database takes. It costs little, whatever the
	// database holds, and may be called at any time.
	Space(ctx context.Context) (Space, error)

	// Notifications delivers the newest revision that another process may
	// have written. Nil where there is no other process (SQLite).
	Notifications() <-chan int64
}

// Space is the room that a database takes on disk, in bytes.
type Space struct {
	Database int64 // without write-ahead logs
	Free     int64 // the part of Database that is unused; 0 where the engine does not know
	WAL      int64 // the write-ahead log; 0 where it is not the database's own (Postgres)
	// HeldBack names what keeps the room of removed rows from being used again
	// and says what to do about it, a sentence for each. A sentence stays the
	// same for as long as its cause.
	HeldBack []string
}

// Row is one row of a result.
type Row interface {
	// Scan copies the columns into dest, as database/sql does.
	Scan(dest ...any) error
}

// Operation is what a row of the log did to its object.
type Operation string

// The operations, as they stand in the log's column operation.
const (
	Create Operation = "create"
	Update Operation = "update"
	Delete Operation = "delete"
)

// Write is one row to be appended to the log.
type Write struct {
	Operation Operation
	// Replaces is the id of the row that must be current for the write to
	// succeed. 0 demands that there is none.
	Replaces int64

	Group, Resource string
	// Key orders the rows of a resource and names the object in it:
	// "namespace/name", or "name" where there are no namespaces.
	Key             string
	Namespace, Name string
	UID             string

	WrittenAt int64 // Unix milliseconds
	ExpiresAt int64 // Unix milliseconds, 0 for never

	User, FieldManager string

	// Labels and Fields are JSON objects of strings, keys sorted, no spaces.
	Labels, Fields string
	// Value is the stored form of the object; empty in a Delete.
	Value []byte
}

// Committed is what became of a group of writes. Each got a revision, in
// their order; those that conflicted left theirs unused.
type Committed struct {
	Last   int64  // the revision of the last write
	Landed []bool // whether write i is in the log
}

// Before is the revision that preceded the group.
func (c Committed) Before() int64 { return c.Last - int64(len(c.Landed)) }

// Revision is the id of the row of write i.
func (c Committed) Revision(i int) int64 { return c.Before() + int64(i) + 1 }

// Error is a failure of the database: what was being done, to what.
type Error struct {
	Op     string // such as "commit"
	Engine string // such as "sqlite"
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Engine, e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

var (
	// ErrUnavailable marks a failure that may pass: the database is down,
	// busy, out of space. Whether a commit took effect is not known.
	ErrUnavailable = errors.New("the database is unavailable")
	// ErrFull is the ErrUnavailable of a disk on which there is no space left:
	// what reads goes on, and what writes does when there is room again.
	ErrFull = fmt.Errorf("%w: no space is left on its disk", ErrUnavailable)
	// ErrCorrupt marks a database whose contents contradict the schema.
	ErrCorrupt = errors.New("the database is damaged")
	// ErrLocked says that another process serves this database.
	ErrLocked = errors.New("the database is in use by another sqube")
)
