package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/origin"
)

type restorer struct {
	target   datastore.Datastore
	revision int64
	moment   string
	history  time.Duration
	force    bool
	list     bool

	when  string // the moment, for the output; "" without --to-time
	aside string // where the former contents of the target are now
}

func restoreCommand() *cobra.Command {
	var r restorer
	cmd := &cobra.Command{
		Use:   "restore SOURCE",
		Short: "Restore a database from a backup, or from another database as it was",
		Long: `Restore a database from a backup, or from another database, in its current state or
as it was at a revision or a time within --retention. SOURCE is a file that sqube
backup wrote, a folder or s3://BUCKET/PREFIX that sqube backup --follow writes, or a
database in the syntax of --datastore. It can be from the other engine, unless it is
an archive of pg_dump. The database in --datastore must be empty and not served. With
--force, its contents are moved aside; it can then be SOURCE itself.

The versions before that moment become the history of the restored database, from
a folder or s3:// only with --history.

No resourceVersion is used twice: the counter jumps far ahead, and clients that watch
the cluster list it again.

With --cluster, it is the database of a cluster that the server hosts, which must be
asleep (sqube cluster sleep); the server goes on. The cluster keeps its keys, so its
kubeconfigs and tokens remain valid.`,
		Example: `  sqube restore /backups/sqube-2026-11-21.db
  sqube restore sqlite://data/sqube.db --to-time 2026-11-21T10:00:00Z --datastore sqlite://then/sqube.db
  sqube restore s3://backups/sqube --list
  sqube restore s3://backups/sqube --to-time 2026-11-21T10:00:00Z
  sqube restore /backups/all/team/web.db --cluster team/web --force`,
		Args: oneArgument("one SOURCE: a backup, or a database"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := r.run(cmd, args[0])
			if r.aside != "" { // even if a later step failed
				fmt.Fprintf(cmd.OutOrStdout(), "what it held before is in %s\n", r.aside)
			}
			if errors.Is(err, dialect.ErrNotEmpty) {
				return fmt.Errorf("%s is not empty: give another --datastore, or --force to move its contents aside", r.target)
			}
			return err
		},
	}
	addDatastoreFlags(cmd, &r.target)
	fs := cmd.Flags()
	fs.Int64Var(&r.revision, "to-revision", 0, "Revision (resourceVersion) to restore. If unset, the newest.")
	fs.StringVar(&r.moment, "to-time", "", "Time to restore, such as 2026-11-21T10:00:00Z. See --list for the earliest.")
	fs.DurationVar(&r.history, "history", 0, "How far to carry history over from a folder or bucket, such as 168h; that takes several times as long. From a database, all of it is.")
	fs.BoolVar(&r.list, "list", false, "Print the times and revisions that SOURCE covers, and restore nothing.")
	fs.BoolVar(&r.force, "force", false, "Move the database's contents aside: a file gets another name, tables another schema.")
	return cmd
}

func (r *restorer) run(cmd *cobra.Command, source string) (err error) {
	ctx := cmd.Context()
	if r.revision != 0 && r.moment != "" {
		return errors.New("give one of --to-revision and --to-time")
	}
	var moment time.Time
	if r.moment != "" {
		if moment, err = parseMoment("--to-time", "a time", r.moment); err != nil {
			return err
		}
	}
	if origin.IsFollowed(source) {
		return r.fromFollowed(cmd, source, moment)
	}
	archive, err := isPgDump(source)
	switch {
	case err != nil:
		return err
	case archive && r.list:
		return errors.New("--list can't read an archive of pg_dump, which has one state: that of its end")
	case archive:
		return r.restorePgDump(cmd, source)
	}
	from, err := sourceDatabase(source)
	if err != nil {
		return err
	}
	current, remove, err := from.Current(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, remove)
	if r.list {
		return listKept(cmd, current)
	}
	reader, err := current.OpenReader(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	at, kept, found, err := origin.Find(ctx, reader, origin.At{Revision: r.revision, Time: moment})
	if errors.Is(err, inspect.ErrForgotten) {
		err = fmt.Errorf("--to-time %s: %w", r.moment, err)
	}
	if err != nil {
		return err
	}
	r.found(cmd, moment, found)
	c := &contents{rows: func(yield func(*dialect.LogRow) error) error { return inspect.Snapshot(ctx, reader, at, yield) }}
	damaged := 0
	c.past, c.replaced = inspect.Past(ctx, reader, at, func(error) { damaged++ })
	err = r.fill(cmd, from.String(), at, endOf(kept.Revision, kept.Newest), c)
	if err == nil && damaged > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d parts of its history are damaged: sqube check shows which\n", damaged)
	}
	return err
}

