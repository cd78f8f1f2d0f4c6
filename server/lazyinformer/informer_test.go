package lazyinformer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/lazyinformer"
	"github.com/sqube/sqube/test/harness"
)

// patience limits every wait.
const patience = 30 * time.Second

// sleeper lets informers sleep until wake is called.
type sleeper struct {
	resource schema.GroupVersionResource
	wake     func()
	canceled atomic.Bool
}

func (s *sleeper) sleep(_ context.Context, resource schema.GroupVersionResource, wake func()) (func(), bool) {
	s.resource, s.wake = resource, wake
	return func() { s.canceled.Store(true) }, true
}

// TestInformerSleeps checks that an informer of a resource without objects has synced without sending a request, and that its handlers
// get what it finds once it wakes up, except those that were removed.
func TestInformerSleeps(t *testing.T) {
	client := fake.NewClientset()
	s := &sleeper{}
	factory := lazyinformer.NewFactory(informers.NewSharedInformerFactory(client, 0))
	factory.Sleep = s.sleep
	informer := factory.Core().V1().ConfigMaps().Informer()
	added := make(chan string, 10)
	handler := func(prefix string) cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- prefix + o.(*corev1.ConfigMap).Name }}
	}
	early, err := informer.AddEventHandler(handler("early "))
	harness.Must(t, err)
	removed, err := informer.AddEventHandler(handler("removed "))
	harness.Must(t, err)
	if informer.HasSynced() || early.HasSynced() {
		t.Error("the informer has synced before it was started")
	}
	ctx, stop := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	for object, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("%s has not synced", object)
		}
	}
	late, err := informer.AddEventHandler(handler("late "))
	harness.Must(t, err)
	if !early.HasSynced() || !late.HasSynced() || !informer.GetController().HasSynced() {
		t.Error("the handlers of a sleeping informer have not synced")
	}
	if err := informer.RemoveEventHandler(removed); err != nil {
		t.Error(err)
	}
	if requests := client.Actions(); len(requests) > 0 || s.resource != corev1.SchemeGroupVersion.WithResource("configmaps") {
		t.Errorf("a sleeping informer of %s has sent %v", s.resource, requests)
	}

	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wake()
	got := map[string]bool{}
	for range 2 {
		select {
		case name := <-added:
			got[name] = true
		case <-time.After(patience):
			t.Fatalf("only %v were called", got)
		}
	}
	if !got["early first"] || !got["late first"] {
		t.Errorf("the handlers that were called are %v", got)
	}
	if found, err := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default").Get("first"); err != nil || found.Name != "first" {
		t.Errorf("the lister finds %v: %v", found, err)
	}
	stop()
	factory.Shutdown()
	if !informer.IsStopped() {
		t.Error("the informer runs on")
	}
}

// TestInformerWithObjects checks that an informer of a resource that may have objects runs at once, and one that has stopped never.
func TestInformerWithObjects(t *testing.T) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
	objects := fake.NewClientset(object)
	factory := lazyinformer.NewFactory(informers.NewSharedInformerFactory(objects, 0))
	factory.Sleep = func(context.Context, schema.GroupVersionResource, func()) (func(), bool) { return nil, false }
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	harness.Must(t, err)
	typed := factory.Core().V1().ConfigMaps().Informer()
	ctx, stop := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(t.Context().Done())
	for _, informer := range []cache.SharedIndexInformer{generic.Informer(), typed} {
		if keys := informer.GetStore().ListKeys(); len(keys) != 1 {
			t.Errorf("a synced informer has %v", keys)
		}
	}
	harness.Eventually(t, "the informer has sent a list and a watch", func() bool { return len(objects.Actions()) >= 2 })
	stop()
	factory.Shutdown()
	if requests := objects.Actions(); len(requests) != 2 {
		t.Errorf("the requests of one informer, a list and a watch, are %v", requests)
	}

	client, s := fake.NewClientset(), &sleeper{}
	factory = lazyinformer.NewFactory(informers.NewSharedInformerFactory(client, 0))
	factory.Sleep = s.sleep
	factory.Core().V1().ConfigMaps().Informer()
	ctx, stop = context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	stop()
	factory.Shutdown()
	s.wake()
	if requests := client.Actions(); len(requests) > 0 {
		t.Errorf("an informer that stopped in its sleep has sent %v", requests)
	}
}
