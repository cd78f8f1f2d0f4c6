package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// helpWidth is where lines of the help are broken.
const helpWidth = 100

// useSections gives cmd the flags of all sections, and a help that shows them
// by section: serve has too many for one list. Names may have _ for -, as those
// of kube-apiserver's flags.
func useSections(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	for _, name := range sections.Order {
		section := sections.FlagSets[name]
		section.SortFlags = false
		cmd.Flags().AddFlagSet(section)
	}
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	cmd.Flags().SetOutput(io.Discard) // where pflag says that a flag is deprecated, in no log's form: see warnDeprecated
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		for _, name := range sections.Order {
			fmt.Fprintf(out, "\n%s:\n", name)
			sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
				if !f.Hidden && f.Deprecated == "" {
					describe(out, f)
				}
			})
		}
		return nil
	})
}

// warnDeprecated logs which flags were given that will be gone one day.
func warnDeprecated(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) {
		if f.Deprecated != "" {
			slog.Warn("a flag is deprecated", "flag", "--"+f.Name, "hint", f.Deprecated)
		}
	})
}

// describe writes what a flag is called, and under that what it does.
func describe(out io.Writer, f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	initial := ""
	switch f.DefValue {
	case "", "0", "0s", "false", "[]", "<nil>":
	default:
		initial = " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(out, "  %s\n", strings.TrimRight(name+" "+kind, " ")+initial)
	const indent = "      "
	for _, line := range strings.Split(usage, "\n") {
		for _, part := range wrap(line, helpWidth-len(indent)) {
			fmt.Fprintf(out, "%s%s\n", indent, part)
		}
	}
}

// wrap breaks a line at spaces into parts no longer than width, if it can.
func wrap(line string, width int) []string {
	var parts []string
	part := ""
	for _, word := range strings.Fields(line) {
		if part != "" && len(part)+1+len(word) > width {
			parts = append(parts, part)
			part = ""
		}
		part = strings.TrimPrefix(part+" "+word, " ")
	}
	return append(parts, part)
}
