package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// OpenReader opens the file at path, which must exist, read-only. It fails if the schema is not this binary's.
func OpenReader(ctx context.Context, path string) (dialect.Reader, error) {
	status, err := Status(ctx, path)
	if err == nil {
		err = status.Usable()
	}
	var m *readMode
	if err == nil {
		m, err = chooseReadMode(path)
	}
	e := &Engine{}
	if err == nil {
		e.path, e.readMode = m.path, m
		e.openReaders(Options{}, m.parameters)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the database %s: %w", path, err)
	}
	return e, nil
}

// Status returns the schema version of the file at path, without changing it. It fails if there is no such file.
func Status(ctx context.Context, path string) (status migrations.Status, err error) {
	err = reading(ctx, path, func(db *sql.DB) error {
		status, err = migrations.Read(ctx, db, migrations.SQLite)
		return err
	})
	return status, err
}

// Verify has SQLite check that the file at path is intact, and checks that it is complete. The error says what is damaged.
func Verify(ctx context.Context, path string) error {
	if err := Complete(path); err != nil {
		return err
	}
	return reading(ctx, path, func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "PRAGMA integrity_check")
		if err != nil {
			return err
		}
		defer rows.Close()
		damage := ""
		for rows.Next() {
			var found string
			if err := rows.Scan(&found); err != nil {
				return err
			}
			if found != "ok" {
				damage += ": " + found
			}
		}
		if damage != "" {
			return fmt.Errorf("%w%s", dialect.ErrCorrupt, damage)
		}
		return rows.Err()
	})
}

// reading calls use with the file at path, which must exist, opened so that it can't be changed.
func reading(ctx context.Context, path string, use func(*sql.DB) error) (err error) {
	m, err := chooseReadMode(path)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(m.path)+m.parameters)
	if err != nil {
		return err
	}
	defer func() {
		if closing := db.Close(); err == nil {
			err = closing
		}
	}()
	err = checkHeader(ctx, db)
	if err == nil {
		err = use(db)
	}
	if changed := m.unchanged(); changed != nil { // it explains other errors
		return changed
	}
	return withReadHint(err)
}

// ReadOnly returns a data source name for the driver "sqlite" that opens the file at path, which must exist, read-only.
// unchanged, called after a read, fails if another process has written to the file in a way that may have invalidated the read.
func ReadOnly(path string) (name string, unchanged func() error, err error) {
	m, err := chooseReadMode(path)
	if err != nil {
		return "", nil, err
	}
	return dsn(m.path) + m.parameters, m.unchanged, nil
}

// readMode is how a file is opened read-only, so that neither it nor its write-ahead log is changed or created.
type readMode struct {
	path       string // resolved
	parameters string // for the driver
	// immutable is the state of the file before, if it is read without locks and without a write-ahead log, else nil.
	immutable fs.FileInfo
}

// chooseReadMode returns how to read the file at path. If a process may have it open, or crashed with it, reads go through the
// write-ahead log, and SQLite creates its index, -shm, if it is missing. Otherwise there is only the file. Reading it the same
// way would make SQLite create a log and an index, or fail in a read-only folder.
func chooseReadMode(path string) (*readMode, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(checkFile(path), err)
	}
	if err != nil {
		return nil, err
	}
	for _, suffix := range suffixes[1:] {
		beside, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist), suffix == "-wal" && err == nil && beside.Size() == 0: // its index decides
		case err != nil:
			return nil, err
		default:
			return &readMode{path, "&mode=ro", nil}, nil
		}
	}
	if elsewhere := checkOneName(path); elsewhere != nil {
		if h, err := readHeader(path); err != nil || h.keepsLog {
			return nil, errors.Join(err, elsewhere)
		}
	}
	return &readMode{path, "&mode=ro&immutable=1", info}, nil
}

var errWritten = errors.New("the database was written to while it was read: try again")

// unchanged fails if a file that was read without locks has been written to since. A nil readMode reads no such file.
func (m *readMode) unchanged() error {
	if m == nil || m.immutable == nil {
		return nil
	}
	now, err := os.Stat(m.path)
	if err == nil && (!os.SameFile(now, m.immutable) || now.Size() != m.immutable.Size() || !now.ModTime().Equal(m.immutable.ModTime())) {
		err = errWritten
	}
	return err
}
