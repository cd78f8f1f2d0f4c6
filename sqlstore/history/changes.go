package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sqube/sqube/dialect"
)

// Resource names a collection of objects.
type Resource struct{ Group, Name string }

// String returns the resource with its group: deployments.apps.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

// Gaps has the records of what a mirror of another cluster has not seen as it happened. They are no objects of the API.
var Gaps = Resource{Group: dialect.InternalGroup, Name: "gaps"}

// Query selects changes. The zero value selects all.
type Query struct {
	Resource  *Resource // nil for any
	Namespace *string   // nil for any; "" for objects without one
	Name      string    // "" for any
	// User is who made the change, or in whose name; the others are those of the change; nil for any.
	User, ImpersonatedUser, FieldManager, Operation *string
	// Only revisions between After and Before, without these; 0 for no bound.
	After, Before int64
	NewestFirst   bool
	// Gaps adds the records of Gaps, whatever they are of and by whom.
	Gaps bool
	// Lazy leaves out of changes in the log what those that have left it lack, until Load.
	Lazy bool
}

// Change is one write: the row it made, and what was there before. Before Load, a change that is no longer in the log lacks the parts that
// its block has compressed: labels, fields, address, audit id and values.
type Change struct {
	dialect.LogRow        // Value is nil for a deletion
	Previous       []byte // the stored value before; nil if there was none or it is no longer kept
	// GivenUp is set if the value is no longer kept, for room. Fields names what an update changed if Previous or Value was given up; nil if
	// that is not known.
	GivenUp bool
	Fields  *Fields

	from  *reader
	lazy  bool  // Load has to read its row
	block int64 // the first revision of its block, 0 if it is in the log
	nth   int   // its place in the block
}

// One read has at most pageRows rows of the log, with pageBytes of values and one row more, and covers at most maxSpan revisions, so that it
// is short, and takes little memory, whatever else there is. The first ones are smaller, since often the first change is enough.
const (
	pageRows  = 200
	pageBytes = 4 << 20
	maxSpan   = 20_000
	growth    = 4 // from read to read
)

// Changes calls yield with the changes of q in order of their revisions, those in the log and those that have left it. It returns database
// errors, and an error from yield, which ends it.
func Changes(ctx context.Context, r dialect.Reader, q Query, yield func(*Change) error) error {
	w := &reader{Reader: r, query: q, rows: pageRows / (growth * growth)}
	var err error
	at := q.After + 1
	if q.NewestFirst {
		at = q.Before - 1
	}
	if q.After == 0 && !q.NewestFirst || q.Before == 0 && q.NewestFirst {
		at, err = w.next(ctx, 0)
	}
	for span := int64(maxSpan / (growth * growth * growth)); err == nil && at != 0; span = min(growth*span, maxSpan) {
		from, to := at, at+span-1
		if q.NewestFirst {
			from, to = max(1, at-span+1), at
		}
		if q.Before != 0 {
			to = min(to, q.Before-1)
		}
		var page []*Change
		var last int64
		if page, last, err = w.read(ctx, max(from, q.After+1), to); err != nil {
			return err
		}
		for _, c := range page {
			if err := yield(c); err != nil {
				return err
			}
		}
		at, err = w.next(ctx, last)
	}
	return err
}

// reader reads changes in spans of revisions.
type reader struct {
	dialect.Reader
	query  Query
	rows   int   // how many of the log the next read has at most
	beyond int64 // of the blocks of the last span, the nearest revision beyond it; 0 for none
	moved  int64 // up to where versions had left the log before that span was read
	cache  cache
}

