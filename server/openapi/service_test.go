package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/test/harness"
)

// everything returns all group versions in the archive.
func everything(t testing.TB) []schema.GroupVersion {
	t.Helper()
	var i archive.Index
	harness.Must(t, json.Unmarshal(index, &i))
	var all []schema.GroupVersion
	for _, d := range i.V3 {
		for _, owner := range d.Owners {
			gv, err := schema.ParseGroupVersion(owner)
			harness.Must(t, err)
			all = append(all, gv)
		}
	}
	return all
}

func newService(t *testing.T, builtIn []schema.GroupVersion, d definitions) *Service {
	t.Helper()
	s, err := New(Config{BuiltIn: builtIn, Definitions: d.list, Whole: d.whole})
	harness.Must(t, err)
	return s
}

// fetch sends a request and returns the response and its decompressed body.
func fetch(t *testing.T, s http.Handler, path string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	body := w.Body.Bytes()
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		harness.Must(t, err)
		if body, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return w.Result(), body
}

func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v in %.200q", err, text)
	}
	return o
}

// upstreamDocument reads a document from the module k8s.io/kubernetes.
func upstreamDocument(t *testing.T, file string) map[string]any {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	harness.Must(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "api", "openapi-spec", file))
	harness.Must(t, err)
	return decode(t, text)
}

// withoutAdditions removes the generator's additions to upstream's snapshot.
func withoutAdditions(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutAdditions(v[i])
		}
	case map[string]any:
		if _, ok := v["enum"].([]any); ok {
			delete(v, "enum")
		}
		if description, ok := v["description"].(string); ok {
			if before, _, ok := strings.Cut(description, "Possible enum values:"); ok {
				v["description"] = strings.TrimSpace(before)
			}
		}
		if v["title"] == "Kubernetes" {
			v["version"] = "unversioned"
		}
		for k := range v {
			v[k] = withoutAdditions(v[k])
		}
	}
	return v
}

// compare reports the innermost values in which two documents differ.
func compare(t *testing.T, at string, want, got any) {
	t.Helper()
	w, wok := want.(map[string]any)
	g, gok := got.(map[string]any)
	if !wok || !gok {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %.500s", at, diff)
		}
		return
	}
	for key := range w {
		compare(t, at+"."+key, w[key], g[key])
	}
	for key := range g {
		if _, ok := w[key]; !ok {
			t.Errorf("%s.%s is unexpected", at, key)
		}
	}
}

func TestV3DocumentsAreUpstreams(t *testing.T) {
	s := newService(t, everything(t), nil)
	_, body := fetch(t, s, PathV3)
	var list handler3.OpenAPIV3Discovery
	harness.Must(t, json.Unmarshal(body, &list))
	if len(list.Paths) < 60 {
		t.Fatalf("only %d documents", len(list.Paths))
	}
	for path, at := range list.Paths {
		response, body := fetch(t, s, at.ServerRelativeURL)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, response.Status)
		}
		if got := response.Header.Get("Cache-Control"); got != "public, immutable" {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
		want := upstreamDocument(t, "v3/"+strings.ReplaceAll(path, "/", "__")+"_openapi.json")
		compare(t, path, want, withoutAdditions(decode(t, body)))
	}
}

