package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/trial"
)

// Bounds of what is printed for people; -o json has more.
const (
	mostLines  = 60
	mostFields = 8
	mostEvents = 6
	mostKinds  = 8
	widestName = 70
	gap        = "  "
)

// fieldIndent is what fields are indented by, below the object that has them.
const fieldIndent = "        "

const treeTitle = "What the change does"

// printer prints the sections of a result.
type printer struct {
	width    int // 0 for any
	sections []*section
}

// section is a part of a result that is there if there is something to say.
type section struct {
	title string
	strings.Builder
}

// Text prints a result for a terminal with a width; 0 if it is none, so that lines are not broken.
func Text(out io.Writer, r *trial.Result, width int) error {
	p := &printer{width: width}
	p.section("")
	p.paragraph("", headline(&r.Tried))
	p.all(r)
	p.section("")
	p.paragraph("", verdict(r))
	for i, s := range p.sections {
		text := s.String()
		if s.title != "" {
			text = s.title + "\n" + text
		}
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

// all prints what there is to say between the headline and the verdict.
func (p *printer) all(r *trial.Result) {
	p.tree(treeTitle, r.Tree)
	p.tree("Elsewhere", r.Elsewhere)
	p.timeline(r.Timeline)
	p.refused(r.Refused)
	p.pending(r.Pending)
	p.held(r.Held)
	p.evicted(r.Evicted)
	p.fights(r.Fights)
	p.webhooks(r.Webhooks)
	p.warnings(r.Warnings)
	p.events(r)
	p.notRun(r.NotRun)
}

func headline(t *trial.Tried) string {
	what := "Tried " + cmp.Or(t.Change, "the change")
	if t.User != "" {
		what += " as " + t.User
	}
	if t.Source != "" {
		what += " on a copy of " + t.Source
	}
	if t.Nodes > 0 {
		what += " with " + count(t.Nodes, "simulated node", "simulated nodes")
	}
	return what + ", for " + t.For.String() + "."
}

// verdict returns the last line.
func verdict(r *trial.Result) string {
	first, more := "", ""
	if len(r.Reasons) > 0 {
		first = r.Reasons[0]
	}
	if n := len(r.Reasons) - 1 + r.Omitted["reasons"]; n > 0 {
		more = fmt.Sprintf(" (and %s)", count(n, "more reason", "more reasons"))
	}
	switch r.Verdict {
	case trial.AtRest:
		if n := len(r.NotRun); n > 0 {
			more = " What controllers that did not run would have done is missing."
		}
		if len(r.Tree)+len(r.Elsewhere) == 0 {
			return "At rest: nothing was changed."
		}
		return "At rest: all that was asked was done" + restedAfter(r) + ", and nothing waits or fails." + more
	case trial.RefusedChange:
		return "Refused: " + strings.TrimPrefix(first, "The change was refused: ") + more
	}
	return "Not at rest after " + r.Tried.For.String() + ": " + first + more
}

// restedAfter says when the last effect began.
func restedAfter(r *trial.Result) string {
	var last trial.Duration
	each(r.Tree, func(o *trial.Object) { last = max(last, o.First) })
	each(r.Elsewhere, func(o *trial.Object) { last = max(last, o.First) })
	for _, m := range r.Timeline {
		last = max(last, m.At)
	}
	return " by " + last.String()
}

func each(objects []*trial.Object, do func(*trial.Object)) {
	for _, o := range objects {
		do(o)
		each(o.Caused, do)
	}
}

// line prints a line of which nothing is to be escaped any more.
func (p *printer) line(text string) {
	p.sections[len(p.sections)-1].WriteString(strings.TrimRight(text, " ") + "\n")
}

// paragraph prints a text of a cluster, broken into lines that are indented. Of the indentation nothing is to be escaped any more.
func (p *printer) paragraph(indent, text string) {
	room := 0
	if p.width > 0 {
		room = max(p.width-utf8.RuneCountInString(indent), 20)
	}
	for i, line := range wrapped(terminal.Printable(text), room) {
		if i == 1 {
			indent = strings.Repeat(" ", utf8.RuneCountInString(indent))
		}
		p.line(indent + line)
	}
}

func (p *printer) section(title string) { p.sections = append(p.sections, &section{title: title}) }

// row is a line of a tree before its columns have their widths.
type row struct {
	name, state, by string
	below           []string // lines below it
}

var marks = map[trial.Operation]string{
	trial.Created: "+", trial.Changed: "~", trial.Deleted: "-", trial.Replaced: "±", trial.Passing: "±",
	trial.NotCreated: "!", trial.NotChanged: "!", trial.NotDeleted: "!",
}

// tree prints objects and what they caused, in columns.
func (p *printer) tree(title string, objects []*trial.Object) {
	if len(objects) == 0 {
		return
	}
	p.section(title)
	var rows []row
	for _, o := range objects {
		rows = addRows(rows, o, "", "")
	}
	left, middle := 0, 0
	shown := rows[:min(len(rows), mostLines)]
	for _, r := range shown {
		left, middle = max(left, utf8.RuneCountInString(r.name)), max(middle, utf8.RuneCountInString(r.state))
	}
	left = min(left, widestName)
	for _, r := range shown {
		line := pad(r.name, left) + gap + pad(r.state, middle)
		if r.by != "" {
			line += gap + r.by
		}
		p.line(line)
		for _, below := range r.below {
			p.paragraph(fieldIndent, below)
		}
	}
	if more := len(rows) - len(shown); more > 0 {
		p.line(fmt.Sprintf("… and %s: -o json has them", count(more, "more line", "more lines")))
	}
}

func addRows(rows []row, o *trial.Object, indent, namespace string) []row {
	name := o.Kind + " "
	if o.Namespace != "" && o.Namespace != namespace {
		name += o.Namespace + "/"
	}
	name += o.Name
	if o.Alike > 0 {
		name += fmt.Sprintf(" and %d like it", o.Alike)
	}
	state := o.State
	switch o.Operation {
	case trial.NotCreated, trial.NotChanged, trial.NotDeleted, trial.Passing, trial.Replaced:
		state = strings.TrimSuffix(string(o.Operation)+", "+state, ", ")
	}
	r := row{name: marks[o.Operation] + " " + indent + terminal.Printable(name), state: terminal.Printable(state), by: terminal.Printable(authors(o))}
	fields := Fields(o.Diff[:min(len(o.Diff), mostFields)])
	r.below = append(r.below, fields...)
	if more := len(o.Diff) - len(fields) + o.Omitted["diff"]; more > 0 {
		r.below = append(r.below, fmt.Sprintf("… and %s", count(more, "more field", "more fields")))
	}
	rows = append(rows, r)
	for _, below := range o.Caused {
		rows = addRows(rows, below, indent+"  ", o.Namespace)
	}
	return rows
}

// authors names who made an object; or who changed it, without those who only report on it.
func authors(o *trial.Object) string {
	if len(o.By) == 0 {
		return ""
	}
	if o.Operation != trial.Changed || len(o.By) == 1 {
		return o.By[0]
	}
	return o.By[0] + " and " + count(len(o.By)-1, "other", "others")
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// named returns an object of a list.
func named(r *trial.Reference) string {
	return Name(schema.GroupResource{Resource: r.Kind}, r.Namespace, r.Name)
}
