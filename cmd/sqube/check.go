package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/resources/previous"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/origin"
)

func checkCommand() *cobra.Command {
	var c check
	var key sharedkeys.Options
	var version string
	cmd := &cobra.Command{
		Use:   "check [BACKUP]",
		Short: "Check whether a database or a backup is complete and consistent",
		Long: `Check whether a database is complete and consistent, even while it is served: the
counter is not behind any row, each object's versions follow each other and at most
one is live, every value is readable and is the object that its row names, and the
namespaces of all objects exist. Each problem is printed on one line, and the command
fails. It also fails if values are encrypted and their keys were not given.

If objects are stored in a version that is no longer the storage version, this prints how
many, and how to have the server rewrite them. That is no problem.

BACKUP is an SQLite file that sqube backup wrote, to check instead of --datastore.
Other backups can be checked once they are restored.

With --repair, while no server runs, fix what can be fixed without losing anything.

With --for, check instead whether a sqube with the previous minor version of Kubernetes
can serve the database, to go back to it: find the resources, stored versions and fields
that it does not know. What is stored in fields that it does not know would be lost when
it writes those objects.`,
		Example: `  sqube check
  sqube check /backups/sqube-2026-11-21.db
  sqube check --for v1.36`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				if err := c.choose(args[0]); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("for") {
				if err := c.chooseVersion(version); err != nil {
					return err
				}
			}
			if c.keys, err = encryption.Load(c.encryption, ""); err != nil {
				return err
			}
			defer c.keys.Close()
			if c.shared, err = key.Load(); err != nil {
				return err
			}
			if c.repair { // a counter that has gone back is mended when the database is opened, which is logged
				slog.SetDefault(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
			}
			return c.run(cmd)
		},
	}
	addDatastoreFlags(cmd, &c.datastore)
	cmd.Flags().BoolVar(&c.repair, "repair", false, "Fix what can be fixed without losing anything.")
	cmd.Flags().StringVar(&version, "for", "", "Previous minor version of Kubernetes: check whether a sqube with that version can serve the database.")
	addEncryptionFlag(cmd, &c.encryption)
	key.AddFlags(cmd.Flags())
	return cmd
}

type check struct {
	datastore  datastore.Datastore
	encryption encryption.Options
	keys       *encryption.Encryption
	shared     *sharedkeys.Sealer // nil without --pki-encryption-key-file
	repair     bool
	backup     bool              // datastore is a backup
	previous   *previous.Version // of --for
}

// choose has the check read a backup.
func (c *check) choose(source string) error {
	const restored = "%s is %s: restore it to an empty database with sqube restore %[1]s --datastore %[3]s, and check that"
	if origin.IsFollowed(source) {
		return fmt.Errorf(restored, source, "a folder of sqube backup --follow", "sqlite://NEW")
	}
	dump, err := isPgDump(source)
	if err == nil && dump {
		err = fmt.Errorf(restored, source, "an archive of pg_dump", "postgres://…")
	}
	if err == nil && c.repair {
		err = errors.New("--repair is for databases: restore the backup, and repair what was restored")
	}
	if err != nil {
		return err
	}
	c.backup = true
	c.datastore, err = sourceDatabase(source)
	return err
}

// errFindings means that something is wrong, which has been printed.
var errFindings = errors.New("something is wrong")

func (c *check) run(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	if err := c.datastore.Verify(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.datastore, err)
	}
	opened, remove := c.datastore, func() error { return nil }
	if c.backup {
		if opened, remove, err = c.datastore.Current(ctx); err != nil {
			return err
		}
	}
	defer closing(&err, remove)
	reader, engine, err := c.open(ctx, opened)
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	if c.previous != nil {
		return c.canGoBack(cmd, reader)
	}
	out := newTable(cmd.OutOrStdout(), "REVISION", "OBJECT", "FINDING")
	var findings []inspect.Finding
	checked, err := inspect.Check(ctx, reader, c.decode(ctx), func(f inspect.Finding) { findings = append(findings, f) })
	if err != nil {
		return fmt.Errorf("%s: %w", c.datastore, err)
	}
	left := 0
	for _, f := range findings {
		what := f.What
		switch {
		case f.Repair == "":
			left++
		case !c.repair:
			left++
			what += " (--repair can fix it)"
		default:
			if err := engine.Exec(ctx, f.Repair); err != nil {
				return errors.Join(out.end(), fmt.Errorf("%s: fixing %s: %w", c.datastore, f.Object, err)) // with what has been fixed
			}
			what += ": fixed"
		}
		out.row(number(f.Revision), f.Object, what)
	}
	if len(findings) > 0 {
		if err := out.end(); err != nil {
			return err
		}
	}
	if err := c.printOutdated(ctx, cmd.OutOrStdout(), reader, checked); err != nil {
		return fmt.Errorf("%s: %w", c.datastore, err)
	}
	if left > 0 {
		err = fmt.Errorf("%s: %w: %d findings in %d rows of %d objects", c.datastore, errFindings, left, checked.Rows, checked.Objects)
	}
	if checked.Unread > 0 {
		err = errors.Join(err, c.unread(checked.Unread, checked.Rows))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rows of %d objects, nothing wrong\n", c.datastore, checked.Rows, checked.Objects)
	return nil
}

// number is what a table shows of the revision of a finding, 0 for none.
func number(revision int64) string {
	if revision == 0 {
		return ""
	}
	return fmt.Sprint(revision)
}

func (c *check) unread(rows, of int64) error {
	return fmt.Errorf("%s: the values of %d rows of %d are encrypted and were not checked: give the file that the server has with --encryption-provider-config", c.datastore, rows, of)
}

// open opens the database for reading, or for repairs, which are possible only while no server uses it.
func (c *check) open(ctx context.Context, d datastore.Datastore) (reader dialect.Reader, engine datastore.Engine, err error) {
	if !c.repair {
		reader, err = d.OpenReader(ctx)
		return reader, nil, err
	}
	if err = d.Unserved(ctx); err == nil {
		engine, err = d.Open(ctx)
	}
	return engine, engine, err
}

func (c *check) decode(ctx context.Context) func(sqlstore.Resource, string, []byte) ([]byte, error) {
	return func(r sqlstore.Resource, key string, stored []byte) ([]byte, error) {
		if r == sharedkeys.Resource && key == sharedkeys.Name && c.shared != nil {
			_, err := c.shared.Decode(stored)
			return stored, err
		}
		value, err := decrypt(ctx, c.keys, r, key, stored)
		if errors.Is(err, encryption.ErrNoConfig) {
			err = inspect.ErrUnread
		}
		return value, err
	}
}
