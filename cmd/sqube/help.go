package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is the width of the help in columns.
const helpWidth = 100

// useSections adds the flags of all sections to cmd, and shows them by section in its help: serve has too many for one list.
// Names may have _ for -, like those of kube-apiserver's flags.
func useSections(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	for _, name := range sections.Order {
		section := sections.FlagSets[name]
		section.SortFlags = false
		section.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || f.Deprecated != "" })
		cmd.Flags().AddFlagSet(section)
	}
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	cmd.Flags().SetOutput(io.Discard) // pflag would report deprecated flags here, in a different format from the log: see warnDeprecated
	cliflag.SetUsageAndHelpFunc(cmd, *sections, helpWidth)
}

// warnDeprecated logs which deprecated flags were given.
func warnDeprecated(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) {
		if f.Deprecated != "" {
			slog.Warn("a flag is deprecated", "flag", "--"+f.Name, "hint", f.Deprecated)
		}
	})
}
