package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/wholefile"
)

// SQLite can't tell an older state of a file from the newest one: a copy that was put back, a write-ahead log that was cut or lost. But
// clients have seen the revisions that it lacks. So a file beside the database, the mark, says up to which revision some may have been
// issued, and from which on none has been lost so far. It is ahead of the log while the database is open, so it is rarely written, and
// exact once the database is closed.
//
// What an older state does not have is the newest mark. If the mark was put back together with the database, it is not the file that its
// number names: each time, the mark is a new file.
type mark struct {
	// File is the fileNumber of the mark.
	File int32 `json:"file"`
	// Least is a revision that the log has had, and Most one that was not exceeded. They are the same in the mark of a closed database.
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
}

const markSuffix = "-mark"

// markAhead is how far a mark is ahead of the log, which skips as much after each crash. The mark is written again when half of that is used
// up.
var markAhead int64 = 100_000

// marker keeps the mark of an open database.
type marker struct {
	most atomic.Int64 // of the mark; 0 while the database has none
	// last is the newest committed revision.
	last   atomic.Int64
	mu     sync.Mutex // held while the mark is written
	tried  int64      // what last was when the mark could not be written
	closed bool
	done   sync.WaitGroup
}

// readMark returns the mark of the database at path, nil if there is none. It has the number 0 if it can't be read.
func readMark(path string) (*mark, error) {
	data, err := os.ReadFile(path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &mark{}
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, m) != nil || m.Least < 0 || m.Most < m.Least {
		return &mark{}, nil
	}
	return m, nil
}

// isOwn reports whether m was written as the file that it is read from.
func (m *mark) isOwn(path string) bool { return m.File == fileNumber(path+markSuffix) }

// writeMark writes the mark of the database at path to disk.
func writeMark(path string, least, most int64) error {
	err := wholefile.Replace(path+markSuffix, fileMode, func(f *os.File) error {
		data, err := json.Marshal(mark{fileNumber(f.Name()), least, most})
		if err == nil {
			_, err = f.Write(append(data, '\n'))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing up to which resourceVersion some may be in use: %w", err)
	}
	return nil
}

// startMark writes the mark of the database, which is at a revision, unless it is not to be synced. One that is exact is good until the first
// commit.
func (e *Engine) startMark(l *end, revision int64) error {
	if e.noSync {
		return nil
	}
	e.mark.mu.Lock()
	defer e.mark.mu.Unlock()
	e.mark.last.Store(revision)
	if l.mark != nil && l.ownMark && l.mark.Least == revision && l.mark.Most == revision {
		e.mark.most.Store(revision)
		return nil
	}
	return e.raiseMark(revision)
}

// raiseMark writes a mark that is ahead of a revision, which the log has or is about to have. e.mark.mu is held.
func (e *Engine) raiseMark(next int64) error {
	if err := e.place.check(); err != nil {
		return err
	}
	most := next + markAhead
	if err := writeMark(e.path, e.mark.last.Load(), most); err != nil {
		return err
	}
	e.mark.most.Store(most)
	return nil
}

// reach makes sure that the mark is ahead of a commit up to a revision, and of what may be issued without a commit after it. Usually the
// mark is written long before that.
func (e *Engine) reach(next int64) error {
	next += dialect.MaxHeld
	if most := e.mark.most.Load(); most == 0 || next <= most {
		return nil
	}
	e.mark.mu.Lock()
	defer e.mark.mu.Unlock()
	if next <= e.mark.most.Load() {
		return nil
	}
	return e.raiseMark(next)
}

// reached notes that commits have come to a revision, and has the mark written if they come near it.
func (e *Engine) reached(last int64) {
	e.mark.last.Store(last)
	if most := e.mark.most.Load(); most == 0 || last <= most-markAhead/2 || !e.mark.mu.TryLock() {
		return
	}
	if e.mark.closed || last < e.mark.tried+markAhead/20 {
		e.mark.mu.Unlock()
		return
	}
	e.mark.done.Go(func() {
		defer e.mark.mu.Unlock()
		if err := e.raiseMark(e.mark.last.Load()); err != nil {
			e.mark.tried = last
		}
	})
}

// closeMark writes the exact mark of a database that is being closed.
func (e *Engine) closeMark(ctx context.Context) error {
	if e.mark.most.Load() == 0 {
		return nil
	}
	e.mark.mu.Lock()
	e.mark.closed = true
	e.mark.mu.Unlock()
	e.mark.done.Wait()
	var revision int64
	err := e.writer.QueryRowContext(ctx, "SELECT revision FROM counter").Scan(&revision)
	if err == nil {
		err = e.place.check()
	}
	if err == nil && revision != e.mark.most.Load() {
		err = writeMark(e.path, revision, revision)
	}
	return err
}

// end is the end of a log, and what is known of how it got there.
type end struct {
	dialect.End
	boot    string // that was recorded, without holds
	used    bool   // it has rows
	closed  bool   // the file was closed
	copied  bool   // the file is not the one that was opened last
	mark    *mark  // nil if there is none
	ownMark bool
}

// lost says why the log may lack its last commits, "" if nothing speaks for that.
func (l *end) lost(path string) string {
	switch m := l.mark; {
	case m != nil && !l.ownMark:
		return path + " and the mark beside it were copied to their place"
	case m == nil, l.Revision > m.Most: // written by an older sqube, or a restore
		if l.copied && l.used {
			return path + " was copied to its place"
		}
	case l.Revision < m.Least:
		return fmt.Sprintf("%s is at resourceVersion %d, and %d has been in use: this is an older state", path, l.Revision, m.Least)
	case l.closed && m.Most > m.Least:
		return path + " is not the file that the server has left behind which used it last: that was not closed"
	}
	return ""
}

// warnLost says that, and what follows from it.
func warnLost(why string) {
	slog.Warn("the last writes may be missing: resourceVersions jump ahead, and clients that have seen later ones list again; to have the writes back, put the newest files in place", "why", why)
}
