package watch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Watches in all media types and forms, and under many writes.

var watchForms = []kit.Promise{
	{Statement: "a watch has the same events in JSON, protobuf and CBOR", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"):      kit.ConfigMap("a", map[string]string{"k": "v"}),
			c.Path(groupVersion, "widgets"): kit.With(kit.Widget(groupVersion, "a"), "red", "spec", "colour"),
		} {
			start := c.Get(t, path).ResourceVersion(t)
			c.Post(t, path, object).Created(t)
			c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`).OK(t)
			c.Delete(t, path+"/a").OK(t)
			query := path + "?watch=1&fieldSelector=metadata.name=a&resourceVersion=" + start
			want := c.WatchAs(t, 3, nil, query).Events(t)
			kit.Equal(t, len(want), 3)
			contentTypes := map[string]string{
				runtime.ContentTypeJSON:                   runtime.ContentTypeJSON,
				runtime.ContentTypeJSON + ";stream=watch": runtime.ContentTypeJSON,
				kit.Protobuf: kit.Protobuf + ";stream=watch", kit.Protobuf + ";stream=watch": kit.Protobuf + ";stream=watch",
				kit.CBOR: runtime.ContentTypeCBORSequence, "application/cbor-seq, application/cbor": runtime.ContentTypeCBORSequence,
			}
			for accept, contentType := range contentTypes {
				if strings.Contains(path, "widgets") && strings.HasPrefix(accept, kit.Protobuf) {
					c.GetAs(t, accept, query+"&timeoutSeconds=1").Want(t, http.StatusNotAcceptable)
					accept, contentType = accept+", application/json", runtime.ContentTypeJSON
				}
				a := c.WatchAs(t, 3, kit.Header{"Accept", accept}, query)
				kit.Equal(t, a.Header.Get("Content-Type"), contentType)
				kit.Equal(t, a.Events(t), want)
			}
		}
	}},
	{Statement: "watches in YAML are rejected with a list of the supported types", Proof: func(t *testing.T, c *kit.Cluster) {
		status := c.GetAs(t, runtime.ContentTypeYAML, c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=1").
			Want(t, http.StatusNotAcceptable).DecodeAs(t, runtime.ContentTypeYAML)
		kit.Equal(t, status["message"], any("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"))
		a := c.GetAs(t, "application/yaml, application/json;q=0.5", c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=1")
		a.Want(t, http.StatusNotAcceptable) // the first type supported for objects counts
	}},
	{Statement: "a watch as Tables has a row in each event, and the columns in the first", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"): kit.ConfigMap("a", nil), c.Path(groupVersion, "widgets"): kit.Widget(groupVersion, "a"),
		} {
			start := c.Get(t, path).ResourceVersion(t)
			c.Post(t, path, object).Created(t)
			c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`).OK(t)
			c.Delete(t, path+"/a").OK(t)
			query := path + "?watch=1&fieldSelector=metadata.name=a&resourceVersion=" + start
			for _, version := range []string{"v1", "v1beta1"} {
				var types []string
				for i, e := range c.WatchAs(t, 3, kit.Header{"Accept", kit.AsTable(runtime.ContentTypeJSON, version)}, query).Events(t) {
					types = append(types, e.Type)
					kit.Equal(t, []any{e.Object["kind"], e.Object["apiVersion"]}, []any{"Table", "meta.k8s.io/" + version})
					columns, _ := e.Object["columnDefinitions"].([]any)
					if (len(columns) > 0) != (i == 0) {
						t.Errorf("event %d has the columns %v", i, columns)
					}
					row := e.Object["rows"].([]any)[0].(map[string]any)
					kit.Equal(t, []any{row["cells"].([]any)[0], kit.FieldOf(t, row, "object", "kind")},
						[]any{"a", "PartialObjectMetadata"})
				}
				kit.Equal(t, types, []string{"ADDED", "MODIFIED", "DELETED"})
			}
			whole := c.WatchAs(t, 1, kit.Header{"Accept", kit.AsTable(runtime.ContentTypeJSON, "v1")}, query+"&includeObject=Object").
				Events(t)[0].Object["rows"].([]any)[0].(map[string]any)
			kit.Equal(t, kit.FieldOf(t, whole, "object", "kind"), object["kind"])
		}
		c.GetAs(t, kit.AsTable(kit.Protobuf, "v1"), c.Path("v1", "configmaps")+"?watch=1&timeoutSeconds=1").
			Want(t, http.StatusNotAcceptable)
	}},
	{Statement: "each of several watches as Tables has the columns in its first event", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		query := path + "?watch=1&timeoutSeconds=10&" + notRoot + "&resourceVersion=" + c.Get(t, path).ResourceVersion(t)
		answers := make([]kit.Answer, 3)
		var watches sync.WaitGroup
		for i := range answers {
			watches.Go(func() { answers[i] = c.GetAs(t, kit.AsTable(runtime.ContentTypeJSON, "v1"), query) })
		}
		for i := range 4 {
			c.Post(t, path, kit.ConfigMap(fmt.Sprint("c", i), nil)).Created(t)
		}
		watches.Wait()
		for _, a := range answers {
			events := a.OK(t).Events(t)
			kit.Equal(t, len(events), 4)
			for i, e := range events {
				// kube-apiserver, which also encodes events once for all watches, repeats the columns for some.
				if columns, _ := e.Object["columnDefinitions"].([]any); len(columns) == 0 && i == 0 {
					t.Error("the first event has no columns")
				}
			}
		}
	}},
	{Statement: "a watch of metadata has nothing else, in every media type", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"):      kit.ConfigMap("a", map[string]string{"k": "v"}),
			c.Path(groupVersion, "widgets"): kit.With(kit.Widget(groupVersion, "a"), "red", "spec", "colour"),
		} {
			start := c.Get(t, path).ResourceVersion(t)
			created := c.Post(t, path, object).Created(t)
			for _, mediaType := range []string{runtime.ContentTypeJSON, kit.Protobuf, kit.CBOR} {
				a := c.WatchAs(t, 1, kit.Header{"Accept", kit.AsMetadata(mediaType, "v1")},
					path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+start)
				events := a.Events(t)
				kit.Equal(t, len(events), 1)
				want := map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created.Object(t)["metadata"]}
				kit.Equal(t, events[0], kit.Event{Type: "ADDED", Object: want})
			}
		}
	}},
}

