package logbackup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// Forever is the Keep of a place from which nothing is removed.
const Forever time.Duration = math.MaxInt64

// Options configure a Follower.
type Options struct {
	Interval         time.Duration // how often to look for new rows
	SnapshotInterval time.Duration // how often to make a snapshot, from which a restore starts; counted from midnight UTC
	Keep             time.Duration // how long each moment can be restored, not counting the time without a follower; see removeExpired
	// Past makes a new backup start with the oldest revision that can still be read, not with the newest.
	Past bool
	Log  *slog.Logger
	// OnStep is called after each step with the revision up to which the place is complete, and the error. Optional.
	OnStep func(revision int64, err error)
}

// Follower writes new rows of a log to a place.
//
// All its state is in the place: after a start it continues after the last row there. It begins a new generation with a snapshot if rows
// were compacted before they were backed up, because the follower was away for longer than the server's retention, and if the
// database is not the one in the backup.
type Follower struct {
	place   Place
	open    func(context.Context) (dialect.Reader, error)
	options Options

	known   []*generation // those after the first that has a snapshot have one too
	current *generation   // the last of known
	began   time.Time     // when current began
	number  int           // of the last generation
	started time.Time     // when this process began to follow, by the monotonic clock
	before  time.Duration // for how long the place had been followed then
	stray   string        // the snapshot of a failed generation, which may exist

	shipped int64 // all rows up to this revision are in the place
	seen    int64 // there are no other rows up to this revision
	last    mark  // of the newest row in the place

	mergeFiles int // see merge
	batchRows  int // see readRows
}

// mark distinguishes a row from one with the same id in another database.
type mark struct {
	id, writtenAt int64
	uid           string
}

func (m *mark) set(row *dialect.LogRow) { *m = mark{row.ID, row.WrittenAt, row.UID} }

// Follow brings the place up to date and returns a Follower that keeps it up to date. open opens the database for each read, since it may
// be replaced meanwhile. The place must be held (Place.Hold).
func Follow(ctx context.Context, place Place, open func(context.Context) (dialect.Reader, error), o Options) (*Follower, error) {
	return follow(ctx, &Follower{place: place, open: open, options: o, mergeFiles: mergedFiles, batchRows: batchRows})
}

func follow(ctx context.Context, f *Follower) (*Follower, error) {
	f.started = time.Now()
	if err := f.place.Sweep(ctx); err != nil && ctx.Err() == nil { // new files can be written nevertheless
		f.options.Log.Warn("what interrupted uploads have left may stay; in S3, a lifecycle rule can remove it", "error", err)
	}
	if err := f.resume(ctx); err != nil {
		return nil, err
	}
	return f, f.step(ctx)
}

// Shipped returns the revision up to which the place is complete.
func (f *Follower) Shipped() int64 { return f.shipped }

// followed returns for how long the place has been followed.
func (f *Follower) followed() time.Duration { return f.before + time.Since(f.started) }

// resume reads the state of the place, and removes what an earlier follower left unfinished.
func (f *Follower) resume(ctx context.Context) error {
	files, err := f.place.List(ctx)
	if err != nil {
		return err
	}
	all := generations(files)
	if len(all) > 0 {
		f.number = all[len(all)-1].number
	}
	f.known = whole(all)
	if len(f.known) == 0 {
		return nil
	}
	first := slices.Index(all, f.known[0])
	f.known = slices.Concat(all[:first], f.known) // what an interrupted removeExpired left
	g := f.known[len(f.known)-1]
	h, err := f.readLast(ctx, g.snapshot.Name)
	if err != nil {
		return err
	}
	chain, covered, beyond := g.chain(h.UpTo)
	f.current, f.began, f.shipped = g, g.snapshot.Changed, h.UpTo
	if len(chain) > 0 {
		end := chain[len(chain)-1]
		f.shipped = end.upTo
		if h, err = f.readLast(ctx, end.Name); err != nil {
			return err
		}
	}
	if len(beyond) > 0 {
		f.options.Log.Warn("a file is missing; it is written again if the database still has its versions", "after", f.shipped, "up to", beyond[0].after)
	}
	f.before, f.seen, g.segments = milliseconds(h.Followed), f.shipped, chain
	return f.remove(ctx, covered)
}

// readLast reads a whole file, remembers its last row, and returns its last head.
func (f *Follower) readLast(ctx context.Context, name string) (last head, err error) {
	err = readFile(ctx, f.place, name, func(h head) error {
		last = h
		return nil
	}, decoded(func(l *dialect.LogRow) error {
		f.last.set(l)
		return nil
	}))
	return last, withHint(err)
}

// reportEvery is how often to log a persistent failure.
const reportEvery = time.Minute

// Run calls Step until ctx ends or another process takes over the place. Failures are logged and retried.
func (f *Follower) Run(ctx context.Context, lost <-chan struct{}) error {
	var reported time.Time // zero while nothing fails
	ticker := time.NewTicker(f.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return ErrHeld
		case <-ticker.C:
		}
		err := f.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && time.Since(reported) >= reportEvery:
			reported = time.Now()
			f.options.Log.Error("the backup fails; trying again", "error", err, "revision", f.shipped)
		case err == nil && !reported.IsZero():
			reported = time.Time{}
			f.options.Log.Info("the backup continues", "revision", f.shipped)
		}
	}
}

func (f *Follower) step(ctx context.Context) error {
	err := f.Step(ctx)
	if f.options.OnStep != nil {
		f.options.OnStep(f.seen, err)
	}
	return err
}

