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
	var f followOptions
	cmd := &cobra.Command{
		Use:   "backup FILE | --follow PLACE",
		Short: "Write the database, as of one moment, to a file, also while it is served",
		Long: `Write the database, as of one moment, to a file, also while it is served.

An SQLite database becomes an SQLite file, which is checked; a Postgres database
becomes an archive of pg_dump, which has to be installed. The keys of the cluster,
under --data-dir, are not in it: keep pki with it. With --pki-encryption-key-file
they are, encrypted: keep that file. sqube restore takes the backup back.

With --follow the command goes on until it is ended, and writes what is new to a
folder or an S3 bucket every second: a snapshot first, then every version of every
object. Each moment of the last --keep can be restored, on either engine. Run it
beside the server, and again whenever it ended: it goes on where it was. Credentials
and the region of S3 are those of AWS' own tools (AWS_ACCESS_KEY_ID, ~/.aws, …); for
another store than AWS' add ?endpoint=https://HOST:PORT.`,
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

// backupState tells which state of the database a backup will have. One of an older schema is told by that: it may be to
// have a backup before that changes.
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
