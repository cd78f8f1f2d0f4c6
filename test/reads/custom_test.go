package reads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/test/harness"
)

const (
	gadgets = "/apis/custom.example.com/v1/namespaces/" + namespace + "/gadgets"
	frees   = "/apis/custom.example.com/v1/frees"
)

func movings(version string) string {
	return "/apis/custom.example.com/" + version + "/namespaces/" + namespace + "/movings"
}

// testCustom reads custom resources, whose stored JSON a schema may change: before and after their definitions change, in the
// storage version and others.
func testCustom(t *testing.T, c *cluster) {
	definitions, err := os.ReadFile("testdata/custom.yaml")
	harness.Must(t, err)
	for _, text := range strings.Split(string(definitions), "\n---\n") {
		c.change(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", text)
	}
	for _, path := range []string{gadgets, frees, movings("v1"), movings("v2")} {
		c.await(t, path+" to be served", func() bool { return c.get(t, path).code == http.StatusOK })
	}
	// In the database these are as written here, except for the order of fields and what the schema changes.
	rich := richMetadata(t, c)
	for i, fields := range []string{
		`"spec":{}`,
		`"Early":{"uid":"x","resourceVersion":"1"},"Unknown":1,"spec":{"color":"red","replicas":3,"ratio":1.0,"maybe":null,"never":null,"unknown":{"x":1}}`,
		`"spec":{"ratio":-0.0,"any":{"float":1e21,"small":1.5e-9,"whole":2.0,"large":9007199254740993,"huge":12345678901234567890,"null":null,"z":[],"a":{}}}`,
		`"spec":{"ratio":3.14159,"any":"<html> & \u2028 \u0001 é 🎉 \ufffd \/ \" \\ ","port":"http","nested":{"deep":[{"b":"<"},{}]}}`,
		`"spec":{"any":{"metadata":{"name":"x","uid":"y","resourceVersion":"1"}},"map":{"z":{},"a":{"x":"","y":1}}}`,
		`"spec":{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"unknown":1},"spec":{"x":[null]}}}`,
		`"Early":{"a":{"uid":"b"}},"status":{"replicas":1}`,
	} {
		c.create(t, gadgets, "v1", "Gadget", fmt.Sprintf(`{"name":"gadget-%d",%s`, i, rich), fields)
	}
	for i, fields := range []string{
		`"status":{}`,
		`"A":{"uid":"u","resourceVersion":"7"},"data":[1,2.50,null,{"items":[]}],"zzz":{"metadata":{"uid":"x"}}`,
		`"jitems":null,"l":-0,"kin":1.0,"kindly":1e5`,
	} {
		c.create(t, frees, "v1", "Free", fmt.Sprintf(`{"name":"free-%d"}`, i), fields)
	}
	c.create(t, movings("v1"), "v1", "Moving", `{"name":"moving-0"}`, `"a":"a","b":"b","c":"c"`)
	c.create(t, movings("v2"), "v2", "Moving", `{"name":"moving-1"}`, `"b":"b"`)
	// testEdited changes these in the database.
	c.create(t, gadgets, "v1", "Gadget", `{"name":"rich"}`, `"spec":{"any":{"a":1,"b":"<"},"ratio":2.5}`)
	c.create(t, frees, "v1", "Free", `{"name":"rich"}`, `"data":{"b":1,"a":2}`)
	c.create(t, movings("v1"), "v1", "Moving", `{"name":"rich"}`, `"a":"x"`)
	t.Run("as written", func(t *testing.T) { readCustom(t, c) })
	if c.few {
		return
	}

	// A field is removed, another gets a default, a value is no longer nullable, and the storage version changes.
	patch := `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/never"},
		{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/map"},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later","value":{"type":"string","default":"new"}},
		{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/maybe/nullable"},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/default","value":{}}]`
	c.redefine(t, "gadgets", patch, gadgets+"/gadget-1", `"later": "new"`)
	patch = `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/e","value":{"type":"string","default":"of v1 and v2"}},
		{"op":"add","path":"/spec/versions/1/schema/openAPIV3Schema/properties/e","value":{"type":"string"}}]`
	c.redefine(t, "movings", patch, movings("v2")+"/moving-0", `"e": "of v1 and v2"`)
	patch = `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties","value":{"zzz":{"type":"object"},"late":{"type":"integer","default":1}}}]`
	c.redefine(t, "frees", patch, frees+"/free-0", `"late": 1`)
	t.Run("under a changed schema", func(t *testing.T) { readCustom(t, c) })

	// Some are rewritten under the new schema, the others are unchanged.
	const note = `{"metadata":{"annotations":{"rewritten":"yes"}}}`
	for _, path := range []string{gadgets + "/gadget-1", gadgets + "/gadget-3", frees + "/free-1", movings("v1") + "/moving-0"} {
		c.change(t, http.MethodPatch, path, string(types.MergePatchType), note)
	}
	t.Run("some rewritten", func(t *testing.T) { readCustom(t, c) })
	t.Run("watched", func(t *testing.T) { watchCustom(t, c) })
}

// richMetadata returns metadata that would break careless copying of bytes, without the opening brace.
func richMetadata(t *testing.T, c *cluster) string {
	t.Helper()
	owner, err := c.typed.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	harness.Must(t, err)
	object := &unstructured.Unstructured{Object: map[string]any{}}
	enrich(object, owner.UID)
	text, err := json.Marshal(object.Object["metadata"])
	harness.Must(t, err)
	return string(text[1:])
}

// create creates a custom resource from the JSON of its metadata and of its other fields.
func (c *cluster) create(t *testing.T, path, version, kind, metadata, fields string) []byte {
	t.Helper()
	return c.change(t, http.MethodPost, path, "application/json", fmt.Sprintf(`{"apiVersion":"custom.example.com/%s","kind":%q,"metadata":%s,%s}`, version, kind, metadata, fields))
}

// change sends a request that must succeed, and returns the response.
func (c *cluster) change(t *testing.T, method, path, contentType, body string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.config.Host+path, strings.NewReader(body))
	harness.Must(t, err)
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	harness.Must(t, err)
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s answers %s: %s", method, path, response.Status, answer)
	}
	return answer
}

