package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testAwait waits for revisions while they are written. Each wait ends when its revision can be read, and not earlier.
func testAwait(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	const writes = 20
	at, err := s.Position(t.Context())
	harness.Must(t, err)
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

// testOnNext checks that a change wakes those that wait for the resource, once, and no others.
func testOnNext(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	woken := make(chan string, 10)
	s.OnNext(things, func() { woken <- "the one that waits" })
	s.OnNext(sqlstore.Resource{Name: "others"}, func() { woken <- "one that waits for another resource" })
	s.OnNext(things, func() { woken <- "one that no longer waits" })()
	for i := range 2 {
		must(t, s, put(fmt.Sprint(i), "{}", nil))
	}
	s.OnNext(things, func() { woken <- "one that waits again" })
	must(t, s, put("2", "{}", nil))
	for range 2 {
		select {
		case who := <-woken:
			if who != "the one that waits" && who != "one that waits again" {
				t.Errorf("a change wakes %s", who)
			}
		case <-time.After(patience):
			t.Fatal("a change wakes nobody")
		}
	}
	if len(woken) > 0 {
		t.Errorf("a change wakes %s too", <-woken)
	}
}
