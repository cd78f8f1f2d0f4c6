package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqube/sqube/sqlstore"
)

// testAwait waits for revisions while they are written. Each wait ends when its revision can be read, and not earlier.
func testAwait(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	const writes = 20
	at, err := s.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	early := make(chan error, writes)
	for i := range int64(writes) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := s.Await(ctx, at.Revision+1+i)
			if now, failed := s.Position(ctx); failed != nil || now.Revision <= at.Revision+i {
				err = errors.Join(err, failed, fmt.Errorf("the wait for revision %d ended when the log was at %d", at.Revision+1+i, now.Revision))
			}
			early <- err
		}()
	}
	for i := range writes {
		must(t, s, put(fmt.Sprint(i), "{}", nil))
	}
	for range writes {
		if err := <-early; err != nil {
			t.Error(err)
		}
	}
	if err := s.Await(t.Context(), at.Revision); err != nil {
		t.Errorf("waiting for an existing revision: %v", err)
	}
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	if err := s.Await(ctx, at.Revision+writes+1); !errors.Is(err, gaveUp) {
		t.Errorf("waiting for a missing revision ends with %v", err)
	}
}
