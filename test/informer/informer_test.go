package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/test/crash/ledger"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	changes = 2000
	writers = 16
	// testTimeout limits a test on a busy machine.
	testTimeout = 3 * time.Minute
)

var kinds = []ledger.Kind{ledger.Pods, ledger.Gadgets, ledger.Namespaces}

// TestInformersSeeEveryChange makes 2,000 changes by 16 concurrent writers to pods, custom resources and namespaces, and
// restarts the server in between. It observes them with informers, with and without watch-list, and with plain watches.
//
// A plain watch that resumes from its last version after the restart receives each change exactly once, in the order of
// versions. So does an informer, unless it has to relist because its connection broke; then it receives the acknowledged
// versions of each object in order, except for those replaced by then, and always the last.
func TestInformersSeeEveryChange(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		client := ledger.NewClient(t, server.Config(t))
		harness.Must(t, ledger.Prepare(ctx, client))
		observers := observe(t, ctx, server.Config(t), client)

		book := ledger.New()
		load := startLoad(ctx, book, client)
		harness.Must(t, load.reach(ctx, changes*2/5))
		server.Stop(t)
		server.Start(t)
		harness.Must(t, load.wait())
		if n := book.Changes(); n < changes {
			t.Fatalf("%d changes were acknowledged, not %d", n, changes)
		}
		finish(t, ctx, book, client, observers)
	})
}

// finish waits until every observer has received the last change, and compares what they received with what was acknowledged.
func finish(t *testing.T, ctx context.Context, book *ledger.Ledger, client dynamic.Interface, observers []observer) {
	t.Helper()
	last := book.NewWriter(client, "finish")
	for _, kind := range kinds {
		seen := make(map[string][]ledger.Event)
		// An informer that has relisted reports objects in any order. Once it has reported one, all are in its queue, before
		// the second one.
		for range 2 {
			version, err := last.Last(ctx, kind)
			harness.Must(t, err)
			for _, o := range observers {
				if o.kind.Resource != kind.Resource {
					continue
				}
				if seen[o.name], err = o.log.Wait(ctx, version); err != nil {
					t.Fatalf("%s of %s: %v", o.name, kind.Resource.Resource, err)
				}
			}
		}
		if err := book.CheckStored(ctx, client, kind); err != nil {
			t.Error(err)
		}
		for _, o := range observers {
			if o.kind.Resource != kind.Resource {
				continue
			}
			lists := o.lists()
			if err := o.check(book, seen[o.name], lists); err != nil {
				t.Errorf("%s: %v", o.name, err)
			}
		}
	}
}

// load runs the writers.
type load struct {
	book    *ledger.Ledger
	running sync.WaitGroup
	ended   chan struct{}
	mu      sync.Mutex
	err     error
	stepped chan struct{} // buffered, one: signals progress
}

// startLoad starts the writers, which share the changes evenly.
func startLoad(ctx context.Context, book *ledger.Ledger, client dynamic.Interface) *load {
	l := &load{book: book, ended: make(chan struct{}), stepped: make(chan struct{}, 1)}
	for i := range writers {
		// Each begins with a different kind, so that all are written at all times.
		mine := slices.Concat(kinds[i%len(kinds):], kinds[:i%len(kinds)])
		w := book.NewWriter(client, fmt.Sprintf("writer-%02d", i), mine...)
		l.running.Go(func() {
			for range (changes + writers - 1) / writers {
				if err := w.Step(ctx); err != nil {
					l.mu.Lock()
					l.err = errors.Join(l.err, err)
					l.mu.Unlock()
					return
				}
				select {
				case l.stepped <- struct{}{}:
				default:
				}
			}
		})
	}
	go func() {
		l.running.Wait()
		close(l.ended)
	}()
	return l
}

// reach waits until n changes are acknowledged, while the load continues.
func (l *load) reach(ctx context.Context, n int) error {
	for l.book.Changes() < n {
		select {
		case <-l.stepped:
		case <-l.ended:
			return errors.Join(fmt.Errorf("the writers ended after %d changes", l.book.Changes()), l.wait())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// wait waits for the end of the load.
func (l *load) wait() error {
	<-l.ended
	return l.err
}
