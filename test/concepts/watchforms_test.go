package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Watches in the media types and forms that there are, and under many writes.

var watchForms = []promise{
	{"a watch has the same events in JSON, protobuf and CBOR", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps"):      configMap("a", map[string]string{"k": "v"}),
			c.path(groupVersion, "widgets"): with(widget(groupVersion, "a"), "red", "spec", "colour"),
		} {
			start := c.get(t, path).version(t)
			c.post(t, path, object).want(t, http.StatusCreated)
			c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`).want(t, http.StatusOK)
			c.delete(t, path+"/a").want(t, http.StatusOK)
			query := path + "?watch=1&fieldSelector=metadata.name=a&resourceVersion=" + start
			want := c.watchAs(t, 3, nil, query).events(t)
			equal(t, len(want), 3)
			contentTypes := map[string]string{
				runtime.ContentTypeJSON:                   runtime.ContentTypeJSON,
				runtime.ContentTypeJSON + ";stream=watch": runtime.ContentTypeJSON,
				protobufType: protobufType + ";stream=watch", protobufType + ";stream=watch": protobufType + ";stream=watch",
				cborType: runtime.ContentTypeCBORSequence, "application/cbor-seq, application/cbor": runtime.ContentTypeCBORSequence,
			}
			for accept, contentType := range contentTypes {
				if strings.Contains(path, "widgets") && strings.HasPrefix(accept, protobufType) {
					c.getAs(t, accept, query+"&timeoutSeconds=1").want(t, http.StatusNotAcceptable)
					accept, contentType = accept+", application/json", runtime.ContentTypeJSON
				}
				a := c.watchAs(t, 3, header{"Accept", accept}, query)
				equal(t, a.Header.Get("Content-Type"), contentType)
				equal(t, a.events(t), want)
			}
		}
	}},
	{"there are no watches in YAML, which is refused with a list of what there is", func(t *testing.T, c *cluster) {
		status := c.getAs(t, runtime.ContentTypeYAML, c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1").
			want(t, http.StatusNotAcceptable).in(t, runtime.ContentTypeYAML)
		equal(t, status["message"], any("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"))
		a := c.getAs(t, "application/yaml, application/json;q=0.5", c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1")
		a.want(t, http.StatusNotAcceptable) // the first type that objects have counts
	}},
	{"a watch as Tables has a row in each event, and the columns in the first", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps"): configMap("a", nil), c.path(groupVersion, "widgets"): widget(groupVersion, "a"),
		} {
			start := c.get(t, path).version(t)
			c.post(t, path, object).want(t, http.StatusCreated)
			c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"l":"x"}}}`).want(t, http.StatusOK)
			c.delete(t, path+"/a").want(t, http.StatusOK)
			query := path + "?watch=1&fieldSelector=metadata.name=a&resourceVersion=" + start
			for _, version := range []string{"v1", "v1beta1"} {
				var types []string
				for i, e := range c.watchAs(t, 3, header{"Accept", asTable(runtime.ContentTypeJSON, version)}, query).events(t) {
					types = append(types, e.Type)
					equal(t, []any{e.Object["kind"], e.Object["apiVersion"]}, []any{"Table", "meta.k8s.io/" + version})
					columns, _ := e.Object["columnDefinitions"].([]any)
					if (len(columns) > 0) != (i == 0) {
						t.Errorf("event %d has the columns %v", i, columns)
					}
					row := e.Object["rows"].([]any)[0].(map[string]any)
					equal(t, []any{row["cells"].([]any)[0], field(t, row, "object", "kind")},
						[]any{"a", "PartialObjectMetadata"})
				}
				equal(t, types, []string{"ADDED", "MODIFIED", "DELETED"})
			}
			whole := c.watchAs(t, 1, header{"Accept", asTable(runtime.ContentTypeJSON, "v1")}, query+"&includeObject=Object").
				events(t)[0].Object["rows"].([]any)[0].(map[string]any)
			equal(t, field(t, whole, "object", "kind"), object["kind"])
		}
		c.getAs(t, asTable(protobufType, "v1"), c.path("v1", "configmaps")+"?watch=1&timeoutSeconds=1").
			want(t, http.StatusNotAcceptable)
	}},
	{"each of several watches as Tables has the columns in its first event", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		query := path + "?watch=1&timeoutSeconds=10&" + notRoot + "&resourceVersion=" + c.get(t, path).version(t)
		answers := make([]answer, 3)
		var watches sync.WaitGroup
		for i := range answers {
			watches.Go(func() { answers[i] = c.getAs(t, asTable(runtime.ContentTypeJSON, "v1"), query) })
		}
		for i := range 4 {
			c.post(t, path, configMap(fmt.Sprint("c", i), nil)).want(t, http.StatusCreated)
		}
		watches.Wait()
		for _, a := range answers {
			events := a.want(t, http.StatusOK).events(t)
			equal(t, len(events), 4)
			for i, e := range events {
				// kube-apiserver, which encodes events once for all watches too, sends the columns again to some.
				if columns, _ := e.Object["columnDefinitions"].([]any); len(columns) == 0 && i == 0 {
					t.Error("the first event has no columns")
				}
			}
		}
	}},
	{"a watch of metadata has nothing else, in every media type", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps"):      configMap("a", map[string]string{"k": "v"}),
			c.path(groupVersion, "widgets"): with(widget(groupVersion, "a"), "red", "spec", "colour"),
		} {
			start := c.get(t, path).version(t)
			created := c.post(t, path, object).want(t, http.StatusCreated)
			for _, mediaType := range []string{runtime.ContentTypeJSON, protobufType, cborType} {
				a := c.watchAs(t, 1, header{"Accept", asMetadata(mediaType, "v1")},
					path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+start)
				events := a.events(t)
				equal(t, len(events), 1)
				want := map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created.object(t)["metadata"]}
				equal(t, events[0], event{Type: "ADDED", Object: want})
			}
		}
	}},
}

