package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
)

// addDatastoreFlag adds --datastore. The caller provides the folder of the default.
func addDatastoreFlag(fs *pflag.FlagSet, flag *string) {
	fs.StringVar(flag, "datastore", "", "Database with the cluster's state: sqlite://PATH, or postgres://USER:PASSWORD@HOST:PORT/DATABASE in libpq's syntax. If unset, sqube.db under --data-dir.")
	classify(fs, "datastore")
}

// classify has /flagz hide the value of a flag, which may hold a password.
func classify(fs *pflag.FlagSet, flag string) {
	fs.Lookup(flag).Annotations = map[string][]string{"classified": {"true"}}
}

// addDatastoreFlags adds --datastore and --data-dir to a command and its subcommands. When they run, d is the database that the
// flags name.
func addDatastoreFlags(cmd *cobra.Command, d *datastore.Datastore) {
	var flag, dataDir string
	addDatastoreFlag(cmd.PersistentFlags(), &flag)
	addSharedFlags(cmd, &dataDir, "Folder of the SQLite database, used if --datastore is unset.")
	apply := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := apply(cmd, args); err != nil {
			return err
		}
		cmd.SetContext(untilInterrupt(cmd.Context()))
		*d, err = datastore.Parse(flag, dataDir)
		return err
	}
}
