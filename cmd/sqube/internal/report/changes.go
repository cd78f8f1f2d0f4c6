// Package report prints for people what changes do to objects: trees of them, and the fields that become others.
package report

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/changes"
)

// Fields returns a line for each field that becomes another one. Like Name, it escapes nothing.
func Fields(all []changes.FieldChange) []string {
	lines := make([]string, 0, len(all))
	for _, d := range all {
		lines = append(lines, d.Path+": "+cmp.Or(d.From, "(none)")+" → "+cmp.Or(d.To, "(none)"))
	}
	return lines
}

// Name returns what an object is called: its resource, or its kind, with its group, its namespace and its name.
func Name(resource schema.GroupResource, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return resource.String() + " " + name
}

// wrapped breaks a text into lines of at most a width, 0 for any, at its blanks where it can.
func wrapped(text string, width int) (lines []string) {
	if width <= 0 {
		return []string{text}
	}
	line := ""
	for _, word := range strings.Fields(text) {
		for len([]rune(word)) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:width])), string(runes[width:])
		}
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
