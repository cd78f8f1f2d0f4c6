package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// difference explains parts of responses that differ on purpose.
type difference struct {
	line    int
	pattern string // of "script/title", with * for anything
	reason  string
	form    *regexp.Regexp
	fields  []field
}

// field is a part of a response: "HTTP" for the status, "Vary:" for a header, "text" for a body that is not an object, "body"
// for any body, and otherwise the path of a field in the body, such as "metadata.managedFields.manager", which descends into
// each element of a list. A field that differs only sometimes ends in "?".
type field struct {
	name      string
	sometimes bool
	used      bool // something differed with it
}

// readDifferences reads a file of lines "PATTERN [FIELD, …] -- REASON". Empty lines and those that begin with # are comments.
func readDifferences(path string) ([]*difference, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	parts := regexp.MustCompile(`^(.+) \[(.+)\] -- (.+)$`)
	var all []*difference
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		found := parts.FindStringSubmatch(line)
		if found == nil {
			return nil, fmt.Errorf("%s:%d: want PATTERN [FIELD, …] -- REASON", path, number)
		}
		form := "^" + strings.ReplaceAll(regexp.QuoteMeta(found[1]), `\*`, ".*") + "$"
		d := &difference{line: number, pattern: found[1], reason: found[3], form: regexp.MustCompile(form)}
		for name := range strings.SplitSeq(found[2], ", ") {
			name, sometimes := strings.CutSuffix(name, "?")
			d.fields = append(d.fields, field{name: name, sometimes: sometimes})
		}
		all = append(all, d)
	}
	return all, lines.Err()
}

// explain returns the reason why two responses differ, if they are the same without the fields that it names, and "" otherwise.
func explain(all []*difference, script, title string, want, got answer) string {
	for _, d := range all {
		if !d.form.MatchString(script+"/"+title) || want.without(d.fields, -1).String() != got.without(d.fields, -1).String() {
			continue
		}
		for i := range d.fields {
			if want.without(d.fields, i).String() != got.without(d.fields, i).String() {
				d.fields[i].used = true
			}
		}
		return d.reason
	}
	return ""
}

// without returns the response without fields, except the one with the index keep.
func (a answer) without(fields []field, keep int) answer {
	for i, f := range fields {
		header, isHeader := strings.CutSuffix(f.name, ":")
		switch {
		case i == keep:
		case f.name == "HTTP":
			a.code = 0
		case f.name == "text":
			a.text = ""
		case f.name == "body":
			a.text, a.documents = "", nil
		case isHeader:
			a.headers = slices.DeleteFunc(slices.Clone(a.headers), func(line string) bool {
				return line == header || strings.HasPrefix(line, header+": ")
			})
		default:
			a.documents = cut(a.documents, strings.Split(f.name, ".")).([]any)
		}
	}
	return a
}

// cut returns a value without the field at a path.
func cut(value any, path []string) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cut(v[i], path)
		}
		return out
	case map[string]any:
		inner, ok := v[path[0]]
		if !ok {
			return v
		}
		out := maps.Clone(v)
		if len(path) == 1 {
			delete(out, path[0])
		} else {
			out[path[0]] = cut(inner, path[1:])
		}
		return out
	}
	return value
}
