package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/sqlstore/history"
)

// Log reads the changes of a store.
type Log struct {
	Store *sqlstore.Store
	// Transformer decrypts the objects of a resource.
	Transformer func(schema.GroupResource) value.Transformer
	// Authorizer decides which objects a user may see.
	Authorizer authorizer.Authorizer
	Served     Served

	lives lives
}

// Served is what a server knows of resources.
type Served interface {
	// ResourceOf and KindOf find the resource whose objects have a kind, and the kind of a resource's objects, in any version.
	ResourceOf(schema.GroupKind) (resource schema.GroupResource, namespaced, ok bool)
	KindOf(schema.GroupResource) (schema.GroupVersionKind, bool)
	// Current waits until both know all definitions that were established before the call. It returns an API error if that takes too long.
	Current(context.Context) error
	// Definition returns the name that the CustomResourceDefinition of a resource has, or had; false for a resource of Kubernetes itself.
	Definition(schema.GroupResource) (name string, custom bool)
	// HasPlainStatus reports whether the status of a resource's objects is a field like others: custom resources without the subresource status
	// have one. So it is for all that is known of a definition that is gone.
	HasPlainStatus(schema.GroupVersionResource) bool
	// Hidden returns which values of the resource's objects are secret; nil if none are.
	Hidden(context.Context, schema.GroupResource) *Hidden
}

// internal are the resources of rows that are no objects of the API.
var internal = map[sqlstore.Resource]bool{
	sharedkeys.Resource: true, {Name: "rangeallocations"}: true, sqlstore.Transactions: true, sqlstore.Unconfirmed: true, sqlstore.Written: true, sqlstore.Mirror: true, sqlstore.Gaps: true,
}

// isGap reports whether a change is the record of what a mirror has not seen.
func isGap(c *history.Change) bool {
	return sqlstore.Resource{Group: c.Group, Name: c.Resource} == sqlstore.Gaps
}

// Entry is a change that a user may see.
type Entry struct {
	*history.Change
	// Before and After are the object's JSON in its stored version, without its resourceVersion. Before is nil for a creation, and if
	// it is no longer kept. After is nil for a deletion.
	Before, After []byte
	// Unreadable is why Before and After are missing, such as a lost key; nil if they are not.
	Unreadable error

	head        head
	differences []fieldpath.Difference // of an update whose Before is known, or whose Fields are
}

// head is the part of an object that its changes show.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		OwnerReferences []ownerReference `json:"ownerReferences"`
	} `json:"metadata"`
}

// Each calls yield with the changes of s that a user may see, in the order of s. It returns an error of yield, which ends it, unchanged.
func (l *Log) Each(ctx context.Context, u user.Info, s *Selection, yield func(*Entry) error) error {
	return l.each(ctx, l.rightsOf(u), s, yield)
}

// All is Each with the changes that nobody needs to be allowed to see. None of it may be shown.
func (l *Log) All(ctx context.Context, s *Selection, yield func(*Entry) error) error {
	return l.each(ctx, nil, s, yield)
}

// Live calls yield with the changes that made what exists now, of a resource, in a namespace, or all, whoever may know of them; owned limits
// it to objects that may have owners, and reads them. None of it may be shown.
func (l *Log) Live(ctx context.Context, q history.Query, owned bool, yield func(*Entry) error) error {
	return l.Store.Live(ctx, q, owned, func(c *history.Change) error {
		if internal[sqlstore.Resource{Group: c.Group, Name: c.Resource}] {
			return nil
		}
		e := &Entry{Change: c}
		if owned {
			e.After, e.Unreadable = l.decrypt(ctx, c, c.Value)
		}
		return yield(e)
	})
}

// MayGet returns a function that reports whether a user may get an object, which need not exist.
func (l *Log) MayGet(u user.Info) func(ctx context.Context, resource schema.GroupResource, namespace, name string) (bool, error) {
	r := l.rightsOf(u)
	return func(ctx context.Context, resource schema.GroupResource, namespace, name string) (bool, error) {
		return r.mayGet(ctx, object{resource, namespace, name})
	}
}

// errTooMuch is returned for a selection that reads more than it may.
var errTooMuch = errors.New("the selection reads too many changes")