// writers write at once in the promise that needs many, each its share.
const (
	writers = 16
	share   = 12
)

var watchManyWriters = []promise{
	{"watches have all changes of many writers at once, each once and in the order of their resourceVersions", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		live := []*stream{c.watch(t, path+"?watch=1&"+notRoot),
			c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+c.get(t, path).version(t))}
		start := c.post(t, path, configMap("first", nil)).want(t, http.StatusCreated).version(t)
		for _, s := range live { // a watch without a resourceVersion begins with what is there by then
			equal(t, s.next(t).name(), "first")
		}
		written := make([][]string, writers)
		var working sync.WaitGroup
		for w := range writers {
			working.Go(func() {
				name := fmt.Sprint("w", w)
				note := func(kind string, a answer) {
					written[w] = append(written[w], kind+" "+name+" "+a.want(t, http.StatusOK, http.StatusCreated).
						version(t))
				}
				note("ADDED", c.post(t, path, configMap(name, nil)))
				for i := range share - 2 {
					note("MODIFIED", c.patch(t, mergePatch, path+"/"+name, fmt.Sprintf(`{"data":{"k":"%d"}}`, i)))
				}
				c.delete(t, path+"/"+name).want(t, http.StatusOK)
			})
		}
		working.Wait()
		if t.Failed() {
			return
		}
		replayed := c.watch(t, path+"?watch=1&"+notRoot+"&resourceVersion="+start)
		var first []string
		for i, s := range append(live, replayed) {
			var all []string
			seen := map[string][]string{}
			last := int64(0)
			for range writers * share {
				e := s.next(t)
				if version := revisionOf(t, e); version <= last {
					t.Errorf("watch %d has %d after %d", i, version, last)
				} else {
					last = version
				}
				all = append(all, e.Type+" "+e.name()+" "+e.version())
				seen[e.name()] = append(seen[e.name()], all[len(all)-1])
			}
			for w := range writers {
				got := seen[fmt.Sprint("w", w)]
				equal(t, got[:len(got)-1], written[w])
				if !strings.HasPrefix(got[len(got)-1], "DELETED ") {
					t.Errorf("watch %d ends with %s", i, got[len(got)-1])
				}
			}
			if i == 0 {
				first = all
			}
			if !slices.Equal(all, first) {
				t.Errorf("watch %d has another order than the first", i)
			}
		}
	}},
}
