package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// span are the lines of a field, from one up to another, with those of the fields in it by the steps of paths.
type span struct {
	from, to int
	below    map[string]*span
}

// linesOf returns an object's YAML, line by line, and the lines of its fields.
func linesOf(object map[string]any) ([]string, *span, error) {
	text, err := terminal.YAML(object)
	if err != nil {
		return nil, nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, nil, err
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	root := &span{from: 0, to: len(all)}
	root.add(document.Content[0])
	return all, root, nil
}

// add adds the fields or items of a node.
func (l *span) add(n *yaml.Node) {
	l.below = map[string]*span{}
	switch n.Kind {
	case yaml.MappingNode:
		var last *span
		for i := 0; i+1 < len(n.Content); i += 2 {
			last = l.begin(last, n.Content[i].Line-1)
			l.below[fieldpath.Field(n.Content[i].Value)] = last
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			l.below[fieldpath.Field(n.Content[i].Value)].add(n.Content[i+1])
		}
	case yaml.SequenceNode:
		items := make([]*span, len(n.Content))
		values := make([]any, len(n.Content))
		var last *span
		for i, item := range n.Content {
			last = l.begin(last, item.Line-1)
			items[i] = last
			values[i] = placed{i, scalars(item)}.item()
		}
		for step, item := range fieldpath.Items(values) {
			if fields, ok := item.(map[string]any); ok {
				l.below[step] = items[fields[place].(int)]
			}
		}
		for i, item := range n.Content {
			l.below[fmt.Sprintf("[%d]", i)] = items[i]
			items[i].add(item)
		}
	}
}

// begin ends the lines before, and returns those from a line on.
func (l *span) begin(before *span, from int) *span {
	if before != nil {
		before.to = from
	}
	return &span{from: from, to: l.to}
}

// place is a field in which an item has its place. No field of an object has this name.
const place = "\x00"

type placed struct {
	index  int
	fields map[string]any
}

func (p placed) item() map[string]any {
	p.fields[place] = p.index
	return p.fields
}

// scalars returns the texts and integers of a map.
func scalars(n *yaml.Node) map[string]any {
	fields := map[string]any{}
	if n.Kind != yaml.MappingNode {
		return fields
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := n.Content[i+1]
		var number int64
		switch {
		case value.Kind != yaml.ScalarNode:
		case value.Tag == "!!int" && value.Decode(&number) == nil:
			fields[n.Content[i].Value] = number
		case value.Tag == "!!str" || value.Tag == "!!timestamp":
			fields[n.Content[i].Value] = value.Value
		}
	}
	return fields
}

// find returns the lines of a field, nil if there is no such field.
func (l *span) find(path string) *span {
	for _, step := range fieldpath.Steps(path) {
		if l = l.below[step]; l == nil {
			return nil
		}
	}
	return l
}

const timeFormat = time.RFC3339

const (
	// roomy is a width of the terminal that has room for times, and not just ages.
	roomy = 140
	// narrowest is how many columns the YAML has at least.
	narrowest = 30
	gap       = 2
)

// print prints the object for a terminal of that width; 0 if it is none. Then each line has its change, for other programs. On a terminal
// only the first of several lines has.
func (b *blame) print(out io.Writer, width int) error {
	margins := make([][]string, len(b.text))
	widths := make([]int, 4)
	for i, c := range b.by {
		margins[i] = margin(c, width)
		for column, cell := range margins[i] {
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}
	fit(widths, width)
	text := &strings.Builder{}
	var before *changes.Change
	for i, line := range b.text {
		cells := margins[i]
		if width > 0 && i > 0 && b.by[i] == before {
			cells = make([]string, len(widths))
		}
		before = b.by[i]
		indent := 0
		for column, cell := range cells {
			if widths[column] > 0 {
				text.WriteString(pad(cell, widths[column]) + strings.Repeat(" ", gap))
				indent += widths[column] + gap
			}
		}
		for first := true; first || line != ""; first = false {
			part := line
			if room := width - indent; width > 0 && utf8.RuneCountInString(line) > room {
				part = string([]rune(line)[:room])
			}
			if !first {
				text.WriteString(strings.Repeat(" ", indent))
			}
			text.WriteString(part + "\n")
			line = line[len(part):]
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// margin returns what stands before a line.
func margin(c *changes.Change, width int) []string {
	if c == nil {
		return []string{"-", "-", "-", "-"}
	}
	when := c.CreationTimestamp.UTC().Format(timeFormat)
	if width > 0 && width < roomy {
		when = duration.HumanDuration(time.Since(c.CreationTimestamp.Time))
	}
	with := c.FieldManager
	if c.Transaction != "" {
		with = strings.TrimSpace(with + " in " + c.Transaction)
	}
	return []string{c.Name, when, terminal.Printable(changes.Author(c.User, c.ImpersonatedUser)), terminal.Printable(with)}
}

// fit narrows the columns to less than half of a width: the managers go first, then the users are cut, then the revisions go.
func fit(widths []int, width int) {
	total := func() (sum int) {
		for _, w := range widths {
			if w > 0 {
				sum += w + gap
			}
		}
		return sum
	}
	const user, least = 2, 8
	room := max(width/2, width-80)
	if width == 0 || total() <= room {
		return
	}
	widths[3] = 0
	if over := total() - room; over > 0 {
		widths[user] = max(min(widths[user], least), widths[user]-over)
	}
	if total() > room {
		widths[0] = 0
	}
	if total() > width-narrowest {
		widths[1] = 0
	}
	if total() > width-narrowest {
		widths[user] = 0
	}
}

// pad returns a text with a width. Of one that is cut, the end stays: it says more of names such as system:serviceaccount:shop:robot.
func pad(text string, width int) string {
	runes := []rune(text)
	if len(runes) > width {
		return "…" + string(runes[len(runes)-width+1:])
	}
	return text + strings.Repeat(" ", width-len(runes))
}
