package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func backupCommand() *cobra.Command {
	var d datastore.Datastore
	var f followOptions
	var all bool // the flag --all
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
?endpoint=https://HOST:PORT.

With --cluster, it is the database of one cluster that the server hosts, awake or
asleep; with --all, each of them and the server's own. What a cluster's backup has of
its keys can be read only with the host's own backup.`,
		Example: `  sqube backup /backups/sqube-$(date +%F).db
  sqube backup --follow /mnt/backups/sqube
  sqube backup --follow 's3://backups/sqube?endpoint=https://minio.example.com:9000'
  sqube backup --cluster team/web /backups/web.db
  sqube backup --all /backups/$(date +%F)
  sqube backup --all --follow s3://backups/clusters`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := f.check(args); err != nil {
				return err
			}
			switch {
			case all && (d.Shared() || d.Cluster != ""):
				return errors.New("--all is for the clusters of a server on SQLite: on Postgres, back up the whole database (pg_dump, pg_basebackup), or one cluster with --cluster and --follow")
			case all && f.place != "":
				return f.runAll(cmd, d)
			case all:
				return backupAll(cmd, d, args[0])
			case f.place != "":
				return f.run(cmd, d)
			}
			return backupTo(cmd, d, args[0])
		},
	}
	addDatastoreFlags(cmd, &d)
	f.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "Back up each cluster that the server hosts too: FILE is then a new folder, which gets _host.db and a NAMESPACE/NAME.db for each; PLACE gets _host, and a NAMESPACE/NAME for each (SQLite).")
	return cmd
}

// backupTo backs up a database to a new file.
func backupTo(cmd *cobra.Command, d datastore.Datastore, file string) error {
	if err := d.Complete(); err != nil {
		return err
	}
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
	at, err := inspect.Read(ctx, reader)
	return fmt.Sprintf("revision %d or later", at.Revision), err
}
