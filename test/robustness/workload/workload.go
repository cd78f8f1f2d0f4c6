package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/robustness/history"
)

// How many clients of each sort there are. The first watcher of each collection stays and sees everything.
const (
	editors  = 6
	holders  = 4
	listers  = 3
	movers   = 4
	watchers = 5 // of each collection
)

// Workload is a set of clients at work.
type Workload struct {
	configs  []*rest.Config
	recorder *history.Recorder
	seed     uint64
	clients  int

	stop      context.CancelFunc // ends the clients that send requests
	asking    sync.WaitGroup
	watching  sync.WaitGroup
	informers []*informer
	targets   map[string][]chan uint64 // sends each watcher of a resource its target
	last      *client                  // makes the last writes
	within    atomic.Uint64            // see client
	mu        sync.Mutex
	refusals  []error
}

// sort is a number of clients that do the same.
type sort struct {
	count int
	work  func(*client, context.Context)
}

// Start creates the namespace and starts clients of the servers in configs. They work until Finish, or until ctx is done. The
// seed decides what they do, as far as the responses allow.
func Start(ctx context.Context, recorder *history.Recorder, seed uint64, configs []*rest.Config) (*Workload, error) {
	asking, stop := context.WithCancel(ctx)
	w := &Workload{configs: configs, recorder: recorder, seed: seed, stop: stop, targets: map[string][]chan uint64{}}
	var err error
	if w.last, err = w.newClient(); err != nil {
		return nil, err
	}
	namespace := map[string]any{"metadata": map[string]any{"name": Namespace}}
	if err := w.last.send(0, http.MethodPost, "/api/v1/namespaces", "application/json", namespace, &object{}); err != nil {
		return nil, err
	}
	if err := w.define(ctx); err != nil {
		return nil, err
	}
	for n, in := range collections {
		if err := w.inform(ctx, in, n%len(configs)); err != nil {
			return nil, err
		}
		for i := range watchers {
			if err := w.startWatcher(ctx, in, i); err != nil {
				return nil, err
			}
		}
	}
	moving, err := w.hasTransactions()
	if err != nil {
		return nil, err
	}
	sorts := []sort{{editors, (*client).edit}, {holders, (*client).hold}, {listers, (*client).read}}
	if moving {
		if err := w.last.openAccounts(); err != nil {
			return nil, err
		}
		sorts = append(sorts, sort{movers, (*client).move})
	}
	for _, sort := range sorts {
		for range sort.count {
			c, err := w.newClient()
			if err != nil {
				return nil, err
			}
			c.hasty = true
			w.asking.Go(func() { sort.work(c, asking) })
		}
	}
	return w, nil
}

// define defines the gadgets, and returns once every server serves them.
func (w *Workload) define(ctx context.Context) error {
	if err := w.last.send(0, http.MethodPost, definitions, "application/json", gadgetDefinition, &object{}); err != nil {
		return err
	}
	for server := range w.configs {
		if err := persist(ctx, func() error { return w.last.send(server, http.MethodGet, gadgets.path, "", nil, &object{}) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workload) newClient() (*client, error) {
	c := &client{id: w.clients, random: rand.New(rand.NewPCG(w.seed, uint64(w.clients))), recorder: w.recorder, refusals: w.refuse, within: &w.within}
	w.clients++
	for _, config := range w.configs {
		e, err := newEndpoint(config)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, e)
	}
	return c, nil
}

func (w *Workload) startWatcher(ctx context.Context, in collection, n int) error {
	c, err := w.newClient()
	if err != nil {
		return err
	}
	follower := &watcher{client: c, in: in, leaves: n > 0, initial: n == 2 || n == 4}
	if n >= 3 {
		follower.group = groups[n%len(groups)]
	}
	if err := follower.start(); err != nil {
		return err
	}
	target := make(chan uint64, 1)
	w.targets[in.resource] = append(w.targets[in.resource], target)
	w.watching.Go(func() { follower.follow(ctx, target) })
	return nil
}

// Finish ends the work: it stops the clients that write and list, waits until each server is ready, and lets the watches catch
// up with a last write. If ctx is done before that, the error says what is missing.
func (w *Workload) Finish(ctx context.Context) error {
	w.stop()
	w.asking.Wait()
	for server := range w.configs {
		if err := w.ready(ctx, server); err != nil {
			return fmt.Errorf("server %d does not become ready: %w", server, err)
		}
	}
	for _, in := range collections {
		version, state, err := w.final(ctx, in)
		if err != nil {
			return err
		}
		for _, i := range w.informers {
			if i.record.Resource != in.resource {
				continue
			}
			if err := i.finish(ctx, state); err != nil {
				return err
			}
		}
		for _, target := range w.targets[in.resource] {
			target <- version
		}
	}
	done := make(chan struct{})
	go func() {
		w.watching.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("watches do not reach the last write")
	}
}

// ready waits until a server is ready.
func (w *Workload) ready(ctx context.Context, server int) error {
	return persist(ctx, func() error {
		response, err := w.last.open(ctx, server, http.MethodGet, "/readyz", "", nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("%s: %s", response.Status, body), err)
		}
		return nil
	})
}

// final moves a new object through all groups, so that every watch sees the last of these changes, returns its revision, and
// lists the final state.
func (w *Workload) final(ctx context.Context, in collection) (version uint64, state map[string]history.Object, err error) {
	for _, group := range groups {
		if err := persist(ctx, func() error {
			o := w.last.apply(in, "the-last", group)
			version = o.Object.Version
			if o.Outcome != history.Done {
				return fmt.Errorf("%s %s: %s", o.Verb, o.Key, o.Error)
			}
			return nil
		}); err != nil {
			return 0, nil, err
		}
	}
	state = map[string]history.Object{}
	return version, state, persist(ctx, func() error {
		l := &history.List{}
		err := w.last.list(in, l, 0)
		for _, page := range l.Pages {
			for _, o := range page.Objects {
				state[o.Name] = o
			}
		}
		return err
	})
}

// persist retries until do succeeds or ctx is done.
func persist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it still fails: %w", err)
		case <-time.After(retryPause):
		}
	}
}

func (w *Workload) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals = append(w.refusals, err)
}

// Refusals returns the error responses that no request should have got.
func (w *Workload) Refusals() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.refusals)
}
