package dialect

import (
	"fmt"
	"strings"
)

// Block is a row of the table past: consecutive versions of an object that are no longer in the log. It was current from First until the
// revision Until. Package history knows what its last three columns mean.
type Block struct {
	First, Until         int64
	FirstAt, UntilAt     int64 // the times of these revisions, in Unix milliseconds
	Group, Resource      string
	Key, Namespace, Name string
	// User is who wrote most of it: its bytes count as theirs.
	User string
	// Bare is 1 if the values are gone, else 0.
	Bare              int
	Writers, Versions string
	Data              []byte
	// Next is the row of the log that replaced the last version, as far as NextColumns have it; nil if it has left the log. It is no part of
	// the row: the newest version of an object that has left the log is stored as its difference from the one that has not.
	Next *LogRow
}

// BlockColumns lists the columns of the table past that Block.Columns has.
const BlockColumns = "first_id, until, first_at, until_at, api_group, resource, key, namespace, name, user_name, bare, writers, versions, data"

// blockOverhead is roughly what a block takes besides its values.
const blockOverhead = 150

// Bytes is roughly how much space the block takes.
func (b *Block) Bytes() int64 {
	return int64(blockOverhead + 2*(len(b.Group)+len(b.Resource)+len(b.Key)) + 2*len(b.Namespace) + len(b.Name) + 2*len(b.User) + len(b.Writers) + len(b.Versions) + len(b.Data))
}

// PutBlock adds a block, or replaces the one with the same First.
var PutBlock = func() string {
	columns := strings.Split(BlockColumns+", bytes", ", ")
	updates := make([]string, len(columns))
	for i, column := range columns {
		updates[i] = column + " = excluded." + column
	}
	return fmt.Sprintf("INSERT INTO past (%s) VALUES (?%s) ON CONFLICT (first_id) DO UPDATE SET %s",
		strings.Join(columns, ", "), strings.Repeat(", ?", len(columns)-1), strings.Join(updates[1:], ", "))
}()

// Values returns the parameters of PutBlock.
func (b *Block) Values() []any {
	data := b.Data
	if data == nil { // as SQLite returns no bytes
		data = []byte{}
	}
	return []any{b.First, b.Until, b.FirstAt, b.UntilAt, b.Group, b.Resource, b.Key, b.Namespace, b.Name, b.User, b.Bare, b.Writers, b.Versions, data, b.Bytes()}
}

// SelectBlocks begins a statement whose rows Block.Scan reads. The columns of past that log has too are to be written with the table's name.
var SelectBlocks = "SELECT " + NextColumns + ", " + qualified("past", BlockColumns) + " FROM past LEFT JOIN log AS next ON next.id = past.until "

// editBytes limits what EditPast has in memory, and editBlocks how many blocks.
const editBytes, editBlocks = 1 << 20, 500

// SelectEdited returns the statement of EditPast.
func SelectEdited(condition string) string {
	return SelectBlocks + fmt.Sprintf(`JOIN (SELECT first_id AS edited, sum(bytes) OVER (ORDER BY until, first_id ROWS UNBOUNDED PRECEDING) - bytes AS before
FROM (SELECT first_id, until, bytes FROM past WHERE %s ORDER BY until, first_id LIMIT %d) AS oldest) AS few ON edited = past.first_id
WHERE before < %d ORDER BY past.until, past.first_id`, condition, editBlocks, editBytes)
}

// openBytes is the length of the block that the row with the given id continues.
func openBytes(id string) string {
	return "coalesce((SELECT max(bytes) FROM past WHERE until = " + id + "), 0)"
}

// SelectReplaced begins a statement whose rows Replaced.Scan reads. It reads the log under the name leaving.
var SelectReplaced = "SELECT " + openBytes("leaving.id") + ", " + NextColumns + ", " + qualified("leaving", Columns) + " FROM log AS leaving LEFT JOIN log AS next ON next.id = leaving.replaced_by "

func qualified(table, columns string) string {
	return table + "." + strings.ReplaceAll(columns, ", ", ", "+table+".")
}

// Scan reads a row of SelectBlocks.
func (b *Block) Scan(row Row) error {
	var next Next
	err := row.Scan(next.Columns(b.Columns()...)...)
	b.Next = next.Row()
	return err
}

// Columns returns the targets of BlockColumns.
func (b *Block) Columns() []any {
	return []any{&b.First, &b.Until, &b.FirstAt, &b.UntilAt, &b.Group, &b.Resource, &b.Key, &b.Namespace, &b.Name, &b.User, &b.Bare, &b.Writers, &b.Versions, &b.Data}
}