func (l *Log) each(ctx context.Context, r *rights, s *Selection, yield func(*Entry) error) error {
	read := 0
	return l.Store.Changes(ctx, s.Query, func(c *history.Change) error {
		gap := s.Gaps && isGap(c)
		if internal[sqlstore.Resource{Group: c.Group, Name: c.Resource}] && !gap || !s.matchesRow(c, gap) {
			return nil
		}
		if r != nil && !gap { // whoever may list changes may know what is missing
			allowed, err := r.sees(ctx, objectOf(c), c.UID, c.ID, s.Name != "")
			if err != nil || !allowed {
				return err
			}
		}
		if s.looking != nil {
			if err := s.looking(c.ID); err != nil {
				return err
			}
		}
		if s.Lazy {
			return yield(&Entry{Change: c})
		}
		if err := c.Load(ctx); errors.Is(err, history.ErrForgotten) {
			return nil
		} else if err != nil {
			return err
		}
		if read += overhead + len(c.Previous) + len(c.Value); s.mostRead > 0 && read > s.mostRead {
			return errTooMuch
		}
		if s.transaction != "" {
			if of, _ := sqlstore.SplitAuditID(c.AuditID); of != s.transaction {
				return nil
			}
		}
		e := l.entry(ctx, c)
		if gap {
			return yield(e)
		}
		if !s.matchesKind(e.head.Kind) || len(s.paths) > 0 && !s.matchesPaths(e.paths()) {
			return nil
		}
		return yield(e)
	})
}

// Read reads the objects of an entry of a lazy selection. That they are not kept any more, or can't be read, is no error: they are missing.
func (l *Log) Read(ctx context.Context, e *Entry) error {
	err := e.Load(ctx)
	if errors.Is(err, history.ErrForgotten) {
		e.Unreadable = err
		return nil
	}
	if err != nil {
		return err
	}
	e.Unreadable = l.decryptBoth(ctx, e)
	return nil
}

func (l *Log) decryptBoth(ctx context.Context, e *Entry) (err error) {
	if e.Before, err = l.decrypt(ctx, e.Change, e.Previous); err == nil {
		e.After, err = l.decrypt(ctx, e.Change, e.Value)
	}
	return err
}

// entry decrypts a change. One that can't be read is no reason to hide that it happened.
func (l *Log) entry(ctx context.Context, c *history.Change) *Entry {
	e := &Entry{Change: c}
	if isGap(c) {
		e.After = c.Value // not encrypted
		return e
	}
	if e.Unreadable = l.read(ctx, e); e.Unreadable != nil {
		e.Before, e.After, e.differences = nil, nil, nil
	}
	if e.head.Kind == "" {
		if kind, ok := l.Served.KindOf(schema.GroupResource{Group: c.Group, Resource: c.Resource}); ok {
			e.head.APIVersion, e.head.Kind = kind.ToAPIVersionAndKind()
		}
	}
	return e
}

func (l *Log) read(ctx context.Context, e *Entry) (err error) {
	if err := l.decryptBoth(ctx, e); err != nil {
		return err
	}
	object := e.After
	if object == nil {
		object = e.Before
	}
	if object != nil {
		if err := json.Unmarshal(object, &e.head); err != nil {
			return fmt.Errorf("reading revision %d: %w", e.ID, err)
		}
	}
	if e.Before != nil && e.After != nil {
		e.differences, err = fieldpath.Differences(e.Before, e.After)
	} else if e.Fields != nil {
		for _, path := range e.Fields.Paths {
			e.differences = append(e.differences, fieldpath.Difference{Path: path})
		}
	}
	return err
}

func (l *Log) decrypt(ctx context.Context, c *history.Change, stored []byte) ([]byte, error) {
	if stored == nil {
		return nil, nil
	}
	resource := schema.GroupResource{Group: c.Group, Resource: c.Resource}
	data, _, err := apistorage.Decrypt(ctx, l.Transformer(resource), stored, resources.KeyPrefix(resource)+"/"+c.Key)
	if err != nil {
		return nil, fmt.Errorf("decrypting revision %d: %w", c.ID, err)
	}
	return data, nil
}

func (e *Entry) paths() []string {
	paths := make([]string, len(e.differences))
	for i, d := range e.differences {
		paths[i] = d.Path
	}
	return paths
}
