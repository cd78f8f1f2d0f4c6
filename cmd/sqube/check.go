package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func checkCommand() *cobra.Command {
	var c check
	var key sharedkeys.Options
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether a database is complete and consistent, even while it is served",
		Long: `Check whether a database is complete and consistent, even while it is served: the
counter is not behind any row, each object's versions follow each other and at most
one is live, every value is readable and is the object that its row names, and the
namespaces of all objects exist. Each problem is printed on one line.

With --repair, while no server runs, fix what can be fixed without losing anything.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.keys, err = encryption.Load(c.encryption, ""); err != nil {
				return err
			}
			defer c.keys.Close()
			if c.shared, err = key.Load(); err != nil {
				return err
			}
			return c.run(cmd)
		},
	}
	addDatastoreFlags(cmd, &c.datastore)
	cmd.Flags().BoolVar(&c.repair, "repair", false, "Fix what can be fixed without losing anything.")
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
}

// errFindings means that something is wrong, which has been printed.
var errFindings = errors.New("something is wrong")

func (c *check) run(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	if err := c.datastore.Verify(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.datastore, err)
	}
	reader, engine, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
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
			if err := engine.Exec(ctx, f.Repair, f.Args...); err != nil {
				return errors.Join(out.end(), fmt.Errorf("%s: fixing %s: %w", c.datastore, f.Object, err)) // with what has been fixed
			}
			what += ": fixed"
		}
		revision := ""
		if f.Revision != 0 {
			revision = fmt.Sprint(f.Revision)
		}
		out.row(revision, f.Object, what)
	}
	if len(findings) > 0 {
		if err := out.end(); err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("%s: %w: %d findings in %d rows of %d objects", c.datastore, errFindings, left, checked.Rows, checked.Objects)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rows of %d objects, nothing wrong\n", c.datastore, checked.Rows, checked.Objects)
	return nil
}

// open opens the database for reading, or for repairs, which are possible only while no server uses it.
func (c *check) open(ctx context.Context) (reader dialect.Reader, engine datastore.Engine, err error) {
	if !c.repair {
		reader, err = c.datastore.OpenReader(ctx)
		return reader, nil, err
	}
	if err = c.datastore.Unserved(ctx); err == nil {
		engine, err = c.datastore.Open(ctx)
	}
	return engine, engine, err
}

func (c *check) decode(ctx context.Context) func(sqlstore.Resource, string, []byte) ([]byte, error) {
	return func(r sqlstore.Resource, key string, stored []byte) ([]byte, error) {
		if r == sharedkeys.Resource && c.shared != nil {
			_, err := c.shared.Decode(stored)
			return stored, err
		}
		return decrypt(ctx, c.keys, r, key, stored)
	}
}
