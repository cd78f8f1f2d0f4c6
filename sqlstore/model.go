package sqlstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sqube/sqube/dialect"
)

// Resource names a collection: an API group ("" is the core group) and the
// plural name of a resource in it.
type Resource struct{ Group, Name string }

// Record is one version of an object. It is shared and never changed.
type Record struct {
	Revision int64
	Key      string
	// Labels and Fields are JSON objects of strings, see EncodeSet, or Withheld.
	Labels, Fields string
	// Value is the stored form of the object.
	Value []byte
	// Note is that of the Write, if this process wrote the version and has it in
	// memory since, otherwise 0.
	Note uint64

	left   int     // bytes of a value that is left in the database
	packed *packed // of that value; nil where it is only there
}

// length is how many bytes the value has.
func (r *Record) length() int { return len(r.Value) + r.left }

// bare returns r without its value.
func (r *Record) bare() *Record {
	return &Record{Revision: r.Revision, Key: r.Key, Labels: r.Labels, Fields: r.Fields, left: r.length()}
}

// Change is one row of the log as watchers need it. It is shared by all of
// them and never changed, but for what they cache in it.
type Change struct {
	Resource  Resource
	Operation dialect.Operation
	// Record is the version that the change made. In a deletion it has only
	// Revision and Key.
	Record Record
	// Previous is the version that the change replaced, nil in a creation.
	Previous *Record

	// Watchers is how many followers receive the change from the hub;
	// 0 for a change that was read for one of them.
	Watchers int
	holders  atomic.Int32 // how many of them have it

	// Cache holds what consumers derive from the change, such as the decoded
	// object and its encodings, so that they do it once for all watchers.
	Cache sync.Map
}

// cost is how much memory the change takes that was read for one follower.
func (c *Change) cost() int { return Cost(int(c.size())) }

// size is roughly how much memory the change takes.
func (c *Change) size() int64 {
	size := recordOverhead + c.Record.memory()
	if c.Previous != nil {
		size += c.Previous.memory()
	}
	return size
}

// Author is who asked for a write, as the log records it.
type Author struct{ User, FieldManager string }

type authorKey struct{}

// WithAuthor makes writes under the returned context carry author.
func WithAuthor(ctx context.Context, author Author) context.Context {
	return context.WithValue(ctx, authorKey{}, author)
}

// AuthorFrom returns the author that WithAuthor put into ctx.
func AuthorFrom(ctx context.Context) Author {
	author, _ := ctx.Value(authorKey{}).(Author)
	return author
}
