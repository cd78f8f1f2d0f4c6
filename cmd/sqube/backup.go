package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/wholefile"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func backupCommand() *cobra.Command {
	var d datastore.Datastore
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the database, as of one moment, to a file, also while it is served",
		Long: `Write the database, as of one moment, to a file, also while it is served.

An SQLite database becomes an SQLite file, which is checked; a Postgres database
becomes an archive of pg_dump, which has to be installed. The keys of the cluster,
under --data-dir, are not in it: keep pki with it. With --pki-encryption-key-file
they are, encrypted: keep that file. sqube restore takes the backup back.`,
		Example: "  sqube backup /backups/sqube-$(date +%F).db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			file := args[0]
			state, err := backedUp(cmd.Context(), d)
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
	return cmd
}

// backedUp tells which state of the database a backup will have. One of an older schema is told by that: it may be to
// have a backup before that changes.
func backedUp(ctx context.Context, d datastore.Datastore) (state string, err error) {
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
