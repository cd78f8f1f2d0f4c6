package concepts

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// converter starts a conversion webhook that answers what convert makes of each object; calls counts its requests.
func converter(t testing.TB, calls *atomic.Int32, convert func(object map[string]any, to string) map[string]any) *hook {
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
func conversion(t testing.TB, calls *atomic.Int32, respond func(request map[string]any) any) *hook {
	t.Helper()
	return serveHook(t, "hook", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// convertedBy defines widgets that the webhook converts.
func (c *cluster) convertedBy(t testing.TB, h *hook, versions ...map[string]any) custom {
	t.Helper()
	w := c.custom()
	d := with(w.definition(versions...), manifest("{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q}}}", h.URL), "spec", "conversion")
	c.post(t, definitions, with(d, h.ca, "spec", "conversion", "webhook", "clientConfig", "caBundle")).
		want(t, http.StatusCreated)
	w.established(t)
	return w
}

var customConversion = []promise{
	{"an object goes through a conversion webhook and back without loss", func(t *testing.T, c *cluster) {
		var calls atomic.Int32
		w := c.convertedBy(t, converter(t, &calls, addresses), version("v1", oldAddress), version("v2", newAddress))
		w.create(t, "a", `spec: {host: h, port: "1", other: x}`).want(t, http.StatusCreated)
		read := c.get(t, w.at("v2", "a")).want(t, http.StatusOK).has(t, `{"address":"h:1","other":"x"}`, "spec")
		c.put(t, w.at("v2", "a"), read.object(t)).want(t, http.StatusOK).
			has(t, `"`+read.version(t)+`"`, "metadata", "resourceVersion") // nothing has changed
		c.patch(t, mergePatch, w.at("v2", "a"), `{"spec":{"address":"h:2"}}`).want(t, http.StatusOK).
			has(t, `{"address":"h:2","other":"x"}`, "spec").has(t, "2", "metadata", "generation")
		c.get(t, w.at("v1", "a")).want(t, http.StatusOK).has(t, `{"host":"h","other":"x","port":"2"}`, "spec")
		c.post(t, w.at("v2"), with(w.widget("b", "spec: {address: 'i:3'}"), w.group+"/v2", "apiVersion")).
			want(t, http.StatusCreated).has(t, `{"address":"i:3"}`, "spec")
		c.get(t, w.at("v1", "b")).has(t, `{"host":"i","port":"3"}`, "spec")
		c.send(t, http.MethodPatch, w.at("v2", "b")+"?fieldManager=m&force=true", header{"Content-Type", applyPatch},
			with(w.widget("b", "spec: {address: 'i:4'}"), w.group+"/v2", "apiVersion")).want(t, http.StatusOK)
		c.get(t, w.at("v1", "b")).has(t, `{"host":"i","port":"4"}`, "spec")
	}},
	{"lists and watches are converted, whatever versions the objects were stored in", func(t *testing.T, c *cluster) {
		var calls atomic.Int32
		w := c.convertedBy(t, converter(t, &calls, addresses), version("v1", oldAddress), version("v2", newAddress))
		for _, name := range []string{"a", "b", "c"} {
			w.create(t, name, `spec: {host: h, port: "1"}`).want(t, http.StatusCreated)
		}
		w.redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{version("v1", oldAddress, "storage: false"), version("v2", newAddress, "storage: true")}
		}).want(t, http.StatusOK)
		eventually(t, "objects are stored in the new version", func() bool { // which a create in it without the webhook shows
			before := calls.Load()
			c.post(t, w.at("v2")+"?dryRun=All", with(w.widget("x", "spec: {address: 'h:1'}"), w.group+"/v2",
				"apiVersion")).want(t, http.StatusCreated)
			return calls.Load() == before
		})
		w.create(t, "d", `spec: {host: h, port: "1"}`).want(t, http.StatusCreated)
		for v, spec := range map[string]string{"v1": `{"host":"h","port":"1"}`, "v2": `{"address":"h:1"}`} {
			list := c.get(t, w.at(v)).want(t, http.StatusOK)
			if got := strings.Count(string(list.Body), `"spec":`+spec); got != 4 {
				t.Errorf("%d of 4 objects are of %s:\n%s", got, v, list.Body)
			}
			watch := c.watch(t, w.at(v)+"?watch=true&resourceVersion="+list.version(t))
			c.patch(t, mergePatch, w.at("v1", "a"), `{"spec":{"other":"`+v+`"}}`).want(t, http.StatusOK)
			c.delete(t, w.at("v1", map[string]string{"v1": "b", "v2": "c"}[v])).want(t, http.StatusOK)
			for _, kind := range []string{"MODIFIED", "DELETED"} {
				if e := watch.next(t); e.Type != kind || e.Object["apiVersion"] != w.group+"/"+v {
					t.Errorf("the watch of %s has %v instead of %s", v, e, kind)
				}
			}
			w.create(t, map[string]string{"v1": "b", "v2": "c"}[v], `spec: {host: h, port: "1"}`).want(t, http.StatusCreated)
			c.patch(t, mergePatch, w.at("v1", "a"), `{"spec":{"other":null}}`).want(t, http.StatusOK)
		}
	}},
	{"a conversion that fails is told as an error of the request", func(t *testing.T, c *cluster) {
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
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{with(with(o, r["desiredAPIVersion"], "apiVersion"), "Gadget", "kind")}}
			},
			"name": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{with(with(o, r["desiredAPIVersion"], "apiVersion"), "other", "metadata", "name")}}
			},
			"labelled": func(r, o map[string]any) any {
				return map[string]any{"uid": r["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": []any{with(with(o, r["desiredAPIVersion"], "apiVersion"), "b", "metadata", "labels", "a")}}
			},
			"absent": func(r, o map[string]any) any { return nil },
		}
		var calls atomic.Int32
		h := conversion(t, &calls, func(request map[string]any) any {
			object := request["objects"].([]any)[0].(map[string]any)
			return answers[object["metadata"].(map[string]any)["name"].(string)](request, object)
		})
		w := c.convertedBy(t, h, version("v1", anySpec), version("v2", anySpec))
		failed := "conversion webhook for " + w.group + "/v1, Kind=Widget failed: "
		invalid := "conversion webhook for " + w.group + "/v1, Kind=Widget returned invalid object at index 0: "
		for name, message := range map[string]string{
			"failed": failed + "can not", "uid": failed + `expected response.uid="`, "absent": failed + "no response provided",
			"none":    "conversion webhook for " + w.group + "/v1, Kind=Widget returned 0 objects, expected 1",
			"version": invalid + "invalid groupVersion (expected " + w.group + "/v2, received " + w.group + "/v1)",
			"kind":    invalid + "invalid kind (expected Widget, received Gadget)",
			"name":    "conversion webhook for " + w.group + "/v1, Kind=Widget returned invalid object: must have the same name: name != other",
		} {
			w.create(t, name, "{}").want(t, http.StatusCreated)
			c.get(t, w.at("v2", name)).fails(t, message)
			c.get(t, w.at("v1", name)).want(t, http.StatusOK)
			c.delete(t, w.at("v1", name)).want(t, http.StatusOK)
		}
		w.create(t, "labelled", "{}").want(t, http.StatusCreated)
		c.get(t, w.at("v2", "labelled")).want(t, http.StatusOK).
			has(t, `{"a":"b"}`, "metadata", "labels") // labels and annotations may change
	}},
	{"a conversion webhook that can not be reached fails what needs it, and nothing else", func(t *testing.T, c *cluster) {
		var calls atomic.Int32
		h := converter(t, &calls, addresses)
		h.Close()
		w := c.convertedBy(t, h, version("v1", anySpec), version("v2", anySpec))
		w.create(t, "a", "{}").want(t, http.StatusCreated)
		c.get(t, w.at("v1")).want(t, http.StatusOK)
		c.get(t, w.at("v2")).fails(t, "conversion webhook for "+w.group+"/v1, Kind=Widget failed: Post \"",
			"connection refused")
		c.post(t, w.at("v2"), with(w.widget("b", "{}"), w.group+"/v2", "apiVersion")).
			fails(t, "conversion webhook for "+w.group+"/v2, Kind=Widget failed: Post \"")
		c.delete(t, w.at("v1", "a")).want(t, http.StatusOK)
	}},
	{"an apply for which a webhook would have to convert, and can not, fails for no fault of the client's", func(t *testing.T, c *cluster) {
		var calls atomic.Int32
		h := converter(t, &calls, addresses)
		w := c.convertedBy(t, h, version("v1", oldAddress), version("v2", newAddress))
		w.create(t, "a", `spec: {host: h, port: "1"}`).want(t, http.StatusCreated)
		// What this manager has are fields of v2, in which terms each later apply has to be seen, too.
		c.apply(t, w.at("v2", "a"), "newer", with(w.widget("a", `{spec: {address: "h:1"}}`), w.group+"/v2", "apiVersion")).ok(t)
		c.apply(t, w.at("v1", "a"), "older", w.widget("a", "{spec: {unknown: 1}}")).refused(t, http.StatusBadRequest, "BadRequest", "field not declared")
		h.Close()
		c.apply(t, w.at("v1", "a"), "older", w.widget("a", "{spec: {other: x}}")).fails(t, "conversion webhook for ")
	}},
}

// fails fails the test unless the answer is a 500 whose message has these parts. The reason is InternalError where stored
// objects are converted, and there is none where those that are sent are; kube-apiserver never gives one.
func (a answer) fails(t testing.TB, parts ...string) {
	t.Helper()
	a.want(t, http.StatusInternalServerError)
	for _, part := range parts {
		if message := a.text(t, "message"); !strings.Contains(message, part) {
			t.Errorf("%s: the message lacks %q:\n%s", a.request, part, message)
		}
	}
}
