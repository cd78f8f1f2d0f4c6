package controllers

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestGroups checks that controllers that wait for the same are built together, and that those that wait for nothing come first.
func TestGroups(t *testing.T) {
	secrets, claims := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	var names [][]string
	for _, group := range inGroups([]controller{
		{name: "tokens", awaits: of(secrets)}, {name: "accounts"}, {name: "claims", awaits: of(claims)}, {name: "collector", awaitsClients: true},
		{name: "cleaner", awaits: of(secrets)}, {name: "roles"},
	}) {
		var in []string
		for _, c := range group {
			in = append(in, c.name)
		}
		names = append(names, in)
	}
	if want := [][]string{{"accounts", "roles"}, {"tokens", "cleaner"}, {"claims"}, {"collector"}}; !slices.EqualFunc(names, want, slices.Equal) {
		t.Errorf("the groups are %v instead of %v", names, want)
	}
}

// TestAwaitFirst checks what a controller waits for: the first part in any case, and a client's write or an object of its resource.
func TestAwaitFirst(t *testing.T) {
	closed, open := make(chan struct{}), make(chan struct{})
	close(closed)
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	woken := func(_ context.Context, _ schema.GroupVersionResource, wake func()) (func(), bool) {
		go wake()
		return func() {}, true
	}
	wokenAtOnce := func(_ context.Context, _ schema.GroupVersionResource, wake func()) (func(), bool) {
		wake()
		return nil, false
	}
	asleep := func(context.Context, schema.GroupVersionResource, func()) (func(), bool) { return func() {}, true }
	halfAsleep := func(ctx context.Context, of schema.GroupVersionResource, wake func()) (func(), bool) {
		if of == resource {
			return sleepless(ctx, of, wake)
		}
		return asleep(ctx, of, wake)
	}
	for name, test := range map[string]struct {
		first <-chan struct{}
		c     controller
		with  Config
		waits bool
	}{
		"a client has written":       {closed, controller{awaitsClients: true}, Config{Written: closed}, false},
		"no client has written":      {closed, controller{awaitsClients: true}, Config{Written: open}, true},
		"a client may have":          {closed, controller{awaitsClients: true}, Config{}, false},
		"there are objects":          {closed, controller{awaits: of(resource)}, Config{Sleep: sleepless}, false},
		"there are objects later":    {closed, controller{awaits: of(resource)}, Config{Sleep: woken}, false},
		"the first was just created": {closed, controller{awaits: of(resource)}, Config{Sleep: wokenAtOnce}, false},
		"there are no objects":       {closed, controller{awaits: of(resource)}, Config{Sleep: asleep}, true},
		"one of two has objects":     {closed, controller{awaits: of(schema.GroupVersionResource{Resource: "empty"}, resource)}, Config{Sleep: halfAsleep}, false},
		"others are not built yet":   {open, controller{awaits: of(resource)}, Config{Sleep: sleepless}, true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if test.waits {
			cancel() // it can only return because of this
		}
		if awaitFirst(ctx, test.first, test.c, test.with) == test.waits {
			t.Errorf("%s: waits is not %t", name, test.waits)
		}
		cancel()
	}
}
