package customresources

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// converter starts a conversion webhook that returns the result of convert for each object; calls counts its requests.
func converter(t testing.TB, calls *atomic.Int32, convert func(object map[string]any, to string) map[string]any) *kit.Webhook {
	t.Helper()
	return conversion(t, calls, func(request map[string]any) any {
		var converted []any
		for _, object := range request["objects"].([]any) {
			converted = append(converted, convert(object.(map[string]any), request["desiredAPIVersion"].(string)))
		}
		return map[string]any{"uid": request["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": converted}
	})
}

// conversion starts a conversion webhook with these responses.
func conversion(t testing.TB, calls *atomic.Int32, respond func(request map[string]any) any) *kit.Webhook {
	t.Helper()
	return kit.ServeWebhook(t, "hook", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review["response"] = respond(review["request"].(map[string]any))
		delete(review, "request")
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
}

// convertedBy defines widgets that a webhook converts.
func convertedBy(t testing.TB, c *kit.Cluster, h *kit.Webhook, versions ...map[string]any) kit.CustomResource {
	t.Helper()
	w := c.CustomResource()
	d := kit.With(w.Definition(versions...), kit.Manifest("{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q}}}", h.URL), "spec", "conversion")
	c.Post(t, kit.Definitions, kit.With(d, h.CA, "spec", "conversion", "webhook", "clientConfig", "caBundle")).Created(t)
	w.Established(t)
	return w
}

var customConversion = []kit.Promise{
	{Statement: "an object is converted by a webhook and back without loss", Proof: func(t *testing.T, c *kit.Cluster) {
		var calls atomic.Int32
		w := convertedBy(t, c, converter(t, &calls, addresses), kit.CRDVersion("v1", oldAddress), kit.CRDVersion("v2", newAddress))
		w.Create(t, "a", `spec: {host: h, port: "1", other: x}`).Created(t)
		read := c.Get(t, w.At("v2", "a")).OK(t).HasField(t, `{"address":"h:1","other":"x"}`, "spec")
		c.Put(t, w.At("v2", "a"), read.Object(t)).OK(t).
			HasField(t, `"`+read.ResourceVersion(t)+`"`, "metadata", "resourceVersion") // nothing has changed
		c.Patch(t, kit.MergePatch, w.At("v2", "a"), `{"spec":{"address":"h:2"}}`).OK(t).
			HasField(t, `{"address":"h:2","other":"x"}`, "spec").HasField(t, "2", "metadata", "generation")
		c.Get(t, w.At("v1", "a")).OK(t).HasField(t, `{"host":"h","other":"x","port":"2"}`, "spec")
		c.Post(t, w.At("v2"), kit.With(w.Widget("b", "spec: {address: 'i:3'}"), w.Group+"/v2", "apiVersion")).
			Created(t).HasField(t, `{"address":"i:3"}`, "spec")
		c.Get(t, w.At("v1", "b")).HasField(t, `{"host":"i","port":"3"}`, "spec")
		c.Send(t, http.MethodPatch, w.At("v2", "b")+"?fieldManager=m&force=true", kit.Header{"Content-Type", kit.ApplyPatch},
			kit.With(w.Widget("b", "spec: {address: 'i:4'}"), w.Group+"/v2", "apiVersion")).OK(t)
		c.Get(t, w.At("v1", "b")).HasField(t, `{"host":"i","port":"4"}`, "spec")
	}},
	{Statement: "lists and watches are converted, whatever versions the objects are stored in", Proof: func(t *testing.T, c *kit.Cluster) {
		var calls atomic.Int32
		w := convertedBy(t, c, converter(t, &calls, addresses), kit.CRDVersion("v1", oldAddress), kit.CRDVersion("v2", newAddress))
		for _, name := range []string{"a", "b", "c"} {
			w.Create(t, name, `spec: {host: h, port: "1"}`).Created(t)
		}
		w.Redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v1", oldAddress, "storage: false"), kit.CRDVersion("v2", newAddress, "storage: true")}
		}).OK(t)
		harness.Eventually(t, "objects are stored in the new version", func() bool { // a create in it does not call the webhook
			before := calls.Load()
			c.Post(t, w.At("v2")+"?dryRun=All", kit.With(w.Widget("x", "spec: {address: 'h:1'}"), w.Group+"/v2",
				"apiVersion")).Created(t)
			return calls.Load() == before
		})
		w.Create(t, "d", `spec: {host: h, port: "1"}`).Created(t)
		for v, spec := range map[string]string{"v1": `{"host":"h","port":"1"}`, "v2": `{"address":"h:1"}`} {
			list := c.Get(t, w.At(v)).OK(t)
			if got := strings.Count(string(list.Body), `"spec":`+spec); got != 4 {
				t.Errorf("%d of 4 objects are in %s:\n%s", got, v, list.Body)
			}
			watch := c.Watch(t, w.At(v)+"?watch=true&resourceVersion="+list.ResourceVersion(t))
			c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"other":"`+v+`"}}`).OK(t)
			c.Delete(t, w.At("v1", map[string]string{"v1": "b", "v2": "c"}[v])).OK(t)
			for _, kind := range []string{"MODIFIED", "DELETED"} {
				if e := watch.Next(t); e.Type != kind || e.Object["apiVersion"] != w.Group+"/"+v {
					t.Errorf("the watch of %s has %v instead of %s", v, e, kind)
				}
			}
			w.Create(t, map[string]string{"v1": "b", "v2": "c"}[v], `spec: {host: h, port: "1"}`).Created(t)
			c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"other":null}}`).OK(t)
		}
	}},
	{Statement: "a failed conversion fails the request", Proof: func(t *testing.T, c *kit.Cluster) {
		answers := map[string]func(request map[string]any, object map[string]any) any{
			"failed": func(r, _ map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Failure", "message": "can not"}}
			},
			"uid": func(r, o map[string]any) any {
				return map[string]any{"uid": "x", "result": map[string]any{"status": "Success"}}
			},
			"none": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}}
			},
			"version": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{o}}
			},
			"kind": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{kit.With(kit.With(o, r["desiredAPIVersion"], "apiVersion"), "Gadget", "kind")}}
			},
			"name": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{kit.With(kit.With(o, r["desiredAPIVersion"], "apiVersion"), "other", "metadata", "name")}}
			},
			"labelled": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{kit.With(kit.With(o, r["desiredAPIVersion"], "apiVersion"), "b", "metadata", "labels", "a")}}
			},
			"absent": func(r, o map[string]any) any { return nil },
		}
		var calls atomic.Int32
		h := conversion(t, &calls, func(request map[string]any) any {
			object := request["objects"].([]any)[0].(map[string]any)
			return answers[object["metadata"].(map[string]any)["name"].(string)](request, object)
		})
		w := convertedBy(t, c, h, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v2", kit.AnySpec))
		failed := "conversion webhook for " + w.Group + "/v1, Kind=Widget failed: "
		invalid := "conversion webhook for " + w.Group + "/v1, Kind=Widget returned invalid object at index 0: "
		for name, message := range map[string]string{
			"failed": failed + "can not", "uid": failed + `expected response.uid="`, "absent": failed + "no response provided",
			"none":    "conversion webhook for " + w.Group + "/v1, Kind=Widget returned 0 objects, expected 1",
			"version": invalid + "invalid groupVersion (expected " + w.Group + "/v2, received " + w.Group + "/v1)",
			"kind":    invalid + "invalid kind (expected Widget, received Gadget)",
			"name":    "conversion webhook for " + w.Group + "/v1, Kind=Widget returned invalid object: must have the same name: name != other",
		} {
			w.Create(t, name, "{}").Created(t)
			fails(t, c.Get(t, w.At("v2", name)), message)
			c.Get(t, w.At("v1", name)).OK(t)
			c.Delete(t, w.At("v1", name)).OK(t)
		}
		w.Create(t, "labelled", "{}").Created(t)
		c.Get(t, w.At("v2", "labelled")).OK(t).
			HasField(t, `{"a":"b"}`, "metadata", "labels") // labels and annotations may change
	}},
	{Statement: "an unreachable conversion webhook fails only the requests that need it", Proof: func(t *testing.T, c *kit.Cluster) {
		var calls atomic.Int32
		h := converter(t, &calls, addresses)
		h.Vanish(t)
		w := convertedBy(t, c, h, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v2", kit.AnySpec))
		w.Create(t, "a", "{}").Created(t)
		c.Get(t, w.At("v1")).OK(t)
		fails(t, c.Get(t, w.At("v2")), "conversion webhook for "+w.Group+"/v1, Kind=Widget failed: Post \"",
			"connection refused")
		fails(t, c.Post(t, w.At("v2"), kit.With(w.Widget("b", "{}"), w.Group+"/v2", "apiVersion")), "conversion webhook for "+w.Group+"/v2, Kind=Widget failed: Post \"")
		c.Delete(t, w.At("v1", "a")).OK(t)
	}},
	{Statement: "an apply that needs a conversion, and whose webhook fails, is not reported as the client's error", Proof: func(t *testing.T, c *kit.Cluster) {
		var calls atomic.Int32
		h := converter(t, &calls, addresses)
		w := convertedBy(t, c, h, kit.CRDVersion("v1", oldAddress), kit.CRDVersion("v2", newAddress))
		w.Create(t, "a", `spec: {host: h, port: "1"}`).Created(t)
		// This manager's fields are in v2, so each later apply must be converted to it.
		c.Apply(t, w.At("v2", "a"), "newer", kit.With(w.Widget("a", `{spec: {address: "h:1"}}`), w.Group+"/v2", "apiVersion")).OK(t)
		c.Apply(t, w.At("v1", "a"), "older", w.Widget("a", "{spec: {unknown: 1}}")).BadRequest(t, "field not declared")
		h.Close()
		fails(t, c.Apply(t, w.At("v1", "a"), "older", w.Widget("a", "{spec: {other: x}}")), "conversion webhook for ")
	}},
	{Statement: "a write of the status in another version keeps the managed fields, also if that version has not all fields or its conversion fails", Proof: func(t *testing.T, c *kit.Cluster) {
		const status = "subresources: {status: {}}"
		w := c.DefineVersions(t, kit.CRDVersion("v1", "{spec: {type: object, properties: {a: {type: string}}}, status: {type: object, properties: {ready: {type: string}}}}", status),
			kit.CRDVersion("v2", "{spec: {type: object, properties: {a: {type: string}, b: {type: array, items: {type: string}}}}, status: {type: object, properties: {ready: {type: string}}}}", status, "storage: true"))
		v2 := w.Group + "/v2"
		c.Apply(t, w.At("v2", "o"), "owner", kit.With(w.Widget("o", "{spec: {a: x, b: [z]}}"), v2, "apiVersion")).Want(t, http.StatusOK, http.StatusCreated)
		owned := func() string {
			t.Helper()
			for _, entry := range c.Get(t, w.At("v2", "o")).OK(t).Value(t, "metadata", "managedFields").([]any) {
				if entry := entry.(map[string]any); entry["manager"] == "owner" {
					return string(kit.JSON(entry["fieldsV1"]))
				}
			}
			return "nothing"
		}
		const all = `{"f:spec":{"f:a":{},"f:b":{}}}`
		kit.Equal(t, owned(), all)
		c.Patch(t, kit.MergePatch, w.At("v1", "o", "status"), `{"status":{"ready":"1"}}`).OK(t)
		kit.Equal(t, owned(), all)
		object := c.Get(t, w.At("v1", "o")).OK(t).Object(t)
		c.Put(t, w.At("v1", "o", "status"), kit.With(object, "2", "status", "ready")).OK(t)
		kit.Equal(t, owned(), all)
		// The entries of v1 now have to be converted by a webhook that is gone.
		c.Patch(t, kit.MergePatch, kit.Definitions+"/widgets."+w.Group, map[string]any{"spec": map[string]any{"conversion": kit.Manifest("{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1/'}}}")}}).OK(t)
		harness.Eventually(t, "the webhook has to convert", func() bool { return c.Get(t, w.At("v1", "o")).Code == http.StatusInternalServerError })
		c.Patch(t, kit.MergePatch, w.At("v2", "o", "status"), `{"status":{"ready":"3"}}`).OK(t)
		kit.Equal(t, owned(), all)
	}},
}

// fails fails the test unless the response is a 500 whose message has these parts. The reason is InternalError for stored
// objects, and missing for sent ones; kube-apiserver never has a reason.
func fails(t testing.TB, a kit.Answer, parts ...string) {
	t.Helper()
	a.Want(t, http.StatusInternalServerError)
	for _, part := range parts {
		if message := a.Text(t, "message"); !strings.Contains(message, part) {
			t.Errorf("%s: the message lacks %q:\n%s", a.Request, part, message)
		}
	}
}
