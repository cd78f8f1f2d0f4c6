package surface

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Item is one thing that a server has, such as a flag, and what is seen of it.
type Item struct {
	Kind   string // such as "flag"
	Name   string // such as "--audit-log-maxage"; unique within the kind
	Fields map[string]string
}

// Title returns the kind and the name, as in differences.txt.
func (i Item) Title() string { return i.Kind + " " + i.Name }

// String returns an item as a line: "flag --audit-log-maxage | default: 0 | type: int".
func (i Item) String() string {
	line := i.Title()
	for _, field := range slices.Sorted(maps.Keys(i.Fields)) {
		line += " | " + field + ": " + strings.ReplaceAll(i.Fields[field], "\n", `\n`)
	}
	return line
}

// Print writes items as sorted lines.
func Print(out io.Writer, items []Item) {
	lines := make([]string, 0, len(items))
	for _, i := range items {
		lines = append(lines, i.String())
	}
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		fmt.Fprintln(out, line)
	}
}

// Parse reads lines of String.
func Parse(in io.Reader) ([]Item, error) {
	var items []Item
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), " | ")
		kind, name, found := strings.Cut(parts[0], " ")
		if !found {
			return nil, fmt.Errorf("%q is not an item", lines.Text())
		}
		i := Item{Kind: kind, Name: name, Fields: map[string]string{}}
		for _, part := range parts[1:] {
			field, value, found := strings.Cut(part, ": ")
			if !found {
				return nil, fmt.Errorf("%q has a field without a value", lines.Text())
			}
			i.Fields[field] = value
		}
		items = append(items, i)
	}
	return items, lines.Err()
}

// Index returns items by their titles.
func Index(items []Item) map[string]Item {
	index := make(map[string]Item, len(items))
	for _, i := range items {
		index[i.Title()] = i
	}
	return index
}

// Diff returns what is new, changed and gone between two lists, in sections by kind, for people to read. Of values that are lists,
// it shows only the elements that came and went.
func Diff(before, after []Item) string {
	old, current := Index(before), Index(after)
	kinds := map[string]*[3][]string{}
	add := func(kind string, what int, line string) {
		if kinds[kind] == nil {
			kinds[kind] = new([3][]string)
		}
		kinds[kind][what] = append(kinds[kind][what], line)
	}
	for title, i := range current {
		if _, found := old[title]; !found {
			add(i.Kind, 0, strings.TrimPrefix(i.String(), i.Kind+" "))
		}
	}
	for title, was := range old {
		i, found := current[title]
		if !found {
			add(was.Kind, 2, strings.TrimPrefix(was.String(), was.Kind+" "))
			continue
		}
		for _, field := range Differing(was, i) {
			add(i.Kind, 1, i.Name+": "+change(field, was.Fields[field], i.Fields[field]))
		}
	}
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&out, "\n%s: %d new, %d changed, %d gone\n", kind, len(kinds[kind][0]), len(kinds[kind][1]), len(kinds[kind][2]))
		for what, sign := range []string{"+", "~", "-"} {
			for _, line := range slices.Sorted(slices.Values(kinds[kind][what])) {
				fmt.Fprintf(&out, "  %s %s\n", sign, line)
			}
		}
	}
	return out.String()
}

// Differing returns the sorted names of the fields that two items do not have in common.
func Differing(a, b Item) []string {
	fields := maps.Clone(a.Fields)
	maps.Copy(fields, b.Fields)
	maps.DeleteFunc(fields, func(field, _ string) bool {
		was, had := a.Fields[field]
		is, has := b.Fields[field]
		return had == has && was == is
	})
	return slices.Sorted(maps.Keys(fields))
}

// change describes how a field has changed. Elements of lists are separated by commas.
func change(field, was, is string) string {
	old, current := strings.Split(was, ","), strings.Split(is, ",")
	if len(old) == 1 && len(current) == 1 {
		return fmt.Sprintf("%s %q, was %q", field, is, was)
	}
	line := field
	for _, part := range current {
		if !slices.Contains(old, part) {
			line += " +" + part
		}
	}
	for _, part := range old {
		if !slices.Contains(current, part) {
			line += " -" + part
		}
	}
	return line
}
