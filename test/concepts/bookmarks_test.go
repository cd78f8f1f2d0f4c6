package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Sections "Watch bookmarks" and "Streaming lists".

// A bookmark comes before the end of a watch, so a short watch has one.
const withBookmark = "watch=1&timeoutSeconds=3&allowWatchBookmarks=true"

// initialEventsEnd is the annotation of the bookmark behind the last event of the initial state.
const initialEventsEnd = "k8s.io/initial-events-end"

// endsInitial says whether the event is that bookmark.
func endsInitial(t testing.TB, e event) bool {
	t.Helper()
	annotations, _ := field(t, e.Object, "metadata", "annotations").(map[string]any)
	return e.Type == "BOOKMARK" && annotations[initialEventsEnd] == "true"
}

var watchBookmarks = []promise{
	{"a bookmark has the kind of what is watched, and nothing but its resourceVersion", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, kind := range map[string]string{c.path("v1", "configmaps"): "ConfigMap",
			c.path(groupVersion, "widgets"): "Widget"} {
			start := event{Object: c.get(t, path).object(t)}
			eventually(t, "there is a bookmark", func() bool {
				events := c.get(t, path+"?"+withBookmark+"&fieldSelector=metadata.name=none&resourceVersion="+start.version()).want(t, http.StatusOK).events(t)
				for _, e := range events {
					metadata := e.Object["metadata"].(map[string]any)
					delete(metadata, "creationTimestamp") // null
					equal(t, []any{e.Type, e.Object["kind"], len(metadata), len(e.Object)}, []any{"BOOKMARK", kind, 1, 3})
					if revisionOf(t, e) < revisionOf(t, start) {
						t.Errorf("the bookmark of %s is older than the watch from %s", e.version(), start.version())
					}
				}
				return len(events) > 0
			})
		}
	}},
	{"bookmarks rise although nothing that is watched changes, and watches go on from there", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		last := c.get(t, path).version(t)
		var other int64
		eventually(t, "a bookmark is as new as a change of something else", func() bool {
			if other == 0 {
				secret := c.post(t, c.path("v1", "secrets"),
					manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).want(t, http.StatusCreated)
				other = revisionOf(t, event{Object: secret.object(t)})
			}
			for _, e := range c.get(t, path+"?"+withBookmark+"&fieldSelector=metadata.name=a&resourceVersion="+last).
				want(t, http.StatusOK).events(t) {
				equal(t, e.Type, "BOOKMARK")
				last = e.version()
				if revisionOf(t, e) >= other {
					return true
				}
			}
			return false
		})
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+last).seen(t, "ADDED a")
	}},
	{"nobody gets bookmarks who did not ask for them", func(t *testing.T, c *cluster) {
		for _, query := range []string{"", "&allowWatchBookmarks=false"} {
			c.watch(t, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=3&fieldSelector=metadata.name=none"+query).end(t)
		}
	}},
	{"bookmarks do not disturb the order: what follows one is newer", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		s := c.watch(t, path+"?"+withBookmark+"&"+notRoot+"&resourceVersion="+c.get(t, path).version(t))
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					c.post(t, path, configMap(fmt.Sprint("c", i), nil))
				}
			}
		}()
		last, bookmark := int64(0), false
		for !bookmark {
			e := s.next(t)
			version := revisionOf(t, e)
			if bookmark = e.Type == "BOOKMARK"; version < last || !bookmark && version == last {
				t.Errorf("%s %d follows %d", e.Type, version, last)
			}
			last = version
		}
		close(stop)
		<-done
		for {
			var e event
			if s.decoder.Decode(&e) != nil {
				break
			}
			if version := revisionOf(t, e); version <= last {
				t.Errorf("%s %d follows a bookmark of %d", e.Type, version, last)
			}
		}
	}},
}

// streaming asks for the initial state with the bookmark that ends it.
const streamingQuery = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// initial reads up to the bookmark that ends the initial state, and returns the names before it, sorted, and its revision.
func (s *stream) initial(t testing.TB) (names []string, version int64) {
	t.Helper()
	for {
		e := s.next(t)
		if endsInitial(t, e) {
			slices.Sort(names)
			return names, revisionOf(t, e)
		}
		if e.Type != "ADDED" {
			t.Fatalf("%s: the initial state has %s %v", s.request, e.Type, e.Object)
		}
		names = append(names, e.name())
	}
}

