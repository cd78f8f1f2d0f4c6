package settings

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// lineWidth is the length at which comments are wrapped.
const lineWidth = 98

// WriteTemplate writes a configuration file in which every visible flag that can be a setting is a comment that shows its default,
// in the order of the help.
func WriteTemplate(w io.Writer, sections *cliflag.NamedFlagSets) error {
	out := bufio.NewWriter(w)
	for _, name := range sections.Order {
		heading := fmt.Sprintf("\n#### %s\n", name)
		flags := sections.FlagSets[name]
		flags.SortFlags = false
		flags.VisitAll(func(flag *pflag.Flag) {
			if flag.Hidden || flag.Deprecated != "" || slices.Contains(notSettings, flag.Name) {
				return
			}
			_, usage := pflag.UnquoteUsage(flag)
			fmt.Fprintln(out, heading)
			heading = "" // only before the section's first setting
			for _, line := range strings.Split(usage, "\n") {
				for _, part := range wrap(line, lineWidth) {
					fmt.Fprintf(out, "# %s\n", part)
				}
			}
			fmt.Fprintf(out, "#%s: %s\n", flag.Name, defaultOf(flag))
		})
	}
	return out.Flush()
}

// defaultOf is the flag's default in YAML.
func defaultOf(flag *pflag.Flag) string {
	list, pairs := multiplicity(flag.Value)
	if !isEmpty(flag.DefValue) {
		return flag.DefValue
	}
	switch {
	case pairs:
		return "{}"
	case list:
		return "[]"
	}
	return `""`
}

// isEmpty reports whether a flag's default is no value.
func isEmpty(text string) bool { return text == "" || text == "[]" || text == "<nil>" }

// wrap splits a line at spaces into parts no longer than width, if it can.
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
