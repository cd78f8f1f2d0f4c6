// Package dialect defines what the store needs from a database engine.
//
// The schema is the same on every engine (see the migrations folder), and so is the SQL of every read, which the store writes
// itself. An Engine runs those reads, and implements what engines do differently: committing a group of writes, noticing other
// processes' writes, returning free space.
package dialect

import (
	"context"
	"errors"
	"fmt"
)

// Reader is a database with a log, opened for reading. Another process may serve it at the same time.
//
// Every method may return the error of its context, or an *Error. One that wraps ErrUnavailable can be retried; the operation may
// or may not have taken effect. Retrying does not help with ErrCorrupt. If it wraps neither, the database rejected its input and
// did nothing. All methods are safe for concurrent use.
type Reader interface {
	// Name is "sqlite" or "postgres".
	Name() string

	// Contains returns the SQL condition that the text in column contains the text in parameter.
	Contains(column, parameter string) string

	// Query runs one read-only statement in one snapshot, and calls row for each row of the result. Each ? in the statement is a
	// parameter, whose values args has in their order. An error from row ends the query and is returned unchanged.
	Query(ctx context.Context, statement string, args []any, row func(Row) error) error

	// Streams reports whether a Query that row ends early costs no more than the rows it has seen. Otherwise the whole result is
	// sent.
	Streams() bool

	// Close stops all operations and closes the database.
	Close() error
}

// Engine is a database with a log, opened for serving. Its methods return the same errors as Reader's. Commit, Load, Compact and
// Shrink are each called by one goroutine at a time.
type Engine interface {
	Reader

	// Commit appends a group of writes in one transaction. Either all of them become visible and durable together, or none do. A
	// conflict fails only the write concerned. After ErrFull, a group of deletions alone may still succeed. In the group, writes
	// that replace a row come before those that create an object, since an engine may handle replacements first. All rows of the
	// group get one WrittenAt; see CommitTime.
	Commit(ctx context.Context, group []Write) (Committed, error)

	// CommitAll is Commit for a group of which no write may conflict: it commits either all writes or none. It returns ErrConflict if one
	// would conflict, or if an object of required is not as required.
	CommitAll(ctx context.Context, group []Write, required []Required) (Committed, error)

	// Load fills an empty log in one transaction with the rows that rows passes to add, and then with history, unless past is nil. It
	// sets the counter. Its time is now, or that of the newest row if that is later. It returns ErrNotEmpty if the log already has rows,
	// and an error from rows or past unchanged. Nothing else may be using the database.
	Load(ctx context.Context, position Position, rows func(add func(*LogRow) error) error, past *Past) error

	// Compact records upTo as the compacted revision, and then removes up to limit rows that were replaced at or before upTo, in
	// one short transaction. It may stop early if rows are large, so that writers wait a few milliseconds at most. It returns the
	// number of rows removed; 0 means that it is done. In the same transaction it stores what pack makes of them, unless pack is nil.
	Compact(ctx context.Context, upTo int64, limit int, pack Packer) (int, error)

	// Forget removes up to limit blocks that were current until a revision up to upTo, the first ones first, and records that
	// history begins where the last of them ended. It returns the number of blocks removed.
	Forget(ctx context.Context, upTo int64, limit int) (int, error)

	// EditPast calls edit with the first blocks that the condition selects, ordered by Until, as many as fit into memory easily. It removes
	// those whose First edit returns in removed, and then adds what it returns in put, or replaces what has the same First, in one
	// transaction. Nothing else changes the table past meanwhile.
	EditPast(ctx context.Context, condition string, args []any, edit func([]*Block) (removed []int64, put []*Block, err error)) error

	// Purge puts a block in the place of all blocks of its object that were current until its Until or before, and notes in the database
	// that there is something to Erase.
	Purge(ctx context.Context, b *Block) error

	// Erase removes what was purged from where removed rows have left it in the database's files. It does nothing without a note of Purge,
	// which it removes when all is done. It may take long, and others wait for it only for moments, except that on Postgres it locks a
	// table that is not too large.
	Erase(ctx context.Context) (Erased, error)

	// Ask runs one statement that only reads, written by a user who must not be able to change anything: see Asked. It calls columns with
	// the names of the result's columns, and row for each of its rows: nil, bool, int64, float64, string or []byte. It ends with ctx,
	// which must have a deadline, or with an error of row, which it returns unchanged. Writers do not wait for it.
	Ask(ctx context.Context, statement string, columns func([]string), row func([]any) error) error

	// Shrink makes free space usable again, or returns it to the file system, a little at a time. It reports whether there may be
	// more to do. It may take a long time, as long as it does not block other operations.
	Shrink(ctx context.Context) (more bool, err error)

	// Space returns how much space the database takes. It is cheap for databases of any size, and may be called at any time.
	Space(ctx context.Context) (Space, error)

	// UnsafeSettings returns a sentence for each setting of the database with which acknowledged writes can be lost if its machine fails,
	// including what to do about it. A sentence does not change while its cause remains. What the caller of this process chose when it
	// opened a file is none (SQLite).
	UnsafeSettings(ctx context.Context) ([]string, error)

	// HasFiles reports whether InPlace has files to look at.
	HasFiles() bool

	// InPlace returns an error that wraps ErrMoved, and says what to do, if the files of the database were deleted, moved or replaced
	// since it was opened: then a restart would find other files. Commit fails with the same error. It is cheap, and may be called at
	// any time. A database of another process finds its files itself (Postgres).
	InPlace(ctx context.Context) error

	// Skipped returns the revisions that the log has not had, though clients may know them. It does not change while the database is
	// open. On Postgres there are none: they count as compacted.
	Skipped() Skips

	// MayHold records in the database that this process may issue revisions before it commits them; see MaxHeld. It returns false if
	// that is not possible, since other processes may write too.
	MayHold(ctx context.Context) (bool, error)

	// Held reports whether the process that had the database open before this one might have done that.
	Held() bool

	// Notifications returns a channel of newest revisions that other processes may have written. It is nil if there can be none
	// (SQLite).
	Notifications() <-chan int64
}