// Step writes new rows to the place. If it fails, nothing is lost, and the next call continues.
func (f *Follower) Step(ctx context.Context) (err error) {
	reader, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	if f.stray != "" {
		if err := f.place.Remove(ctx, f.stray); err != nil {
			return err
		}
		f.stray = ""
	}
	if f.current == nil {
		return f.begin(ctx, reader)
	}
	for {
		more, why, err := f.look(ctx, reader)
		var b *batch
		if err == nil && more {
			b, err = f.readRows(ctx, reader)
		}
		if b != nil {
			why = b.why
		}
		switch {
		case err != nil:
			return err
		case why != "":
			f.options.Log.Warn("a new generation begins", "after", f.shipped, "reason", why)
			return f.begin(ctx, reader)
		}
		if b == nil {
			return f.renewSnapshot(ctx, reader)
		}
		if len(b.rows) == 0 {
			continue // they were compacted meanwhile; look says so
		}
		if err := f.ship(ctx, b); err != nil {
			return err
		}
	}
}

// begin starts a generation that does not continue another.
func (f *Follower) begin(ctx context.Context, reader dialect.Reader) error {
	at, err := inspect.Read(ctx, reader)
	if err != nil {
		return err
	}
	if at.Newest.IsZero() { // the log is empty
		at.Newest = time.Now()
	}
	h := head{UpTo: at.Revision, WrittenAt: at.Newest.UnixMilli()}
	if f.options.Past {
		if h, err = oldest(ctx, reader, h); err != nil {
			return err
		}
	}
	return f.snapshot(ctx, reader, h.UpTo, h)
}

// oldest returns the head of a snapshot of the oldest revision that can be read, or newest if there is no later one. Its time is that of
// the next revision: objects deleted before that may be compacted.
func oldest(ctx context.Context, reader dialect.Reader, newest head) (h head, err error) {
	const statement = "SELECT compacted, (SELECT written_at FROM log WHERE id > compacted ORDER BY id LIMIT 1) FROM counter"
	h = newest
	err = reader.Query(ctx, statement, nil, func(row dialect.Row) error {
		var compacted int64
		var next *int64
		if err := row.Scan(&compacted, &next); err != nil || next == nil {
			return err
		}
		h = head{UpTo: compacted, WrittenAt: *next}
		return nil
	})
	if err == nil {
		h.UpTo, err = history.WholeTransaction(ctx, reader, h.UpTo)
	}
	return h, err
}

// renewSnapshot starts a generation that continues the current one, if that is old and has rows after its snapshot.
func (f *Follower) renewSnapshot(ctx context.Context, reader dialect.Reader) error {
	interval := f.options.SnapshotInterval
	if time.Now().Truncate(interval).Equal(f.began.Truncate(interval)) || len(f.current.segments) == 0 {
		return nil
	}
	return f.snapshot(ctx, reader, f.seen, head{UpTo: f.shipped, WrittenAt: f.last.writtenAt})
}

// snapshot starts a generation with a snapshot at a revision.
func (f *Follower) snapshot(ctx context.Context, reader dialect.Reader, revision int64, h head) error {
	f.number++
	began, last := time.Now(), mark{}
	g, followed := newGeneration(f.number, began), f.followed()
	h.After, h.ReadAt, h.Followed = f.shipped, began.UnixMilli(), followed.Milliseconds()
	err := f.place.Put(ctx, g.snapshotPath(), func(to io.Writer) error {
		w, err := newWriter(to, h)
		if err != nil {
			return err
		}
		err = inspect.Snapshot(ctx, reader, revision, func(row *dialect.LogRow) error {
			last.set(row)
			return w.add(row)
		})
		return errors.Join(err, w.close())
	})
	if err != nil {
		f.stray = g.snapshotPath()
		return errors.Join(err, f.removeExpired(ctx)) // the place may be full
	}
	g.snapshot, g.followed = &File{Name: g.snapshotPath(), Changed: began}, &followed
	f.known, f.current, f.began = append(f.known, g), g, began
	f.shipped, f.seen, f.last = h.UpTo, revision, last
	f.options.Log.Info("made a snapshot", "generation", g.name, "revision", f.shipped)
	return f.removeExpired(ctx)
}

// removeExpired removes generations that ended before Keep.
//
// A generation is as old as the time for which the place has been followed since the next one began. Wall clocks and the times of files
// can't tell: they are wrong after a boot without a clock, and right again later. The time without a follower does not count, so
// nothing is removed too early.
func (f *Follower) removeExpired(ctx context.Context) error {
	for len(f.known) > 1 && f.options.Keep < Forever {
		next := slices.IndexFunc(f.known[1:], func(g *generation) bool { return g.snapshot != nil })
		followed, err := f.followedBefore(ctx, f.known[1+next])
		if err != nil {
			return err
		}
		if f.followed()-followed <= f.options.Keep {
			return nil
		}
		// Without its snapshot, the rest is no generation. If this is interrupted, it is removed later.
		g := f.known[0]
		if err := f.place.Remove(ctx, g.snapshotPath()); err != nil {
			return err
		}
		if err := f.remove(ctx, g.segments); err != nil {
			return err
		}
		f.known = f.known[1:]
	}
	return nil
}

// followedBefore returns for how long the place had been followed when a generation began. It is 0 in generations of earlier versions.
func (f *Follower) followedBefore(ctx context.Context, g *generation) (time.Duration, error) {
	if g.followed == nil {
		first, err := firstHead(ctx, f.place, g.snapshot.Name)
		if err != nil {
			return 0, err
		}
		followed := milliseconds(first.Followed)
		g.followed = &followed
	}
	return *g.followed, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
