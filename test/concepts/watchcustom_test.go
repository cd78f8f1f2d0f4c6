package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Watches of custom resources are as those of built-in ones; promises on both are in the other files.

// watchEnds reads a watch to its end, past what still comes, and returns that.
func (s *stream) ends() (events []event) {
	for {
		var e event
		if s.decoder.Decode(&e) != nil {
			return events
		}
		events = append(events, e)
	}
}

var watchesOfCustomResources = []promise{
	{"custom objects are watched from any resourceVersion, with selectors, and DELETED with their last state", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		path := c.path(groupVersion, "widgets")
		start := c.get(t, path).version(t)
		c.post(t, path, with(widget(groupVersion, "a"), "red", "spec", "colour")).want(t, http.StatusCreated)
		in := c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"in"}}}`).want(t, http.StatusOK)
		out := c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"out"}},"spec":{"colour":"blue"}}`).
			want(t, http.StatusOK)
		c.delete(t, path+"/a").want(t, http.StatusOK)
		c.watch(t, path+"?watch=1&resourceVersion="+start).seen(t, "ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a")
		c.watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+in.version(t)).
			seen(t, "MODIFIED a", "DELETED a")
		events := c.watch(t, path+"?watch=1&labelSelector=l=in&resourceVersion="+start).seen(t, "ADDED a", "DELETED a")
		equal(t, []any{field(t, events[1].Object, "spec", "colour"), events[1].version()}, []any{"red", out.version(t)})
		deleted := c.watch(t, path+"?watch=1&resourceVersion="+out.version(t)).seen(t, "DELETED a")[0]
		equal(t, field(t, deleted.Object, "spec", "colour"), any("blue"))
		if revisionOf(t, deleted) <= revisionOf(t, events[1]) {
			t.Errorf("it was deleted at %s", deleted.version())
		}
	}},
	{"watches end when the definition changes, and new ones go on with the changed one", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, "{type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}")
		path := c.path(groupVersion, "widgets")
		s := c.watch(t, path+"?watch=1&resourceVersion="+c.get(t, path).version(t))
		c.post(t, path, with(widget(groupVersion, "a"), "x", "spec", "a")).want(t, http.StatusCreated)
		s.seen(t, "ADDED a")
		definition := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets." + strings.Split(groupVersion, "/")[0]
		c.patch(t, jsonPatch, definition, `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b","value":{"type":"string","default":"new"}}]`).
			want(t, http.StatusOK)
		s.end(t)
		c.post(t, path, widget(groupVersion, "b")).want(t, http.StatusCreated)
		list := c.get(t, path) // what was before the change may be forgotten
		c.patch(t, mergePatch, path+"/b", `{"spec":{"a":"y"}}`).want(t, http.StatusOK)
		e := c.watch(t, path+"?watch=1&resourceVersion="+list.version(t)).seen(t, "MODIFIED b")[0]
		equal(t, e.Object["spec"], any(map[string]any{"a": "y", "b": "new"}))
	}},
	{"when the definition goes its objects are DELETED, watches end, and the path is not found", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		path := c.path(groupVersion, "widgets")
		c.post(t, path, widget(groupVersion, "a")).want(t, http.StatusCreated)
		c.post(t, path, widget(groupVersion, "b")).want(t, http.StatusCreated)
		s := c.watch(t, path+"?watch=1&resourceVersion="+c.get(t, path).version(t))
		c.delete(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets."+strings.Split(groupVersion, "/")[0]).
			want(t, http.StatusOK)
		var names []string
		for _, e := range s.ends() {
			names = append(names, e.Type+" "+e.name())
		}
		slices.Sort(names)
		equal(t, names, []string{"DELETED a", "DELETED b"})
		c.gone(t, path+"?watch=1&timeoutSeconds=1")
	}},
	{"before it is defined a custom resource can't be watched", func(t *testing.T, c *cluster) {
		c.get(t, c.path(c.namespace+".example.com/v1", "widgets")+"?watch=1").want(t, http.StatusNotFound)
	}},
}
