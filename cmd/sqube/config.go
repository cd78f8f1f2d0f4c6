package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/settings"
	"github.com/sqube/sqube/server"
)

// sharedSettings are the settings that serve and other commands have in common.
var sharedSettings = []string{"data-dir", "datastore", "datastore-password-command", "encryption-provider-config", "pki-encryption-key-file"}

// addConfigFlag adds --config. The command must call applySettings to read the file.
func addConfigFlag(fs *pflag.FlagSet) {
	fs.String("config", "", "YAML file with settings, whose keys are flag names without dashes. Flags on the command line override environment variables (SQUBE_DATA_DIR for --data-dir), which override the file. sqube config prints a template. SQUBE_CONFIG can name the file too.")
}

// installedConfig is the configuration file of a packaged server.
const installedConfig = "/etc/sqube/config.yaml"

// addSharedFlags adds --config and --data-dir, which is what usage says, to a command that looks at what serve has made, and its subcommands.
// When they run, sharedSettings have been applied.
func addSharedFlags(cmd *cobra.Command, dataDir *string, usage string) {
	fs := cmd.PersistentFlags()
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, os.Environ(), sharedSettings...) }
	addConfigFlag(fs)
	fs.Lookup("config").Usage += " If nothing says where the server's files are, and ./data has none, " + installedConfig + " is read."
	fs.StringVar(dataDir, "data-dir", "./data", usage)
}

// findConfig returns installedConfig if the command should read it, else "". It returns an error if this user can't read it.
func findConfig(cmd *cobra.Command) (string, error) {
	for _, name := range []string{"data-dir", "datastore", "kubeconfig", "list"} { // with the last two, the server's files are not read
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed || os.Getenv(settings.Variable(name)) != "" {
			return "", nil
		}
	}
	for _, name := range []string{"sqube.db", "pki", "admin.kubeconfig"} {
		if _, err := os.Lstat(filepath.Join("data", name)); err == nil {
			return "", nil
		}
	}
	f, err := os.Open(installedConfig)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("this user can't read %s, which says where the server's files are: use sudo, or give --config, --data-dir or --datastore", installedConfig)
	case err != nil:
		return "", nil // there is no packaged server
	}
	return installedConfig, f.Close()
}

// applySettings sets the flags that the command line has not set, from the environment and --config: those with the given names, or
// all if there are none. With names and nothing that says where the server's files are, it looks for installedConfig.
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
	if file == "" && len(names) > 0 {
		if file, err = findConfig(cmd); err != nil {
			return err
		}
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
--datastore-password-command, --encryption-provider-config and
--pki-encryption-key-file. If nothing names a file, a folder or a database, and ./data
has none, they read /etc/sqube/config.yaml.`,
		Example: "  sqube config > /etc/sqube/config.yaml\n  sqube serve --config /etc/sqube/config.yaml",
		Args:    noArguments,
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