// redefine changes a definition and waits until an object shows it.
func (c *cluster) redefine(t *testing.T, plural, patch, object, shows string) {
	t.Helper()
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + ".custom.example.com"
	c.change(t, http.MethodPatch, path, string(types.JSONPatchType), patch)
	c.await(t, object+" to show "+shows, func() bool { return strings.Contains(string(c.get(t, pretty(object)).body), shows) })
}

func (c *cluster) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// readCustom reads all custom resources in all ways, and lists them once more: what a server caches about a row on the first read
// must not change its responses.
func readCustom(t *testing.T, c *cluster) {
	for _, path := range []string{gadgets, frees, movings("v1"), movings("v2")} {
		names := testCollection(t, c, path, path == gadgets)
		if len(names) < 3 {
			t.Errorf("GET %s has only %v", path, names)
		}
		for _, name := range names {
			if whole := c.same(t, path+"/"+name); whole.code != http.StatusOK {
				t.Errorf("GET %s/%s returns %d", path, name, whole.code)
			}
			c.same(t, path+"/"+name+"?resourceVersion=0")
			c.same(t, path+"/"+name+"?resourceVersion=x")
		}
		for _, query := range []url.Values{
			{"fieldSelector": {"spec.color=red"}}, {"fieldSelector": {"spec.color!=red"}}, {"fieldSelector": {"spec.unknown=red"}},
		} {
			c.same(t, path+"?"+query.Encode())
		}
		c.same(t, path+"/no-such-object")
		c.same(t, path+"/no-such-object/status")
		sameForms(t, c, path)
		c.same(t, path)
	}
	c.same(t, strings.Replace(gadgets, "/namespaces/"+namespace, "", 1))
	for _, path := range []string{strings.Replace(frees, "/frees", "/namespaces/x/frees", 1), strings.Replace(gadgets, "/v1/", "/v0/", 1)} {
		if missing := c.get(t, path); missing.code != http.StatusNotFound {
			t.Errorf("GET %s returns %d", path, missing.code)
		}
	}
	c.same(t, gadgets+"/rich/status")
	c.same(t, gadgets+"/rich/scale")
}

