package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sqube/sqube/test/harness"
)

// writes returns the writes that the client received since its actions were last cleared.
func writes(client *fake.Clientset) []string {
	var found []string
	for _, action := range client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			found = append(found, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return found
}

// TestHooksWriteOnceAndThenNothing runs each hook on an empty cluster, and again as a restarted server would.
func TestHooksWriteOnceAndThenNothing(t *testing.T) {
	client := fake.NewClientset()
	shared := informers.NewSharedInformerFactory(client, 0)
	for _, test := range []struct {
		hook *hook
		min  int // the least number of objects that it creates
	}{
		{namespacesHook(client, shared.Core().V1().Namespaces()), 4},
		{rbacHook(only(client), "kubelet-client", nil), 100},
		{priorityClassesHook(client), 2},
		{flowControlHook(client, flowControlInterval), 15},
	} {
		t.Run(test.hook.name, func(t *testing.T) {
			client.ClearActions()
			harness.Must(t, test.hook.ensure(t.Context()))
			if got := writes(client); len(got) < test.min {
				t.Fatalf("first start wrote %d objects, want %d or more: %v", len(got), test.min, got)
			}
			client.ClearActions()
			harness.Must(t, test.hook.ensure(t.Context()))
			if got := writes(client); len(got) > 0 {
				t.Fatalf("second start wrote: %v", got)
			}
		})
	}
}

// only returns a function that returns client.
func only(client kubernetes.Interface) func(context.Context) (kubernetes.Interface, error) {
	return func(context.Context) (kubernetes.Interface, error) { return client, nil }
}

func TestHookReportsItsLastErrorUntilItIsDone(t *testing.T) {
	failures := 3
	h := &hook{name: "test", done: make(chan struct{}), ended: make(chan struct{})}
	health := h.health()
	h.ensure = func(context.Context) error {
		if failures == 0 {
			return nil
		}
		failures--
		if failures == 0 {
			if err := health.Check(nil); err == nil || !strings.Contains(err.Error(), "no database") {
				t.Errorf("health while failing: %v", err)
			}
		}
		return errors.New("no database")
	}
	if err := health.Check(nil); err == nil {
		t.Error("healthy before it started")
	}
	harness.Must(t, h.run(t.Context()))
	if err := health.Check(nil); err != nil {
		t.Errorf("unhealthy when done: %v", err)
	}
	if health.Name() != "poststarthook/test" {
		t.Errorf("name %s", health.Name())
	}
}

func TestHookEndsWithARequestThatPanics(t *testing.T) {
	calls := 0
	h := &hook{name: "test", done: make(chan struct{}), ended: make(chan struct{}), ensure: func(context.Context) error {
		calls++
		return errors.New("an error on the server (\"This request caused apiserver to panic. Look in the logs for details.\") has prevented the request from succeeding")
	}}
	if err := h.run(t.Context()); err == nil || !strings.Contains(err.Error(), "test: an error on the server") || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

func TestHookIsDoneInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hook{name: "test", done: make(chan struct{}), ended: make(chan struct{}), serve: func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return nil
		}}
		if err := h.run(t.Context()); err == nil || !strings.Contains(err.Error(), "test: was not done within 1m0s") {
			t.Errorf("a hook that is never ready ends with %v", err)
		}
		h = &hook{name: "test", done: make(chan struct{}), ended: make(chan struct{}), serve: readyAtOnce(func(ctx context.Context) {
			select {
			case <-ctx.Done():
				t.Error("a hook that is ready ends")
			case <-time.After(2 * startTimeout):
			}
		})}
		if err := h.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