// contents are what a database is filled with.
type contents struct {
	rows     func(yield func(*dialect.LogRow) error) error // that are live
	replaced func(yield func(*dialect.LogRow) error) error // nil for none
	past     *dialect.Past                                 // nil for none
}

// sourceDatabase returns the database that an argument names.
func sourceDatabase(source string) (datastore.Datastore, error) {
	if !datastore.Named(source) {
		return datastore.Datastore{Path: source}, nil
	}
	d, err := datastore.Parse(source, "")
	if err != nil {
		return d, fmt.Errorf("the source must be a file, or a database in the syntax of --datastore: %w", err)
	}
	return d, nil
}

// fill fills the target with what a source, which ends at end, had at a revision.
func (r *restorer) fill(cmd *cobra.Command, source string, at int64, end dialect.End, c *contents) (err error) {
	keys := r.ownKeys(cmd)
	var objects atomic.Int64
	done := progress(cmd, func() string { return fmt.Sprintf("%d objects", objects.Load()) })
	r.aside, err = r.target.Fill(cmd.Context(), r.force, func(engine datastore.Engine, replaced dialect.End) error {
		counter, err := jumpedCounter(time.Now(), end, replaced)
		if err != nil {
			return fmt.Errorf("restoring %s over %s, of which one is at an end: %w", source, r.target, err)
		}
		return engine.Load(cmd.Context(), counter, func(add func(*dialect.LogRow) error) error {
			err := c.rows(func(row *dialect.LogRow) error {
				if r.target.Cluster != "" && isKeys(row) {
					return nil
				}
				if history.TransactionEnd(row) == 0 {
					objects.Add(1)
				}
				return add(row)
			})
			if err == nil && c.replaced != nil {
				err = c.replaced(add)
			}
			if err == nil && keys != nil {
				keys.ID, keys.Replaces = counter.Revision, 0
				err = add(keys)
			}
			return err
		}, c.past)
	})
	done()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds the %d objects that %s had at revision %d%s\n", r.target, objects.Load(), source, at, r.when)
	return nil
}

// found notes the revision of a moment for the output, and prints why it may be another one. m is nil without --to-time.
func (r *restorer) found(cmd *cobra.Command, moment time.Time, m *inspect.Moment) {
	if m == nil {
		return
	}
	r.when = ", at " + inspect.Stamp(moment)
	if doubt := m.Doubt(); doubt != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "--to-time %s: %s\n", r.moment, doubt)
	}
}

// endOf returns the end of a log by its newest revision and the time of its last write, the zero time if nothing was written.
func endOf(revision int64, written time.Time) dialect.End {
	if written.IsZero() {
		return dialect.End{Revision: revision}
	}
	return dialect.End{Revision: revision, WrittenAt: written.UnixMilli()}
}

// jumpedCounter returns the position of a log that goes on where others have ended. All revisions before it count as compacted, so that
// clients that have seen a later state than the restored one get 410 and list again.
func jumpedCounter(now time.Time, ends ...dialect.End) (dialect.Position, error) {
	ahead := int64(0)
	for _, end := range ends {
		if err := dialect.CheckRevision(end.Revision); err != nil { // beyond it could overflow
			return dialect.Position{}, err
		}
		ahead = max(ahead, end.Beyond(now))
	}
	return dialect.Position{Revision: ahead, Compacted: ahead}, dialect.CheckRevision(ahead)
}

func (r *restorer) restorePgDump(cmd *cobra.Command, file string) (err error) {
	ctx := cmd.Context()
	switch {
	case !r.target.Shared():
		return errors.New("an archive of pg_dump can only be restored to Postgres: give --datastore postgres://…")
	case r.revision != 0 || r.moment != "":
		return errors.New("--to-revision and --to-time need a database: restore the archive to a database first, then that database")
	}
	var revision int64
	if revision, r.aside, err = r.target.RestoreDump(ctx, file, r.force); err != nil {
		return err
	}
	if _, err := r.target.Migrate(ctx); err != nil { // the archive may have an older schema
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds the content of %s, revision %d\n", r.target, file, revision)
	return nil
}

func isPgDump(source string) (bool, error) {
	if datastore.Named(source) {
		return false, nil
	}
	return origin.IsPgDump(source)
}