// next returns where to go on after a revision, or before it, 0 for none; 0 if there is nothing more. If versions have left the log since the
// last span was read, blocks of that span can have more of them than were seen: then nothing is skipped.
func (w *reader) next(ctx context.Context, last int64) (at int64, err error) {
	q := &w.query
	statement, step := "SELECT (SELECT min(id) FROM log WHERE id > ?), (SELECT min(first_id) FROM past WHERE first_id > ?)", int64(1)
	begin := last == 0
	if q.NewestFirst {
		statement, step = "SELECT (SELECT max(id) FROM log WHERE id < ?), (SELECT max(until) FROM past WHERE until < ?)", -1
		if begin {
			last = 1<<63 - 1
		}
	}
	nearest := []int64{w.beyond}
	err = w.Query(ctx, statement+", (SELECT coalesce(max(until), 0) FROM past)", []any{last, last}, func(row dialect.Row) error {
		var inLog, inPast *int64
		var moved int64
		err := row.Scan(&inLog, &inPast, &moved)
		if moved != w.moved && !begin {
			nearest = append(nearest, last+step)
		}
		w.moved = moved
		for _, found := range []*int64{inLog, inPast} {
			if found != nil {
				nearest = append(nearest, *found)
			}
		}
		return err
	})
	for _, candidate := range nearest {
		if candidate != 0 && (at == 0 || (candidate > at) == q.NewestFirst) {
			at = candidate
		}
	}
	if at != 0 && (q.Before != 0 && !q.NewestFirst && at >= q.Before || q.NewestFirst && at <= q.After) {
		return 0, err
	}
	return at, err
}

// read returns the changes between two revisions, or the first of them, and the last revision that it covers. It reads the log first: what
// leaves it meanwhile is then found twice, not missed.
func (w *reader) read(ctx context.Context, from, to int64) (page []*Change, last int64, err error) {
	page, more, err := w.readLog(ctx, from, to)
	if err != nil {
		return nil, 0, err
	}
	if more && w.query.NewestFirst {
		from = page[len(page)-1].ID
	} else if more {
		to = page[len(page)-1].ID
	}
	if page, err = w.addPast(ctx, page, from, to); err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(page, func(a, b *Change) int {
		if w.query.NewestFirst {
			a, b = b, a
		}
		return cmp.Compare(a.ID, b.ID)
	})
	page = slices.CompactFunc(page, func(a, b *Change) bool { return a.ID == b.ID })
	if w.query.NewestFirst {
		return page, from, nil
	}
	return page, to, nil
}

// selects reports whether a change is by who the query names, and is what it names.
func (q *Query) selects(r *dialect.LogRow) bool {
	if q.Gaps && r.Group == Gaps.Group && r.Resource == Gaps.Name {
		return true
	}
	is := func(wanted *string, value string) bool { return wanted == nil || *wanted == value }
	return (is(q.User, r.User) || is(q.User, r.ImpersonatedUser)) && is(q.ImpersonatedUser, r.ImpersonatedUser) && is(q.FieldManager, r.FieldManager) && is(q.Operation, string(r.Operation))
}

// where adds the conditions of the query, with their arguments; those that selects checks only for the log.
func (w *reader) where(inLog bool, conditions []string, args []any) (string, []any) {
	within := len(conditions)
	add := func(column string, value any) {
		args = append(args, value)
		conditions = append(conditions, column+" = ?")
	}
	if w.query.Resource != nil {
		add("api_group", w.query.Resource.Group)
		add("resource", w.query.Resource.Name)
	}
	if w.query.Namespace != nil {
		add("namespace", *w.query.Namespace)
	}
	if w.query.Name != "" {
		add("name", w.query.Name)
	}
	if inLog {
		if user := w.query.User; user != nil {
			conditions, args = append(conditions, "(user_name = ? OR impersonated_user = ?)"), append(args, *user, *user)
		}
		for i, wanted := range [...]*string{w.query.ImpersonatedUser, w.query.FieldManager, w.query.Operation} {
			if wanted != nil {
				add([...]string{"impersonated_user", "field_manager", "operation"}[i], *wanted)
			}
		}
	}
	if selecting := conditions[within:]; w.query.Gaps && len(selecting) > 0 {
		conditions = append(conditions[:within:within], "("+strings.Join(selecting, " AND ")+" OR api_group = ? AND resource = ?)")
		args = append(args, Gaps.Group, Gaps.Name)
	}
	return strings.Join(conditions, " AND "), args
}

// previous is the SQL expression of the value that a row of the log replaced, while that is in the log.
const previous = "(SELECT p.value FROM log p WHERE p.id = log.replaces)"

// lazyRows is how many times as many rows without values are read at once.
const lazyRows = 10

var lazyColumns = strings.Replace(dialect.Columns, "labels, fields, value, address, audit_id", "'', '', NULL, '', ''", 1)

