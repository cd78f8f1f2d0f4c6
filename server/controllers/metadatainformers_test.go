package controllers

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/test/harness"
)

// runMonitor uses a monitor as upstream's controllers do: it adds a handler, gets the controller, and runs that. It returns the
// names that the handler sees, and a function that stops the monitor.
func runMonitor(t *testing.T, m *metadataInformers) (names <-chan string, informer cache.SharedIndexInformer, stop func()) {
	t.Helper()
	generic, err := m.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	harness.Must(t, err)
	seen := make(chan string, 10)
	if _, err := generic.Informer().AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen <- object.(metav1.Object).GetName() },
	}, 0); err != nil {
		t.Fatal(err)
	}
	controller := generic.Informer().GetController()
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		controller.Run(stopped)
	}()
	return seen, generic.Informer(), func() { close(stopped); <-ended }
}

func expectName(t *testing.T, names <-chan string, want string) {
	t.Helper()
	select {
	case got := <-names:
		if got != want {
			t.Fatalf("handler saw %s, want %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("handler never saw %s", want)
	}
}

// sleepless is a Config.Sleep for resources with objects.
func sleepless(context.Context, schema.GroupVersionResource, func()) (func(), bool) {
	return nil, false
}

func newTestInformers(t *testing.T) (*metadataInformers, *metadatafake.FakeMetadataClient) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	harness.Must(t, metav1.AddMetaToScheme(scheme))
	client := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web",
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"note": "long"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}},
			Finalizers:      []string{"example.com/keep"},
		},
	})
	stop := make(chan struct{})
	shared := newSharedInformers(informers.NewSharedInformerFactory(kubefake.NewClientset(), 0), started(), stop)
	m := newMetadataInformers(client, shared, Config{
		InformersStop: stop, Sleep: sleepless, Metadata: func(schema.GroupVersionResource) informer.Source { return nil },
	})
	t.Cleanup(func() { close(stop); m.close() })
	return m, client
}

func TestMonitorsShareOneInformerUntilTheLastStops(t *testing.T) {
	m, _ := newTestInformers(t)
	firstNames, firstInformer, stopFirst := runMonitor(t, m)
	secondNames, secondInformer, stopSecond := runMonitor(t, m)
	expectName(t, firstNames, "web")
	expectName(t, secondNames, "web")
	first := firstInformer.(countedInformer).SharedIndexInformer
	if first != secondInformer.(countedInformer).SharedIndexInformer {
		t.Fatal("two informers for one resource")
	}

	stopFirst()
	if first.IsStopped() {
		t.Fatal("informer stopped though a monitor runs it")
	}
	stopSecond()
	harness.Eventually(t, "the informer stops with the last monitor", first.IsStopped)

	// The resource comes back, as when a CustomResourceDefinition is created again.
	thirdNames, thirdInformer, stopThird := runMonitor(t, m)
	defer stopThird()
	expectName(t, thirdNames, "web")
	if thirdInformer.(countedInformer).SharedIndexInformer == first {
		t.Fatal("a stopped informer was used again")
	}
}

func TestMonitorsKeepOnlyWhatOwnersNeed(t *testing.T) {
	m, _ := newTestInformers(t)
	names, informer, stop := runMonitor(t, m)
	defer stop()
	expectName(t, names, "web")
	object, found, err := informer.GetStore().GetByKey("default/web")
	if err != nil || !found {
		t.Fatalf("not in the store: %v", err)
	}
	kept := object.(*metav1.PartialObjectMetadata)
	if kept.Labels != nil || kept.Annotations != nil || kept.ManagedFields != nil {
		t.Errorf("kept labels %v, annotations %v, managed fields %v", kept.Labels, kept.Annotations, kept.ManagedFields)
	}
	if len(kept.OwnerReferences) != 1 || len(kept.Finalizers) != 1 {
		t.Errorf("lost owner references or finalizers: %+v", kept.ObjectMeta)
	}
}

// started is the channel of informers whose handlers may run.
func started() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestHandlersWaitUntilAllControllersAreBuilt(t *testing.T) {
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "here"}}), 0)
	informer := factory.Core().V1().Namespaces().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
		t.Fatal("informer did not sync")
	}

	start := make(chan struct{})
	shared := newSharedInformers(factory, start, ctx.Done())
	names := make(chan string, 1)
	var lister listers.NamespaceLister // set after the handler is added, as upstream's constructors do
	registration, err := shared.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			namespace, err := lister.Get(object.(metav1.Object).GetName())
			if err != nil {
				t.Error(err)
				return
			}
			names <- namespace.Name
		},
	})
	harness.Must(t, err)
	if registration.HasSynced() {
		t.Error("the handler counts as synced before it got an event")
	}
	lister = shared.Core().V1().Namespaces().Lister()
	close(start)
	expectName(t, names, "here")
}

func TestSharedInformersLoseTheHandlersOfARun(t *testing.T) {
	client := kubefake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	for run := range 2 { // the second run must find the informer as the first did
		shared := newSharedInformers(factory, started(), ctx.Done())
		informer := shared.Core().V1().Namespaces().Informer()
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		harness.Must(t, err)
		index := cache.Indexers{"test": func(any) ([]string, error) { return nil, nil }}
		if err := informer.AddIndexers(index); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		shared.factory.StartWithContext(ctx)
		if !cache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
			t.Fatal("handler did not sync")
		}
		harness.Must(t, shared.removeHandlers())
		if len(shared.handlers) != 0 {
			t.Fatal("handlers left on record")
		}
	}
	if factory.Core().V1().Namespaces().Informer().IsStopped() {
		t.Fatal("the shared informer was stopped")
	}
}
