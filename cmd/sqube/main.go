// Command sqube is a Kubernetes API server whose state is rows in a SQL
// database.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/sqube/sqube/cmd/sqube/internal/settings"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/migrations"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // serve sets its own; the other commands do not log
	cmd, err := root().ExecuteC()
	if err == nil {
		return
	}
	if !errors.Is(err, errLogged) && !errors.Is(err, errDifferent) {
		for _, line := range lines(err) {
			fmt.Fprintln(os.Stderr, "sqube:", terminal.Printable(line))
		}
	}
	if own, ok := errors.AsType[*exitError](err); ok {
		os.Exit(own.code)
	}
	if (cmd.Name() == diffName || cmd.Name() == tryName) && !errors.Is(err, errDifferent) {
		os.Exit(2) // as of diff and kubectl diff
	}
	os.Exit(1)
}

// lines splits a joined error, each part of which is one line.
func lines(err error) []string {
	return strings.Split(strings.TrimSpace(err.Error()), "\n")
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:                   "sqube",
		Short:                 "A Kubernetes API server that keeps its state in a SQL database",
		SilenceUsage:          true,
		SilenceErrors:         true,
		DisableSuggestions:    true, // they have several lines
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked := cmd.Flags().Lookup("version"); asked != nil && asked.Changed { // a flag of Kubernetes' libraries
				return printVersion(cmd)
			}
			return cmd.Help()
		},
	}
	if filepath.Base(os.Args[0]) == "kubectl-sqube" { // which kubectl runs as kubectl sqube
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sqube"}
	}
	cmd.SetFlagErrorFunc(flagErrors)
	cmd.AddCommand(serveCommand(), migrateCommand(), backupCommand(), restoreCommand(), importCommand(), copyCommand(), tryCommand(), mirrorCommand(), historyCommand(), showCommand(), changesCommand(), blameCommand(), diffCommand(), undoCommand(), confirmCommand(), applyCommand(), deleteCommand(), txCommand(), consoleCommand(), mcpCommand(), checkCommand(), kubeconfigCommand(), tokenCommand(), certsCommand(), configCommand(), hostedCommand(), versionCommand())
	cmd.AddCommand(envtestCommand(), envtestEtcdCommand(), manCommand())
	return cmd
}

// flagErrors adds to each error in err where to find help, and what set the flag that it begins with if the command line did not.
// Upstream's errors omit the dashes of that flag.
func flagErrors(cmd *cobra.Command, err error) error {
	var errs []error
	for _, line := range lines(err) {
		name := strings.TrimPrefix(line[:strings.IndexAny(line+" ", " =:,")], "--")
		origin := ""
		if flag := cmd.Flags().Lookup(name); flag != nil {
			line = "--" + strings.TrimPrefix(line, "--")
			if from := settings.Origin(flag); from != "" {
				origin = "set by " + from + ", "
			}
		}
		errs = append(errs, fmt.Errorf("%s (%ssee %s --help)", line, origin, cmd.CommandPath()))
	}
	return errors.Join(errs...)
}

// oneArgument refuses other numbers of arguments than one, and says what it is.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("want %s (see %s --help)", what, cmd.CommandPath())
		}
		return nil
	}
}

// noArguments refuses arguments: cobra's own error would call them unknown commands.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes only flags, not %q (see %s --help)", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// closing calls close, and sets *err to its error unless it is set already.
func closing(err *error, close func() error) {
	if failed := close(); *err == nil {
		*err = failed
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the Kubernetes version of this binary's API, its release, and the commit it was built from",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	v := version.Get()
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "Kubernetes API %s\nsqube %s, commit %s (%s), built %s with %s for %s/%s\n",
		v.GitVersion, migrations.Release, v.GitCommit, v.GitTreeState, v.BuildDate, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
