package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// A block can give up its values: then its data has, after bareData, the compressed JSON of an array with a remnant of each version. The
// successor of the last version is in the next block, or in the log: so it is known which fields a version changed when those before it are
// gone.

// remnant is what remains of a version whose value was given up.
type remnant struct {
	Address string  `json:"a,omitempty"`
	AuditID string  `json:"i,omitempty"`
	After   *Fields `json:"f,omitempty"` // that the successor of the version changed; nil if they are not known
	Record  string  `json:"r,omitempty"` // the fields of the record of a transaction
}

// Fields names the fields that a version changed.
type Fields struct {
	Paths []string `json:"p"`
	More  int      `json:"m,omitempty"` // how many others there are
}

const (
	// maxPaths and maxPath limit how many names of fields a version leaves behind, and how long they are in bytes: whoever writes an object
	// chooses these names.
	maxPaths, maxPath = 20, 200
)

func isBare(b *dialect.Block) bool { return len(b.Data) > 0 && b.Data[0] == bareData }

// Bare returns a block without its values. following is the value that replaced the last version, nil if there is none.
func Bare(b *dialect.Block, following []byte) (*dialect.Block, error) {
	versions, err := Versions(b)
	if err != nil && !errors.Is(err, dialect.ErrCorrupt) && !errors.Is(err, ErrForgotten) {
		return nil, err
	}
	remnants := make([]remnant, len(versions)) // none if the versions can't be read
	for i, v := range versions {
		next := following
		if i+1 < len(versions) {
			next = versions[i+1].Value
		}
		remnants[i] = remnant{Address: v.Address, AuditID: v.AuditID, After: fieldsOf(v.Value, next)}
		if TransactionEnd(v) > 0 {
			remnants[i].Record = v.Fields
		}
	}
	return bare(b, remnants)
}

func bare(b *dialect.Block, remnants []remnant) (*dialect.Block, error) {
	text, err := json.Marshal(remnants)
	if err != nil {
		return nil, err
	}
	packed, err := compress(text)
	if err != nil {
		return nil, err
	}
	made := *b
	made.Bare, made.Data = 1, append([]byte{bareData}, packed...)
	return &made, nil
}

// fieldsOf names the fields in which two values differ. It returns nil if they are not JSON, such as an encrypted one, or one is missing.
func fieldsOf(before, after []byte) *Fields {
	if len(before) == 0 || len(after) == 0 {
		return nil
	}
	paths, err := fieldpath.Changed(before, after)
	if err != nil {
		return nil
	}
	f := &Fields{Paths: make([]string, 0, min(len(paths), maxPaths))}
	for _, path := range paths {
		if len(f.Paths) == maxPaths || len(path) > maxPath {
			f.More++
		} else {
			f.Paths = append(f.Paths, path)
		}
	}
	return f
}

// remnantsOf returns what remains of the versions of a bare block, nil if that can't be read.
func remnantsOf(b *dialect.Block) (remnants []remnant) {
	if !isBare(b) {
		return nil
	}
	text, err := decompress(b.Data[1:])
	if err != nil || json.Unmarshal(text, &remnants) != nil {
		return nil
	}
	return remnants
}

// fieldsAt returns the fields that the version with a revision changed, if the one before it is in a bare block; nil if they are not known.
func fieldsAt(b *dialect.Block, revision int64) *Fields {
	versions, err := rows(b)
	remnants := remnantsOf(b)
	if err != nil || len(remnants) != len(versions) {
		return nil
	}
	for i, v := range versions {
		if v.ReplacedBy == revision {
			return remnants[i].After
		}
	}
	return nil
}

// GaveWay says that so many blocks of a user in a namespace have given up their values for room, up to a revision and its time in Unix
// milliseconds.
type GaveWay struct {
	Namespace, User string
	Blocks          int64
	Until, UntilAt  int64
}

