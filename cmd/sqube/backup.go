package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func backupCommand() *cobra.Command {
	var d datastore.Datastore
	var f followOptions
	var all string // the flag --all
	cmd := &cobra.Command{
		Use:   "backup FILE | --follow PLACE | --all FOLDER",
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
asleep; with --all, each of them and the server's own.`,
		Example: `  sqube backup /backups/sqube-$(date +%F).db
  sqube backup --follow /mnt/backups/sqube
  sqube backup --follow 's3://backups/sqube?endpoint=https://minio.example.com:9000'
  sqube backup --cluster team/web /backups/web.db
  sqube backup --all /backups/$(date +%F)`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if all != "" {
				if len(args) > 0 || f.place != "" || d.Cluster != "" {
					return errors.New("--all takes no FILE, --follow or --cluster")
				}
				return backupAll(cmd, d, all)
			}
			if err := f.check(args); err != nil {
				return err
			}
			if f.place != "" {
				return f.run(cmd, d)
			}
			return backupTo(cmd, d, args[0])
		},
	}
	addDatastoreFlags(cmd, &d)
	f.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&all, "all", "", "Folder, empty or new, for a backup of the database and of each cluster that the server hosts: host.db and NAMESPACE/NAME.db (SQLite).")
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

// backupAll backs up a server's own database and those of the clusters that it hosts. If one fails, the others are still backed up.
func backupAll(cmd *cobra.Command, d datastore.Datastore, folder string) error {
	if d.Shared() {
		return errors.New("--all is for SQLite: on Postgres, sqube backup FILE has the clusters of the server too")
	}
	if err := wholefile.MakeFolder(folder, 0o700); err != nil {
		return err
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty: give another folder", folder))
	}
	if err := backupTo(cmd, d, filepath.Join(folder, "host.db")); err != nil {
		return err
	}
	hosted, err := d.HostedClusters(cmd.Context())
	if err != nil {
		return err
	}
	var failed error
	for _, name := range slices.Sorted(maps.Keys(hosted)) {
		file := filepath.Join(folder, filepath.FromSlash(name)+".db")
		one, err := d.Hosted(cmd.Context(), hosted[name])
		if err == nil {
			err = errors.Join(wholefile.MakeFolder(filepath.Dir(file), 0o700), backupTo(cmd, one, file))
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("the cluster %s: %w", name, err))
		}
	}
	return failed
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
