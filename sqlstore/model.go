package sqlstore

import (
	"context"
	"encoding/json"
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

	// Watchers is how many followers may have received the change from the hub;
	// 0 for a change that was read for one of them.
	Watchers int
	holders  atomic.Int32 // how many of them have it

	sets struct {
		once              sync.Once
		current, previous Sets
	}
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

// Sets are the labels and fields by which selectors decide on a version.
type Sets struct{ Labels, Fields map[string]string }

// Sets returns the decoded labels and fields of the version that the change
// made and of the one that it replaced, each empty where there is none.
func (c *Change) Sets() (current, previous Sets) {
	c.sets.once.Do(func() {
		c.sets.current = c.Record.Sets()
		if c.Previous != nil {
			c.sets.previous = c.Previous.Sets()
		}
	})
	return c.sets.current, c.sets.previous
}

// Sets decodes the labels and fields of r.
func (r *Record) Sets() Sets {
	return Sets{Labels: DecodeSet(r.Labels), Fields: DecodeSet(r.Fields)}
}

// Withheld stands in the columns labels and fields of a version of which
// nothing may be told in the clear: selectors have to ask the object.
const Withheld = "null"

// Withheld says whether the row does not tell labels and fields.
func (r *Record) Withheld() bool { return r.Labels == Withheld }

// EncodeSet returns set as the columns labels and fields hold it: a JSON
// object with sorted keys and no spaces, so that a pair is found in it as the
// text "key":"value".
func EncodeSet(set map[string]string) string {
	if len(set) == 0 {
		return "{}"
	}
	text, err := json.Marshal(set)
	if err != nil {
		// A map of strings always has a JSON form.
		panic(err)
	}
	return string(text)
}

// DecodeSet reads what EncodeSet wrote. What is no JSON object of strings, a
// row that somebody edited, counts as empty, and so does Withheld.
func DecodeSet(text string) map[string]string {
	if len(text) <= len("{}") {
		return nil
	}
	set := map[string]string{}
	if json.Unmarshal([]byte(text), &set) != nil {
		return nil
	}
	return set
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
