package sqlstore

import (
	"strings"

	"github.com/sqube/sqube/dialect"
)

// statement builds the text of a statement and its arguments.
type statement struct {
	engine dialect.Engine
	text   strings.Builder
	args   []any
	// For Options.OnRequest, if operation is not "".
	operation string
	resource  Resource
	apart     bool // held rows do not matter
}

// setApart lets the statement run on a log without the held rows.
func (b *statement) setApart() *statement {
	b.apart = true
	return b
}

func (b *statement) of(operation string, resource Resource) *statement {
	b.operation, b.resource = operation, resource
	return b
}

func (b *statement) add(text string) *statement {
	b.text.WriteString(text)
	return b
}

// arg adds an argument, and returns its parameter. Parameters have to be in the text in the order of arguments.
func (b *statement) arg(value any) string {
	b.args = append(b.args, value)
	return "?"
}

// limit limits the rows. SQLite reads the value of a parameter that stands alone after LIMIT when it plans, and so parses the statement
// again each time that a value is bound.
func (b *statement) limit(rows int) *statement {
	return b.add(" LIMIT CAST(" + b.arg(rows) + " AS bigint)")
}

func (s *Store) statement() *statement { return &statement{engine: s.engine} }

// page adds the statement that selects the records of q, ordered by key. If the engine sends results as a whole, the result is
// limited to a page.
func (b *statement) page(q Query) *statement {
	const record = "id, key, labels, fields"
	b.add("SELECT (SELECT revision FROM counter), (SELECT compacted FROM counter), " + record)
	switch {
	case q.WithoutValues:
		b.add(", NULL FROM (").rows(q, record).add(") AS page")
	case !b.engine.Streams():
		const size = "coalesce(octet_length(value), 0)"
		b.add(", value FROM (SELECT *, sum(" + size + ") OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - " + size + " AS before FROM (")
		b.rows(q, record+", value").add(") AS page) AS page WHERE before < " + b.arg(q.Bytes))
	case q.Revision == 0:
		return b.add(", value FROM log").live(q).ordered(q)
	default:
		// Values are read only after the rows have been sorted.
		b.add(", (SELECT value FROM log AS whole WHERE whole.id = page.id) FROM (").rows(q, record).add(") AS page")
	}
	return b.add(" ORDER BY key")
}

// changes adds the statement that selects the changes after from and up to to, of one resource or (nil) of all, oldest first: at
// most maxRows, and on an engine that sends results as a whole, none after the one whose values reach maxBytes.
func (b *statement) changes(from, to int64, resource *Resource, maxRows, maxBytes int) *statement {
	const columns = `l.id, l.operation, l.api_group, l.resource, l.key, l.labels, l.fields, l.value,
p.id AS previous_id, p.labels AS previous_labels, p.fields AS previous_fields, p.value AS previous_value`
	const size = "coalesce(octet_length(l.value), 0) + coalesce(octet_length(p.value), 0)"
	whole := !b.engine.Streams()
	if whole {
		b.add(`SELECT id, operation, api_group, resource, key, labels, fields, value, previous_id, previous_labels, previous_fields, previous_value
FROM (SELECT ` + columns + ", sum(" + size + ") OVER (ORDER BY l.id ROWS UNBOUNDED PRECEDING) - (" + size + ") AS before")
	} else {
		b.add("SELECT " + columns)
	}
	b.add(" FROM log l LEFT JOIN log p ON p.id = l.replaces WHERE l.id > " + b.arg(from) + " AND l.id <= " + b.arg(to))
	if resource != nil {
		b.add(" AND l.api_group = " + b.arg(resource.Group) + " AND l.resource = " + b.arg(resource.Name))
	}
	b.add(" ORDER BY l.id").limit(maxRows)
	if whole {
		b.add(") AS changes WHERE before < " + b.arg(maxBytes) + " ORDER BY id")
	}
	return b
}

// rows adds the statement that selects columns of the rows of q.
//
// At the newest revision they are a range of the index of live rows. At an older one they are the live rows that existed then,
// and those replaced since: few, and found by the index of replaced rows. Each half is ordered by key, or quickly sorted, so the
// cost of a page depends on its size and on what changed since its revision.
func (b *statement) rows(q Query, columns string) *statement {
	if q.Revision == 0 {
		return b.add("SELECT " + columns + " FROM log").live(q).ordered(q)
	}
	b.add("SELECT * FROM (SELECT " + columns + " FROM log").live(q).ordered(q)
	b.add(") AS live UNION ALL SELECT * FROM (SELECT " + columns + " FROM log").replaced(q).ordered(q)
	return b.add(") AS replaced").ordered(q)
}

// count adds the statement that counts the records of q.
func (b *statement) count(q Query) *statement {
	b.add("SELECT count(*) FROM (SELECT id FROM log").live(q)
	if q.Revision != 0 {
		b.add(" UNION ALL SELECT id FROM log").replaced(q)
	}
	if q.Limit > 0 {
		b.limit(q.Limit)
	}
	return b.add(") AS counted")
}

// live adds the condition for the rows of q that are live.
func (b *statement) live(q Query) *statement {
	b.where(q).add(" AND replaced_by IS NULL")
	if q.Revision != 0 {
		b.add(" AND id <= " + b.arg(q.Revision))
	}
	return b
}

// replaced adds the condition for the rows of q that were replaced after its revision.
func (b *statement) replaced(q Query) *statement {
	return b.where(q).add(" AND replaced_by > " + b.arg(q.Revision) + " AND id <= " + b.arg(q.Revision))
}

// ordered adds the order and the limit. Each half of a union needs its own: Postgres can't use the order of an index through a
// union, and would sort the collection for every page.
func (b *statement) ordered(q Query) *statement {
	b.add(" ORDER BY key")
	if q.Limit > 0 {
		b.limit(q.Limit)
	}
	return b
}

func (b *statement) where(q Query) *statement {
	b.add(" WHERE api_group = " + b.arg(q.Resource.Group) + " AND resource = " + b.arg(q.Resource.Name))
	if q.Exactly != nil {
		b.add(" AND key = " + b.arg(*q.Exactly))
	}
	if from := max(q.Prefix, q.From); from > q.After {
		b.add(" AND key >= " + b.arg(from))
	} else if q.After != "" {
		b.add(" AND key > " + b.arg(q.After))
	}
	if q.Prefix != "" {
		b.add(" AND key < " + b.arg(prefixEnd(q.Prefix)))
	}
	for _, term := range boundTerms(q.Terms) {
		b.add(" AND " + term.condition(b))
	}
	return b
}

// prefixEnd is the first key after all that begin with prefix, which ends in "/": "0" is the next byte.
func prefixEnd(prefix string) string { return strings.TrimSuffix(prefix, "/") + "0" }
