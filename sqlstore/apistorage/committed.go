package apistorage

import (
	"context"
	"sync/atomic"
)

type committedKey struct{}

// WithCommitted returns a context for a write, and a function that reports whether the write has been committed. An error after
// that is not the client's fault.
func WithCommitted(ctx context.Context) (_ context.Context, committed func() bool) {
	done := new(atomic.Bool)
	return context.WithValue(ctx, committedKey{}, done), done.Load
}

// setCommitted records that the write of ctx has been committed.
func setCommitted(ctx context.Context) {
	if done, ok := ctx.Value(committedKey{}).(*atomic.Bool); ok {
		done.Store(true)
	}
}