var errEnough = errors.New("the page is full")

// readLog returns the changes in the log, and whether there may be more.
func (w *reader) readLog(ctx context.Context, from, to int64) (page []*Change, more bool, err error) {
	where, args := w.where(true, []string{"id >= ?", "id <= ?"}, []any{from, to})
	order := ""
	if w.query.NewestFirst {
		order = " DESC"
	}
	rows := w.rows
	statement := fmt.Sprintf("SELECT %s, %s FROM log WHERE %s ORDER BY id%s LIMIT %d", previous, dialect.Columns, where, order, rows)
	switch {
	case w.query.Lazy:
		rows *= lazyRows
		statement = fmt.Sprintf("SELECT NULL, %s FROM log WHERE %s ORDER BY id%s LIMIT %d", lazyColumns, where, order, rows)
	case !w.Streams(): // the whole result would be sent
		const size = "coalesce(octet_length(value), 0) + coalesce(octet_length(" + previous + "), 0)"
		statement = fmt.Sprintf(`SELECT previous, %[1]s FROM (
SELECT *, %[2]s AS previous, sum(%[3]s) OVER (ORDER BY id%[4]s ROWS UNBOUNDED PRECEDING) - (%[3]s) AS before FROM (
  SELECT * FROM log WHERE %[5]s ORDER BY id%[4]s LIMIT %[6]d) AS log) AS log WHERE before < %[7]d ORDER BY id%[4]s`,
			dialect.Columns, previous, size, order, where, w.rows, pageBytes)
	}
	bytes := 0
	err = w.Query(ctx, statement, args, func(row dialect.Row) error {
		c := &Change{from: w, lazy: w.query.Lazy}
		if err := c.Scan(row, &c.Previous); err != nil {
			return err
		}
		page = append(page, c)
		if bytes += len(c.Value) + len(c.Previous); bytes >= pageBytes {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	more = bytes >= pageBytes || len(page) == rows
	w.rows = min(growth*w.rows, pageRows)
	return page, more, err
}

// addPast adds the changes that are no longer in the log.
func (w *reader) addPast(ctx context.Context, page []*Change, from, to int64) ([]*Change, error) {
	where, args := w.where(false, []string{"until >= ?", "first_id <= ?"}, []any{from, to})
	w.beyond = 0
	const columns = "first_id, until, first_at, api_group, resource, key, namespace, name, writers, versions"
	err := w.Query(ctx, "SELECT "+columns+" FROM past WHERE "+where, args, func(row dialect.Row) error {
		var b dialect.Block
		if err := row.Scan(&b.First, &b.Until, &b.FirstAt, &b.Group, &b.Resource, &b.Key, &b.Namespace, &b.Name, &b.Writers, &b.Versions); err != nil {
			return err
		}
		found, err := rows(&b)
		if err != nil {
			return nil // it has none, or sqube check finds it
		}
		for i, version := range found {
			switch id := version.ID; {
			case from <= id && id <= to && !w.query.selects(version):
			case from <= id && id <= to:
				page = append(page, &Change{LogRow: *version, from: w, block: b.First, nth: i})
			case w.query.NewestFirst && id < from:
				w.beyond = max(w.beyond, id)
			case !w.query.NewestFirst && id > to && (w.beyond == 0 || id < w.beyond):
				w.beyond = id
			}
		}
		return nil
	})
	return page, err
}

// Load reads the parts that the change lacks. It returns ErrForgotten if they are gone meanwhile, and database errors.
func (c *Change) Load(ctx context.Context) error {
	if c.lazy {
		if err := c.loadRow(ctx); err != nil {
			return err
		}
	}
	if c.block == 0 {
		if c.Previous != nil || c.Replaces == 0 {
			return nil
		}
		return c.loadPrevious(ctx, c.ID)
	}
	b, err := c.from.open(ctx, c.block, c.nth)
	if err != nil {
		return err
	}
	hasPrevious := c.Operation != dialect.Create && c.Operation != dialect.Purge
	switch c.block = 0; {
	case b.remnants != nil:
		c.GivenUp = true
		if c.nth < len(b.remnants) { // unless its versions could not be read when it gave them up
			c.Address, c.AuditID = b.remnants[c.nth].Address, b.remnants[c.nth].AuditID
		}
		if c.nth > 0 {
			if c.nth <= len(b.remnants) {
				c.Fields = b.remnants[c.nth-1].After
			}
			return nil
		}
	case c.nth >= len(b.versions):
		return ErrForgotten
	default:
		replacedBy := c.ReplacedBy
		c.LogRow = *b.versions[c.nth]
		c.ReplacedBy = replacedBy
		if c.nth > 0 {
			c.Previous = b.versions[c.nth-1].Value
			return nil
		}
	}
	if hasPrevious {
		return c.loadPrevious(ctx, c.ID)
	}
	return nil
}

// loadRow reads the row of a lazy change, or finds the block in which it is meanwhile.
func (c *Change) loadRow(ctx context.Context) error {
	c.lazy = false
	found := false
	err := c.from.Query(ctx, "SELECT "+previous+", "+dialect.Columns+" FROM log WHERE id = ?", []any{c.ID}, func(row dialect.Row) error {
		found = true
		return c.Scan(row, &c.Previous)
	})
	if err != nil || found {
		return err
	}
	const block = "past.api_group = ? AND past.resource = ? AND past.key = ? AND first_id <= ?"
	err = Blocks(ctx, c.from, block, "first_id DESC LIMIT 1", []any{c.Group, c.Resource, c.Key, c.ID}, func(b *dialect.Block) error {
		found, err := rows(b)
		c.block, c.nth = b.First, slices.IndexFunc(found, func(r *dialect.LogRow) bool { return r.ID == c.ID })
		return err
	})
	if err == nil && (c.block == 0 || c.nth < 0) {
		err = ErrForgotten
	}
	return err
}

// loadPrevious reads the value of the object before a revision, from its block, if there is one that is still kept, or what the change changed.
func (c *Change) loadPrevious(ctx context.Context, revision int64) error {
	err := Blocks(ctx, c.from, "past.api_group = ? AND past.resource = ? AND past.key = ? AND until >= ?", "until LIMIT 1", []any{c.Group, c.Resource, c.Key, revision}, func(b *dialect.Block) error {
		previous, err := At(b, revision-1)
		if err == nil && previous != nil {
			c.Previous = previous.Value
		}
		c.Fields = fieldsAt(b, revision)
		return err
	})
	if errors.Is(err, ErrForgotten) {
		return nil
	}
	return err
}

// cache has the versions of the last blocks, up to cacheBytes of values or one block.
type cache struct {
	blocks []*cached // the last one was used last
	bytes  int
}

// cached is a block that was read.
type cached struct {
	first    int64
	versions []*dialect.LogRow
	remnants []remnant // instead of versions, if it has given up its values; else nil
	bytes    int
}

const cacheBytes = 4 << 20

// open returns the block with that first revision, which has a version of that number.
func (w *reader) open(ctx context.Context, first int64, nth int) (*cached, error) {
	k := &w.cache
	if i := slices.IndexFunc(k.blocks, func(c *cached) bool { return c.first == first }); i >= 0 {
		found := k.blocks[i]
		k.blocks = slices.Delete(k.blocks, i, i+1)
		if found.remnants != nil || nth < len(found.versions) {
			k.blocks = append(k.blocks, found)
			return found, nil
		}
		k.bytes -= found.bytes // it has grown since
	}
	found := &cached{first: first}
	err := Blocks(ctx, w, "first_id = ?", "first_id", []any{first}, func(b *dialect.Block) (err error) {
		if found.versions, err = Versions(b); errors.Is(err, ErrGivenUp) {
			found.remnants, err = append([]remnant{}, remnantsOf(b)...), nil
			found.bytes = len(b.Versions)
		}
		return err
	})
	if err == nil && found.versions == nil && found.remnants == nil {
		err = ErrForgotten
	}
	if err != nil {
		return nil, err
	}
	for _, v := range found.versions {
		found.bytes += len(v.Value) + len(v.Labels) + len(v.Fields)
	}
	k.blocks, k.bytes = append(k.blocks, found), k.bytes+found.bytes
	for k.bytes > cacheBytes && len(k.blocks) > 1 {
		k.bytes -= k.blocks[0].bytes
		k.blocks = k.blocks[1:]
	}
	return found, nil
}