// sameForms compares other forms of a list with its JSON.
func sameForms(t *testing.T, c *cluster, path string) {
	t.Helper()
	want := &metav1.PartialObjectMetadataList{}
	whole := c.get(t, path)
	harness.Must(t, json.Unmarshal(whole.body, want))
	path += "?resourceVersionMatch=Exact&resourceVersion=" + want.ResourceVersion
	for _, accept := range []string{
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf", "*/*", "",
	} {
		plain, indented := c.get(t, path, "Accept", accept), c.get(t, pretty(path), "Accept", accept)
		if plain.code != indented.code || plain.header.Get("Content-Type") != indented.header.Get("Content-Type") {
			t.Errorf("GET %s as %q: %d of %q, want %d of %q", path, accept, plain.code, plain.header.Get("Content-Type"), indented.code, indented.header.Get("Content-Type"))
		}
		if strings.HasPrefix(plain.header.Get("Content-Type"), "application/json") && plain.code == http.StatusOK {
			if err := differ(t, plain, indented); err != nil {
				t.Errorf("GET %s as %q: %v", path, accept, err)
			}
		}
	}
	table := c.get(t, path, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	got := &metav1.Table{}
	if err := json.Unmarshal(table.body, got); err != nil || len(got.Rows) != len(want.Items) {
		t.Errorf("GET %s as a Table has %d rows, %v; want %d", path, len(got.Rows), err, len(want.Items))
	}
}

// watchCustom compares the objects of events with those in responses to gets and writes.
func watchCustom(t *testing.T, c *cluster) {
	for path, kind := range map[string]string{gadgets: "Gadget", frees: "Free", movings("v1"): "Moving", movings("v2"): "Moving"} {
		n := 0
		err := events(t, c, path+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "application/json", jsonEvent,
			func(event string, object []byte) error {
				n++
				var have metav1.PartialObjectMetadata
				if err := json.Unmarshal(object, &have); err != nil {
					return err
				}
				return firstDifference(append(object, '\n'), c.get(t, path+"/"+have.Name).body)
			})
		if err != nil || n < 3 {
			t.Errorf("watch %s: %d objects, %v", path, n, err)
		}

		from := c.get(t, path).version(t)
		version := strings.Split(path, "/")[3]
		created := c.create(t, path, version, kind, `{"name":"watched"}`, `"spec":{"any":1.5},"a":"<"`)
		patched := c.change(t, http.MethodPatch, path+"/watched", string(types.MergePatchType), `{"metadata":{"labels":{"x":"y"}}}`)
		c.change(t, http.MethodDelete, path+"/watched", "application/json", "")
		want := []struct {
			event  string
			object []byte
		}{{"ADDED", created}, {"MODIFIED", patched}, {"DELETED", patched}}
		done := errors.New("all received")
		err = events(t, c, path+"?watch=true&fieldSelector=metadata.name=watched&resourceVersion="+from, "application/json", jsonEvent,
			func(event string, object []byte) error {
				next := want[0]
				want = want[1:]
				if event != next.event {
					return fmt.Errorf("%s: %s", event, object)
				}
				if event == "DELETED" { // it has the resourceVersion of the deletion
					object = bytes.Replace(object, []byte(answer{body: object}.version(t)), []byte(answer{body: patched}.version(t)), 1)
				}
				if err := firstDifference(append(object, '\n'), next.object); err != nil || len(want) > 0 {
					return err
				}
				return done
			})
		if !errors.Is(err, done) {
			t.Errorf("watch %s: %v", path, err)
		}
	}
}
