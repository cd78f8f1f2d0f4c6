package inspect

import (
	"strings"

	"github.com/sqube/sqube/dialect"
)

// statement gathers the text of a statement and its arguments.
type statement struct {
	reader dialect.Reader
	text   strings.Builder
	args   []any
}

func newStatement(r dialect.Reader, text string) *statement {
	b := &statement{reader: r}
	b.add(text)
	return b
}

func (b *statement) add(text string) { b.text.WriteString(text) }

func (b *statement) arg(value any) string {
	b.args = append(b.args, value)
	return b.reader.Placeholder(len(b.args))
}

// object adds which rows of the log, called by an alias, are of the object.
func (b *statement) object(alias string, o Object) {
	b.add(alias + ".api_group = " + b.arg(o.Resource.Group) + " AND " + alias + ".resource = " + b.arg(o.Resource.Name))
	b.add(" AND " + alias + ".name = " + b.arg(o.Name) + " AND " + alias + ".namespace IN (")
	for i, namespace := range o.Namespaces {
		if i > 0 {
			b.add(", ")
		}
		b.add(b.arg(namespace))
	}
	b.add(")")
}
