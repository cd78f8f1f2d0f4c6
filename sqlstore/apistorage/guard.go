package apistorage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Past is what a request reads that was before now: the state at a revision, or changes from then on.
type Past struct {
	// Resource is as in rows.
	Resource schema.GroupResource
	// Namespace is "" for all, and for objects without one. Name is "" for all.
	Namespace, Name string
	// First is the first revision of which it sees something.
	First int64
}

// Guard returns an error if the request of a context may not read something.
type Guard func(context.Context, Past) error

type guardKey struct{}

// WithGuard returns a context whose reads at former revisions ask a guard first. Its error is that of a get or a list at that revision; a watch
// has expired then, and so has a continue token, so that clients list again.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// guard asks the guard of a context, if it has one, about the row with a key, or the rows under a prefix.
func (s *Storage) guard(ctx context.Context, row string, first int64) error {
	ask, ok := ctx.Value(guardKey{}).(Guard)
	if !ok {
		return nil
	}
	namespace, name := split(row)
	return ask(ctx, Past{s.GroupResource, namespace, name, first})
}
