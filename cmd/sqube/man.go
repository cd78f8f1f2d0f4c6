package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/version"

	"github.com/sqube/sqube/server"
)

// manCommand writes the manual pages that the packages install. cobra's own generator shows each flag as a line of code, which does
// not wrap, and knows no sections of flags.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page of each command to a folder",
		Hidden: true,
		Args:   oneArgument("a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writePages(cmd.Root(), args[0])
		},
	}
}

func writePages(cmd *cobra.Command, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), page(cmd), 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	for _, sub := range documented(cmd) {
		if err := writePages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// documented returns the subcommands that have a page.
func documented(cmd *cobra.Command) (subs []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			subs = append(subs, sub)
		}
	}
	return subs
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page returns the manual page of a command in roff, with the macros of man(7). Its date is that of the commit.
func page(cmd *cobra.Command) []byte {
	cmd.InitDefaultHelpFlag()
	out := &bytes.Buffer{}
	v := version.Get()
	date, _, _ := strings.Cut(v.BuildDate, "T")
	fmt.Fprintf(out, ".TH \"%s\" 1 \"%s\" \"sqube (Kubernetes %s)\" \"sqube\"\n.nh\n.ad l\n", roff(strings.ToUpper(pageName(cmd))), roff(date), roff(v.GitVersion))
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	out.WriteString(".SH SYNOPSIS\n")
	arguments := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if len(documented(cmd)) > 0 {
		arguments = " COMMAND"
	}
	fmt.Fprintf(out, "\\fB%s\\fR%s\n.SH DESCRIPTION\n", roff(cmd.CommandPath()), roff(arguments))
	writeText(out, cmp.Or(cmd.Long, cmd.Short))
	if subs := documented(cmd); len(subs) > 0 {
		out.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(out, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(pageName(sub)), roff(sub.Short))
		}
	}
	if cmd.Example != "" {
		out.WriteString(".SH EXAMPLES\n")
		writeText(out, cmd.Example)
	}
	writeOptions(out, cmd)
	if cmd.HasParent() {
		fmt.Fprintf(out, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", roff(pageName(cmd.Parent())))
	}
	return out.Bytes()
}

// writeOptions writes the flags, those of serve in the sections of its help.
func writeOptions(out *bytes.Buffer, cmd *cobra.Command) {
	sections := &cliflag.NamedFlagSets{}
	if cmd.Name() == "serve" {
		sections = (&serveOptions{server: server.NewOptions()}).flags()
	} else {
		sections.FlagSet("").AddFlagSet(cmd.LocalFlags())
		sections.FlagSet("").AddFlagSet(cmd.InheritedFlags())
	}
	out.WriteString(".SH OPTIONS\n")
	for _, name := range sections.Order {
		if name != "" {
			fmt.Fprintf(out, ".SS %s\n", roff(name))
		}
		sections.FlagSets[name].SortFlags = name == ""
		sections.FlagSets[name].VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Deprecated == "" {
				writeOption(out, flag)
			}
		})
	}
}

func writeOption(out *bytes.Buffer, flag *pflag.Flag) {
	out.WriteString(".TP\n")
	if flag.Shorthand != "" {
		fmt.Fprintf(out, "\\fB%s\\fR, ", roff("-"+flag.Shorthand))
	}
	kind, usage := pflag.UnquoteUsage(flag)
	fmt.Fprintf(out, "\\fB%s\\fR", roff("--"+flag.Name))
	if kind != "" {
		fmt.Fprintf(out, " \\fI%s\\fR", roff(kind))
	}
	switch flag.DefValue {
	case "", "false", "0", "0s", "[]", "<nil>":
	default:
		usage += fmt.Sprintf(" Default: %s.", flag.DefValue)
	}
	out.WriteString("\n")
	for i, line := range strings.Split(usage, "\n") {
		if i > 0 {
			out.WriteString(".br\n")
		}
		out.WriteString(breaks.Replace(roff(line)) + "\n")
	}
}

// breaks lets lines break within long lists.
var breaks = strings.NewReplacer(",", `,\:`, "/", `/\:`, "|", `|\:`, "=", `=\:`)

// writeText writes paragraphs. Those that are indented keep their lines.
func writeText(out *bytes.Buffer, text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		out.WriteString(".PP\n")
		indented := strings.HasPrefix(paragraph, " ") || strings.HasPrefix(paragraph, "\t")
		if indented {
			out.WriteString(".RS 4\n.nf\n")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if indented {
				line = strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  ")
			}
			out.WriteString(roff(line) + "\n")
		}
		if indented {
			out.WriteString(".fi\n.RE\n")
		}
	}
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", `\[u2026]`, "\t", "    ")

// roff escapes a line of text.
func roff(line string) string {
	line = roffEscapes.Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}
