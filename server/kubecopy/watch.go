package kubecopy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Event is what a watch tells: that an object was added, modified or deleted, or (watch.Bookmark) how far the watch is.
type Event struct {
	Type   watch.EventType
	Object *Object // of a bookmark, it has only the resourceVersion
}

// List calls yield with each object of a resource, in a namespace or all (""), as it is now. It returns the resourceVersion from which a watch
// goes on. It returns an error of yield, which ends it, unchanged.
func (c *Cluster) List(ctx context.Context, r Resource, namespace string, yield func(*Object) error) (from string, err error) {
	from, _, err = c.pages(ctx, r, namespace, nil, nil, yield)
	return from, err
}

// Define reads the definitions of custom resources, so that objects of these can be read. A user who may not do that gets an error.
func (c *Cluster) Define(ctx context.Context) error {
	for _, r := range c.resources {
		if r.defines() {
			_, err := c.List(ctx, r, "", func(*Object) error { return nil })
			return err
		}
	}
	return nil
}

// quiet is after what time a watch has begun that has sent nothing yet. One that can't go on from its resourceVersion says so before.
const quiet = time.Second

// Watch calls opened when a watch that goes on from a resourceVersion has begun, with the time, and yield with each of its events, with
// bookmarks. It returns nil when the server ends the watch, and an error of yield unchanged.
func (c *Cluster) Watch(ctx context.Context, r Resource, namespace, from string, opened func(time.Time), yield func(Event) error) error {
	w, err := c.watching.Get().AbsPath(r.path(namespace)).SetHeader("Accept", accepted).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", from).Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	began, late := time.Now(), time.NewTimer(quiet)
	defer late.Stop()
	open := sync.OnceFunc(func() { opened(began) })
	for {
		select {
		case e, more := <-w.ResultChan():
			if !more {
				open()
				return ctx.Err()
			}
			converted, err := c.event(ctx, r, e)
			if !Expired(err) {
				open()
			}
			if err == nil && converted != nil {
				err = yield(*converted)
			}
			if err != nil {
				return err
			}
		case <-late.C:
			open()
		}
	}
}

// event converts an event of a watch. It is nil for an object that is not to be read, or that can't be stored.
func (c *Cluster) event(ctx context.Context, r Resource, e watch.Event) (*Event, error) {
	unknown, raw := e.Object.(*runtime.Unknown)
	if !raw { // the connection broke, or an answer was not understood
		return nil, apierrors.FromObject(e.Object)
	}
	if e.Type == watch.Error {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(unknown.Raw, nil, &metav1.Status{})
		if err != nil {
			return nil, fmt.Errorf("the watch of %s ended with an error that can't be read: %w", r.In(""), err)
		}
		return nil, apierrors.FromObject(decoded)
	}
	o, err := parseObject(unknown.Raw)
	if err != nil {
		return nil, fmt.Errorf("the watch of %s has sent an event that can't be read: %w", r.In(""), err)
	}
	if e.Type == watch.Bookmark {
		version, err := o.version()
		return &Event{e.Type, &Object{ResourceVersion: version}}, err
	}
	converted, err := c.convert(ctx, r, o)
	if err != nil || converted == nil {
		return nil, err
	}
	return &Event{e.Type, converted}, nil
}

// Expired reports whether an error says that a watch can't go on from its resourceVersion, so that the resource has to be listed again.
func Expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// Identity returns what tells a cluster from others: the uid of the namespace kube-system, or its URL if the user may not read that.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	text, err := c.client.Get().AbsPath("/api/v1/namespaces/kube-system").SetHeader("Accept", "application/json").DoRaw(ctx)
	if Unreadable(err) {
		return c.client.Get().URL().Host, nil
	}
	var partial metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(text, &partial)
	}
	return string(partial.UID), err
}

// Changes reports whether an event of a resource can change which resources there are.
func (r *Resource) Changes() bool {
	return r.defines() || r.GroupResource() == schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
}

// Depth is 0 for resources that objects of others are in, namespaces and definitions, and 1 for all others.
func (r *Resource) Depth() int {
	if r.defines() || r.GroupVersionResource == namespaces {
		return 0
	}
	return 1
}

// watchClient returns a client whose watches last, and pass objects on as they are.
func watchClient(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0
	config.NegotiatedSerializer = undecoded{scheme.Codecs.WithoutConversion()}
	return rest.UnversionedRESTClientFor(config)
}

// undecoded is a serializer that does not decode objects: they become a runtime.Unknown.
type undecoded struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (u undecoded) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return bytesDecoder{u.NegotiatedSerializer.DecoderToVersion(d, v)}
}

type bytesDecoder struct{ runtime.Decoder }

// Decode implements runtime.Decoder. What says that a request failed is decoded.
func (d bytesDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil || defaults != nil {
		return d.Decoder.Decode(data, defaults, into)
	}
	return &runtime.Unknown{Raw: slices.Clone(data)}, nil, nil
}
