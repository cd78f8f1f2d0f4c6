package sqlstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Resource names a collection: an API group ("" for the core group) and the plural name of a resource in it.
type Resource = history.Resource

// Record is a row in memory: one version of an object. It is shared and never changed.
type Record struct {
	Revision int64
	Key      string
	// Labels and Fields are JSON objects of strings (see EncodeSet), or Withheld.
	Labels, Fields string
	// Value is the stored form of the object.
	Value []byte
	// Note is that of the Write if this process wrote the version and has kept it in memory, else 0.
	Note uint64

	left   int     // length of a value that is left in the database
	packed *packed // the compressed value; nil if it is only in the database
}

// length returns the length of the value in bytes.
func (r *Record) length() int { return len(r.Value) + r.left }

// bare returns r without its value.
func (r *Record) bare() *Record {
	return &Record{Revision: r.Revision, Key: r.Key, Labels: r.Labels, Fields: r.Fields, left: r.length()}
}

// InternalGroup is the group of records that are no objects of the API.
const InternalGroup = dialect.InternalGroup

// Change is one row of the log in the form that watchers need. It is shared by all of them and never changed, except for Cache.
type Change struct {
	Resource  Resource
	Operation dialect.Operation
	// Record is the version that the change made. For a deletion it has only Revision and Key.
	Record Record
	// Previous is the version that the change replaced, nil for a creation.
	Previous *Record

	// Watchers is how many followers receive the change from the hub, 0 if a follower read it from the log for itself.
	Watchers int
	holders  atomic.Int32 // how many of them hold it
	followed bool         // whether another one follows that is of the same transaction

	// Cache has what is derived from the change once for all watchers, such as the decoded object and its encodings.
	Cache sync.Map
}

// Deletes reports whether the change has deleted the object.
func (c *Change) Deletes() bool { return c.Operation == dialect.Delete }

// cost is the memory of a change that a follower read for itself.
func (c *Change) cost() int { return Cost(int(c.size())) }

// size is roughly the memory of the change.
func (c *Change) size() int64 {
	size := recordOverhead + c.Record.memory()
	if c.Previous != nil {
		size += c.Previous.memory()
	}
	return size
}

// Author is the author of a write, as recorded in the log.
type Author struct {
	// User is who was authenticated, and CredentialID names what authenticated them, such as the JTI of a token; "" if it is unknown.
	User, CredentialID string
	// ImpersonatedUser is the user in whose name User writes, "" if in their own.
	ImpersonatedUser string
	FieldManager     string
	// Address is that of the client, and AuditID the request's in the audit log; "" if there is none.
	Address, AuditID string
}

type authorKey struct{}

// WithAuthor returns a context whose writes record author.
func WithAuthor(ctx context.Context, author Author) context.Context {
	return context.WithValue(ctx, authorKey{}, author)
}

// serverAuthor is the author of what the server writes by itself, not for a request: with the name of kube-apiserver's own client.
var serverAuthor = Author{User: "system:apiserver", FieldManager: "sqube"}

// AuthorFrom returns the author in ctx, or that of the server itself if there is none.
func AuthorFrom(ctx context.Context) Author {
	if author, ok := ctx.Value(authorKey{}).(Author); ok {
		return author
	}
	return serverAuthor
}
