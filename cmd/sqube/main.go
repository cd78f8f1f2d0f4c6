// Command sqube is a Kubernetes API server whose state is rows in a SQL
// database.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	if err := root().Execute(); err != nil {
		// One line an error, however many were found.
		for _, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
			fmt.Fprintln(os.Stderr, "sqube:", line)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "sqube",
		Short:         "A Kubernetes API server whose state is rows in a SQL database",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	cmd.AddCommand(serveCommand(), migrateCommand(), kubeconfigCommand(), versionCommand())
	return cmd
}
