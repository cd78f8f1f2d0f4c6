package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/test/crash/ledger"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	kills   = 10
	writers = 8
	// loadBefore is how many changes are acknowledged between two kills, which can then happen at any moment of the load.
	loadBefore = 100
	// testTimeout limits a test on a busy machine.
	testTimeout = 10 * time.Minute
)

// TestKillLosesNothing kills the server with SIGKILL ten times while clients write. Every acknowledged write is there after the
// next start, no resourceVersion is handed out twice or below an earlier one, and a watch that resumes from its last version
// after every start receives each change exactly once.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		client := ledger.NewClient(t, server.Config(t))
		harness.Must(t, ledger.Prepare(ctx, client))
		watch, err := ledger.Follow(ctx, client, ledger.ConfigMaps)
		harness.Must(t, err)
		book := ledger.New()
		load := startLoad(ctx, book, client)
		for range kills {
			harness.Must(t, load.more(loadBefore+rand.IntN(loadBefore)))
			server.Kill(t)
			server.Start(t)
		}
		harness.Must(t, load.stop())
		if n := book.Changes(); n < kills*loadBefore {
			t.Errorf("only %d changes were acknowledged", n)
		}
		checkAll(t, ctx, book, client, watch)
	})
}

// checkAll compares what is stored and what the watch has received with what was acknowledged.
func checkAll(t *testing.T, ctx context.Context, book *ledger.Ledger, client dynamic.Interface, watch *ledger.Log) {
	t.Helper()
	if err := book.CheckStored(ctx, client, ledger.ConfigMaps); err != nil {
		t.Error(err)
	}
	last, err := book.NewWriter(client, "finish").Last(ctx, ledger.ConfigMaps)
	harness.Must(t, err)
	seen, err := watch.Wait(ctx, last)
	harness.Must(t, err)
	if err := book.CheckEvents(ledger.ConfigMaps, seen); err != nil {
		t.Error(err)
	}
}

// load runs the writers, which write until they are stopped.
type load struct {
	book    *ledger.Ledger
	running sync.WaitGroup
	enough  chan struct{}
	failed  context.Context // ends with the first error of a writer as its cause
	fail    context.CancelCauseFunc
	stepped chan struct{} // buffered, one: signals progress
}

func startLoad(ctx context.Context, book *ledger.Ledger, client dynamic.Interface) *load {
	failed, fail := context.WithCancelCause(ctx)
	l := &load{book: book, enough: make(chan struct{}), failed: failed, fail: fail, stepped: make(chan struct{}, 1)}
	for i := range writers {
		w := book.NewWriter(client, fmt.Sprintf("writer-%02d", i), ledger.ConfigMaps)
		l.running.Go(func() {
			for {
				select {
				case <-l.enough:
					return
				default:
				}
				if err := w.Step(ctx); err != nil {
					fail(err)
					return
				}
				select {
				case l.stepped <- struct{}{}:
				default:
				}
			}
		})
	}
	return l
}

// more waits until n more changes are acknowledged.
func (l *load) more(n int) error {
	for until := l.book.Changes() + n; l.book.Changes() < until; {
		select {
		case <-l.stepped:
		case <-l.failed.Done():
			return context.Cause(l.failed)
		}
	}
	return nil
}

// stop stops the writers once their current changes are acknowledged.
func (l *load) stop() error {
	close(l.enough)
	l.running.Wait()
	defer l.fail(nil)
	return context.Cause(l.failed)
}
