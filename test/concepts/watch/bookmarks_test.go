package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Sections "Watch bookmarks" and "Streaming lists".

// A bookmark is sent before the end of a watch, so a short watch has one.
const withBookmark = "watch=1&timeoutSeconds=3&allowWatchBookmarks=true"

// initialEventsEnd is the annotation of the bookmark after the last event of the initial state.
const initialEventsEnd = "k8s.io/initial-events-end"

// endsInitial reports whether the event is that bookmark.
func endsInitial(t testing.TB, e kit.Event) bool {
	t.Helper()
	annotations, _ := kit.FieldOf(t, e.Object, "metadata", "annotations").(map[string]any)
	return e.Type == "BOOKMARK" && annotations[initialEventsEnd] == "true"
}

var watchBookmarks = []kit.Promise{
	{Statement: "a bookmark has the kind of the watched resource, and only a resourceVersion", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, kind := range map[string]string{c.Path("v1", "configmaps"): "ConfigMap",
			c.Path(groupVersion, "widgets"): "Widget"} {
			start := kit.Event{Object: c.Get(t, path).Object(t)}
			harness.Eventually(t, "there is a bookmark", func() bool {
				events := c.Get(t, path+"?"+withBookmark+"&fieldSelector=metadata.name=none&resourceVersion="+start.ResourceVersion()).OK(t).Events(t)
				for _, e := range events {
					metadata := e.Object["metadata"].(map[string]any)
					delete(metadata, "creationTimestamp") // null
					kit.Equal(t, []any{e.Type, e.Object["kind"], len(metadata), len(e.Object)}, []any{"BOOKMARK", kind, 1, 3})
					if revisionOf(t, e) < revisionOf(t, start) {
						t.Errorf("the bookmark at %s is older than the watch from %s", e.ResourceVersion(), start.ResourceVersion())
					}
				}
				return len(events) > 0
			})
		}
	}},
	{Statement: "bookmarks advance although nothing watched changes, and watches can resume from them", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		last := c.Get(t, path).ResourceVersion(t)
		var other int64
		harness.Eventually(t, "a bookmark is as new as a change of another resource", func() bool {
			if other == 0 {
				secret := c.Post(t, c.Path("v1", "secrets"),
					kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).Created(t)
				other = revisionOf(t, kit.Event{Object: secret.Object(t)})
			}
			for _, e := range c.Get(t, path+"?"+withBookmark+"&fieldSelector=metadata.name=a&resourceVersion="+last).OK(t).Events(t) {
				kit.Equal(t, e.Type, "BOOKMARK")
				last = e.ResourceVersion()
				if revisionOf(t, e) >= other {
					return true
				}
			}
			return false
		})
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		seen(t, c.Watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+last), "ADDED a")
	}},
	{Statement: "bookmarks are only sent on request", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, query := range []string{"", "&allowWatchBookmarks=false"} {
			c.Watch(t, c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=3&fieldSelector=metadata.name=none"+query).End(t)
		}
	}},
	{Statement: "bookmarks are in order: later events are newer", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		s := c.Watch(t, path+"?"+withBookmark+"&"+notRoot+"&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					c.Post(t, path, kit.ConfigMap(fmt.Sprint("c", i), nil))
				}
			}
		}()
		last, bookmark := int64(0), false
		for !bookmark {
			e := s.Next(t)
			version := revisionOf(t, e)
			if bookmark = e.Type == "BOOKMARK"; version < last || !bookmark && version == last {
				t.Errorf("%s %d follows %d", e.Type, version, last)
			}
			last = version
		}
		close(stop)
		<-done
		for {
			var e kit.Event
			if s.Decoder.Decode(&e) != nil {
				break
			}
			if version := revisionOf(t, e); version <= last {
				t.Errorf("%s %d follows a bookmark at %d", e.Type, version, last)
			}
		}
	}},
}

// streamingQuery requests the initial state with the bookmark that ends it.
const streamingQuery = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// initial reads up to the bookmark that ends the initial state, and returns the sorted names before it, and its revision.
func initial(t testing.TB, s *kit.Stream) (names []string, version int64) {
	t.Helper()
	for {
		e := s.Next(t)
		if endsInitial(t, e) {
			slices.Sort(names)
			return names, revisionOf(t, e)
		}
		if e.Type != "ADDED" {
			t.Fatalf("%s: the initial state has %s %v", s.Request, e.Type, e.Object)
		}
		names = append(names, e.Name())
	}
}

