package handlers_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/component-base/metrics/testutil"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// openedWatch is a watch whose events are read.
type openedWatch struct {
	form   string
	events watch.Decoder
}

// openWatch opens a watch of all ConfigMaps. Compressed, it begins with the existing ones, of which there are none, and a bookmark.
func openWatch(c client, mediaType string, compressed bool) openedWatch {
	c.t.Helper()
	query := "?watch=1&resourceVersion=0"
	if compressed {
		query = "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base+configMaps+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", mediaType)
	encoding := "identity"
	if compressed {
		encoding = "gzip"
	}
	r.Header.Set("Accept-Encoding", encoding)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		c.t.Fatal(answer, err)
	}
	body := answer.Body
	if compressed {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			c.t.Fatal(err)
		}
		body = io.NopCloser(unpacked)
	}
	plain, _, _ := strings.Cut(mediaType, ";")
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), plain)
	if !ok {
		c.t.Fatal(mediaType)
	}
	frames := info.StreamSerializer.NewFrameReader(body)
	events := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), scheme.Codecs.UniversalDeserializer())
	if compressed {
		if kind, _, err := events.Decode(); kind != watch.Bookmark || err != nil {
			c.t.Fatal(kind, err)
		}
	}
	return openedWatch{mediaType + " " + encoding, events}
}

// awaitRelays returns when that many watches send events in the goroutines of their requests.
func awaitRelays(t *testing.T, watches int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		var stacks bytes.Buffer
		harness.Must(t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
		if n := strings.Count(stacks.String(), "(*watcher).Resume("); n == watches {
			return
		} else if time.Since(began) > time.Minute {
			t.Fatalf("%d of %d watches have paused", n, watches)
		}
	}
}

// TestEventsInEachForm changes objects under watches in each form that needs no encoder. One object is stored in a way that needs one. Each
// watch reports all changes, in order, with the objects as the writers got them.
func TestEventsInEachForm(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	server := httptest.NewServer(newAPI(t, options{storage: apistorage.Decorator(store, resources.Kinds)}))
	t.Cleanup(server.Close)
	c := client{t, server.URL}
	const protobuf = "application/vnd.kubernetes.protobuf;stream=watch"
	watches := []openedWatch{
		openWatch(c, asJSON, false), openWatch(c, asJSON, false), openWatch(c, asJSON, true),
		openWatch(c, protobuf, false), openWatch(c, protobuf, true),
	}
	awaitRelays(t, len(watches))
	counter := metrics.WatchEvents.WithLabelValues("", "v1", "configmaps")
	counted, err := testutil.GetCounterMetricValue(counter)
	harness.Must(t, err)

	var want []watch.Event
	const rounds = 20
	for i := range rounds {
		name := fmt.Sprintf("m%d", i)
		var made, changed corev1.ConfigMap
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"k":"%s"}}`
		c.send("POST", configMaps, asJSON, fmt.Sprintf(body, "1"), http.StatusCreated, &made)
		want = append(want, watch.Event{Type: watch.Added, Object: &made})
		if i == rounds/2 {
			want = append(want, watch.Event{Type: watch.Added, Object: oddConfigMap(t, store)})
		}
		c.send("PUT", configMaps+"/"+name, asJSON, fmt.Sprintf(body, "2"), http.StatusOK, &changed)
		want = append(want, watch.Event{Type: watch.Modified, Object: &changed})
		c.send("DELETE", configMaps+"/"+name, asJSON, "", http.StatusOK, nil)
		want = append(want, watch.Event{Type: watch.Deleted, Object: &changed})
	}
	for _, w := range watches {
		for i, want := range want {
			kind, object, err := w.events.Decode()
			if err != nil || kind != want.Type {
				t.Fatalf("%s: event %d is %s, %v, want %s", w.form, i, kind, err, want.Type)
			}
			got, want := object.(*corev1.ConfigMap), want.Object.(*corev1.ConfigMap)
			got.TypeMeta = want.TypeMeta
			if kind == watch.Deleted { // with the revision of its deletion
				got.ResourceVersion = want.ResourceVersion
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("%s: event %d has %v, want %v", w.form, i, got, want)
			}
		}
	}
	after, err := testutil.GetCounterMetricValue(counter)
	harness.Must(t, err)
	if got := int(after - counted); got != len(watches)*len(want) {
		t.Errorf("%d events are counted of %d", got, len(watches)*len(want))
	}
	if held := store.Stats().Watches; held != 0 {
		t.Errorf("watches that have sent everything hold %d bytes", held)
	}
}

// oddConfigMap stores a ConfigMap whose fields are in an order that no writer chooses.
func oddConfigMap(t *testing.T, store *sqlstore.Store) *corev1.ConfigMap {
	t.Helper()
	const text = `{"metadata":{"name":"odd","namespace":"default","uid":"1"},"kind":"ConfigMap","apiVersion":"v1","data":{"k":"odd"}}`
	revision, err := store.Write(t.Context(), &sqlstore.Write{
		Operation: dialect.Create, Resource: sqlstore.Resource{Name: "configmaps"}, Key: "default/odd", Namespace: "default", Name: "odd", UID: "1",
		Labels: "{}", Fields: `{"metadata.name":"odd","metadata.namespace":"default"}`, Value: []byte(text),
	})
	harness.Must(t, err)
	object := &corev1.ConfigMap{Data: map[string]string{"k": "odd"}}
	object.Name, object.Namespace, object.UID, object.ResourceVersion = "odd", "default", "1", fmt.Sprint(revision)
	return object
}
