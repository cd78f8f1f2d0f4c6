package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// The longest interval between writes to the archive, and the interval of snapshots: each day has a folder.
const (
	archiveInterval  = 10 * time.Second
	archiveSnapshots = 24 * time.Hour
)

// archiver writes an archive of the log while it is served, and reports its progress.
type archiver struct {
	place   logbackup.Place
	open    func(context.Context) (dialect.Reader, error)
	shared  bool // other servers on the database may write the archive
	options logbackup.Options

	mu       sync.Mutex
	revision int64 // everything up to it is in the archive
	err      error // of the last step
}

// archived is sqlstore.Options.Archived.
func (a *archiver) archived() (revision int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revision, a.err
}

func (a *archiver) note(revision int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision, a.err = revision, err
}

// run writes the archive until ctx ends. Failures are logged and retried.
func (a *archiver) run(ctx context.Context) {
	logged := ""
	for {
		err := a.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if revision, _ := a.archived(); revision > 0 {
			logged = "" // it was written in between
		}
		elsewhere := a.shared && errors.Is(err, logbackup.ErrHeld)
		if elsewhere {
			err = sqlstore.ErrArchivedElsewhere
		}
		a.note(0, err)
		switch {
		case err.Error() == logged:
		case elsewhere:
			a.options.Log.Info("another server writes the archive")
		default:
			a.options.Log.Error("the archive can't be written; trying again", "error", err)
		}
		logged = err.Error()
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.options.Interval):
		}
	}
}

// follow writes the archive until ctx ends or another process takes over. It returns an error if another process is writing it.
func (a *archiver) follow(ctx context.Context) (err error) {
	lost, release, err := a.place.Hold(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, release)
	follower, err := logbackup.Follow(ctx, a.place, a.open, a.options)
	if err != nil {
		return err
	}
	return follower.Run(ctx, lost)
}

// archive starts writing the archive, and sets options so that the store keeps versions until they are archived. Closing the returned
// engine stops it.
func (o *serveOptions) archive(ctx context.Context, engine dialect.Engine, options *sqlstore.Options) dialect.Engine {
	kept := &readers{datastore: o.datastore}
	a := &archiver{place: o.archivePlace, shared: o.datastore.Shared(), open: kept.open}
	if !a.shared {
		a.open = func(context.Context) (dialect.Reader, error) { return borrowed{engine}, nil }
	}
	a.options = logbackup.Options{
		Interval: max(min(archiveInterval, options.Retention/10), time.Millisecond), SnapshotInterval: archiveSnapshots, Keep: logbackup.Forever,
		Past: true, Log: slog.With("archive", a.place.String()), OnStep: a.note,
	}
	if options.CompactInterval > 0 {
		a.options.Interval = min(a.options.Interval, options.CompactInterval)
	}
	options.Archived = a.archived
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.run(ctx)
	}()
	return archived{engine, func() error {
		stop()
		<-ended
		return kept.close()
	}}
}

// archived is an engine whose log is archived.
type archived struct {
	dialect.Engine
	end func() error
}

func (e archived) Close() error { return errors.Join(e.end(), e.Engine.Close()) }
