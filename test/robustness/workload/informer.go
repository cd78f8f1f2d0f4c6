package workload

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/test/robustness/history"
)

// informer is one of client-go's informers, and the record of what its handler receives.
type informer struct {
	work   *Workload
	mu     sync.Mutex
	record history.Informer
	state  map[string]history.Object // by name, as the handler knows it
}

// inform starts an informer of a collection on a server, and returns once it has the state, which it must get from a watch.
func (w *Workload) inform(ctx context.Context, in collection, server int) error {
	version, err := schema.ParseGroupVersion(in.apiVersion)
	if err != nil {
		return err
	}
	i := &informer{work: w, record: history.Informer{Server: server, Resource: in.resource}, state: map[string]history.Object{}}
	lists := make(chan string, 1)
	config := rest.CopyConfig(w.configs[server])
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" {
				select {
				case lists <- r.URL.String():
				default:
				}
			}
			return next.RoundTrip(r)
		})
	})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := dynamicinformer.NewFilteredDynamicInformer(client, version.WithResource(in.resource), Namespace, 0, cache.Indexers{}, nil).Informer()
	handler, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { i.receive(history.Added, o) },
		UpdateFunc: func(_, o any) { i.receive(history.Modified, o) },
		DeleteFunc: func(o any) { i.receive(history.Deleted, o) },
	})
	if err != nil {
		return err
	}
	go shared.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return ctx.Err()
	}
	select {
	case url := <-lists:
		return fmt.Errorf("an informer began with the list %s", url)
	default:
	}
	w.informers = append(w.informers, i)
	return nil
}

// receive records an event of the handler.
func (i *informer) receive(kind history.EventType, received any) {
	if gone, ok := received.(cache.DeletedFinalStateUnknown); ok {
		received = gone.Obj
	}
	u := received.(*unstructured.Unstructured)
	var o object
	o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion = u.GetName(), string(u.GetUID()), u.GetResourceVersion()
	o.Metadata.Labels, o.Metadata.Annotations = u.GetLabels(), u.GetAnnotations()
	recorded, err := o.recorded()
	if err != nil {
		i.work.refuse(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.record.Events = append(i.record.Events, history.Event{At: i.work.recorder.Now(), Type: kind, Object: recorded})
	if kind == history.Deleted {
		delete(i.state, recorded.Name)
	} else {
		i.state[recorded.Name] = recorded
	}
}

// finish waits until the handler has received the final state, and records the informer.
func (i *informer) finish(ctx context.Context, final map[string]history.Object) error {
	for {
		i.mu.Lock()
		record, state := i.record, maps.Clone(i.state)
		i.mu.Unlock()
		if maps.Equal(state, final) {
			i.work.recorder.Informer(&record)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("an informer of %s has %v, not %v", i.record.Resource, state, final)
		case <-time.After(retryPause):
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