// The concurrent writers, and the writes of each.
const (
	writers = 16
	share   = 12
)

var watchManyWriters = []kit.Promise{
	{Statement: "watches receive all changes of many concurrent writers, each once and in the order of resourceVersions", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		live := []*kit.Stream{c.Watch(t, path+"?watch=1&"+notRoot),
			c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+c.Get(t, path).ResourceVersion(t))}
		start := c.Post(t, path, kit.ConfigMap("first", nil)).Created(t).ResourceVersion(t)
		for _, s := range live { // a watch without a resourceVersion begins with what exists then
			kit.Equal(t, s.Next(t).Name(), "first")
		}
		written := make([][]string, writers)
		var working sync.WaitGroup
		for w := range writers {
			working.Go(func() {
				name := fmt.Sprint("w", w)
				note := func(kind string, a kit.Answer) {
					written[w] = append(written[w], kind+" "+name+" "+a.Want(t, http.StatusOK, http.StatusCreated).
						ResourceVersion(t))
				}
				note("ADDED", c.Post(t, path, kit.ConfigMap(name, nil)))
				for i := range share - 2 {
					note("MODIFIED", c.Patch(t, kit.MergePatch, path+"/"+name, fmt.Sprintf(`{"data":{"k":"%d"}}`, i)))
				}
				c.Delete(t, path+"/"+name).OK(t)
			})
		}
		working.Wait()
		if t.Failed() {
			return
		}
		replayed := c.Watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+start)
		var first []string
		for i, s := range append(live, replayed) {
			var all []string
			seen := map[string][]string{}
			last := int64(0)
			for range writers * share {
				e := s.Next(t)
				if version := revisionOf(t, e); version <= last {
					t.Errorf("watch %d has %d after %d", i, version, last)
				} else {
					last = version
				}
				all = append(all, e.Type+" "+e.Name()+" "+e.ResourceVersion())
				seen[e.Name()] = append(seen[e.Name()], all[len(all)-1])
			}
			for w := range writers {
				got := seen[fmt.Sprint("w", w)]
				kit.Equal(t, got[:len(got)-1], written[w])
				if !strings.HasPrefix(got[len(got)-1], "DELETED ") {
					t.Errorf("watch %d ends with %s", i, got[len(got)-1])
				}
			}
			if i == 0 {
				first = all
			}
			if !slices.Equal(all, first) {
				t.Errorf("watch %d has a different order than the first", i)
			}
		}
	}},
}