// String says who it is: a user and where.
func (g GaveWay) String() string {
	if g.Namespace == "" {
		return g.User + " outside namespaces"
	}
	return g.User + " in " + g.Namespace
}

// EachGaveWay calls yield with all who have given up values, first those who have most.
func EachGaveWay(ctx context.Context, r dialect.Reader, yield func(GaveWay)) error {
	const statement = "SELECT namespace, user_name, count(*), max(until), max(until_at) FROM past WHERE bare = 1 GROUP BY namespace, user_name ORDER BY 3 DESC, 1, 2"
	return r.Query(ctx, statement, nil, func(row dialect.Row) error {
		var g GaveWay
		err := row.Scan(&g.Namespace, &g.User, &g.Blocks, &g.Until, &g.UntilAt)
		yield(g)
		return err
	})
}

// leftOut is the resource, of group sqube.io, of records that stand for changes of which nothing is kept.
const leftOut = "left_out"

// WasLeftOut is the condition that nothing is kept of some changes around a revision. Both of its parameters are that revision. It lacks the
// bracket at its end: conditions on the columns name (the resource with its group) and namespace can come before it.
const WasLeftOut = "EXISTS (SELECT 1 FROM past WHERE api_group = '" + dialect.InternalGroup + "' AND resource = '" + leftOut + "' AND first_id <= ? AND until > ?"

// leftOutRecord says that changes by a user of objects of a resource in a namespace are no longer kept, not even who made them.
type leftOutRecord struct {
	Resource        string // with its group: resource.group
	Namespace, User string
	From, Until     int64 // the revisions between which they are, with these
	FromAt, UntilAt int64 // their times, in Unix milliseconds
	Changes         int64
}

// LeftOut returns records that stand for blocks, some of which may be records.
func LeftOut(blocks []*dialect.Block) (made []*dialect.Block, err error) {
	var records []*leftOutRecord
	for _, b := range blocks {
		add, err := leftOutOf(b)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(records, func(r *leftOutRecord) bool {
			return r.Resource == add.Resource && r.Namespace == add.Namespace && r.User == add.User
		})
		if i < 0 {
			records = append(records, add)
			continue
		}
		r := records[i]
		if add.From < r.From {
			r.From, r.FromAt = add.From, add.FromAt
		}
		r.Until, r.UntilAt, r.Changes = max(r.Until, add.Until), max(r.UntilAt, add.UntilAt), r.Changes+add.Changes
	}
	for _, r := range records {
		made = append(made, r.block())
	}
	return made, nil
}

// leftOutOf returns the record that a block is, or that stands for it.
func leftOutOf(b *dialect.Block) (*leftOutRecord, error) {
	r := &leftOutRecord{
		Resource: Resource{b.Group, b.Resource}.String(), Namespace: b.Namespace, User: b.User, From: b.First, FromAt: b.FirstAt, Until: b.Until, UntilAt: b.UntilAt,
	}
	if IsLeftOut(b) {
		r.Resource = b.Name
		if _, err := fmt.Sscan(string(b.Data), &r.Changes); err != nil {
			return nil, fmt.Errorf("%w: the record of changes that were left out from revision %d", errBlock, b.First)
		}
	}
	if versions, ok := parseVersions(b.Versions); ok {
		r.Changes += int64(len(versions))
	}
	return r, nil
}

func (r *leftOutRecord) block() *dialect.Block {
	return &dialect.Block{
		First: r.From, Until: r.Until, FirstAt: r.FromAt, UntilAt: r.UntilAt, Group: dialect.InternalGroup, Resource: leftOut,
		Key: r.Namespace + "/" + r.User + "/" + r.Resource, Namespace: r.Namespace, Name: r.Resource, User: r.User,
		Bare: 1, Writers: "[]", Versions: "[]", Data: fmt.Append(nil, r.Changes),
	}
}

// IsLeftOut reports whether a block is such a record.
func IsLeftOut(b *dialect.Block) bool {
	return b.Group == dialect.InternalGroup && b.Resource == leftOut
}
