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
	Writers, Versions    string
	Data                 []byte
}

// BlockColumns lists the columns of the table past that Block.Scan reads.
const BlockColumns = "first_id, until, first_at, until_at, api_group, resource, key, namespace, name, writers, versions, data"

// blockOverhead is roughly what a block takes besides its values.
const blockOverhead = 150

// Bytes is roughly how much space the block takes.
func (b *Block) Bytes() int64 {
	return int64(blockOverhead + 2*(len(b.Group)+len(b.Resource)+len(b.Key)) + len(b.Namespace) + len(b.Name) + len(b.Writers) + len(b.Versions) + len(b.Data))
}

// PutBlock adds a block, or replaces the one with the same First.
func PutBlock(placeholder func(n int) string) string {
	columns := strings.Split(BlockColumns+", bytes", ", ")
	values, updates := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		values[i], updates[i] = placeholder(i+1), column+" = excluded."+column
	}
	return fmt.Sprintf("INSERT INTO past (%s) VALUES (%s) ON CONFLICT (first_id) DO UPDATE SET %s",
		strings.Join(columns, ", "), strings.Join(values, ", "), strings.Join(updates[1:], ", "))
}

// Values returns the parameters of PutBlock.
func (b *Block) Values() []any {
	return []any{b.First, b.Until, b.FirstAt, b.UntilAt, b.Group, b.Resource, b.Key, b.Namespace, b.Name, b.Writers, b.Versions, b.Data, b.Bytes()}
}

// Scan reads a row whose first columns go to preceding. The others are BlockColumns.
func (b *Block) Scan(row Row, preceding ...any) error {
	return row.Scan(append(preceding, &b.First, &b.Until, &b.FirstAt, &b.UntilAt, &b.Group, &b.Resource, &b.Key, &b.Namespace, &b.Name,
		&b.Writers, &b.Versions, &b.Data)...)
}

// Replaced is a row that leaves the log.
type Replaced struct {
	LogRow
	ReplacedAt int64 // when the row that replaced it was written, in Unix milliseconds
}

// Scan reads a row of ReplacedAt, which is null if that row is gone, and Columns.
func (r *Replaced) Scan(row Row) error {
	var at *int64
	err := r.LogRow.Scan(row, &at)
	if r.ReplacedAt = r.WrittenAt; at != nil {
		r.ReplacedAt = *at
	}
	return err
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
func PackUpTo(placeholder func(n int) string) string {
	return strings.ReplaceAll(`UPDATE counter SET
history_from = CASE WHEN packed < compacted THEN compacted ELSE history_from END,
history_at = CASE WHEN packed < compacted THEN written_at ELSE history_at END,
packed = CASE WHEN compacted > $1 THEN compacted ELSE $1 END,
compacted = CASE WHEN compacted > $1 THEN compacted ELSE $1 END
WHERE compacted < $1 OR packed < compacted`, "$1", placeholder(1))
}

// Jumped sets packed when compacted becomes revision, an expression, though nothing is removed.
func Jumped(revision string) string {
	return "packed = CASE WHEN packed < compacted THEN packed ELSE " + revision + " END"
}
