package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/settings"
	"github.com/sqube/sqube/server"
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
			return settings.WriteTemplate(out, o.flags())
		},
	}
}
