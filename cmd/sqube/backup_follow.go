package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// followOptions are the flags of backup --follow.
type followOptions struct {
	place   string
	options logbackup.Options
}

func (f *followOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.place, "follow", "", "Folder, or s3://BUCKET/PREFIX, for a continuous backup until the command is stopped.")
	fs.DurationVar(&f.options.Interval, "sync-interval", time.Second, "With --follow, how often new versions are written.")
	fs.DurationVar(&f.options.SnapshotInterval, "snapshot-interval", 24*time.Hour, "With --follow, how often a full snapshot is written. A restore starts from a snapshot.")
	fs.DurationVar(&f.options.Keep, "keep", 7*24*time.Hour, "With --follow, how far back you can restore, not counting the time that the command does not run.")
}

func (f *followOptions) check(args []string) error {
	switch {
	case f.place != "" && len(args) > 0:
		return errors.New("give FILE or --follow, not both")
	case f.place == "" && len(args) != 1:
		return errors.New("give one FILE, or --follow and a place")
	case f.options.Interval <= 0 || f.options.SnapshotInterval <= 0 || f.options.Keep < 0:
		return errors.New("--sync-interval and --snapshot-interval must be more than 0, and --keep must not be negative")
	}
	return nil
}

// lastStep is how long the command waits at its end for new versions to be written.
const lastStep = 10 * time.Second

func (f *followOptions) run(cmd *cobra.Command, d datastore.Datastore) (err error) {
	ctx := cmd.Context()
	place, err := logbackup.ParsePlace(f.place)
	if err != nil {
		return err
	}
	opener := &readers{datastore: d}
	defer closing(&err, opener.close)
	if reader, err := opener.open(ctx); err != nil { // before anything is created
		return err
	} else if err := reader.Close(); err != nil {
		return err
	}
	lost, release, err := place.Hold(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	defer closing(&err, release)
	f.options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	follower, err := logbackup.Follow(ctx, place, opener.open, f.options)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s follows %s from revision %d\n", place, d, follower.Shipped())
	if err := follower.Run(ctx, lost); err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastStep)
	defer cancel()
	if err := follower.Step(bounded); err != nil {
		return fmt.Errorf("%s holds %s up to revision %d; later revisions could not be written: %w", place, d, follower.Shipped(), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s up to revision %d\n", place, d, follower.Shipped())
	return nil
}

// readers opens a database repeatedly. An SQLite file is opened each time, since it may be replaced, or read differently while it is
// served. Connections to Postgres are kept.
type readers struct {
	datastore datastore.Datastore
	kept      dialect.Reader
}

func (r *readers) open(ctx context.Context) (reader dialect.Reader, err error) {
	if !r.datastore.Shared() {
		return r.datastore.OpenReader(ctx)
	}
	if r.kept == nil {
		if r.kept, err = r.datastore.OpenReader(ctx); err != nil {
			r.kept = nil
			return nil, err
		}
	}
	return borrowed{r.kept}, nil
}

func (r *readers) close() error {
	if r.kept == nil {
		return nil
	}
	return r.kept.Close()
}

// borrowed is a reader that Close leaves open.
type borrowed struct{ dialect.Reader }

func (borrowed) Close() error { return nil }
