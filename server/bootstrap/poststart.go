package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/util/workqueue"
)

const (
	// retryInterval is how soon a failed hook is retried. Failures during startup (an informer that has not synced, a namespace that
	// another hook is creating) last only milliseconds.
	retryInterval = 20 * time.Millisecond
	// startTimeout is how long a hook may fail before it stops the server: a cluster does not work without its roles or namespaces.
	startTimeout = time.Minute
	// writers is how many objects one hook writes at a time: enough to fill the store's commit groups.
	writers = 16
)

// hook is a post-start hook: it creates objects that a cluster needs, and may maintain them.
type hook struct {
	// name is that of kube-apiserver's post-start hook.
	name string
	// after are the hooks that must be done before this one starts.
	after []*hook
	// ensure, if set, creates what is missing. It is called again until it returns nil, or until a request has panicked.
	ensure func(context.Context) error
	// stored, if set, takes the place of ensure if what that creates has just been stored.
	stored func(context.Context) error
	// serve, if set, runs after ensure until the context ends. It calls ready when the objects exist, within startTimeout, and returns
	// when everything it started has returned. An error stops the server.
	serve func(ctx context.Context, ready func()) error
	// announces means that serve publishes this server, and withdraws it before it returns. Its context ends as soon as the server
	// begins to stop, while it still serves.
	announces bool

	done  chan struct{} // closed when the objects exist
	ended chan struct{} // closed when run has returned

	mu      sync.Mutex
	lastErr error
}

// run waits for the hooks in after, calls ensure until it succeeds, then serve. It returns nil when ctx ends.
func (h *hook) run(ctx context.Context) error {
	defer close(h.ended)
	for _, other := range h.after {
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil
		}
	}
	if h.ensure != nil {
		if err := h.retryEnsure(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	ready := sync.OnceFunc(func() { close(h.done) })
	if h.serve == nil {
		ready()
		return nil
	}
	serving, late := context.WithCancelCause(ctx)
	defer late(nil)
	defer time.AfterFunc(startTimeout, func() {
		select {
		case <-h.done:
		default:
			late(errLate)
		}
	}).Stop()
	err := h.serve(serving, ready)
	if errors.Is(context.Cause(serving), errLate) {
		err = errLate
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	return nil
}

// nothing is a hook.stored.
func nothing(context.Context) error { return nil }

var errLate = fmt.Errorf("was not done within %s: see the log, and whether the database responds", startTimeout)

// panicked is what upstream's filter answers to a request that panicked. It would panic again.
const panicked = "This request caused apiserver to panic."

func (h *hook) retryEnsure(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, retryInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		err := h.ensure(ctx)
		h.mu.Lock()
		if ctx.Err() == nil || h.lastErr == nil { // the last failure says more than a timeout
			h.lastErr = err
		}
		h.mu.Unlock()
		if err != nil && strings.Contains(err.Error(), panicked) {
			return false, err
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("%w: %w", errLate, h.lastErr)
	}
	return err
}

// readyAtOnce makes a hook.serve of run, which returns when its context ends.
func readyAtOnce(run func(context.Context)) func(context.Context, func()) error {
	return func(ctx context.Context, ready func()) error {
		ready()
		run(ctx)
		return nil
	}
}

// health passes when the hook is done. Until then, it returns the hook's last error.
func (h *hook) health() healthz.HealthChecker {
	return healthz.NamedCheck("poststarthook/"+h.name, func(*http.Request) error {
		select {
		case <-h.done:
			return nil
		default:
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.lastErr != nil {
			return fmt.Errorf("not finished: %w", h.lastErr)
		}
		return errors.New("not finished")
	})
}

// each calls do for every item, several at a time, and returns the first error and the number of errors. After a failure, it still
// writes the other objects.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	errs := make([]error, len(items))
	// Once ctx ends, do fails for the rest of the items. ParallelizeUntil would leave them out.
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(items), func(i int) { errs[i] = do(ctx, items[i]) })
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w, and %d more errors", errs[0], len(errs)-1)
}