var streamingLists = []kit.Promise{
	{Statement: "a streaming list sends existing objects, a bookmark, and then changes", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]func(string) map[string]any{
			c.Path("v1", "configmaps"):      func(name string) map[string]any { return kit.ConfigMap(name, nil) },
			c.Path(groupVersion, "widgets"): func(name string) map[string]any { return kit.Widget(groupVersion, name) },
		} {
			for _, version := range []string{"", "&resourceVersion=", "&resourceVersion=0"} {
				c.Post(t, path, object("a")).Created(t)
				c.Post(t, path, object("b")).Created(t)
				list := revisionOf(t, kit.Event{Object: c.Get(t, path).Object(t)})
				s := c.Watch(t, path+"?"+notRoot+"&"+streamingQuery+version)
				names, at := initial(t, s)
				kit.Equal(t, names, []string{"a", "b"})
				if at < list && version != "&resourceVersion=0" {
					t.Errorf("the state at %d is older than %d, read before", at, list)
				}
				for _, name := range []string{"a", "b"} {
					c.Delete(t, path+"/"+name).OK(t)
					if e := seen(t, s, "DELETED "+name)[0]; revisionOf(t, e) <= at {
						t.Errorf("%s is older than the initial state", e.ResourceVersion())
					}
				}
				s.Stop()
			}
		}
	}},
	{Statement: "a streaming list without resourceVersion includes every previously acknowledged write", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		var want []string
		for i := range 10 {
			name := fmt.Sprint("c", i)
			created := c.Post(t, path, kit.ConfigMap(name, nil)).Created(t)
			want = append(want, name)
			s := c.Watch(t, path+"?"+notRoot+"&"+streamingQuery)
			names, at := initial(t, s)
			s.Stop()
			kit.Equal(t, names, want)
			if at < revisionOf(t, kit.Event{Object: created.Object(t)}) {
				t.Errorf("the state is at %d, before %s", at, created.ResourceVersion(t))
			}
		}
	}},
	{Statement: "a streaming list at a resourceVersion is at least as new", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		created := c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		names, at := initial(t, c.Watch(t, path+"?"+notRoot+"&"+streamingQuery+"&resourceVersion="+created.ResourceVersion(t)))
		kit.Equal(t, names, []string{"a"})
		if at < revisionOf(t, kit.Event{Object: created.Object(t)}) {
			t.Errorf("the state is at %d, before %s", at, created.ResourceVersion(t))
		}
	}},
	{Statement: "an empty streaming list is only the bookmark, and selectors apply", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, path, kit.With(kit.ConfigMap("b", nil), "x", "metadata", "labels", "l")).Created(t)
		names, _ := initial(t, c.Watch(t, path+"?fieldSelector=metadata.name=none&"+streamingQuery))
		kit.Equal(t, len(names), 0)
		names, _ = initial(t, c.Watch(t, path+"?labelSelector=l=x&"+streamingQuery))
		kit.Equal(t, names, []string{"b"})
	}},
	{Statement: "without allowWatchBookmarks the initial state ends without one", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		events := c.WatchAs(t, 1, nil, path+"?"+notRoot+"&"+strings.Replace(streamingQuery, "allowWatchBookmarks=true", "allowWatchBookmarks=false", 1)).Events(t)
		if len(events) != 1 || events[0].Type != "ADDED" || events[0].Name() != "a" {
			t.Errorf("the events are %v", events)
		}
	}},
	{Statement: "sendInitialEvents=false declines the initial state", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		for i, version := range []string{"", "&resourceVersion=0", "&resourceVersion="} {
			if i == 2 {
				version += c.Get(t, path).ResourceVersion(t)
			}
			s := c.Watch(t, path+"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&"+notRoot+version)
			name := fmt.Sprint("b", i)
			c.Post(t, path, kit.ConfigMap(name, nil)).Created(t)
			seen(t, s, "ADDED "+name)
			s.Stop()
			c.Delete(t, path+"/"+name).OK(t)
		}
	}},
	{Statement: "invalid combinations of parameters in a streaming list are rejected with 422", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for _, path := range []string{c.Path("v1", "configmaps"), c.Path(groupVersion, "widgets")} {
			for query, message := range map[string]string{
				"watch=1&sendInitialEvents=true":                                                      "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
				"watch=1&sendInitialEvents=false":                                                     "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
				"watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1":                         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
				"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1":         `resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"`,
				"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x&limit=1": "resourceVersionMatch is forbidden when continue is provided",
				"sendInitialEvents=true":                                                              "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
			} {
				c.Get(t, path+"?timeoutSeconds=1&"+query).Invalid(t, message)
			}
		}
	}},
	{Statement: "a streaming list at a revision that is not reached gets an ERROR event", Proof: func(t *testing.T, c *kit.Cluster) {
		s := c.Watch(t, c.Path("v1", "configmaps")+"?"+streamingQuery+"&resourceVersion=1000000000")
		e := s.Next(t)
		message, _ := e.Object["message"].(string)
		if e.Type != "ERROR" || e.Object["code"] != 504.0 || e.Object["reason"] != "Timeout" ||
			!strings.Contains(message, "Too large resource version: 1000000000, current: ") {
			t.Errorf("the event is %v", e)
		}
		s.End(t)
	}},
	{Statement: "a streaming list is available in every media type of watches, and in every form", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		query := path + "?" + notRoot + "&" + streamingQuery
		for _, accept := range []string{
			runtime.ContentTypeJSON, kit.Protobuf, kit.CBOR, kit.AsMetadata(runtime.ContentTypeJSON, "v1"),
			kit.AsMetadata(kit.Protobuf, "v1"), kit.AsMetadata(kit.CBOR, "v1"),
		} {
			events := c.WatchAs(t, 2, kit.Header{"Accept", accept}, query).Events(t)
			if len(events) < 2 || events[0].Type != "ADDED" || events[0].Name() != "a" || !endsInitial(t, events[1]) {
				t.Errorf("%s: the events are %v", accept, events)
			}
		}
		events := c.WatchAs(t, 2, kit.Header{"Accept", kit.AsTable(runtime.ContentTypeJSON, "v1")}, query).Events(t)
		if len(events) < 2 || events[0].Type != "ADDED" {
			t.Fatalf("the Tables are %v", events)
		}
		// The row of a bookmark has its metadata.
		row := events[1].Object["rows"].([]any)[0].(map[string]any)
		if !endsInitial(t, kit.Event{Type: events[1].Type, Object: row["object"].(map[string]any)}) {
			t.Errorf("the second row is %v", row)
		}
	}},
}
