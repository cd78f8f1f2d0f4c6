// Package differences reads differences.txt, the list of what differs on purpose between sqube and kube-apiserver.
package differences

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Difference explains parts of what differs on purpose.
type Difference struct {
	Line    int
	Pattern string // of "script/title", with * for anything; the script of what TestSurface compares is "surface"
	Reason  string
	Fields  []Field
	form    *regexp.Regexp
}

// Field is a part of what differs: of a response, "HTTP" for the status, "Vary:" for a header, "text" for a body that is not an
// object, "body" for any body, and otherwise the path of a field in the body, such as "metadata.managedFields.manager", which
// descends into each element of a list. Of the surface, it is a field of test/surface, or "missing" or "added" for the whole. A
// field that differs only sometimes ends in "?".
type Field struct {
	Name      string
	Sometimes bool
	Used      bool // something differed with it
}

// Matches reports whether the pattern matches "script/title".
func (d *Difference) Matches(title string) bool { return d.form.MatchString(title) }

// Surface reports whether this is about what TestSurface compares.
func (d *Difference) Surface() bool { return strings.HasPrefix(d.Pattern, "surface/") }

// Read reads a file of lines "PATTERN [FIELD, …] -- REASON". Empty lines and those that begin with # are comments.
func Read(path string) ([]*Difference, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	parts := regexp.MustCompile(`^(.+) \[(.+)\] -- (.+)$`)
	var all []*Difference
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
		d := &Difference{Line: number, Pattern: found[1], Reason: found[3], form: regexp.MustCompile(form)}
		for name := range strings.SplitSeq(found[2], ", ") {
			name, sometimes := strings.CutSuffix(name, "?")
			d.Fields = append(d.Fields, Field{Name: name, Sometimes: sometimes})
		}
		all = append(all, d)
	}
	return all, lines.Err()
}
