// Command sqube is a Kubernetes API server whose state is rows in a SQL
// database.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // serve sets its own; the other commands tell what they do by their output
	err := root().Execute()
	if err == nil {
		return
	}
	if !errors.Is(err, errLogged) {
		for _, line := range lines(err) {
			fmt.Fprintln(os.Stderr, "sqube:", terminal.Printable(line))
		}
	}
	os.Exit(1)
}

// lines takes an error apart that joins several, each of which is one line.
func lines(err error) []string {
	return strings.Split(strings.TrimSpace(err.Error()), "\n")
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:                "sqube",
		Short:              "A Kubernetes API server whose state is rows in a SQL database",
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true, // they take several lines
	}
	cmd.SetFlagErrorFunc(flagErrors)
	cmd.AddCommand(serveCommand(), migrateCommand(), backupCommand(), restoreCommand(), importCommand(), historyCommand(), showCommand(), checkCommand(), kubeconfigCommand(), versionCommand())
	return cmd
}

// flagErrors says of each error in err where to read how the flags are to be.
// Upstream's errors leave out the dashes of the flag they begin with.
func flagErrors(cmd *cobra.Command, err error) error {
	var errs []error
	for _, line := range lines(err) {
		if word, _, _ := strings.Cut(line, " "); cmd.Flags().Lookup(word) != nil {
			line = "--" + line
		}
		errs = append(errs, fmt.Errorf("%s (see %s --help)", line, cmd.CommandPath()))
	}
	return errors.Join(errs...)
}

// closing closes what a command has opened, and makes a failure of that the command's, if it has no other.
func closing(err *error, close func() error) {
	if failed := close(); *err == nil {
		*err = failed
	}
}