// Erased is what Erase has left for later.
type Erased struct {
	// Kept counts the purged versions that are still in the log.
	Kept int64
	// Left has for each other place where purged values may still be which it is and until when, or what to do, in words.
	Left []string
	// Again is set if Erase has to be called once more, when those versions have left the log, or when what is in the way may have ended.
	Again bool
}

// Space is how much space a database takes on disk, in bytes.
type Space struct {
	Database int64 // without write-ahead logs
	Free     int64 // the unused part of Database; 0 if unknown
	WAL      int64 // the write-ahead log; 0 if the database has none of its own (Postgres)
	// HeldBack has a sentence for each thing that keeps the space of removed rows from being reused, including what to do about
	// it. A sentence does not change while its cause remains.
	HeldBack []string
}

// Row is one row of a result.
type Row interface {
	// Scan copies the columns into dest, as in database/sql.
	Scan(dest ...any) error
}

// Operation is what a row of the log did to its object.
type Operation string

// The operations, as stored in the log's column operation.
const (
	Create Operation = "create"
	Update Operation = "update"
	Delete Operation = "delete"
	// Purge is the operation of a block's only version, which stands for those that were purged.
	Purge Operation = "purge"
)

// Write is a row to append to the log. In JSON it has the names of the columns.
type Write struct {
	// Replaces is the id of the row that must be live for the write to succeed. 0 means that there must be none.
	Replaces  int64     `json:"replaces,omitempty"`
	Operation Operation `json:"operation"`

	Group    string `json:"api_group,omitempty"`
	Resource string `json:"resource"`
	// Key orders the rows of a resource and names the object in it: "namespace/name", or "name" for a resource without
	// namespaces.
	Key       string `json:"key"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`

	WrittenAt int64 `json:"written_at"`           // Unix milliseconds; for Commit, by the clock of this machine
	ExpiresAt int64 `json:"expires_at,omitempty"` // Unix milliseconds, 0 for never

	User string `json:"user_name,omitempty"`
	// ImpersonatedUser is the user in whose name User wrote, and CredentialID names what authenticated User; "" if there is none.
	ImpersonatedUser string `json:"impersonated_user,omitempty"`
	CredentialID     string `json:"credential_id,omitempty"`
	FieldManager     string `json:"field_manager,omitempty"`
	// Address is that of the client, and AuditID the request's in the audit log; "" if there is none.
	Address string `json:"address,omitempty"`
	AuditID string `json:"audit_id,omitempty"`

	// Labels and Fields are JSON objects of strings, keys sorted, no spaces.
	Labels string `json:"labels,omitempty"`
	Fields string `json:"fields,omitempty"`
	// Value is the object as stored; empty in a Delete.
	Value []byte `json:"-"`

	// Heartbeat marks a small Update that has been acknowledged, perhaps. It is committed like a Delete if the disk is full.
	Heartbeat bool `json:"-"`
	// Superseded marks a Heartbeat that a later one of the group replaces. It gets a revision and no row. Engines without MayHold get none.
	Superseded bool `json:"-"`
}

// Required is an object that a group needs to be as it is, and does not write.
type Required struct {
	Group, Resource, Key string
	// ID is that of its live row, 0 if there must be none.
	ID int64
}

// Committed is the result of a group commit. Each write got a revision, in order; those of conflicting and superseded writes stay unused.
type Committed struct {
	Last      int64  // the revision of the last write
	Landed    []bool // whether write i is in the log
	WrittenAt int64  // the time of the rows, in Unix milliseconds
	// Unnotified is why Notifications of other processes are not sent at present, nil if they are.
	Unnotified error
}

// Before is the revision before the group.
func (c Committed) Before() int64 { return c.Last - int64(len(c.Landed)) }

// Revision is the id of the row of write i.
func (c Committed) Revision(i int) int64 { return c.Before() + int64(i) + 1 }

// Error is a database failure.
type Error struct {
	Op     string // such as "commit"
	Engine string // such as "sqlite"
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Engine, e.Op, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

var (
	// ErrConflict is returned for a write that does not find the version that it replaces, or the absence that it requires.
	ErrConflict = errors.New("the object has changed")
	// ErrUnavailable marks a failure that may be temporary: the database is down, busy or out of space. A commit may have taken
	// effect.
	ErrUnavailable = errors.New("the database is unavailable")
	// ErrFull is the ErrUnavailable of a full disk: reads still work, and writes will work once there is space again.
	ErrFull = fmt.Errorf("%w: no space is left on its disk", ErrUnavailable)
	// ErrMoved is the ErrUnavailable of a database whose files are not where they were: reads still work, and writes will work once the
	// files are back.
	ErrMoved = fmt.Errorf("%w: a file of it was deleted, moved or replaced", ErrUnavailable)
	// ErrTaken is the ErrUnavailable of a database that another server owns now: nothing was written. What this process has in memory of it
	// may be old.
	ErrTaken = fmt.Errorf("%w: another server has taken it over", ErrUnavailable)
	// ErrCorrupt marks a database whose contents contradict the schema.
	ErrCorrupt = errors.New("the database is damaged")
	// ErrLocked is returned if another process is serving this database.
	ErrLocked = errors.New("the database is in use by another sqube")
)
