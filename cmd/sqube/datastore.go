package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// addDatastoreFlag adds --datastore. The caller has the folder for the default.
func addDatastoreFlag(fs *pflag.FlagSet, flag *string) {
	fs.StringVar(flag, "datastore", "", "Database with the cluster's state: sqlite://PATH, or postgres://USER:PASSWORD@HOST:PORT/DATABASE in libpq's syntax. If unset, sqube.db under --data-dir.")
	fs.Lookup("datastore").Annotations = map[string][]string{"classified": {"true"}} // may hold a password: /flagz hides it
}

// addDatastoreFlags adds --datastore and --data-dir to a command and its subcommands. When they run, d is the database that the
// flags name.
func addDatastoreFlags(cmd *cobra.Command, d *datastore.Datastore) {
	var flag, dataDir string
	fs := cmd.PersistentFlags()
	addDatastoreFlag(fs, &flag)
	fs.StringVar(&dataDir, "data-dir", "./data", "Folder of the SQLite database, used if --datastore is unset.")
	addConfigFlag(fs)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := applySettings(cmd, os.Environ(), sharedSettings...); err != nil {
			return err
		}
		cmd.SetContext(untilInterrupt(cmd.Context()))
		*d, err = datastore.Parse(flag, dataDir)
		return err
	}
}

// untilInterrupt returns a context that ends with the first signal that would end the process, so that a command can remove
// unfinished files. The second signal ends the process.
func untilInterrupt(ctx context.Context) context.Context {
	ends := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored) // such as under nohup
	ctx, stop := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// decrypt decrypts a stored value.
func decrypt(ctx context.Context, keys *encryption.Encryption, r sqlstore.Resource, key string, stored []byte) ([]byte, error) {
	if r == sharedkeys.Resource { // encrypted with another key, and valid JSON as it is
		return stored, nil
	}
	resource := schema.GroupResource{Group: r.Group, Resource: r.Name}
	data, _, err := apistorage.Decrypt(ctx, keys.Transformer(resource), stored, resources.KeyPrefix(resource)+"/"+key)
	if err != nil {
		return nil, fmt.Errorf("it is encrypted, and --encryption-provider-config can't decrypt it: %w", err)
	}
	return data, nil
}

// addEncryptionFlag adds --encryption-provider-config to a command that reads once.
func addEncryptionFlag(cmd *cobra.Command, o *encryption.Options) {
	o.AddFlags(cmd.Flags())
	_ = cmd.Flags().MarkHidden("encryption-provider-config-automatic-reload") // AddFlags has added it
}