// NextColumns lists the columns of a row of the log, with the alias next, that Next reads.
const NextColumns = "next.written_at, next.labels, next.fields, next.address, next.audit_id, next.expires_at, next.value"

// Next reads a row of the log that may be missing.
type Next struct {
	writtenAt, expiresAt             *int64
	labels, fields, address, auditID *string
	value                            []byte
}

// Columns returns the targets of NextColumns, and those that follow.
func (n *Next) Columns(following ...any) []any {
	return append([]any{&n.writtenAt, &n.labels, &n.fields, &n.address, &n.auditID, &n.expiresAt, &n.value}, following...)
}

// Row returns what was read, nil for a missing row.
func (n *Next) Row() *LogRow {
	if n.writtenAt == nil {
		return nil
	}
	row := &LogRow{Write: Write{WrittenAt: *n.writtenAt, Labels: *n.labels, Fields: *n.fields, Address: *n.address, AuditID: *n.auditID, Value: n.value}}
	if n.expiresAt != nil {
		row.ExpiresAt = *n.expiresAt
	}
	return row
}

// Replaced is a row that leaves the log.
type Replaced struct {
	LogRow
	Next *LogRow // the row that replaced it, as in Block
	open int     // the length of the block that it continues, 0 if it begins one
}

// ReplacedAt returns when the row was replaced, in Unix milliseconds.
func (r *Replaced) ReplacedAt() int64 {
	if r.Next == nil {
		return r.WrittenAt
	}
	return r.Next.WrittenAt
}

// Scan reads a row of SelectReplaced.
func (r *Replaced) Scan(row Row) error {
	var next Next
	err := r.LogRow.Scan(row, append([]any{&r.open}, next.Columns()...)...)
	r.Next = next.Row()
	return err
}

// Bytes is how much memory it takes to pack the row.
func (r *Replaced) Bytes() int {
	n := r.open + len(r.Value)
	if r.Next != nil {
		n += len(r.Next.Value)
	}
	return n
}

// PackedBytes is the SQL expression of Replaced.Bytes, of a row of the log under a name.
func PackedBytes(leaving string) string {
	return openBytes(leaving+".id") + " + coalesce(octet_length(" + leaving + ".value), 0) + coalesce((SELECT octet_length(log.value) FROM log WHERE log.id = " + leaving + ".replaced_by), 0)"
}

// Objects returns the group, resource and key of each object that rows are of, once.
func Objects(rows []*Replaced) (objects [][3]string) {
	seen := map[[3]string]bool{}
	for _, r := range rows {
		if object := [3]string{r.Group, r.Resource, r.Key}; !seen[object] {
			seen[object] = true
			objects = append(objects, object)
		}
	}
	return objects
}

// Packer returns what becomes of rows that leave the log, in the order of ReplacedBy and ID: blocks that are new, or replace the one with
// the same First. last has the newest block of each of their objects that has one.
type Packer func(rows []*Replaced, last []*Block) ([]*Block, error)

// PackUpTo records that versions are moved up to a revision, its parameter, which is then compacted. Another process that removes
// versions may have done so since: then what is kept begins where it has stopped.
const PackUpTo = `UPDATE counter SET
history_from = CASE WHEN packed < compacted THEN compacted ELSE history_from END,
history_at = CASE WHEN packed < compacted THEN written_at ELSE history_at END,
packed = CASE WHEN compacted > up_to THEN compacted ELSE up_to END,
compacted = CASE WHEN compacted > up_to THEN compacted ELSE up_to END
FROM (SELECT CAST(? AS bigint) AS up_to) AS moved WHERE compacted < up_to OR packed < compacted`

// Jumped sets packed when compacted becomes revision, an expression, though nothing is removed.
func Jumped(revision string) string {
	return "packed = CASE WHEN packed < compacted THEN packed ELSE " + revision + " END"
}

// PurgedInLog is the query for how many versions in the log have been purged: they are not kept when they leave it.
const PurgedInLog = `SELECT count(*) FROM log WHERE replaced_by IS NOT NULL AND operation <> 'delete' AND EXISTS (
  SELECT 1 FROM past WHERE past.api_group = log.api_group AND past.resource = log.resource AND past.key = log.key AND until >= replaced_by AND writers LIKE '[["purge",%')`
