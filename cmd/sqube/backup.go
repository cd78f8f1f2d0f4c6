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
	"github.com/sqube/sqube/cmd/sqube/internal/logbackup"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func backupCommand() *cobra.Command {
	var d datastore.Datastore
	var f followOptions
	cmd := &cobra.Command{
		Use:   "backup FILE | --follow PLACE",
		Short: "Back up the database, as of one moment, to a file, even while it is served",
		Long: `Back up the database, as of one moment, to a file, even while it is served.

An SQLite database becomes an SQLite file, which is checked; a Postgres database
becomes an archive of pg_dump, which must be installed. The backup does not contain
the cluster's keys: keep pki under --data-dir with it. With --pki-encryption-key-file,
it contains them, encrypted: keep that file. sqube restore restores the backup.

With --follow, the command runs until you stop it. It writes a snapshot and then,
every second, the new versions of objects to a folder or an S3 bucket. You can restore
any moment within --keep, on either engine. Run it beside the server, and restart it
whenever it ends; it continues where it stopped. S3 credentials and region come from
the usual AWS sources (AWS_ACCESS_KEY_ID, ~/.aws, …). For a store other than AWS, add
?endpoint=https://HOST:PORT.`,
		Example: `  sqube backup /backups/sqube-$(date +%F).db
  sqube backup --follow /mnt/backups/sqube
  sqube backup --follow 's3://backups/sqube?endpoint=https://minio.example.com:9000'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := f.check(args); err != nil {
				return err
			}
			if f.place != "" {
				return f.run(cmd, d)
			}
			file := args[0]
			state, err := backupState(cmd.Context(), d)
			if err != nil {
				return err
			}
			err = wholefile.Create(file, func(f *os.File) error {
				defer watchSize(cmd, f.Name())()
				return d.Backup(cmd.Context(), f)
			})
			if err != nil {
				return err
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s, %s\n", file, d, state, size(info.Size()))
			return nil
		},
	}
	addDatastoreFlags(cmd, &d)
	f.addFlags(cmd.Flags())
	return cmd
}

// backupState describes the state that a backup will have: its revision, or its schema if that is an older one, since the backup
// may be one before an upgrade.
func backupState(ctx context.Context, d datastore.Datastore) (state string, err error) {
	if status, err := d.Status(ctx); err == nil && status.Older() {
		return fmt.Sprintf("schema %d", status.Current), nil
	}
	reader, err := d.OpenReader(ctx)
	if err != nil {
		return "", err
	}
	defer closing(&err, reader.Close)
	at, _, err := inspect.Position(ctx, reader)
	return fmt.Sprintf("revision %d or later", at.Revision), err
}

// followOptions are the flags of backup --follow.
type followOptions struct {
	place   string
	options logbackup.Options
}

func (f *followOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.place, "follow", "", "Folder, or s3://BUCKET/PREFIX, for a continuous backup until the command is stopped.")
	fs.DurationVar(&f.options.Interval, "sync-interval", time.Second, "With --follow, how often new versions are written.")
	fs.DurationVar(&f.options.SnapshotInterval, "snapshot-interval", 24*time.Hour, "With --follow, how often a full snapshot is written. A restore starts from a snapshot.")
	fs.DurationVar(&f.options.Keep, "keep", 7*24*time.Hour, "With --follow, how far back you can restore.")
}

func (f *followOptions) check(args []string) error {
	switch {
	case f.place != "" && len(args) > 0:
		return errors.New("give FILE or --follow, not both")
	case f.place == "" && len(args) == 0:
		return errors.New("give FILE, or --follow and a place")
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
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastStep)
		defer cancel()
		if released := release(bounded); err == nil {
			err = released
		}
	}()
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
