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
	"github.com/sqube/sqube/cmd/sqube/internal/settings"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// sharedSettings are the settings that serve and other commands have in common.
var sharedSettings = []string{"data-dir", "datastore", "encryption-provider-config", "pki-encryption-key-file"}

// addConfigFlag adds --config. The command must call applySettings to read the file.
func addConfigFlag(fs *pflag.FlagSet) {
	fs.String("config", "", "YAML file with settings, whose keys are flag names without dashes. Flags on the command line override environment variables (SQUBE_DATA_DIR for --data-dir), which override the file. sqube config prints a template. SQUBE_CONFIG can name the file too.")
}

// applySettings sets the flags that the command line has not set, from the environment and --config: those with the given names, or
// all if there are none.
func applySettings(cmd *cobra.Command, environ []string, names ...string) error {
	serve, _, err := cmd.Root().Find([]string{"serve"})
	if err != nil {
		return err
	}
	file, err := cmd.Flags().GetString("config")
	if err != nil {
		return err
	}
	if file == "" && environ != nil {
		file = os.Getenv(settings.Variable("config"))
	}
	sources := settings.Sources{Known: serve.Flags(), Environ: environ, File: file, Secret: func(flag *pflag.Flag, value string) bool {
		return flag.Name == "datastore" && datastore.HasPassword(value)
	}}
	return sources.Apply(cmd.Flags(), names...)
}

func configCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print a configuration file for serve, with every setting and its default",
		Long: `Print a configuration file for serve, with every setting and its default, commented
out. Remove the # from those that you change.

Other commands read the settings that they have flags for: --data-dir, --datastore,
--encryption-provider-config and --pki-encryption-key-file.`,
		Example: "  sqube config > /etc/sqube/config.yaml\n  sqube serve --config /etc/sqube/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := &serveOptions{server: server.NewOptions()}
			sections := settings.Sections(o.flags())
			out := cmd.OutOrStdout()
			_, err := fmt.Fprint(out, `# Configuration of sqube: sqube serve --config FILE.
#
# Each setting is a flag of sqube serve, shown as a comment with its default. A flag on the
# command line overrides an environment variable (SQUBE_DATA_DIR for data-dir), which
# overrides this file. Lists are [a, b] or one "- a" per line; settings that take NAME=VALUE
# can be mappings. sqube reads this file when it starts.
`)
			if err != nil {
				return err
			}
			return settings.WriteTemplate(out, sections)
		},
	}
}

// addDatastoreFlag adds --datastore. The caller provides the folder of the default.
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
	if r == sharedkeys.Resource { // encrypted with another key, and valid JSON as stored
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
