package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
)

// datastoreFlags are the flags that name a database.
type datastoreFlags struct {
	name            string // --datastore
	passwordCommand string // --datastore-password-command
}

// addFlags adds the flags. The caller provides the folder of the default.
func (f *datastoreFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "datastore", "", "Database with the cluster's state: sqlite://PATH, or postgres://USER:PASSWORD@HOST:PORT/DATABASE in libpq's syntax. If unset, sqube.db under --data-dir.")
	fs.StringVar(&f.passwordCommand, "datastore-password-command", "", "Program that prints the password for --datastore on Postgres, with arguments separated by spaces, without a shell. It runs for new connections, at most every 2s.")
	for _, name := range []string{"datastore", "datastore-password-command"} {
		classify(fs, name)
	}
}

// database returns the database that the flags name, by default in the folder dataDir.
func (f *datastoreFlags) database(dataDir string) (datastore.Datastore, error) {
	d, err := datastore.Parse(f.name, dataDir)
	d.UsePasswordCommand(f.passwordCommand)
	return d, err
}

// complete returns the database for a server. It also refuses a password command that has no use.
func (f *datastoreFlags) complete(dataDir string) (datastore.Datastore, error) {
	d, err := f.database(dataDir)
	switch {
	case err != nil || f.passwordCommand == "":
	case !d.Shared():
		err = errors.New("--datastore-password-command needs a --datastore postgres://…")
	case datastore.HasPassword(f.name):
		err = errors.New("--datastore must not have a password if --datastore-password-command prints it")
	}
	return d, err
}

// classify has /flagz hide the value of a flag, which may hold a password.
func classify(fs *pflag.FlagSet, flag string) {
	fs.Lookup(flag).Annotations = map[string][]string{"classified": {"true"}}
}

// addDatastoreFlags adds the flags of a database and --data-dir to a command and its subcommands. When they run, d is the database
// that the flags name.
func addDatastoreFlags(cmd *cobra.Command, d *datastore.Datastore) {
	var flags datastoreFlags
	var dataDir, hosted string
	flags.addFlags(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&hosted, "cluster", "", "Cluster that the server hosts (serve --clusters), NAMESPACE/NAME or the id of its database, whose database is meant instead of the server's own.")
	addSharedFlags(cmd, &dataDir, "Folder of the SQLite database, used if --datastore is unset.")
	apply := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := apply(cmd, args); err != nil {
			return err
		}
		cmd.SetContext(untilInterrupt(cmd.Context()))
		if *d, err = flags.database(dataDir); err == nil && hosted != "" {
			*d, err = d.Hosted(cmd.Context(), hosted)
		}
		return err
	}
}