var streamingLists = []promise{
	{"a streaming list has what exists, a bookmark that says so, and then what changes", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]func(string) map[string]any{
			c.path("v1", "configmaps"):      func(name string) map[string]any { return configMap(name, nil) },
			c.path(groupVersion, "widgets"): func(name string) map[string]any { return widget(groupVersion, name) },
		} {
			for _, version := range []string{"", "&resourceVersion=", "&resourceVersion=0"} {
				c.post(t, path, object("a")).want(t, http.StatusCreated)
				c.post(t, path, object("b")).want(t, http.StatusCreated)
				list := revisionOf(t, event{Object: c.get(t, path).object(t)})
				s := c.watch(t, path+"?"+notRoot+"&"+streamingQuery+version)
				names, at := s.initial(t)
				equal(t, names, []string{"a", "b"})
				if at < list && version != "&resourceVersion=0" {
					t.Errorf("the state of %d is older than %d, which was before", at, list)
				}
				for _, name := range []string{"a", "b"} {
					c.delete(t, path+"/"+name).want(t, http.StatusOK)
					if e := s.seen(t, "DELETED "+name)[0]; revisionOf(t, e) <= at {
						t.Errorf("%s is older than the initial state", e.version())
					}
				}
				s.stop()
			}
		}
	}},
	{"a streaming list without resourceVersion has every write that was acknowledged before", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		var want []string
		for i := range 10 {
			name := fmt.Sprint("c", i)
			created := c.post(t, path, configMap(name, nil)).want(t, http.StatusCreated)
			want = append(want, name)
			s := c.watch(t, path+"?"+notRoot+"&"+streamingQuery)
			names, at := s.initial(t)
			s.stop()
			equal(t, names, want)
			if at < revisionOf(t, event{Object: created.object(t)}) {
				t.Errorf("the state is of %d, before %s", at, created.version(t))
			}
		}
	}},
	{"a streaming list at a resourceVersion is at least as new", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		created := c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		names, at := c.watch(t, path+"?"+notRoot+"&"+streamingQuery+"&resourceVersion="+created.version(t)).initial(t)
		equal(t, names, []string{"a"})
		if at < revisionOf(t, event{Object: created.object(t)}) {
			t.Errorf("the state is of %d, before %s", at, created.version(t))
		}
	}},
	{"a streaming list of nothing is the bookmark alone, and selectors hold", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		c.post(t, path, with(configMap("b", nil), "x", "metadata", "labels", "l")).want(t, http.StatusCreated)
		names, _ := c.watch(t, path+"?fieldSelector=metadata.name=none&"+streamingQuery).initial(t)
		equal(t, len(names), 0)
		names, _ = c.watch(t, path+"?labelSelector=l=x&"+streamingQuery).initial(t)
		equal(t, names, []string{"b"})
	}},
	{"without allowWatchBookmarks the initial state ends without one", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		s := c.watch(t, path+"?timeoutSeconds=3&"+notRoot+"&"+strings.Replace(streamingQuery, "allowWatchBookmarks=true", "allowWatchBookmarks=false", 1))
		s.seen(t, "ADDED a")
		s.end(t)
	}},
	{"sendInitialEvents=false declines the initial state", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		for i, version := range []string{"", "&resourceVersion=0", "&resourceVersion="} {
			if i == 2 {
				version += c.get(t, path).version(t)
			}
			s := c.watch(t, path+"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&"+notRoot+version)
			name := fmt.Sprint("b", i)
			c.post(t, path, configMap(name, nil)).want(t, http.StatusCreated)
			s.seen(t, "ADDED "+name)
			s.stop()
			c.delete(t, path+"/"+name).want(t, http.StatusOK)
		}
	}},
	{"what does not go together in a streaming list is refused with 422", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for _, path := range []string{c.path("v1", "configmaps"), c.path(groupVersion, "widgets")} {
			for query, message := range map[string]string{
				"watch=1&sendInitialEvents=true":                                                      "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
				"watch=1&sendInitialEvents=false":                                                     "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
				"watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1":                         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
				"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1":         `resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"`,
				"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x&limit=1": "resourceVersionMatch is forbidden when continue is provided",
				"sendInitialEvents=true":                                                              "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
			} {
				c.get(t, path+"?timeoutSeconds=1&"+query).refused(t, http.StatusUnprocessableEntity, "Invalid", message)
			}
		}
	}},
	{"a streaming list at a revision that does not come is told so by an event", func(t *testing.T, c *cluster) {
		s := c.watch(t, c.path("v1", "configmaps")+"?"+streamingQuery+"&resourceVersion=1000000000")
		e := s.next(t)
		message, _ := e.Object["message"].(string)
		if e.Type != "ERROR" || e.Object["code"] != 504.0 || e.Object["reason"] != "Timeout" ||
			!strings.Contains(message, "Too large resource version: 1000000000, current: ") {
			t.Errorf("the event is %v", e)
		}
		s.end(t)
	}},
	{"a streaming list comes in every media type of watches, and in every form", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		query := path + "?" + notRoot + "&" + streamingQuery
		for _, accept := range []string{
			runtime.ContentTypeJSON, protobufType, cborType, asMetadata(runtime.ContentTypeJSON, "v1"),
			asMetadata(protobufType, "v1"), asMetadata(cborType, "v1"),
		} {
			events := c.watchAs(t, 2, header{"Accept", accept}, query).events(t)
			if len(events) < 2 || events[0].Type != "ADDED" || events[0].name() != "a" || !endsInitial(t, events[1]) {
				t.Errorf("%s: the events are %v", accept, events)
			}
		}
		events := c.watchAs(t, 2, header{"Accept", asTable(runtime.ContentTypeJSON, "v1")}, query).events(t)
		if len(events) < 2 || events[0].Type != "ADDED" {
			t.Fatalf("the Tables are %v", events)
		}
		// The row of a bookmark holds its metadata.
		row := events[1].Object["rows"].([]any)[0].(map[string]any)
		if !endsInitial(t, event{Type: events[1].Type, Object: row["object"].(map[string]any)}) {
			t.Errorf("the second row is %v", row)
		}
	}},
}