func TestV3Protobuf(t *testing.T) {
	s := newService(t, everything(t), nil)
	response, body := fetch(t, s, PathV3+"/apis/apps/v1", "Accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
	if got := response.Header.Get("Content-Type"); got != v3Types[1].contentType {
		t.Errorf("Content-Type %q", got)
	}
	var got openapi_v3.Document
	harness.Must(t, proto.Unmarshal(body, &got))
	_, text := fetch(t, s, PathV3+"/apis/apps/v1")
	want, err := openapi_v3.ParseDocument(text)
	harness.Must(t, err)
	if !proto.Equal(&got, want) {
		t.Error("the two forms differ")
	}
}

func TestV2IsUpstreams(t *testing.T) {
	want := upstreamDocument(t, "swagger.json")
	delete(want["paths"].(map[string]any), "/logs/")
	delete(want["paths"].(map[string]any), "/logs/{logpath}")
	delete(want["parameters"].(map[string]any), "logpath-Noq7euwC")
	s := newService(t, everything(t), nil)
	_, body := fetch(t, s, PathV2)
	compare(t, "swagger.json", want, withoutAdditions(decode(t, body)))
}

// v2Document parses both forms of the v2 document, checks that they are equal, and returns the JSON form.
func v2Document(t *testing.T, s *Service) map[string]any {
	t.Helper()
	_, text := fetch(t, s, PathV2, "Accept-Encoding", "gzip")
	response, message := fetch(t, s, PathV2,
		"Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "Accept-Encoding", "gzip")
	if got := response.Header.Get("Content-Type"); got != v2Types[1].contentType {
		t.Errorf("Content-Type %q", got)
	}
	var got openapi_v2.Document
	harness.Must(t, proto.Unmarshal(message, &got))
	want, err := openapi_v2.ParseDocument(text)
	harness.Must(t, err)
	if diff := cmp.Diff(byName(t, want), byName(t, &got)); diff != "" {
		t.Errorf("the two forms differ:\n%.2000s", diff)
	}
	return decode(t, text)
}

// byName renders a document's named parts, so that their order doesn't matter.
func byName(t *testing.T, d *openapi_v2.Document) map[string]string {
	t.Helper()
	parts := map[string]string{}
	add := func(name string, m proto.Message) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		harness.Must(t, err)
		if _, twice := parts[name]; twice {
			t.Errorf("%s is a duplicate", name)
		}
		parts[name] = string(b)
	}
	for _, p := range d.GetPaths().GetPath() {
		add("path "+p.GetName(), p)
	}
	for _, p := range d.GetDefinitions().GetAdditionalProperties() {
		add("definition "+p.GetName(), p)
	}
	for _, p := range d.GetParameters().GetAdditionalProperties() {
		add("parameter "+p.GetName(), p)
	}
	head := proto.Clone(d).(*openapi_v2.Document)
	head.Paths, head.Definitions, head.Parameters = nil, nil, nil
	add("head", head)
	return parts
}

// TestSwitchedOff checks that documents have no parts of disabled group versions, and no references to them.
func TestSwitchedOff(t *testing.T) {
	some := slices.DeleteFunc(everything(t), func(gv schema.GroupVersion) bool {
		return strings.Contains(gv.Version, "alpha") || gv.Group == "batch"
	})
	s := newService(t, some, nil)
	doc := v2Document(t, s)
	for name := range doc["paths"].(map[string]any) {
		if strings.Contains(name, "alpha") || strings.HasPrefix(name, "/apis/batch") {
			t.Errorf("path %s is still published", name)
		}
	}
	for name := range doc["definitions"].(map[string]any) {
		if strings.HasPrefix(name, "io.k8s.api.batch.") || strings.HasPrefix(name, "io.k8s.api.internal") {
			t.Errorf("definition %s is still published", name)
		}
	}
	resolve(t, doc, doc)

	_, body := fetch(t, s, PathV3)
	if bytes.Contains(body, []byte("alpha")) || bytes.Contains(body, []byte("batch")) {
		t.Errorf("index: %s", body)
	}
	if response, _ := fetch(t, s, PathV3+"/apis/batch/v1"); response.StatusCode != http.StatusNotFound {
		t.Errorf("document of a disabled version: %s", response.Status)
	}
}

// resolve checks that the target of every reference in value exists.
func resolve(t *testing.T, doc map[string]any, value any) {
	t.Helper()
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			resolve(t, doc, e)
		}
	case map[string]any:
		for _, e := range v {
			resolve(t, doc, e)
		}
		if ref, ok := v["$ref"].(string); ok {
			section, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/"), "/")
			if _, ok := doc[section].(map[string]any)[name]; !ok {
				t.Errorf("the target of %s does not exist", ref)
			}
		}
	}
}

func TestEnumsArePublished(t *testing.T) {
	_, body := fetch(t, newService(t, everything(t), nil), PathV3+"/api/v1")
	if !bytes.Contains(body, []byte("Possible enum values:\\n - `\\\"Always\\\"`")) {
		t.Error("no enum values in descriptions")
	}
}
