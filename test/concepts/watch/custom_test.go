package watch

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Watches of custom resources, where they differ from built-in ones; promises about both are in the other files.

// ends reads a watch to its end, and returns the remaining events.
func ends(s *kit.Stream) (events []kit.Event) {
	for {
		var e kit.Event
		if s.Decoder.Decode(&e) != nil {
			return events
		}
		events = append(events, e)
	}
}

var watchesOfCustomResources = []kit.Promise{
	{Statement: "custom objects are watched from any resourceVersion, with selectors, and DELETED with their last state", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		path := c.Path(groupVersion, "widgets")
		start := c.Get(t, path).ResourceVersion(t)
		c.Post(t, path, kit.With(kit.Widget(groupVersion, "a"), "red", "spec", "colour")).Created(t)
		in := c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"in"}}}`).OK(t)
		out := c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"out"}},"spec":{"colour":"blue"}}`).OK(t)
		c.Delete(t, path+"/a").OK(t)
		seen(t, c.Watch(t, path+"?watch=1&resourceVersion="+start), "ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a")
		seen(t, c.Watch(t, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+in.ResourceVersion(t)), "MODIFIED a", "DELETED a")
		events := seen(t, c.Watch(t, path+"?watch=1&labelSelector=l=in&resourceVersion="+start), "ADDED a", "DELETED a")
		kit.Equal(t, []any{kit.FieldOf(t, events[1].Object, "spec", "colour"), events[1].ResourceVersion()}, []any{"red", out.ResourceVersion(t)})
		deleted := seen(t, c.Watch(t, path+"?watch=1&resourceVersion="+out.ResourceVersion(t)), "DELETED a")[0]
		kit.Equal(t, kit.FieldOf(t, deleted.Object, "spec", "colour"), any("blue"))
		if revisionOf(t, deleted) <= revisionOf(t, events[1]) {
			t.Errorf("it was deleted at %s", deleted.ResourceVersion())
		}
	}},
	{Statement: "watches end when the definition changes, and new ones use the changed one", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, "{type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}")
		path := c.Path(groupVersion, "widgets")
		s := c.Watch(t, path+"?watch=1&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		c.Post(t, path, kit.With(kit.Widget(groupVersion, "a"), "x", "spec", "a")).Created(t)
		seen(t, s, "ADDED a")
		definition := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets." + strings.Split(groupVersion, "/")[0]
		c.Patch(t, kit.JSONPatch, definition, `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b","value":{"type":"string","default":"new"}}]`).
			OK(t)
		s.End(t)
		c.Post(t, path, kit.Widget(groupVersion, "b")).Created(t)
		list := c.Get(t, path) // older revisions may no longer be kept
		c.Patch(t, kit.MergePatch, path+"/b", `{"spec":{"a":"y"}}`).OK(t)
		e := seen(t, c.Watch(t, path+"?watch=1&resourceVersion="+list.ResourceVersion(t)), "MODIFIED b")[0]
		kit.Equal(t, e.Object["spec"], any(map[string]any{"a": "y", "b": "new"}))
	}},
	{Statement: "when the definition is deleted, its objects are DELETED, watches end, and the path is not found", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		path := c.Path(groupVersion, "widgets")
		c.Post(t, path, kit.Widget(groupVersion, "a")).Created(t)
		c.Post(t, path, kit.Widget(groupVersion, "b")).Created(t)
		s := c.Watch(t, path+"?watch=1&resourceVersion="+c.Get(t, path).ResourceVersion(t))
		c.Delete(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets."+strings.Split(groupVersion, "/")[0]).OK(t)
		var names []string
		for _, e := range ends(s) {
			names = append(names, e.Type+" "+e.Name())
		}
		slices.Sort(names)
		kit.Equal(t, names, []string{"DELETED a", "DELETED b"})
		c.WaitGone(t, path+"?watch=1&timeoutSeconds=1")
	}},
	{Statement: "a custom resource can't be watched before it is defined", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Get(t, c.Path(c.Namespace+".example.com/v1", "widgets")+"?watch=1").Want(t, http.StatusNotFound)
	}},
}
